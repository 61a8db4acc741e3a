"""Special-purpose solvers against enumeration, HiGHS and each other; and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.errors import ProgramError, ShapeError
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import DagShortestPath, TopK
from support import programs

# -- shortest paths -----------------------------------------------------------------------------------------------------


def random_graph(rng: np.random.RandomState, nodes: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Arcs along a hidden order, parallel ones and dead ends included; a path from source to target is among them."""
    hidden = rng.permutation(nodes)
    pairs = np.sort(rng.randint(0, nodes, (3 * nodes, 2)), axis=1)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    first, last = nodes // 5, nodes - 1 - nodes // 5
    pairs = np.concatenate([pairs, [[first, last]]])[rng.permutation(len(pairs) + 1)]
    return hidden[pairs[:, 0]], hidden[pairs[:, 1]], int(hidden[first]), int(hidden[last])


def all_paths(tails: np.ndarray, heads: np.ndarray, source: int, target: int) -> list[list[int]]:
    if source == target:
        return [[]]
    leaving = np.flatnonzero(tails == source)
    return [[int(a), *rest] for a in leaving for rest in all_paths(tails, heads, int(heads[a]), target)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_paths_against_enumeration(seed: int, dtype: torch.dtype) -> None:
    rng = np.random.RandomState(seed)
    tails, heads, source, target = random_graph(rng, rng.randint(3, 13))
    solver = DagShortestPath(programs.paths(tails, heads, source, target))
    decisions = np.zeros((0, len(tails)))
    for path in all_paths(tails, heads, source, target):
        decisions = np.vstack([decisions, np.isin(np.arange(len(tails)), path)])
    for count in (1, 3, 7, 8, 9, 20):  # fewer than a tile, whole tiles, and some left over
        y = torch.tensor(rng.normal(size=(count, len(tails))), dtype=dtype)  # negative lengths are fine
        answer = solver.solve(y).check((Status.OPTIMAL,))
        lengths = decisions @ y.double().numpy().T
        np.testing.assert_allclose(answer.objective, lengths.min(0), atol=1e-12)
        assert np.array_equal(answer.decision, decisions[lengths.argmin(0)])
        by_levels = solver._decide_on_device(y)
        assert torch.equal(by_levels[0], answer.decision)
        torch.testing.assert_close(by_levels[1], answer.objective)


def test_paths_with_S_and_d() -> None:
    """Each predicted cost is shared by two arcs; the rest of the length is known, or comes with the instance."""
    base = programs.shortest_path(4)
    shared = sp.csr_array(np.kron(np.eye(base.n // 2), np.ones((2, 1))))
    d = np.linspace(0, 1, base.n)
    program = Program(A=base.A, b=base.b, S=shared, d=d)
    y = torch.rand(5, program.p, generator=torch.Generator().manual_seed(0))
    own = Instance(d=torch.rand(5, program.n, generator=torch.Generator().manual_seed(1)))
    for instance in (None, own):
        answer, best = DagShortestPath(program).solve(y, instance), HiGHS(program).solve(y, instance)
        torch.testing.assert_close(answer.objective, best.objective)
        torch.testing.assert_close(answer.objective.float(), program.objective(y, answer.decision, instance))
    plain = DagShortestPath(base)
    y = torch.rand(5, base.n, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(plain.solve(y, own).objective, HiGHS(base).solve(y, own).objective)


def test_of_several_shortest_paths_the_first_arcs_count() -> None:
    solver = DagShortestPath(programs.paths([0, 0, 1, 2], [1, 2, 3, 3], 0, 3))
    for count in (1, 8):
        assert solver.solve(torch.ones(count, 4)).decision.tolist() == [[1, 0, 1, 0]] * count


def test_paths_do_not_overflow() -> None:
    y = torch.tensor([[1e308, 1.5e308, 1e308]], dtype=torch.float64)
    huge = DagShortestPath(programs.paths([0, 0, 1], [1, 2, 2], 0, 2)).solve(y)
    assert huge.decision.tolist() == [[0, 1, 0]]


def test_a_program_without_one_of_its_rows() -> None:
    """The conservation of flow at one node follows from that at all the others."""
    whole = programs.shortest_path(4)
    y = torch.rand(3, whole.n, generator=torch.Generator().manual_seed(0))
    wanted = DagShortestPath(whole).solve(y)
    for missing in (0, 5, 15):
        rows = np.delete(np.arange(16), missing)
        for sign in (1, -1):
            program = Program(A=sign * whole.A[rows], b=sign * whole.b[rows])
            assert torch.equal(DagShortestPath(program).solve(y).decision, wanted.decision)


PATH = programs.shortest_path(3)
NOT_PATHS: dict[str, tuple[dict[str, Any], str]] = {
    "inequalities": ({"A": PATH.A, "b": PATH.b, "G": np.ones((1, 12)), "h": [3]}, "it has inequality rows"),
    "small capacities": ({"A": PATH.A, "b": PATH.b, "upper": 0.5}, "bounds are not w ≥ 0 and w ≤ 1 or more"),
    "lower bounds": ({"A": PATH.A, "b": PATH.b, "lower": -1}, "bounds are not w ≥ 0"),
    "no rows": ({"n": 3}, "not the node-arc incidence matrix"),
    "weights": ({"A": 2 * PATH.A, "b": PATH.b}, "not the node-arc incidence matrix"),
    "three ends": ({"A": [[1, 1], [-1, 1], [0, 1]], "b": [1, -1, 0]}, "not the node-arc incidence matrix"),
    "equal signs": ({"A": [[1, 1], [1, -1]], "b": [1, -1]}, "two entries of the same sign"),
    "two units": ({"A": PATH.A, "b": 2 * PATH.b}, "b does not send one unit from one node to another"),
    "no flow": ({"A": PATH.A, "b": 0 * PATH.b}, "b does not send one unit"),
    "a cycle": (
        {"A": [[-1, 0, 1, 0], [1, -1, 0, 0], [0, 1, -1, -1], [0, 0, 0, 1]], "b": [-1, 0, 0, 1]},
        "the graph has a cycle through node",
    ),
    "no path": ({"A": [[-1, 1, 0], [1, -1, 0], [0, 0, -1], [0, 0, 1]], "b": [-1, 0, 0, 1]}, "cycle"),
}


@pytest.mark.parametrize("case", NOT_PATHS)
def test_programs_that_are_no_paths(case: str) -> None:
    arguments, message = NOT_PATHS[case]
    with pytest.raises(ProgramError, match=f"DagShortestPath cannot solve .* {message}"):
        DagShortestPath(Program(**arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [1, 0], 0, 1), "the graph has a cycle through node [01]"),
        (([0, 1, 2, 3], [1, 2, 3, 2], 0, 3), "cycle through node [23]"),
        (([0, 2], [1, 3], 0, 3), "no path leads from node 0 to node 3"),
    ],
)
def test_graphs_that_are_none(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        DagShortestPath(programs.paths(*arguments))


# -- the k best ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_most", [False, True])
def test_top_k_against_enumeration(at_most: bool) -> None:
    y = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
    for k in (1, 3, 6):
        sizes = range(k + 1) if at_most else (k,)
        subsets = [s for size in sizes for s in itertools.combinations(range(6), size)]
        best = torch.stack([y[:, list(s)].double().sum(-1) for s in subsets]).amin(0)
        solver = TopK(programs.top_k(6, k, at_most=at_most))
        answer = solver.solve(y).check((Status.OPTIMAL,))
        torch.testing.assert_close(answer.objective, best)
        assert solver.program.violation(answer.decision).max() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 3, "upper": 1}, "it has 0 rows, not one"),
        ({"A": np.ones((1, 3)), "b": [1], "G": np.ones((1, 3)), "h": [1], "upper": 1}, "it has 2 rows, not one"),
        ({"G": [[1, 2, 1]], "h": [1], "upper": 1}, "not all equal and positive"),
        ({"G": [[1, 0, 1]], "h": [1], "upper": 1}, "not all equal and positive"),
        ({"G": [[-1, -1]], "h": [-1], "upper": 1}, "not all equal and positive"),
        ({"G": [[1, 1]], "h": [1]}, "bounds are not 0 and 1"),
        ({"G": [[1, 1]], "h": [1.5], "upper": 1}, "k is 1.5, not an integer between 1 and 2"),
        ({"G": [[1, 1]], "h": [3], "upper": 1}, "k is 3, not an integer"),
        ({"G": [[1, 1]], "h": [0], "upper": 1}, "k is 0, not an integer"),
    ],
)
def test_programs_that_are_not_top_k(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=f"TopK cannot solve .* {message}"):
        TopK(Program(**arguments))


@pytest.mark.parametrize(
    "solver", [DagShortestPath(programs.shortest_path(2)), TopK(programs.top_k(4, 2, at_most=False))]
)
def test_oracles_hand_over_sides_and_refuse_starts(solver: DagShortestPath | TopK) -> None:
    y, own = torch.ones(2, 4), Instance(upper=torch.ones(2, 4))
    torch.testing.assert_close(solver.solve(y, own).objective, HiGHS(solver.program).solve(y, own).objective)
    with pytest.raises(ShapeError, match="takes no start"):
        solver.solve(y, None, torch.zeros(2, 4))
    with pytest.raises(ShapeError, match="costs have batch shape"):
        solver.solve(y, Instance(d=torch.ones(1, 4)))


@pytest.mark.parametrize("weight", [0.1, 0.7, 1e-9, 3e8])
def test_the_k_of_a_row_is_whole_up_to_rounding(weight: float) -> None:
    for k in range(1, 8):
        assert TopK(Program(A=np.full((1, 8), weight), b=[sum([weight] * k)], upper=1)).k == k
    with pytest.raises(ProgramError, match="not an integer between 1 and 8"):
        TopK(Program(A=np.full((1, 8), weight), b=[2.001 * weight], upper=1))
