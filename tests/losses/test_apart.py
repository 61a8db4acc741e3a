"""A loss with a way back of its own says what autograd says, to the last bit; and only where it is that very loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import SCE, FenchelYoung, Loss, LossOutput, SPOPlus
from dflearn.models import MLP
from dflearn.program import Instance, Program
from dflearn.training import fit
from dflearn.training.step import go_back, mean_of
from support.small_problem import FEATURES, ITEMS, RELAXED, knapsack_data

RNG = np.random.RandomState(3)
COUNT, N = 11, 6
ROWS = {"G": RNG.uniform(0.2, 1, (2, N)), "h": np.full(2, 1.5), "lower": 0.0, "upper": 1.0}
SHUFFLED = np.eye(N)[RNG.permutation(N)] * RNG.uniform(-2, -1, N)
MAPS = {
    "identity": None,
    "diagonal": np.diag(RNG.uniform(-2, -1, N)),
    "shuffled": SHUFFLED,
    "some": np.vstack([SHUFFLED[:-1, :4], np.zeros((1, 4))]),
    "shared": np.vstack([np.eye(3), -np.eye(3)]),
    "dense": RNG.normal(size=(N, 4)),
}
LOSSES: dict[str, Callable[[Smoothed], Loss]] = {"SCE": SCE, "SPO+": SPOPlus}


def batch_of(program: Program, dtype: torch.dtype = torch.float32, **more: Tensor | Instance) -> tuple[Tensor, Batch]:
    """Predicted costs, and a batch with others."""
    made = torch.Generator().manual_seed(0)
    predicted, costs = (torch.randn(COUNT, program.objective.p, generator=made, dtype=dtype) for _ in range(2))
    decisions = torch.rand(COUNT, program.n, generator=made, dtype=dtype).round()
    return predicted.requires_grad_(), Batch(torch.ones(COUNT, 1), costs, decisions, **more)


def both_ways(loss: Loss, predicted: Tensor, batch: Batch) -> list[tuple[Tensor, Tensor]]:
    """Values and gradients of the weighted mean, by autograd and with a way back."""
    found = []
    for output in (loss.output(predicted, batch), loss.output_apart(predicted, batch)):
        predicted.grad = None
        go_back(output, predicted, mean_of(output.value, batch.weights), batch.weights)
        assert predicted.grad is not None
        found.append((output.value.detach(), predicted.grad))
    assert output.way_back is not None
    return found


@pytest.mark.parametrize("S", MAPS)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients_are_those_of_autograd(S: str, name: str, weighted: bool) -> None:
    program = Program(**ROWS, S=MAPS[S], d=RNG.normal(size=N) if weighted else None)
    weights = torch.linspace(0, 2, COUNT, dtype=torch.float64) if weighted else None
    for dtype in (torch.float32, torch.float64):
        predicted, batch = batch_of(program, dtype, **({} if weights is None else {"weights": weights}))
        (value, slope), (own_value, own_slope) = both_ways(LOSSES[name](Smoothed(program, 0.5)), predicted, batch)
        if S == "dense":  # a product of matrices, which is rounded by where its factors lie in memory
            torch.testing.assert_close(own_value, value)
            torch.testing.assert_close(own_slope, slope)
            continue
        assert torch.equal(value, own_value)
        assert torch.equal(slope, own_slope)
        assert bool(slope.any())
        assert not torch.signbit(own_slope[own_slope == 0]).logical_xor(torch.signbit(slope[slope == 0])).any()


def test_with_sides_a_start_and_the_norm() -> None:
    program = Program(**ROWS, S=MAPS["diagonal"])
    instance = Instance(h=torch.linspace(1, 2, 2 * COUNT).reshape(COUNT, 2))
    for layer in (Smoothed(program, 0.5), Smoothed(program, 0.5, regularizer="norm")):
        start = layer.no_start(COUNT)
        assert start is not None
        predicted, batch = batch_of(program, instance=instance, start=start)
        (value, slope), (own_value, own_slope) = both_ways(SCE(layer), predicted, batch)
        assert torch.equal(value, own_value)
        assert torch.equal(slope, own_slope)
        assert bool(slope.any())
        answer = SCE(layer).output_apart(predicted, batch).apart
        assert answer is not None
        assert answer.start is not None
        assert answer.start.shape == start.shape


class Doubled(SCE):
    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        output = super()._output(predicted, batch)
        return LossOutput(2 * output.value, output.solution)


@pytest.mark.parametrize(
    "loss",
    [
        Doubled(Smoothed(Program(**ROWS), 0.5)),
        FenchelYoung(Smoothed(Program(**ROWS), 0.5)),
        SCE(Smoothed(Program(**ROWS), 0.5), variant="plain"),
        SCE(Smoothed(Program(**ROWS, Q=np.eye(N)), 0.5)),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_what_has_no_way_back_of_its_own_goes_by_autograd(loss: Loss) -> None:
    predicted, batch = batch_of(Program(**ROWS))
    output = loss.output_apart(predicted, batch)
    assert output.way_back is None
    assert output.value.requires_grad
    assert torch.equal(output.value, loss.output(predicted, batch).value)


def test_costs_that_are_no_numbers_and_instances_without_a_decision_are_told_as_ever() -> None:
    program = Program(**ROWS)
    predicted, batch = batch_of(program)
    broken = predicted.detach().clone()
    broken[3, 0] = float("nan")
    for told in (broken.requires_grad_(), predicted):
        h = torch.full((COUNT, 2), 1.0 if told is broken else -1.0)
        errors = []
        for ask in (SCE(Smoothed(program, 0.5)).output, SCE(Smoothed(program, 0.5)).output_apart):
            with pytest.raises(Exception, match="instance") as caught:
                ask(
                    told, Batch(batch.features, batch.costs, batch.decisions, None if told is broken else Instance(h=h))
                )
            errors.append(f"{caught.type} {caught.value}")
        assert errors[0] == errors[1]


@pytest.mark.parametrize("warm_start", [False, True])
def test_training_ends_at_the_same_weights(warm_start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data, ends = knapsack_data(40, 1), []
    for apart in (True, False):
        if not apart:
            monkeypatch.setattr(Loss, "output_apart", Loss.output)
        model, loss = MLP(FEATURES, ITEMS, hidden=(5,)), SCE(Smoothed(RELAXED, 0.5))
        history = fit(model, loss, data, epochs=2, batch_size=7, progress=False, warm_start=warm_start)
        rows = [{key: row[key] for key in ("loss", "gradient")} for row in history.rows]
        ends.append((torch.cat([part.flatten() for part in model.parameters()]), rows))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
