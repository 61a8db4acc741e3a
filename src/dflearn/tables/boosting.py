"""Gradient boosting: trees for each cost by scikit-learn, kept as arrays; and trees on the gradient of a decision-focused loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.models import Trees
from dflearn.tables.linear import units_of

TREES, WORK, LEAST_TREES = 100, 1500, 25  # trees per cost at most; trees of all costs together; but so many at least
ROWS_PER_TREE = 4  # so that few rows make for few trees
LEAVES, RATE, PER_LEAF = 15, 0.1, 20  # of a tree; of boosting; rows in a leaf at least


def most_trees(costs: int) -> int:
    """How many trees a cost may have."""
    return max(LEAST_TREES, min(TREES, WORK // costs))


def fitted(x: Tensor, y: Tensor, weights: Tensor | None, trees: int, **options: Any) -> list[Any]:
    """scikit-learn's models, one for each cost in its unit; few rows make for few trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    limits: dict[str, Any] = {
        "max_iter": min(trees, max(1, len(x) // ROWS_PER_TREE)),
        "learning_rate": RATE,
        "max_leaf_nodes": LEAVES,
        "min_samples_leaf": min(PER_LEAF, max(1, len(x) // 5)),
        "early_stopping": False,
    }
    counts, unit = None if weights is None else weights.numpy(), units_of(y)
    targets = (y / unit).numpy().T
    return [HistGradientBoostingRegressor(**limits | options).fit(x.numpy(), target, counts) for target in targets]


def error_curve(models: Sequence[Any], x: Tensor, y: Tensor, most: int, weights: Tensor | None) -> np.ndarray:
    """Σ of squared errors with 1, 2, … most trees, costs in units; models with fewer stay at their last."""
    errors, counts = np.zeros(most), np.ones(len(x)) if weights is None else weights.numpy()
    for model, truth in zip(models, y.T.numpy(), strict=True):
        curve = [float(counts @ np.square(forecast - truth)) for forecast in model.staged_predict(x.numpy())]
        errors += np.array(curve + curve[-1:] * (most - len(curve)))
    return errors


def as_trees(models: Sequence[Any], number: int, unit: Tensor) -> Trees:
    """The first `number` trees of scikit-learn's models, one model per cost, as arrays; each cost is in its unit."""
    trees = [(tree.nodes, j) for j, model in enumerate(models) for (tree,) in model._predictors[:number]]
    sizes = [len(nodes) for nodes, _ in trees]
    nodes, root = np.concatenate([nodes for nodes, _ in trees]), np.cumsum([0, *sizes[:-1]])
    first, scale = np.repeat(root, sizes), np.repeat(unit.numpy()[[j for _, j in trees]], sizes)
    leaf, own = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
    base = np.array([float(np.ravel(model._baseline_prediction)[0]) for model in models]) * unit.numpy()
    arrays = {
        "root": root.reshape(len(models), -1),
        "feature": np.where(leaf, 0, nodes["feature_idx"]),
        "threshold": np.where(leaf, 0.0, np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)),
        "left": np.where(leaf, own, first + nodes["left"]),
        "right": np.where(leaf, own, first + nodes["right"]),
        "missing_left": nodes["missing_go_to_left"].astype(bool),
        "value": np.where(leaf, nodes["value"] * scale, 0.0),
        "base": base,
    }
    return Trees(len(models), {name: torch.tensor(array) for name, array in arrays.items()})


# -- on the gradient of a loss -----------------------------------------------------------------------------------------


ROUNDS, DEPTH, SHRINK, STEP_TREES = 20, 3, 0.5, (1.0, 0.5, 0.25)

Loss = Callable[[Tensor], tuple[float, Tensor]]  # forecasts → the mean loss, and its gradient times the number of rows


def on_gradient(x: Tensor, forecasts: Tensor, loss: Loss, rounds: int = ROUNDS, seed: int = 0) -> list[Trees]:
    """Trees that correct forecasts `(rows, p)`, one for all costs in each round: the gradient of the loss, cost by cost, is fitted
    by one tree, and a step along it is as long as a parabola through the slope at both ends says; it ends where nothing is gained."""
    from sklearn.tree import DecisionTreeRegressor

    unit, found = units_of(forecasts), []
    value, slope = loss(forecasts)
    for number in range(rounds):
        tree = DecisionTreeRegressor(
            max_depth=DEPTH, min_samples_leaf=min(PER_LEAF, max(1, len(x) // 5)), random_state=seed + number
        ).fit(x.numpy(), -(slope * unit).numpy())
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
        found.append(_as_arrays(tree, SHRINK * length * unit))
    return found


def _as_arrays(tree: Any, scale: Tensor) -> Trees:
    """A tree of several outputs as one per output."""
    nodes, count = tree.tree_, len(scale)
    own = np.arange(nodes.node_count)
    leaf = nodes.children_left < 0
    value = np.where(leaf[:, None], nodes.value[:, :, 0], 0.0) * scale.numpy()
    many = lambda array: np.tile(array, count)  # noqa: E731
    shift = np.repeat(np.arange(count) * len(own), len(own))
    arrays = {
        "root": (np.arange(count) * len(own))[:, None],
        "feature": many(np.where(leaf, 0, nodes.feature)),
        "threshold": many(np.where(leaf, 0.0, nodes.threshold)),
        "left": many(np.where(leaf, own, nodes.children_left)) + shift,
        "right": many(np.where(leaf, own, nodes.children_right)) + shift,
        "missing_left": np.zeros(count * len(own), bool),
        "value": value.T.reshape(-1),
        "base": np.zeros(count),
    }
    return Trees(count, {name: torch.tensor(array) for name, array in arrays.items()})


def together(parts: Sequence[Trees], costs: int) -> Trees:
    """The sum of trees as one."""
    if not parts:
        return Trees(costs)
    first = np.cumsum([0, *(len(part.feature) for part in parts)])
    moved = {
        name: [getattr(part, name) + int(at) for part, at in zip(parts, first, strict=False)]
        for name in ("left", "right")
    }
    arrays = {name: torch.cat(own) for name, own in moved.items()}
    arrays |= {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in ("feature", "threshold", "missing_left", "value")
    }
    arrays["root"] = torch.cat([part.root + int(at) for part, at in zip(parts, first, strict=False)], 1)
    return Trees(costs, arrays | {"base": torch.stack([part.base for part in parts]).sum(0)})
