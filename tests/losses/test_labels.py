"""The smoothed program's own label: why it is consistent, and that it is solved once for each instance."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import OptionError
from dflearn.layers import DavisYin, Exact, Layer, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, Loss, SmoothedSPOPlus, SPOPlus
from dflearn.models import Linear
from dflearn.program import Instance, Program, Quadratic
from dflearn.solvers.base import Solution
from dflearn.solvers.highs import HiGHS
from dflearn.training import Anneal, fit

N, P, COUNT = 5, 3, 6
RNG = np.random.RandomState(3)
ROWS: dict[str, Any] = {"G": RNG.uniform(0.2, 1, (2, N)), "h": [1.5, 1.2], "upper": 1}
PROGRAM = Program(S=RNG.normal(size=(N, P)), d=RNG.normal(size=N), **ROWS)
CURVED = Program(S=PROGRAM.S, d=PROGRAM.d, Q=Quadratic(diagonal=RNG.uniform(0, 1, N)), **ROWS)
Y, PREDICTED = (torch.tensor(RNG.normal(size=(COUNT, P))) for _ in range(2))
INSTANCE = Instance(h=torch.tensor(RNG.uniform(0.8, 2, (COUNT, 2))), d=torch.tensor(RNG.normal(size=(COUNT, N))))
BENT = Instance(q=torch.tensor(RNG.uniform(0, 1, (COUNT, N))))
LAYERS: dict[str, tuple[Callable[[], Layer], Instance | None]] = {
    "squared": (lambda: Smoothed(PROGRAM, 0.4), None),
    "instances": (lambda: Smoothed(PROGRAM, 0.4), INSTANCE),
    "norm": (lambda: Smoothed(PROGRAM, 0.4, regularizer="norm"), None),
    "quadratic": (lambda: Smoothed(CURVED, 0.4), None),
    "q": (lambda: Smoothed(PROGRAM, 0.4), BENT),
    "Davis-Yin": (lambda: DavisYin(PROGRAM, 0.4, iterations=50_000, tolerance=1e-10, gradient="implicit"), None),
    "exact": (lambda: Exact(HiGHS(PROGRAM)), INSTANCE),
}
LOSSES: dict[str, Callable[[Layer], Loss]] = {
    "SPO+": SmoothedSPOPlus,
    "SCE": lambda layer: SCE(layer, label="smoothed"),
    "Fenchel-Young": lambda layer: FenchelYoung(layer, label="smoothed"),
}


def batch_of(instance: Instance | None, y: Tensor = Y) -> Batch:
    return Batch(torch.zeros(len(y), 1), y, None, instance)


def slope(loss: Loss, predicted: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    point = predicted.clone().requires_grad_()
    value = loss(point, batch)
    return value.detach(), torch.autograd.grad(value.sum(), point)[0]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", LOSSES)
def test_zero_and_stationary_at_the_truth(name: str, layer: str) -> None:
    make, instance = LAYERS[layer]
    value, gradient = slope(LOSSES[name](make()), Y, batch_of(instance))
    torch.testing.assert_close(value, torch.zeros(COUNT).double(), rtol=0, atol=1e-7)
    torch.testing.assert_close(gradient, torch.zeros(COUNT, P).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("layer", LAYERS)
def test_convex_least_at_the_truth_and_its_gradient_that_of_finite_differences(layer: str) -> None:
    make, instance = LAYERS[layer]
    loss, batch = SmoothedSPOPlus(make()), batch_of(instance)
    value, gradient = slope(loss, PREDICTED, batch)
    assert (value > -1e-7).all()
    for share in (0.2, 0.5, 0.8):  # between the truth and a prediction
        between, _ = slope(loss, share * PREDICTED + (1 - share) * Y, batch)
        assert (between <= share * value + 1e-7).all()
    step = 1e-4
    for j in range(P):
        shift = step * torch.eye(P, dtype=torch.float64)[j]
        wanted = (loss(PREDICTED + shift, batch) - loss(PREDICTED - shift, batch)).detach() / (2 * step)
        torch.testing.assert_close(gradient[:, j], wanted, rtol=1e-4, atol=1e-4)


def test_through_an_exact_solver_it_is_spo_plus() -> None:
    layer = Exact(HiGHS(PROGRAM))
    with_labels = Batch(torch.zeros(COUNT, 1), Y, layer(Y, INSTANCE), INSTANCE)
    for one, other in zip(
        slope(SmoothedSPOPlus(layer), PREDICTED, batch_of(INSTANCE)),
        slope(SPOPlus(layer), PREDICTED, with_labels),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_where_each_label_is_stationary() -> None:
    """min −y w₁ − d w₂ over w₁ + w₂ ≤ 1, w ≥ 0, with y = 3 predicted, d = 2 known and μ = 2. w_μ(y) = (.75, .25), w* = (1, 0).

    Along w₁ + w₂ = 1 the smoothed decision is w₁ = ½ + (ŷ − d)/(2μ), which is 1 from ŷ = d + μ = 4 on. So the exact label
    is reached at 2ŷ − y = 4, ŷ = 3.5, and beyond; its own label at ŷ = 3 alone.
    """
    program = Program(S=[[-1.0], [0.0]], d=[0.0, -2.0], G=[[1.0, 1.0]], h=[1])
    y = torch.tensor([[3.0]]).double()
    batch = Batch(torch.zeros(1, 1), y, torch.tensor([[1.0, 0.0]]).double())
    layer = Smoothed(program, 2.0)
    torch.testing.assert_close(layer(y), torch.tensor([[0.75, 0.25]]).double())

    def gradient(label: Any, at: float) -> float:
        return slope(SmoothedSPOPlus(layer, label=label), torch.tensor([[at]]).double(), batch)[1].item()

    assert gradient("smoothed", 3.0) == pytest.approx(0, abs=1e-9)
    assert gradient("smoothed", 2.9) < -0.01
    assert gradient("smoothed", 3.1) > 0.01
    assert gradient("exact", 3.0) == pytest.approx(-0.5)
    assert gradient("exact", 3.49) < -0.001
    assert gradient("exact", 3.51) == pytest.approx(0, abs=1e-9)


def test_the_mean_over_noise_is_least_at_the_mean_costs() -> None:
    """One prediction for costs 3 ± ½: with its own label the loss leads to decisions of E[y], with the exact one past them."""
    program = Program(S=[[-1.0], [0.0]], d=[0.0, -2.0], G=[[1.0, 1.0]], h=[1])
    mean, noise = 3.0, torch.tensor([[-0.5], [0.5]]).double()
    y, exact = mean + noise, Exact(HiGHS(program))
    batch, layer = Batch(torch.zeros(2, 1), y, exact(y)), Smoothed(program, 4.0)
    grid = torch.linspace(0, 6, 601).double()

    def least(label: Any) -> float:
        loss = SmoothedSPOPlus(layer, label=label)
        return float(grid[torch.stack([loss(one.expand(2, 1), batch).mean() for one in grid]).argmin()])

    assert least("smoothed") == pytest.approx(mean, abs=0.011)
    assert least("exact") > mean + 0.5


# -- the store -------------------------------------------------------------------------------------------------------


class Counted(Smoothed):
    """Counts the instances whose labels are solved: training solves with a gradient, labels without."""

    count = 0

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        self.count += 0 if torch.is_grad_enabled() else y.shape[:-1].numel()
        return super()._solve(y, instance, start)


def counted(loss: Loss) -> int:
    assert isinstance(loss.layer, Counted)
    return loss.layer.count


DATA = DecisionDataset(torch.tensor(RNG.normal(size=(20, 4))), torch.tensor(RNG.normal(size=(20, P))))


def model() -> Linear:
    return Linear(4, P).double()


@pytest.mark.parametrize("name", LOSSES)
def test_labels_are_solved_once(name: str) -> None:
    loss = LOSSES[name](Counted(PROGRAM, 0.4))
    fit(model(), loss, DATA, epochs=3, batch_size=8)
    assert counted(loss) == len(DATA)
    fit(model(), loss, DATA.subset(torch.arange(7)), epochs=2, batch_size=3, seed=4)
    assert counted(loss) == len(DATA)


def test_labels_follow_costs_instances_and_the_layer() -> None:
    loss = SmoothedSPOPlus(Counted(PROGRAM, 0.4))

    def check(y: Tensor, instance: Instance | None, solved: int) -> None:
        before, (found, _) = counted(loss), loss.labels.of(loss.layer, batch_of(instance, y))
        assert counted(loss) - before == solved
        torch.testing.assert_close(found, loss.layer(y, instance).detach(), rtol=0, atol=1e-9)
        loss.layer.count = before + solved  # type: ignore[union-attr]

    check(Y, None, COUNT)
    check(Y.flip(0), None, 0)
    check(Y[2:3], None, 0)
    check(torch.cat([Y[:2], PREDICTED[:2]]), None, 2)
    check(Y, INSTANCE, COUNT)
    check(Y, INSTANCE.map(lambda value: value + 0.01), COUNT)
    check(Y, Instance(d=INSTANCE.d), COUNT)
    check(Y, INSTANCE, 0)
    check(Y.reshape(2, 3, P), None, 0)
    check(Y[0], None, 0)
    check(Y[:0], None, 0)
    loss.layer.mu = 0.3  # type: ignore[assignment]
    check(Y, None, COUNT)
    loss.layer = Counted(PROGRAM, 0.3, regularizer="norm")
    check(Y, None, COUNT)
    check(Y.float().double(), None, COUNT)


def test_annealing_makes_labels_anew() -> None:
    loss = SmoothedSPOPlus(Counted(PROGRAM, 0.4))
    fit(model(), loss, DATA, epochs=3, batch_size=8, callbacks=[Anneal(mu=[0.4, 0.2])])
    assert counted(loss) == 2 * len(DATA)  # the last value stays


def test_a_layer_with_a_state_is_asked_each_time() -> None:
    loss = SmoothedSPOPlus(Perturbed(HiGHS(PROGRAM), 0.5, samples=2))
    first, _ = loss.labels.of(loss.layer, batch_of(None))
    again, _ = loss.labels.of(loss.layer, batch_of(None))
    assert not torch.equal(first, again)


def test_the_store_is_no_part_of_copies_and_states() -> None:
    loss = SmoothedSPOPlus(Smoothed(PROGRAM, 0.4))
    value = loss(PREDICTED, batch_of(None))
    assert len(loss.labels._found) == COUNT
    assert not loss.state_dict().keys() - {"layer._extra_state"}
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert not other.labels._found
        assert torch.equal(other(PREDICTED, batch_of(None)), value)


def test_in_a_sum_and_by_name() -> None:
    loss = MSE() + 0.5 * SmoothedSPOPlus(Counted(PROGRAM, 0.4))
    fit(model(), loss, DATA, epochs=2, batch_size=8)
    assert loss.losses[1].layer.count == len(DATA)  # type: ignore[union-attr]
    assert "label='smoothed'" in repr(loss)
    for make in (SCE, FenchelYoung, SmoothedSPOPlus):
        with pytest.raises(OptionError, match="'exact' or 'smoothed'"):
            make(Smoothed(PROGRAM), label="own")  # type: ignore[arg-type]
