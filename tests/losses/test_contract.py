"""`check_loss` on every loss through every kind of layer, and proof that it notices broken ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Exact, Layer
from dflearn.layers.perturbed import Perturbed
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import MSE, SCE, Loss, LossOutput, PerturbationGradient, Regret, SquaredDecisionError
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS
from dflearn.testing.losses import check_loss
from support import loss_examples
from support.closed_form_layers import SmoothedBox

N, P, COUNT = 4, 3, 5
RNG = np.random.RandomState(1)
PROGRAM = Program(lower=-0.5, upper=1, S=RNG.normal(size=(N, P)), d=RNG.normal(size=N))

LAYERS: dict[str, Callable[[], Layer]] = {
    "exact": lambda: Exact(HiGHS(PROGRAM)),
    "smoothed": lambda: Smoothed(PROGRAM, 0.7),
    "closed form": lambda: SmoothedBox(PROGRAM, 0.7),
    "perturbed": lambda: Perturbed(HiGHS(PROGRAM), sigma=0.3, samples=2),
}
LOSSES: dict[str, Callable[[Layer], Loss]] = loss_examples.LOSSES | {
    "mean squared decision error": lambda layer: SquaredDecisionError(layer, reduction="mean"),
    "plain SCE, smoothed label": lambda layer: SCE(layer, variant="plain", label="smoothed"),
    "perturbation gradient": PerturbationGradient,
    "perturbation gradient, central": lambda layer: PerturbationGradient(layer, 0.3, difference="central"),
}
# Losses whose gradient is that of their value: through `Exact` these are piecewise linear, and a random point is
# inside a piece. The score-function estimate behind `Perturbed` is unbiased, not the gradient of the sampled value.
THROUGH_PERTURBED = {"Fenchel-Young", "smoothed SPO+", "perturbation gradient", "perturbation gradient, central"}
CHECKED_ELSEWHERE = {
    "CaVE", "Combined", "CostSensitive", "FunctionLoss", "LAVA", "LODL", "NCE", "PEAR", "Quantile", "Ranking", "ScoreFunction",
    "TaskLoss",
}  # fmt: skip


def example(instances: bool = False) -> tuple[Tensor, Batch]:
    rng = np.random.RandomState(2)
    instance = Instance(d=torch.tensor(rng.normal(size=(COUNT, N)))) if instances else None
    y = torch.tensor(rng.normal(size=(COUNT, P)))
    decisions = HiGHS(PROGRAM).solve(y, instance).decision
    return torch.tensor(rng.normal(size=(COUNT, P))), Batch(torch.zeros(COUNT, 1), y, decisions, instance)


@pytest.mark.parametrize("instances", [False, True], ids=["shared", "instances"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_through_every_layer(name: str, layer: str, instances: bool) -> None:
    loss = LOSSES[name](LAYERS[layer]())
    predicted, batch = example(instances)
    random = layer == "perturbed"
    derivative = not random or name in THROUGH_PERTURBED
    check_loss(
        loss,
        predicted,
        batch,
        random=random,
        differentiable=derivative,
        flat=layer == "exact" and name in loss_examples.FLAT,
    )


@pytest.mark.parametrize("name", LOSSES)
def test_the_smoothed_layer_gives_what_its_closed_form_gives(name: str) -> None:
    predicted, batch = example(instances=True)
    results = []
    for layer in ("smoothed", "closed form"):
        point = predicted.clone().requires_grad_()
        value = LOSSES[name](LAYERS[layer]())(point, batch)
        results.append((value, *torch.autograd.grad(value.sum(), point)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


def test_mse() -> None:
    check_loss(MSE(), *example(), differentiable=True)


def test_no_loss_is_forgotten() -> None:
    import dflearn.losses

    public = {getattr(dflearn.losses, name) for name in dflearn.losses.__all__ if name not in CHECKED_ELSEWHERE}
    here = {type(make(LAYERS["exact"]())) for make in LOSSES.values()} | {MSE}
    assert {kind for kind in public if issubclass(kind, Loss)} == here | {Loss}


class Reduced(MSE):
    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput(super()._output(predicted, batch).value.mean())


class AveragedGradient(MSE):
    """The classic mistake: each instance's gradient divided by the size of the batch."""

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        value = super()._output(predicted, batch).value
        scaled = value / max(len(predicted), 1) if predicted.ndim > 1 else value
        return LossOutput(scaled + (value - scaled).detach())


class WrongGradient(MSE):
    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        value = super()._output(predicted, batch).value
        return LossOutput(2 * value - value.detach())


class Detached(MSE):
    """A value without a gradient."""

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput(super()._output(predicted, batch).value.detach())


class Greedy(MSE):
    needs = ("costs", "decisions")

    def output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return self._output(predicted, batch)


class Broadcasting(MSE):
    def output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        batch.require("costs")
        return self._output(predicted, batch)


class AlwaysDouble(MSE):
    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput(super()._output(predicted, batch).value.double())


class ForgetsStart(Regret):
    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return super()._output(predicted, Batch(batch.features, batch.costs, batch.decisions))


@pytest.mark.parametrize(
    ("loss", "complaint"),
    [
        (Reduced(), "not reduced"),
        (AveragedGradient(), "another gradient when it is alone"),
        (WrongGradient(), "finite differences"),
        (Detached(), "every gradient is zero"),
        (Greedy(), "needs decisions"),
        (Broadcasting(), "are taken for"),
        (AlwaysDouble(), "give a value in"),
        (ForgetsStart(LAYERS["exact"]()), "does not pass the batch's start"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Loss) else "",
)
def test_broken_losses_are_noticed(loss: Loss, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_loss(loss, *example(), differentiable=True)


def test_gradients_are_checked_without_being_asked() -> None:
    with pytest.raises(AssertionError, match="finite differences"):
        check_loss(WrongGradient(), *example())
    check_loss(WrongGradient(), *example(), differentiable=False)
    check_loss(MSE(), *example())


@pytest.mark.parametrize("name", ["SPO+", "SCE"])
def test_kinks_have_slopes_between_those_on_either_side(name: str) -> None:
    """Costs of zero make every decision optimal: both losses have a kink there."""
    predicted, batch = example()
    y = torch.zeros_like(predicted)
    program = Program(lower=-0.5, upper=1, n=P)
    decisions = HiGHS(program).solve(batch.require("costs")).decision
    true = torch.zeros_like(y) if name == "SCE" else batch.require("costs")
    at = y if name == "SCE" else true / 2
    loss = LOSSES[name](Exact(HiGHS(program)))
    check_loss(loss, at, Batch(batch.features, true, decisions))
