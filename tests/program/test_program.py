"""Programs: what they refuse and how they say so, what they are, their objective with its gradients, their instances."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.errors import DflearnError, OptionError, ProgramError, ShapeError
from dflearn.program import Instance, Objective, Program

ONES = np.ones((1, 3))

# -- what a program refuses -----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing tells n": ({}, "number of variables is unknown: pass A, G, S, d, Q, array bounds or n"),
    "parts disagree": ({"A": ONES, "b": [1], "n": 4}, r"disagree on the number of variables: \{'n': 4, 'A': 3\}"),
    "n is negative": ({"n": -1}, "n must be a positive integer, got -1"),
    "no variables": ({"A": np.zeros((0, 0))}, "at least one variable"),
    "a vector for a matrix": ({"A": [1, 2], "b": [1]}, r"A must be a matrix, got shape \(2,\)"),
    "ragged lines": ({"G": [[1, 2], [3]], "h": [1, 1]}, "G has lines of different lengths"),
    "words for numbers": ({"A": [["a", "b"]], "b": [1]}, "A cannot be read as a matrix of numbers"),
    "NaN in a matrix": ({"A": [[1, np.nan]], "b": [1]}, "A holds a NaN or an infinity"),
    "an empty row": ({"A": [[1, 1], [0, 0]], "b": [1, 0]}, "row 1 of A is empty .* drop it with its b"),
    "a right-hand side too long": ({"G": ONES, "h": [1, 2]}, r"h must have shape \(1,\), got \(2,\)"),
    "a right-hand side without rows": ({"n": 2, "b": [1]}, r"b must have shape \(0,\), got \(1,\)"),
    "infinity on the right": ({"A": ONES, "b": [np.inf]}, r"b\[0\] is inf: finite numbers only"),
    "NaN in a bound": ({"n": 2, "lower": [0, np.nan]}, r"lower\[1\] is nan: numbers or ±inf only"),
    "crossed bounds": ({"n": 2, "lower": [0, 2], "upper": 1}, "bounds of variable 1 cross: lower 2.0, upper 1.0"),
    "a lower bound of infinity": (
        {"n": 1, "lower": np.inf},
        "bounds of variable 0 leave nothing: lower inf, upper inf",
    ),
    "an upper bound of minus infinity": (
        {"n": 1, "lower": -np.inf, "upper": -np.inf},
        "leave nothing: lower -inf, upper -inf",
    ),
    "an infinite d": ({"n": 2, "d": [0, np.inf]}, r"d\[1\] is inf: finite numbers only"),
    "a mask too short": ({"n": 3, "integer": [True, False]}, r"boolean mask of shape \(3,\) or indices below 3"),
    "a negative index": ({"n": 3, "integer": [-1]}, "indices below 3"),
    "Q of another size": ({"A": ONES, "b": [1], "Q": np.eye(2)}, "disagree"),
    "B of another size": ({"A": ONES, "b": [1], "B": np.ones((2, 3))}, r"B maps the 3 .* its shape is \(1, 3\)"),
    "recourse that is not there": ({"n": 3, "recourse": [5]}, "recourse must be"),
    "maximization without S": ({"n": 3, "upper": 1, "sense": "maximize"}, "to maximize"),
    "an unknown sense": ({"n": 3, "sense": "max"}, "sense is 'minimize' or 'maximize', got 'max'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises((OptionError, ProgramError), match=message) as caught:
        Program(**arguments)
    assert isinstance(caught.value, DflearnError)
    assert isinstance(caught.value, ValueError)


# -- what a program is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "matrix",
    [
        [[1, 0, 2]],
        np.array([[1, 0, 2]]),
        sp.coo_matrix(np.array([[1.0, 0, 2]])),
        sp.csc_array(np.array([[1, 0, 2]])),
        torch.tensor([[1.0, 0, 2]]),
        torch.tensor([[1.0, 0, 2]]).to_sparse(),
        sp.coo_array(([0.5, 0.5, 2.0, 0.0], ([0, 0, 0, 0], [0, 0, 2, 1])), shape=(1, 3)),
    ],
    ids=["list", "integers", "coo matrix", "csc array", "tensor", "sparse tensor", "duplicates and zeros"],
)
def test_matrices_of_any_kind(matrix: Any) -> None:
    program = Program(A=matrix, b=torch.tensor([1]), upper=torch.ones(3), lower=[0, 0, 0])
    reference = Program(A=np.array([[1.0, 0, 2]]), b=[1], upper=1)
    assert program.A.nnz == 2
    assert program.fingerprint == reference.fingerprint


FULL: dict[str, Any] = {
    "A": ONES, "b": [1.0], "G": 2 * ONES, "h": [5.0], "lower": 0.0, "upper": 1.0,
    "S": np.eye(3), "d": [1.0, 2.0, 3.0], "integer": [0], "sense": "minimize",
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("A", 2 * ONES), ("b", [2.0]), ("G", ONES), ("h", [6.0]), ("lower", -1.0), ("upper", 2.0), ("S", 2 * np.eye(3)),
        ("S", None), ("d", 0.0), ("integer", [1]), ("integer", False), ("sense", "maximize"),
    ],
)  # fmt: skip
def test_fingerprint_sees_every_part(part: str, other: Any) -> None:
    assert Program(**FULL).fingerprint != Program(**{**FULL, part: other}).fingerprint


def test_fingerprint_sees_content_only() -> None:
    program = Program(**FULL)
    assert Program(**{**FULL, "name": "another"}).fingerprint == program.fingerprint
    assert Program(**{**FULL, "A": sp.coo_array(ONES), "lower": [-0.0, 0, 0]}).fingerprint == program.fingerprint
    assert pickle.loads(pickle.dumps(program)).fingerprint == program.fingerprint
    # The same on every machine and in every process: caches on disk rely on it.
    assert program.fingerprint == "c9294c4e74898dd81600ffb753d877165f9bd8420a12005585344736f933fd4e"


# -- the objective --------------------------------------------------------------------------------------------------

MAPS: dict[str, Any] = {
    "identity": None,
    "one cost per variable": sp.csr_array(([2.0, -1.0, 3.0], ([0, 1, 3], [1, 0, 1])), shape=(4, 2)),  # row 2 is empty
    "each its own cost": np.diag([2.0, -1.0, 0.0, 3.0]),
    "each the next one's cost": np.diag([2.0, -1.0, 3.0], 1),
    "each the last one's cost": np.diag([2.0, -1.0, 3.0], -1),
    "general": np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 4.0], [0.0, 0.0, 0.0], [3.0, 0.0, 1.0]]),
}
D = np.array([0.5, -1.0, 2.0, 0.0])


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3), (0,)])
def test_objective_values(name: str, batch: tuple[int, ...]) -> None:
    S = MAPS[name]
    objective = Objective(4, S, D)
    dense = torch.eye(4, dtype=torch.float64) if S is None else torch.tensor(sp.csr_array(S).toarray())
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(*batch, objective.p, generator=generator, dtype=torch.float64)
    w, v = (torch.randn(*batch, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    c = y @ dense.T + torch.tensor(D)
    torch.testing.assert_close(objective.vector(y), c)
    torch.testing.assert_close(objective(y, w), (c * w).sum(-1))
    torch.testing.assert_close(objective.transpose(v), v @ dense)
    own = torch.randn(*batch, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(objective.vector(y, Instance(d=own)), y @ dense.T + own)
    torch.testing.assert_close(objective.vector(y, Instance(h=own)), c)


@pytest.mark.parametrize("name", MAPS)
def test_objective_gradients(name: str) -> None:
    objective = Objective(4, MAPS[name], D)
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, objective.p, generator=generator, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(objective.vector, (y,))
    assert torch.autograd.gradcheck(objective.transpose, (w,))
    assert torch.autograd.gradcheck(objective, (y, w))
    assert torch.autograd.gradgradcheck(objective, (y, w))


# -- instances ------------------------------------------------------------------------------------------------------

PROGRAM = Program(A=ONES, b=[1], G=np.eye(3), h=np.ones(3), upper=2)


def test_sides() -> None:
    shared = PROGRAM.sides(None, 2)
    assert shared.upper is PROGRAM.upper
    h = torch.rand(2, 3)
    own = PROGRAM.sides(Instance(h=h, d=torch.zeros(2, 3)), 2)
    assert set(own.parts()) == {"b", "h", "lower", "upper"}
    assert own.differing == ("h",)
    assert own.h.shape == (2, 3)
    assert own.h.dtype == np.float64
    h[:] = 0
    assert own.h.any(), "sides must not change when the caller's tensor does"
    assert own.b is PROGRAM.b


def test_sides_of_grids_and_of_one() -> None:
    grid = PROGRAM.sides(Instance(h=torch.arange(12.0).reshape(2, 2, 3)), 4).h
    assert grid.tolist() == np.arange(12.0).reshape(4, 3).tolist()
    assert PROGRAM.sides(Instance(h=torch.ones(3)), 1).h.shape == (1, 3)
    assert Program(n=2).sides(Instance(b=torch.ones(5, 0)), 5).b.shape == (5, 0)
    none = PROGRAM.sides(Instance(h=torch.ones(0, 3)), 0)
    assert none.h.shape == (0, 3)
    assert none.right_hand_sides().shape == (0, 4)
    h = torch.rand(1000, 3, dtype=torch.float64)
    right = PROGRAM.sides(Instance(h=h), 1000).right_hand_sides()
    np.testing.assert_array_equal(right, np.hstack([np.tile(PROGRAM.b, (1000, 1)), h.numpy()]))


@pytest.mark.parametrize(
    ("instance", "error", "message"),
    [
        (
            Instance(h=torch.ones(2, 2)),
            ShapeError,
            r"the instance's h must have shape \(\*batch, 3\) for 2 .* got \(2, 2\)",
        ),
        (Instance(h=torch.ones(3, 3)), ShapeError, r"for 2 instances; got \(3, 3\)"),
        (Instance(h=torch.tensor(1.0)), ShapeError, r"got \(\)"),
        (Instance(d=torch.ones(2, 4)), ShapeError, r"the instance's d must have shape \(\*batch, 3\)"),
        (Instance(h=np.ones((2, 3))), ShapeError, "the instance's h must be a tensor, got a ndarray"),
        (Instance(b=torch.tensor([[1.0], [np.nan]])), ShapeError, "instance 1: b holds a NaN or an infinity"),
        (Instance(d=torch.full((2, 3), np.inf)), ShapeError, "instance 0: d holds a NaN or an infinity"),
        (Instance(upper=torch.tensor([[np.inf] * 3, [1, np.nan, 1]])), ShapeError, "instance 1: upper holds a NaN$"),
        (
            Instance(upper=torch.tensor([[1.0] * 3, [1, -1, 1]])),
            ProgramError,
            "variable 1 of instance 1 cross: lower 0.0",
        ),
    ],
)
def test_sides_refuse(instance: Instance, error: type[DflearnError], message: str) -> None:
    with pytest.raises(error, match=message):
        PROGRAM.sides(instance, 2)


def worst_share(program: Program, w: np.ndarray) -> float:
    """Row by row, bound by bound."""
    worst = 0.0
    for row, side in zip(program.A.toarray(), program.b, strict=True):
        worst = max(worst, abs(row @ w - side) / (abs(side) + np.abs(row * w).sum()))
    for row, side in zip(program.G.toarray(), program.h, strict=True):
        worst = max(worst, (row @ w - side) / (abs(side) + np.abs(row * w).sum()))
    for x, low, high in zip(w, program.lower, program.upper, strict=True):
        size = max([abs(x), *(abs(side) for side in (low, high) if np.isfinite(side))])
        worst = max(worst, (low - x) / size if x < low else 0.0, (x - high) / size if x > high else 0.0)
    return worst


def test_violation() -> None:
    w = torch.tensor(
        [[0.25, 0.25, 0.5], [1.0, 1.0, 1.0], [-0.5, 0.5, 1.0], [2.5, -1.5, 0.0], [0.0, 1.5, -0.5]]
    ).double()
    own = Instance(b=torch.full((5, 1), 3.0), h=torch.full((5, 3), 3.0), lower=torch.full((5, 3), -2.0))
    assert PROGRAM.violation(w).tolist() == pytest.approx([worst_share(PROGRAM, x) for x in w.numpy()])
    moved = replace(PROGRAM, b=np.full(1, 3.0), h=np.full(3, 3.0), lower=np.full(3, -2.0))
    assert PROGRAM.violation(w, own).tolist() == pytest.approx([worst_share(moved, x) for x in w.numpy()])
    assert PROGRAM.violation(w)[0] == 0
    assert PROGRAM.violation(w)[1:].min() > 0.1
    assert PROGRAM.violation(w.reshape(5, 1, 3)).shape == (5, 1)
    assert PROGRAM.violation(w[0]).shape == ()
    assert PROGRAM.violation(w[:0]).shape == (0,)
    with pytest.raises(ShapeError, match=r"decisions must have shape \(\*batch, 3\)"):
        PROGRAM.violation(torch.ones(3, 2))


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("rows", [1e-8, 1.0, 1e8])
def test_feasibility_knows_no_unit(unit: float, rows: float) -> None:
    """w₁ + w₂ ≤ 1, w₁ = 2 w₃ and 0 ≤ w ≤ 1, in any units of rows and decisions; labels may be stored in float32."""
    program = Program(
        G=rows * np.array([[1.0, 1, 0]]),
        h=[rows * unit],
        A=rows * np.array([[1.0, 0, -2]]),
        b=[0],
        upper=[unit, unit, np.inf],
    )
    good = unit * torch.tensor([[0.6, 0.4, 0.3], [0, 1, 0], [1 / 3, 2 / 3, 1 / 6], [1, 0, 0.5]], dtype=torch.float64)
    bad = unit * torch.tensor([[0.6, 0.41, 0.3], [0.6, 0.4, 0.31], [0, 1.001, 0], [0, 0.5, -0.01]], dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        assert program.is_feasible(good.to(dtype)).all()
        assert not program.is_feasible(bad.to(dtype)).any()
    assert not program.is_feasible(torch.full((2, 3), torch.nan)).any()


def test_a_small_row_beside_large_decisions() -> None:
    """The last row holds small numbers, and is as good a row as any."""
    program = Program(G=[[1.0, 0], [0, 1]], h=[1e4, 1e-3])
    assert program.is_feasible(torch.tensor([1e4, 1e-3])).item()
    assert not program.is_feasible(torch.tensor([1e4, 2e-3])).item()
    integer = Program(G=[[1.0, 1]], h=[3e7], upper=4e7, integer=True)
    assert integer.is_feasible(torch.tensor([2.9e7, 1e6])).item()
    assert not integer.is_feasible(torch.tensor([2.9e7, 1.1e6])).item()
