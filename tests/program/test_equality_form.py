"""The equality form against dense linear algebra: what is kept spans all rows, what is dropped follows from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.program import Program


def random_rows(rng: np.random.RandomState, m: int, n: int, dependent: int) -> np.ndarray:
    """A sparse-ish matrix whose last rows combine earlier ones, in random order."""
    base = rng.normal(size=(m - dependent, n)) * (rng.rand(m - dependent, n) < 0.4)
    base[np.arange(m - dependent), rng.permutation(n)[: m - dependent]] = 1.0
    mixed = rng.normal(size=(dependent, m - dependent)) * (rng.rand(dependent, m - dependent) < 0.5)
    mixed[:, 0] = 1.0
    return np.vstack([base, mixed @ base])[rng.permutation(m)]


@pytest.mark.parametrize("seed", range(30))
def test_dependent_rows_are_found_and_dropped(seed: int) -> None:
    rng = np.random.RandomState(seed)
    n = rng.randint(4, 30)
    dependent = rng.randint(0, 4)
    m = rng.randint(1, n - 1) + dependent if n > 3 else 2
    A = random_rows(rng, min(m, n), n, min(dependent, min(m, n) - 1))
    inside = rng.rand(n)
    form = Program(A=A, b=A @ inside, upper=1).equality_form()
    rank = np.linalg.matrix_rank(A)
    assert len(form.kept) == rank
    assert np.linalg.matrix_rank(form.matrix.toarray()) == rank
    assert sorted([*form.kept, *form.dropped]) == list(range(A.shape[0]))
    np.testing.assert_allclose(form.combination @ A[form.kept], A[form.dropped], atol=1e-9)


def test_rows_that_are_nearly_dependent_are_kept() -> None:
    """Two rows at an angle of about 10⁻⁶ are two rows; a multiple of a third one is none."""
    A = np.array([[1, 1, 0, 0, 0], [1, 1, 1e-6, 0, 0], [0, 0, 0, 1, 2], [0, 0, 0, 3, 6]])
    form = Program(A=A, b=A @ np.ones(5)).equality_form()
    assert {0, 1} < {*form.kept.tolist()}
    assert len(form.kept) == 3
    np.testing.assert_allclose(form.combination @ A[form.kept], A[form.dropped], atol=1e-9)


def test_flow_conservation_has_one_dependent_row() -> None:
    """Node-arc incidence: the rows of a connected graph add up to zero."""
    tails, heads = np.array([0, 0, 1, 2, 1]), np.array([1, 2, 3, 3, 2])
    A = np.zeros((4, 5))
    A[tails, range(5)], A[heads, range(5)] = -1, 1
    form = Program(A=A, b=[-1, 0, 0, 1], upper=1).equality_form()
    assert form.matrix.shape == (3, 5)
    with pytest.raises(ProgramError, match="combination of other rows"):
        Program(A=A, b=[-1, 0, 0, 2], upper=1).equality_form()


def test_inequalities_get_one_slack_each_and_bounds_stay_bounds() -> None:
    program = Program(
        A=[[1, 1, 1]], b=[1], G=[[1, 2, 0], [0, 1, 1]], h=[3, 4], lower=[0, -np.inf, 0], upper=[1, 2, np.inf]
    )
    form = program.equality_form()
    np.testing.assert_array_equal(form.matrix.toarray(), [[1, 1, 1, 0, 0], [1, 2, 0, 1, 0], [0, 1, 1, 0, 1]])
    np.testing.assert_array_equal(form.is_inequality, [False, True, True])
    lower, upper = form.bounds(program.sides(None, 1))
    np.testing.assert_array_equal(lower, [0, -np.inf, 0, 0, 0])
    np.testing.assert_array_equal(upper, [1, 2, np.inf, np.inf, np.inf])
    np.testing.assert_array_equal(form.right_hand_side(program.own_sides), [[1, 3, 4]])


def test_right_hand_sides_per_instance() -> None:
    A = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    program = Program(A=A, b=[1, 2], G=[[0, 0, 1.0]], h=[1])
    form = program.equality_form()
    sides = form.right_hand_side(replace(program.own_sides, b=np.array([[1.0, 2.0], [3.0, 6.0]])))
    assert sides.shape == (2, 2)
    with pytest.raises(ProgramError, match="instance 1: equality row"):
        form.right_hand_side(replace(program.own_sides, b=np.array([[1.0, 2.0], [3.0, 5.0]])))


def test_large_grids_stay_sparse() -> None:
    """A 60×60 grid: 3,600 rows, one of them dependent, found without a dense matrix."""
    k = 60
    number = np.arange(k * k).reshape(k, k)
    tails = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    heads = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    arcs = np.arange(len(tails))
    A = sp.csr_array((np.repeat([-1.0, 1.0], len(arcs)), (np.concatenate([tails, heads]), np.tile(arcs, 2))))
    b = np.zeros(k * k)
    b[0], b[-1] = -1, 1
    form = Program(A=A, b=b, upper=1).equality_form()
    assert len(form.dropped) == 1
    assert form.matrix.nnz < A.nnz


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_any_size_that_depend_on_others_are_dropped_without_a_word(seed: int) -> None:
    """The last row is a combination of the second and third, whose right-hand sides are zero; the others' are not."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(12, 30)) * (rng.random((12, 30)) < 0.3)
    b = A @ rng.normal(size=30)
    b[1:3] = 0.0
    sizes = 10.0 ** rng.uniform(-6, 6, 13)
    A = np.vstack([A, A[1] - 2 * A[2]]) * sizes[:, None]
    form = Program(A=A, b=np.append(b, 0.0) * sizes, lower=-100.0, upper=100.0).equality_form()
    assert len(form.dropped) == 1


def test_a_row_that_depends_on_one_which_is_nearly_dependent_itself_is_dropped() -> None:
    """Row 2 is almost row 0; row 3 is the sum of all: the first is kept, the second is not."""
    A = np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 1e-4]])
    A = np.vstack([A, A.sum(0)])
    form = Program(A=A, b=A.sum(1)).equality_form()
    assert len(form.kept) == 3
    np.testing.assert_allclose(form.combination @ A[form.kept], A[form.dropped], atol=1e-9)
