"""`SPOTree`: a decision tree whose splits are chosen by the regret of the leaves' decisions (Elmachtoub et al., 2020).

A leaf L predicts its mean costs ȳ_L and decides w*(ȳ_L). Since obj(y, w) is linear in y,

    Σ_{i in L} regret_i = |L| · obj(ȳ_L, w*(ȳ_L)) − Σ_{i in L} obj(y_i, w*_i),

so that a leaf's decision is the best single one for its instances, and a split is judged by two solves: the optimal values at
the mean costs of its two sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import DataError, MissingExtraError, OptionError
from dflearn.evaluation.regret import check_linear, regrets_of
from dflearn.solvers.base import Solver
from dflearn.solvers.recourse import recourse_of
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.tables.regressor import in_order

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import (
        _check_sample_weight,
        _get_feature_names,
        check_array,
        check_consistent_length,
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "SPOTree follows scikit-learn, which is not installed: pip install 'dflearn[sklearn]'"
    ) from error

BETTER = 1e-9  # of the objective: what a split must gain at least


@dataclass(frozen=True, eq=False)
class Node:
    """A leaf, or a split: rows with x[feature] ≤ threshold go left.

    costs `(p,)` and decision `(n,)` are those of a leaf of all rows here; value is the sum of their objectives.
    """

    costs: np.ndarray
    decision: np.ndarray
    value: float
    count: int
    feature: int = -1
    threshold: float = np.nan
    left: Node | None = None
    right: Node | None = None


class SPOTree(RegressorMixin, BaseEstimator):
    """A tree of X `(n_samples, k)` that is grown from the root by the split with the least regret, and predicts costs.

        tree = SPOTree(problem, max_depth=3).fit(X, y)
        tree.predict(X), tree.decide(X)      # costs `(n_samples, p)`, decisions `(n_samples, n)`

    Each split of a node of m instances costs two solves per threshold that is tried; all of a node's are solved in one batch.

    Args:
        problem: what is decided: a `Problem`, `Program`, an exact `Solver`, or a function from costs to a decision. All
            instances share its constraints. A solver's own `value` must be linear in the costs, as obj is.
        max_depth: splits between the root and a leaf at most; 0 is one leaf.
        min_samples_leaf: instances in a leaf at least.
        max_thresholds: how many values of a feature are tried in a node: all midpoints, or, where there are more, as many
            at equal numbers of instances.

    Attributes:
        tree_: the root `Node`.
        solver_: the exact solver that decides.
    """

    def __init__(
        self,
        problem: Decided | None = None,
        *,
        max_depth: int = 3,
        min_samples_leaf: int = 20,
        max_thresholds: int = 32,
    ) -> None:
        self.problem = problem
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.max_thresholds = max_thresholds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is minus a regret, so never above zero
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the tree on features X and costs y `(n_samples, p)`; `sample_weight` says how much each instance counts."""
        if self.problem is None:
            raise OptionError("nothing says what is decided: pass a Problem, a Program or a Solver, SPOTree(problem)")
        numbers = (self.max_depth, self.min_samples_leaf, self.max_thresholds)
        if any(not isinstance(one, Integral) or one < least for one, least in zip(numbers, (0, 1, 1), strict=True)):
            raise OptionError(
                f"need max_depth >= 0, min_samples_leaf >= 1 and max_thresholds >= 1, whole numbers; got {self.max_depth}, "
                f"{self.min_samples_leaf} and {self.max_thresholds}"
            )
        X, y = validate_data(self, X, self._in_order(y), multi_output=True, y_numeric=True, dtype=np.float64)
        self._one_dimensional = y.ndim == 1
        y = np.ascontiguousarray(y, np.float64).reshape(len(X), -1)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        kept = weights > 0
        if not kept.any():
            raise DataError("all weights are zero, so that there is nothing to learn from")
        task = DecisionTask.of(self.problem, y.shape[1])
        if task.program is not None and recourse_of(task.program) is not None:
            what = "predicted right-hand sides" if task.program.predicts_rows else "recourse variables"
            raise OptionError(
                f"SPOTree is defined where costs are predicted and decisions are final, and this program has {what}: use "
                "DecisionFocusedRegressor, where loss='task' is the cost after recourse"
            )
        if task.solver.get_state():
            raise OptionError(
                f"the answers of {task.solver!r} depend on what it solved before; leaves need an exact solver"
            )
        self.solver_ = task.solver
        X, y, weights = X[kept], y[kept], weights[kept]
        root = _leaves(self.solver_, _mean(y, weights)[None], weights.sum()[None])
        self.tree_ = self._grown(X, y, weights, *root, depth=0)
        return self

    def _in_order(self, y: Any) -> Any:
        """Costs with names, as a DataFrame has them, in the order of the program's; an error where a name is not known."""
        columns = _get_feature_names(y)
        if columns is None or self.problem is None:
            return y
        program = DecisionTask.of(self.problem, len(columns)).program
        names = None if program is None else program.cost_names
        return y if names is None else in_order(y, columns, names)

    def _grown(
        self, X: np.ndarray, y: np.ndarray, weights: np.ndarray, w: np.ndarray, value: np.ndarray, depth: int
    ) -> Node:
        leaf = Node(_mean(y, weights), w[0], float(value[0]), len(y))
        if depth == self.max_depth or len(y) < 2 * self.min_samples_leaf:
            return leaf
        sides, features, thresholds = self._splits(X)
        if not len(sides):
            return leaf
        mass = np.stack([sides @ weights, ~sides @ weights])  # (2, splits)
        means = np.stack([side @ (weights[:, None] * y) for side in (sides, ~sides)]) / mass[:, :, None]
        decisions, values = _leaves(self.solver_, means.reshape(-1, y.shape[1]), mass.reshape(-1))
        decisions, values = decisions.reshape(2, len(sides), -1), values.reshape(2, -1)
        best = int(values.sum(0).argmin())
        if not values[:, best].sum() < leaf.value - BETTER * abs(leaf.value):
            return leaf
        children = [
            self._grown(X[rows], y[rows], weights[rows], decisions[i, best][None], values[i, best][None], depth + 1)
            for i, rows in enumerate((sides[best], ~sides[best]))
        ]
        return Node(
            leaf.costs, leaf.decision, leaf.value, leaf.count, int(features[best]), float(thresholds[best]), *children
        )

    def _splits(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Who goes left `(splits, rows)`, by which feature and threshold, `(splits,)` each."""
        found: list[tuple[np.ndarray, int, float]] = []
        for j, column in enumerate(X.T):
            ordered = np.sort(column)
            cuts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1  # how many rows go left
            cuts = cuts[(cuts >= self.min_samples_leaf) & (cuts <= len(X) - self.min_samples_leaf)]
            if len(cuts) > self.max_thresholds:
                one = self.max_thresholds == 1
                even = np.array([len(X) / 2]) if one else np.linspace(cuts[0], cuts[-1], self.max_thresholds)
                cuts = cuts[np.unique(np.abs(cuts[None] - even[:, None]).argmin(1))]
            for cut in cuts:
                middle = ordered[cut - 1] / 2 + ordered[cut] / 2
                threshold = middle if middle < ordered[cut] else ordered[cut - 1]  # neighbouring numbers have no middle
                found.append((column <= threshold, j, threshold))
        if not found:
            return np.empty((0, len(X)), bool), np.empty(0, int), np.empty(0)
        sides, features, thresholds = zip(*found, strict=True)
        return np.array(sides), np.array(features), np.array(thresholds)

    # -- use ----------------------------------------------------------------------------------------------------------

    def _each(self, X: Any) -> list[Node]:
        """The leaf of each row."""
        check_is_fitted(self, "tree_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        leaves = []
        for row in X:
            node = self.tree_
            while node.left is not None and node.right is not None:
                node = node.left if row[node.feature] <= node.threshold else node.right
            leaves.append(node)
        return leaves

    def predict(self, X: Any) -> np.ndarray:
        """The mean costs of each row's leaf, float64 `(n_samples, p)`; `(n_samples,)` where y had that shape."""
        costs = np.array([leaf.costs for leaf in self._each(X)])
        return costs.reshape(-1) if self._one_dimensional else costs

    def decide(self, X: Any) -> np.ndarray:
        """The decision of each row's leaf, `(n_samples, n)`."""
        return np.array([leaf.decision for leaf in self._each(X)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """−Σ regret / Σ |optimum| of `decide(X)` under the true costs y, weighted: zero is perfect. This is not R²."""
        check_is_fitted(self, "tree_")
        y = check_array(self._in_order(y), dtype=np.float64, ensure_2d=False, input_name="y").reshape(len(y), -1)
        check_consistent_length(X, y)
        data = label(
            DecisionDataset(torch.zeros(len(y), 0), torch.tensor(np.ascontiguousarray(y))), self.solver_, progress=False
        )
        true, optimal = data.batch().require("costs"), data.batch().require("decisions")
        found = regrets_of(self.solver_, true, torch.tensor(self.decide(X)), optimal)
        check_linear(self.solver_, found, true, optimal)
        weights = torch.tensor(_check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True))
        regret, optimum = float((weights * found.regret).sum()), float((weights * found.optimum.abs()).sum())
        return -regret / optimum if optimum > 0 else 0.0 if regret == 0 else -np.inf


def _mean(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    mean: np.ndarray = weights @ y / weights.sum()
    return mean


def _leaves(solver: Solver, means: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves with mean costs `(count, p)` and mass `(count,)`: their decisions, and the sums of their objectives."""
    y = torch.as_tensor(means)
    decision = solver.solve(y).check().decision
    return decision.numpy(), mass * solver.objective.true_cost(y, decision).numpy()
