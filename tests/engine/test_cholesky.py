"""The tiled sparse factorization against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dflearn.engine.linear_algebra import curved
from dflearn.engine.linear_algebra.cholesky import SparseFactor
from dflearn.engine.linear_algebra.lanes import LANES, tiles


def random_matrix(seed: int) -> sp.csr_array:
    rng = np.random.RandomState(seed)
    m, n = rng.randint(1, 20), rng.randint(20, 40)
    dense = rng.normal(size=(m, n)) * (rng.rand(m, n) < rng.choice([0.1, 0.5, 1.0]))
    dense[np.arange(m), rng.permutation(n)[:m]] = 1 + rng.rand(m)
    return sp.csr_array(dense)


@pytest.mark.parametrize("seed", range(12))
def test_solves_with_every_lane(seed: int) -> None:
    matrix = random_matrix(seed)
    rng = np.random.RandomState(seed)
    factor = SparseFactor.of(matrix)
    theta, x = rng.uniform(0.1, 1, (matrix.shape[1], LANES)), rng.normal(size=(matrix.shape[0], LANES))
    solution = factor.numeric(theta).solve(x)
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
    solution = factor.numeric(theta, vanish=1e-11).solve(x)
    for t in range(LANES):
        np.testing.assert_allclose(dense * theta[:, t] @ dense.T @ solution[:, t], x[:, t], atol=1e-9)


def random_lifting(seed: int, dependent: int = 0) -> tuple[sp.csr_array, slice, sp.csr_array]:
    """Rows (A, 0), (R, −I), (G, 0), which of them are R's, and RᵀR; the last rows of G are sums of others."""
    rng = np.random.RandomState(seed)
    n, k = rng.randint(8, 25), rng.randint(1, 25)

    def rows(count: int) -> np.ndarray:
        entries = rng.normal(size=(count, n)) * (rng.rand(count, n) < 0.2)
        entries[np.arange(count), rng.randint(n, size=count)] = 1 + rng.rand(count)
        return entries

    A, R, G = rows(rng.randint(0, 4)), rows(k), rows(rng.randint(1, 4))
    G = np.vstack([G, *([A.sum(0) + G.sum(0)] * dependent)])
    whole = [np.hstack([part, np.zeros((len(part), k))]) for part in (A, G)]
    matrix = sp.csr_array(np.vstack([whole[0], np.hstack([R, -np.eye(k)]), whole[1]]))
    return matrix, slice(len(A), len(A) + k), sp.csr_array(R.T @ R)


@pytest.fixture
def always_curved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curved, "LEAST", 0.0)
    monkeypatch.setattr(curved, "GAIN", np.inf)


@pytest.mark.usefixtures("always_curved")
@pytest.mark.parametrize("seed", range(10))
def test_a_lifted_matrix_by_the_pattern_of_its_squares(seed: int) -> None:
    """The same system, solved through RᵀR: all weights, and those of a face, on which rows may depend on each other."""
    matrix, lifting, P = random_lifting(seed, dependent=seed % 3)
    n, rng = P.shape[0], np.random.RandomState(seed)
    factor = SparseFactor.quadratic(matrix, lifting, P)
    assert len(factor.pattern.curve)
    dense = factor.matrix.toarray()
    np.testing.assert_allclose(dense, matrix.toarray()[factor.order] * factor.scale[:, None], atol=1e-15)
    on_face = (rng.rand(n, LANES) < 0.8).astype(float)
    for theta in (rng.uniform(1e-6, 1, (n, LANES)), on_face):
        weight = rng.uniform(0.5, 2, LANES) * np.ones((len(dense[0]) - n, 1)) if theta is not on_face else 1.0
        whole = np.vstack([theta, np.broadcast_to(weight, (dense.shape[1] - n, LANES))])
        normal = [dense * whole[:, t] @ dense.T for t in range(LANES)]
        x = np.stack([one @ rng.normal(size=len(one)) for one in normal], axis=1)
        solution = factor.numeric(whole, vanish=1e-11).solve(x)
        for t in range(LANES):
            np.testing.assert_allclose(normal[t] @ solution[:, t], x[:, t], atol=1e-9)


def test_the_pattern_of_squares_where_it_takes_less() -> None:
    """A chain of differences of neighbours, lifted by a dense factor of the same Q: a tenth of the multiplications, or less."""
    n = 60
    step = (np.eye(n) - np.eye(n, k=1))[:-1]
    Q, A = step.T @ step + 0.1 * np.eye(n), np.eye(n)[::2] + np.eye(n)[1::2]
    R = np.linalg.qr(np.random.RandomState(0).normal(size=(n, n)))[0] @ np.linalg.cholesky(Q).T
    matrix = sp.csr_array(np.vstack([np.hstack([A, np.zeros((len(A), n))]), np.hstack([R, -np.eye(n)])]))
    lifting, P = slice(len(A), len(A) + n), sp.csr_array(Q)
    assert SparseFactor.quadratic(matrix, lifting, P).work == SparseFactor.of(matrix).work < curved.LEAST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curved, "LEAST", 1e3)
        assert SparseFactor.quadratic(matrix, lifting, P).work < 0.1 * SparseFactor.of(matrix).work


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
