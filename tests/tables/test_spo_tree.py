"""`SPOTree` against trees found by brute force: every split of every node, regret instance by instance."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from dflearn.errors import OptionError
from dflearn.program import Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.wrappers import Pooled
from dflearn.tables.spo_tree import Node, SPOTree

RNG = np.random.RandomState(0)
#: One of three: decisions are few enough to write down.
CHOICE = Program(A=np.ones((1, 3)), b=[1], upper=1)
X = np.round(RNG.normal(size=(14, 2)), 1)  # with values that occur twice
Y = np.stack([X[:, 0] ** 2, 0.5 + 0.3 * X[:, 1], np.full(14, 0.6)], 1) + RNG.uniform(-0.3, 0.3, (14, 3))


def lost(y: np.ndarray, weights: np.ndarray) -> float:
    """Σ weight · regret of the best single choice for these rows, each choice tried."""
    return min(float(weights @ (y[:, j] - y.min(1))) for j in range(3))


def best_tree(X: np.ndarray, y: np.ndarray, weights: np.ndarray, depth: int, leaf: int) -> float:
    """The regret of the greedy tree, written anew: the split with the least regret of two leaves, then each side alone."""
    whole = lost(y, weights)
    sides = [
        X[:, j] <= value
        for j, value in product(range(X.shape[1]), np.unique(X))
        if leaf <= (X[:, j] <= value).sum() <= len(X) - leaf
    ]
    if depth == 0 or not sides:
        return whole
    split = [lost(y[side], weights[side]) + lost(y[~side], weights[~side]) for side in sides]
    if min(split) >= whole - 1e-9:
        return whole
    side = sides[int(np.argmin(split))]
    return sum(best_tree(X[part], y[part], weights[part], depth - 1, leaf) for part in (side, ~side))


@pytest.mark.parametrize("leaf", [1, 3])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_regret_is_that_of_brute_force(depth: int, leaf: int, weighted: bool) -> None:
    weights = np.arange(14) % 4 + 0.5 if weighted else np.ones(14)
    tree = SPOTree(CHOICE, max_depth=depth, min_samples_leaf=leaf).fit(X, Y, weights)
    regret = weights @ ((tree.decide(X) * Y).sum(1) - Y.min(1))
    assert regret == pytest.approx(best_tree(X, Y, weights, depth, leaf), abs=1e-9)
    assert tree.score(X, Y, weights) == pytest.approx(-regret / (weights @ np.abs(Y.min(1))))


def test_leaves_predict_their_mean_costs_and_decide_optimally_for_them() -> None:
    tree = SPOTree(CHOICE, max_depth=2, min_samples_leaf=2).fit(X, Y)
    predicted = tree.predict(X)
    np.testing.assert_array_equal(tree.decide(X), np.eye(3)[predicted.argmin(1)])
    for leaf in np.unique(predicted, axis=0):
        rows = (predicted == leaf).all(1)
        np.testing.assert_allclose(leaf, Y[rows].mean(0))
        assert rows.sum() >= 2


def test_it_finds_a_split_that_squared_error_does_not_look_for() -> None:
    """The large cost moves with the first feature and is never chosen; the decision turns on the second."""
    x = RNG.uniform(-1, 1, (60, 2))
    y = np.stack([5 + 3 * x[:, 0], 1 + 0.1 * np.sign(x[:, 1]), np.ones(60)], 1)
    tree = SPOTree(CHOICE, max_depth=1, min_samples_leaf=5, max_thresholds=60).fit(x, y)
    assert tree.tree_.feature == 1
    assert tree.score(x, y) == pytest.approx(0.0, abs=1e-12)

    from sklearn.tree import DecisionTreeRegressor

    assert DecisionTreeRegressor(max_depth=1, min_samples_leaf=5).fit(x, y).tree_.feature[0] == 0


def nodes(node: Node) -> list[Node]:
    return [node, *(one for side in (node.left, node.right) if side is not None for one in nodes(side))]


def test_thresholds_are_few_and_even_where_there_are_many() -> None:
    x, y = RNG.uniform(size=(200, 1)), RNG.uniform(size=(200, 3))
    tree = SPOTree(CHOICE, min_samples_leaf=10, max_thresholds=8).fit(x, y)
    sides, _, thresholds = tree._splits(x)
    assert len(sides) == 8
    assert np.abs(sides.sum(1) - np.linspace(10, 190, 8)).max() <= 1
    assert (np.diff(thresholds) > 0).all()
    assert all(node.count >= 10 for node in nodes(tree.tree_))


def test_a_function_decides_and_solves_are_two_for_each_split() -> None:
    decide = Mock(side_effect=lambda c: np.eye(3)[c.argmin(1)])
    tree = SPOTree(from_callable(decide, n=3, batched=True), max_depth=1, min_samples_leaf=1).fit(X, Y)
    assert sum(len(call.args[0]) for call in decide.call_args_list) == 1 + 2 * len(tree._splits(X)[0])


def taken_if_below_zero(c: np.ndarray) -> np.ndarray:
    return (c < 0).astype(float)


def test_scikit_learns_conventions() -> None:
    check_estimator(SPOTree(taken_if_below_zero), on_skip=None)


@pytest.mark.parametrize(
    ("name", "value"), [("max_depth", one) for one in (-1, None, 2.5)]  # no node is that deep: nothing would end it
    + [("min_samples_leaf", 0), ("min_samples_leaf", 1.5), ("max_thresholds", 0)],
)  # fmt: skip
def test_options_are_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match="need max_depth >= 0"):
        SPOTree(CHOICE, **{name: value}).fit(X, Y)


def test_what_it_refuses() -> None:
    with pytest.raises(OptionError, match="nothing says what is decided"):
        SPOTree().fit(X, Y)
    demand = Program(A=np.ones((1, 2)), b=[0.0], B=[[1.0]], upper=1, S=np.zeros((2, 1)))
    with (
        pytest.warns(RuntimeWarning, match="without a recourse"),
        pytest.raises(OptionError, match="predicted right-hand sides"),
    ):
        SPOTree(demand).fit(X, Y[:, :1])
    known = Program(A=np.ones((1, 3)), b=[1], upper=1, recourse=[False, False, True])
    with pytest.raises(OptionError, match="recourse variables"):
        SPOTree(known).fit(X, Y)
    with pytest.raises(OptionError, match="depend on what it solved before"):
        SPOTree(Pooled(HiGHS(CHOICE), 0.1)).fit(X, Y)


def test_what_a_decision_truly_costs_chooses_the_split() -> None:
    """min yᵀw + ‖w‖² over [0, 1], as a program and as a function that says what its decisions cost."""
    program = Program(Q=2 * np.eye(3), upper=1)
    solver = from_callable(lambda c: np.clip(-c / 2, 0, 1), 3, value=lambda y, w: y @ w + w @ w)
    x = np.random.RandomState(1).normal(size=(40, 2))
    y = np.stack([x[:, 0], -2 * x[:, 1], x[:, 0] * x[:, 1]], 1)
    trees = [SPOTree(what, max_depth=2, min_samples_leaf=3).fit(x, y) for what in (program, solver)]
    for one, other in zip(*(nodes(tree.tree_) for tree in trees), strict=True):
        assert (one.feature, one.count) == (other.feature, other.count)
        assert one.value == pytest.approx(other.value, rel=1e-6)
