"""Q as a sum of squares, predicted right-hand sides, and rows that may be broken at a price."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.errors import ProgramError, ShapeError
from dflearn.program import Instance, Program, Quadratic
from support import programs

RNG = np.random.RandomState(0)
FACTOR = RNG.normal(size=(3, 6))
DEFINITE = FACTOR.T @ FACTOR + np.diag(RNG.uniform(0.1, 1, 6))
SHUFFLED = RNG.permutation(40)
CHAIN = (np.diag(np.full(40, 2.1)) - np.eye(40, k=1) - np.eye(40, k=-1))[SHUFFLED][:, SHUFFLED]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    "matrix",
    [
        DEFINITE,
        FACTOR.T @ FACTOR,  # singular
        np.diag([1.0, 0, 2]),
        sp.block_diag([sp.coo_array(DEFINITE), np.zeros((2, 2)), [[3.0]]]),
        CHAIN,
        np.diag([1e-6, 1, 1e6]) @ (np.eye(3) + 0.5 * np.ones((3, 3))) @ np.diag([1e-6, 1, 1e6]),
    ],
)
def test_a_matrix_is_taken_apart(matrix: np.ndarray, unit: float) -> None:
    Q = Quadratic.of(unit * matrix)
    dense = unit * (matrix.toarray() if sp.issparse(matrix) else matrix)
    scale = np.sqrt(np.where(dense.diagonal() > 0, dense.diagonal(), 1.0))
    again = (Q.factor.T @ Q.factor).toarray() + np.diag(Q.diagonal)
    np.testing.assert_allclose(again / scale / scale[:, None], dense / scale / scale[:, None], atol=1e-10)
    np.testing.assert_array_equal(Q.matrix.toarray(), dense)
    definite = np.linalg.eigvalsh(dense / scale / scale[:, None]).min() > 1e-6
    assert (Q.definite is not None) == definite
    w = RNG.normal(size=(2, 4, len(dense)))
    np.testing.assert_allclose(Q.times(w), w @ dense, rtol=1e-9, atol=1e-12 * unit)
    np.testing.assert_allclose(Q.value(w), 0.5 * np.einsum("abi,ij,abj->ab", w, dense, w), rtol=1e-9)
    np.testing.assert_allclose(Q.slope(torch.tensor(w)), w @ dense, rtol=1e-9, atol=1e-12 * unit)


def test_few_entries_stay_few() -> None:
    """A chain, in whatever order, has a factor with two entries a row."""
    assert Quadratic.of(CHAIN).factor.nnz == 2 * 40 - 1


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], "least eigenvalue .* is -1"),
        ([[1.0, 2.0], [0.0, 1.0]], r"not symmetric: Q\[0, 1\] = 2"),
        ([[-1.0, 0.0], [0.0, 1.0]], r"Q\[0, 0\] = -1"),
        ([[0.0, 1.0], [1.0, 1.0]], "not positive semidefinite"),
        (DEFINITE[:2], "square"),
        ([[np.nan]], "NaN"),
    ],
)
def test_what_is_not_convex_is_refused(matrix: np.ndarray, message: str) -> None:
    for unit in (1e-6, 1.0, 1e6):
        with pytest.raises(ProgramError, match=message if unit == 1 else "Q"):
            Program(Q=unit * np.asarray(matrix))


def test_a_factor_is_never_multiplied_out() -> None:
    wide = sp.csr_array(np.ones((1, 40_000)))
    program = Program(A=wide, b=[1], Q=Quadratic(wide, np.full(40_000, 2.0)))
    w = torch.full((40_000,), 0.5, dtype=torch.float64)
    assert program.objective(torch.zeros(40_000, dtype=torch.float64), w).item() == 0.5 * (20_000**2 + 40_000 * 0.5)
    with pytest.raises(ProgramError, match="factor"):
        Quadratic()
    with pytest.raises(ProgramError, match="not convex"):
        Quadratic(diagonal=[1.0, -1.0])
    tied = sp.diags_array([np.full(4000, 2.0), np.full(3999, -1.0), np.full(3999, -1.0)], offsets=[0, 1, -1])
    with pytest.raises(ProgramError, match="give a factor"):
        Program(Q=tied)


def test_identity() -> None:
    """A program without the new parts has the fingerprint that it had before there were any."""
    plain = Program(A=[[1, 2]], b=[3], upper=1)
    assert plain.fingerprint == "56dc379c3a2aec4ec26b9e15aa0f62a99817b457e895057e2659ec54d86b1fe1"
    zero = Program(A=[[1, 2]], b=[3], upper=1, Q=np.zeros((2, 2)), B=np.zeros((1, 2)), recourse=False)
    assert zero.fingerprint == plain.fingerprint
    assert (zero.Q, zero.B, zero.H, zero.recourse) == (None, None, None, None)
    others = [
        replace(plain, Q=np.eye(2)),
        replace(plain, Q=2 * np.eye(2)),
        replace(plain, Q=Quadratic(np.eye(2))),
        replace(plain, B=[[1.0, 0.0]]),
        replace(plain, recourse=[0]),
        replace(plain, recourse=[1]),
    ]
    prints = {program.fingerprint for program in (plain, *others)}
    assert len(prints) == len(others) + 1
    for program in others:
        copy = pickle.loads(pickle.dumps(program))
        assert (copy.fingerprint, replace(program).fingerprint) == (program.fingerprint,) * 2


def test_the_objective() -> None:
    program = programs.portfolio()
    assert program.Q is not None
    y, w, v = (torch.tensor(RNG.normal(size=(5, 8)), requires_grad=True) for _ in range(3))
    Q = torch.tensor(program.Q.matrix.toarray())
    wanted = -(y * w).sum(-1) + 0.5 * torch.einsum("bi,ij,bj->b", w, Q, w)
    torch.testing.assert_close(program.objective(y, w), wanted)
    torch.testing.assert_close(program.objective.slope(y, w), -y + w @ Q)
    difference = program.objective.difference(y, w, v)
    torch.testing.assert_close(difference, program.objective(y, w) - program.objective(y, v))
    assert not program.objective.difference(y, w, w.clone()).any()
    assert torch.autograd.gradcheck(program.objective, (y, w))
    assert torch.autograd.gradcheck(program.objective.difference, (y, w, v))
    assert program.objective(y.float(), w.float()).dtype == torch.float32


def test_right_hand_sides_follow_what_is_predicted() -> None:
    program = programs.predicted_demand()
    y = torch.tensor([[1.0, 2, 3, 10, 5], [1, 2, 3, 0, 0]], dtype=torch.float64, requires_grad=True)
    instance = program.realize(y)
    assert instance is not None
    assert instance.b is not None
    assert instance.h is not None
    assert instance.b.tolist() == [[3.0], [2.0]]
    assert instance.h.tolist() == [[4.0], [3.0]]
    own = program.realize(y, Instance(b=torch.tensor([[7.0], [8.0]]), d=torch.zeros(2, 3)))
    assert own is not None
    assert own.b is not None
    assert own.b.tolist() == [[8.0], [8.0]]
    assert own.d is not None
    (gradient,) = torch.autograd.grad(instance.b.sum() + instance.h.sum(), y)
    assert gradient.tolist() == [[0, 0, 0, pytest.approx(0.1), pytest.approx(0.2)]] * 2
    assert programs.portfolio().realize(y) is None
    with pytest.raises(ShapeError, match="costs must have"):
        program.realize(y[:, :2])


def test_elastic_rows() -> None:
    program = replace(
        programs.predicted_demand(),
        constraint_names={"demand": ("b", 0, 1), "room": ("h", 0, -1)},
        variable_names=("x", "y", "z"),
        Q=np.eye(3),
    )
    soft = program.elastic(["demand", "room"], [(2.0, 7.0), 3.0])
    assert soft.variable_names == ("x", "y", "z", "above demand", "below demand", "below room")
    assert soft.A.toarray().tolist() == [[1, 1, 1, -1, 1, 0]]
    assert soft.G.toarray().tolist() == [[1, 2, 0, 0, 0, -1]]
    assert soft.d.tolist() == [0, 0, 0, 2, 7, 3]
    assert soft.recourse is not None
    assert soft.recourse.tolist() == [False] * 3 + [True] * 3
    assert soft.p == 5
    assert soft.Q is not None
    assert soft.Q.matrix.toarray().tolist() == np.diag([1, 1, 1, 0, 0, 0]).tolist()
    both = program.elastic("predicted", 1.0)
    assert both.fingerprint == program.elastic([("b", 0), ("h", 0)], 1.0).fingerprint
    assert program.elastic(("b", 0), 1.0).n == 5
    y = torch.zeros(5)
    w = torch.tensor([1.0, 1, 1, 1, 0, 0], dtype=torch.float64)  # one more than the demand of 2
    assert bool(soft.is_feasible(w, soft.realize(y)))
    assert soft.objective(y.double(), w).item() == 2 + 1.5
