"""`SPOTree`: a decision tree whose splits are chosen by the regret of the leaves' decisions (Elmachtoub et al., 2020).

A leaf L predicts its mean costs ȳ_L and decides w*(ȳ_L). Since obj(y, w) is linear in y,

    Σ_{i in L} regret_i = |L| · obj(ȳ_L, w*(ȳ_L)) − Σ_{i in L} obj(y_i, w*_i),

so that a leaf's decision is the best single one for its instances, and a split is judged by two solves: the optimal values at
the mean costs of its two sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import DataError, OptionError
from dflearn.solvers.recourse import recourse_of
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.tables import table_model as common

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


@dataclass(eq=False, repr=False)
class SPOTree(common.Decider):
    """A tree of X `(n_samples, k)` that is grown from the root by the split with the least regret, and predicts costs.

        tree = SPOTree(problem, max_depth=3).fit(X, y)
        tree.predict(X), tree.decide(X)      # costs `(n_samples, p)`, decisions `(n_samples, n)`

    Each split of a node of m instances costs two solves per threshold that is tried; all of a node's are solved in one batch.

    Args:
        problem: what is decided: a `Problem`, `Program`, an exact `Solver`, or a function from costs to a decision. All
            instances share its constraints. A solver's own `value` must be linear in the costs, as obj is.
        max_depth, min_samples_leaf: splits between the root and a leaf at most, 0 is one leaf; instances in a leaf at least.
        max_thresholds: values of a feature that are tried in a node: all midpoints, or as many at equal numbers of instances.

    Attributes:
        tree_, solver_: the root `Node`, and the exact solver that decides.

    Examples:
        >>> from dflearn.tables import SPOTree
        >>> tree = SPOTree(problem, max_depth=1, min_samples_leaf=10).fit(data.features, data.costs)
        >>> tree.decide(data.features[:2]).shape
        (2, 12)
    """

    problem: Decided | None = None
    _: KW_ONLY
    max_depth: int = 3
    min_samples_leaf: int = 20
    max_thresholds: int = 32

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the tree on features X and costs y `(n_samples, p)`; `sample_weight` says how much each instance counts."""
        if self.problem is None:
            raise OptionError("nothing says what is decided: pass a Problem, a Program or a Solver, SPOTree(problem)")
        numbers = (self.max_depth, self.min_samples_leaf, self.max_thresholds)
        if any(not isinstance(one, Integral) or one < least for one, least in zip(numbers, (0, 1, 1), strict=True)):
            what = "need max_depth >= 0, min_samples_leaf >= 1 and max_thresholds >= 1, whole numbers"
            raise OptionError(f"{what}; got {numbers[0]}, {numbers[1]} and {numbers[2]}")
        common.check_same_index(X, y)
        X, y = common.validate_data(self, X, self._in_order(y), multi_output=True, y_numeric=True, dtype=np.float64)
        self._one_dimensional = y.ndim == 1
        y = np.ascontiguousarray(y, np.float64).reshape(len(X), -1)
        weights = common._check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
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
            what = f"the answers of {task.solver!r} depend on what it solved before"
            raise OptionError(f"{what}; leaves need an exact solver")
        self.solver_ = task.solver
        self.tree_ = self._grown(X[kept], y[kept], weights[kept], depth=0)
        return self

    def _grown(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray, depth: int, known: Node | None = None) -> Node:
        """known: the leaf of all rows, if it was solved already."""
        leaf = known or self._leaves((weights @ y / weights.sum())[None], weights.sum()[None], [len(y)])[0]
        if depth == self.max_depth or len(y) < 2 * self.min_samples_leaf:
            return leaf
        sides, features, thresholds = self._splits(X)
        if not len(sides):
            return leaf
        both = np.concatenate([sides, ~sides])
        mass = both @ weights
        leaves = self._leaves(both @ (weights[:, None] * y) / mass[:, None], mass, both.sum(1))
        values = np.array([one.value for one in leaves]).reshape(2, -1).sum(0)
        best = int(values.argmin())
        if not values[best] < leaf.value - BETTER * abs(leaf.value):
            return leaf
        left, right = (
            self._grown(X[rows], y[rows], weights[rows], depth + 1, one)
            for rows, one in ((sides[best], leaves[best]), (~sides[best], leaves[len(sides) + best]))
        )
        return replace(leaf, feature=int(features[best]), threshold=float(thresholds[best]), left=left, right=right)

    def _leaves(self, means: np.ndarray, mass: np.ndarray, counts: Sequence[int] | np.ndarray) -> list[Node]:
        """Leaves with mean costs `(count, p)`, mass and numbers of rows `(count,)`."""
        y = torch.as_tensor(means)
        decision = self.solver_.solve(y).check().decision
        values = mass * self.solver_.objective.true_cost(y, decision).numpy()
        parts = zip(means, decision.numpy(), values, counts, strict=True)
        return [Node(mean, w, float(value), int(count)) for mean, w, value, count in parts]

    def _splits(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that go left `(splits, rows)`, by feature and threshold, `(splits,)` each."""
        sides, features, thresholds = [np.empty((0, len(X)), bool)], [], []
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
                sides.append((column <= threshold)[None])
                features.append(j)
                thresholds.append(threshold)
        return np.concatenate(sides), np.array(features), np.array(thresholds)

    def _each(self, X: Any) -> list[Node]:
        """The leaf of each row."""
        common.check_is_fitted(self, "tree_")
        X = common.validate_data(self, X, dtype=np.float64, reset=False)
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
        common.check_is_fitted(self, "tree_")
        common.check_same_index(X, y)
        y = common.check_array(self._in_order(y), dtype=np.float64, ensure_2d=False, input_name="y").reshape(len(y), -1)
        common.check_consistent_length(X, y)
        rows = DecisionDataset(torch.zeros(len(y), 0), torch.tensor(np.ascontiguousarray(y)))
        data = label(rows, self.solver_, progress=False)
        weights = torch.tensor(
            common._check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        )
        return common.minus_regret(self.solver_, data, torch.tensor(self.decide(X)), weights)
