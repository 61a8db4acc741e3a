"""The tiled sparse factorization against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dflearn.engine.linear_algebra.cholesky import SparseFactor, substitute
from dflearn.engine.linear_algebra.lanes import LANES, as_tile, tiles


def random_matrix(seed: int) -> sp.csr_array:
    rng = np.random.RandomState(seed)
    m, n = rng.randint(1, 20), rng.randint(20, 40)
    dense = rng.normal(size=(m, n)) * (rng.rand(m, n) < rng.choice([0.1, 0.5, 1.0]))
    dense[np.arange(m), rng.permutation(n)[:m]] = 1 + rng.rand(m)
    return sp.csr_array(dense)


def solved(factor: SparseFactor, theta: np.ndarray, x: np.ndarray, vanish: float = 0.0) -> np.ndarray:
    """(M Θ Mᵀ)⁻¹ x, lane by lane."""
    values, out = factor.numeric(theta, vanish), as_tile(x)
    substitute.run(factor.plan.ctypes.data, values.ctypes.data, out.ctypes.data)
    return np.array(out["lane"])


@pytest.mark.parametrize("seed", range(12))
def test_solves_with_every_lane(seed: int) -> None:
    matrix = random_matrix(seed)
    rng = np.random.RandomState(seed)
    factor = SparseFactor.of(matrix)
    theta, x = rng.uniform(0.1, 1, (matrix.shape[1], LANES)), rng.normal(size=(matrix.shape[0], LANES))
    solution = solved(factor, theta, x)
    dense = factor.matrix.toarray()
    for t in range(LANES):
        np.testing.assert_allclose(solution[:, t], np.linalg.solve(dense * theta[:, t] @ dense.T, x[:, t]), rtol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_dependent_rows_are_left_out_of_consistent_systems(seed: int) -> None:
    """Singular M Θ Mᵀ, right-hand side in its range: the answer solves the system, whichever rows were left out."""
    rng = np.random.RandomState(seed)
    base = random_matrix(seed).toarray()
    matrix = sp.csr_array(np.vstack([base, base[:2].sum(0, keepdims=True), 2 * base[:1]]))
    factor = SparseFactor.of(matrix)
    theta = (rng.rand(matrix.shape[1], LANES) < 0.6).astype(float)
    dense = factor.matrix.toarray()
    x = np.stack([(dense * theta[:, t]) @ rng.normal(size=dense.shape[1]) for t in range(LANES)], axis=1)
    solution = solved(factor, theta, x, vanish=1e-11)
    for t in range(LANES):
        np.testing.assert_allclose(dense * theta[:, t] @ dense.T @ solution[:, t], x[:, t], atol=1e-9)


def test_a_grid_fills_in_little() -> None:
    """Nested elimination of a 30×30 grid needs far fewer entries than its 405,450 dense ones."""
    k = 30
    number = np.arange(k * k).reshape(k, k)
    ends = np.concatenate(
        [
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()]),
            np.stack([number[:-1].ravel(), number[1:].ravel()]),
        ],
        1,
    )
    arcs = np.arange(ends.shape[1])
    incidence = sp.csr_array((np.repeat([-1.0, 1.0], len(arcs)), (ends.ravel(), np.tile(arcs, 2))))
    assert SparseFactor.of(sp.csr_array(incidence[1:])).entries < 12_000


def test_tiles_cover_every_instance_once() -> None:
    index = np.array([3, 1, 4, 15, 9, 2, 6, 5, 35])
    parts = tiles(index)
    assert [used for _, used in parts] == [8, 1]
    np.testing.assert_array_equal(np.concatenate([tile[:used] for tile, used in parts]), index)
    assert tiles(np.zeros(0, np.int64)) == []
