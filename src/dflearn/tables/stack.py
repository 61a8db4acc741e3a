"""The decision-focused stack: a few numbers on top of forecasts, learned from rows that the forecasts did not see; and trees on the
gradient of a decision-focused loss.

    ŷ_j = Σ_m (w_m + δ_mg) f_mj + offset_g · error_j        for each cost j of a group g

From the best ordinary stack w, the numbers δ and offset minimize a decision-focused loss plus a share of the squared error, each in
units of what the ordinary stack has. The loss is SPO+ of the smoothed program with that program's own label: convex, and
least where the forecast is the truth. Where right-hand sides are predicted, it is the cost after recourse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.layers import Smoothed
from dflearn.losses import SmoothedSPOPlus, TaskLoss
from dflearn.losses.base import Loss
from dflearn.models import Trees
from dflearn.program import Program
from dflearn.solvers.task import DecisionTask
from dflearn.tables.cross_fitting import thinned
from dflearn.tables.forecasters import PER_LEAF, joined
from dflearn.tables.linear import units_of

SMOOTHING = 0.1  # μ, relative to that at which errors move a decision by its own size
PULL = 0.1  # weight of the squared error
STEPS = 25  # of L-BFGS
ROWS = 300  # that the numbers are learned from, at most: they are few


def smoothing(task: DecisionTask, data: DecisionDataset, forecasts: Tensor) -> float:
    """μ at which smoothing moves a decision by its own size where costs are off by as much as the forecasts are."""
    error = data.batch().require("costs") - forecasts
    return Scale.of(task.objective, DecisionDataset(error, error, data.decisions)).mu


def stack_loss(program: Program, mu: float) -> Loss:
    """SPO+ of the smoothed program with its own label; the cost after recourse where there is any."""
    layer = Smoothed(program, mu)
    return TaskLoss(layer) if program.predicts_rows or program.recourse is not None else SmoothedSPOPlus(layer)


class Objective:
    """Forecasts → the mean loss on some rows and its gradient; each solve begins where the last one of its row ended."""

    def __init__(self, loss: Loss, data: DecisionDataset) -> None:
        layer = loss.layer
        assert layer is not None
        self.loss, self.batch = loss, data.batch()
        self.start = layer.no_start(len(data)) if layer.start_width else None
        counts = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights
        self.share = counts / counts.sum()

    def __call__(self, predicted: Tensor) -> tuple[float, Tensor]:
        """The mean, and its gradient in the predictions `(rows, p)`."""
        leaf = predicted.detach().clone().requires_grad_()
        output = self.loss.output(leaf, replace(self.batch, start=self.start))
        if output.solution is not None and output.solution.start is not None:
            self.start = output.solution.start.detach()
        value = (self.share * output.value).sum()
        return value.item(), torch.autograd.grad(value, leaf)[0]


def groups_of(program: Program, costs: int) -> np.ndarray:
    """A group for each cost: those whose names differ in numbers alone are one."""
    stems = [re.sub(r"\d+", "", name) for name in program.cost_names or [""] * costs]
    return np.unique(stems, return_inverse=True)[1]


class Numbers(NamedTuple):
    """A weight of each forecast for each cost `(forecasts, p)`, and offsets `(p,)`."""

    weight: Tensor
    offset: Tensor

    def __call__(self, forecasts: Tensor) -> Tensor:
        """`(forecasts, rows, p)` → `(rows, p)`."""
        return self.offset + torch.einsum("mp,mrp->rp", self.weight, forecasts)


def learn(
    forecasts: Tensor, first: Tensor, truth: Tensor, objective: Objective, groups: np.ndarray, *, offsets: bool
) -> Numbers:
    """The numbers that minimize the loss and its pull, for forecasts of rows left out `(forecasts, rows, p)`.

    first: the weights of the ordinary stack, `(forecasts,)`. groups: of each cost; each has numbers of its own.
    """
    from scipy.optimize import minimize

    start = torch.einsum("m,mrp->rp", first, forecasts)
    error = (truth - start).square().mean(0).sqrt()
    unit = torch.where(error > 0, error, torch.ones_like(error))
    chosen = torch.nn.functional.one_hot(torch.tensor(groups)).double()  # (p, groups)
    ways = [start, *(one - start for one in forecasts)] + [unit.expand_as(start)] * offsets
    sizes = [max((way / unit).square().mean().sqrt().item(), 1e-9) for way in ways]
    directions = torch.stack([way / size for way, size in zip(ways, sizes, strict=True)])

    def forecast(numbers: Tensor) -> Tensor:
        return start + torch.einsum("dp,drp->rp", numbers @ chosen.T, directions)

    value0, _ = objective(start)
    pull0 = ((start - truth) / unit).square().mean().item() or 1.0

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        predicted = forecast(torch.tensor(flat).reshape(len(ways), -1))
        loss, slope = objective(predicted)
        off = (predicted - truth) / unit
        slope = slope / (abs(value0) or 1.0) + 2 * PULL / pull0 * off / unit / off.numel()
        along = torch.einsum("drp,rp->dp", directions, slope) @ chosen
        return loss / (abs(value0) or 1.0) + PULL * off.square().mean().item() / pull0, along.reshape(-1).numpy()

    zero = np.zeros(len(ways) * chosen.shape[1])
    found = minimize(value, zero, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": 1e-6})
    numbers = torch.tensor(found.x).reshape(len(ways), -1) @ chosen.T / torch.tensor(sizes)[:, None]  # (ways, p)
    own = numbers[1 : 1 + len(forecasts)]
    weight = first[:, None] * (1 + numbers[0] - own.sum(0)) + own
    return Numbers(weight, numbers[-1] * unit if offsets else torch.zeros_like(unit))


def crossed(
    forecasts: Tensor,
    first: Tensor,
    data: DecisionDataset,
    loss: Loss,
    windows: Iterable[tuple[np.ndarray, np.ndarray]],
    groups: np.ndarray,
    *,
    offsets: bool,
) -> tuple[Tensor, Numbers]:
    """Forecasts of each window's rows by numbers learned from the others', and the numbers learned from all rows."""
    truth, found = data.batch().require("costs"), torch.empty_like(forecasts[0])

    def learned(rows: np.ndarray) -> Numbers:
        some = thinned(rows, ROWS)
        objective = Objective(loss, data.subset(some))
        return learn(forecasts[:, some], first, truth[some], objective, groups, offsets=offsets)

    for own, others in windows:
        found[own] = learned(others)(forecasts[:, own])
    return found, learned(np.arange(len(truth)))


ROUNDS, DEPTH, SHRINK, STEP_TREES = 20, 3, 0.5, (1.0, 0.5, 0.25)


def on_gradient(
    x: Tensor, forecasts: Tensor, loss: Callable[[Tensor], tuple[float, Tensor]], rounds: int = ROUNDS, seed: int = 0
) -> Trees:
    """Trees that correct forecasts `(rows, p)`: each round fits one tree of all costs to the gradient of the loss, with a step by the
    parabola through the slopes at both ends, until nothing is gained. loss: forecasts → mean and gradient."""
    from sklearn.tree import DecisionTreeRegressor

    unit, found, least = units_of(forecasts), [], min(PER_LEAF, max(1, len(x) // 5))
    value, slope = loss(forecasts)
    for number in range(rounds):
        tree = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=least, random_state=seed + number)
        tree.fit(x.numpy(), -(slope * unit).numpy())
        way = torch.tensor(np.reshape(tree.predict(x.numpy()), forecasts.shape)) * unit
        size = (way / unit).square().mean().sqrt().item()
        if size == 0:
            break
        step = 0.1 / size  # a tenth of a standard deviation, to learn how the slope changes
        first = (slope * way).sum().item()
        _, there = loss(forecasts + step * way)
        second = (there * way).sum().item()
        length = step * min(10.0, first / (first - second)) if second > first else step
        new = forecasts + SHRINK * length * way
        now, gradient = loss(new)
        if now >= value:
            break
        forecasts, value, slope = new, now, gradient
        found.append((tree, SHRINK * length * unit))
    return as_sum(found, forecasts.shape[1])


def as_sum(trees: Sequence[tuple[Any, Tensor]], costs: int) -> Trees:
    """The sum of scikit-learn's trees of several outputs, each times a scale `(costs,)`, as arrays: a tree for each output."""
    found: list[list[dict[str, np.ndarray]]] = [[] for _ in range(costs)]
    for model, scale in trees:
        nodes = model.tree_
        leaf = nodes.children_left < 0
        of = {"leaf": leaf, "feature": nodes.feature, "threshold": nodes.threshold, "missing": np.zeros_like(leaf)}
        of |= {"left": nodes.children_left, "right": nodes.children_right}
        for j, own in enumerate(found):
            own.append(of | {"value": nodes.value[:, j, 0] * scale[j].item()})
    return joined(found, np.zeros(costs))
