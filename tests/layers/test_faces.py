"""`engine.hard.face` and the kernel beside it, on faces in any units, against the projection in rational numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.engine.hard import face as faces
from dflearn.engine.smoothed.cpu import SmoothedRows
from dflearn.engine.smoothed.newton import OFF, ROUNDED


def projection(M: np.ndarray, v: np.ndarray) -> np.ndarray:
    """P v in rational numbers: v less its parts along the rows, made orthogonal one after the other."""
    x, basis = [Fraction(value) for value in v], []
    for row in M:
        own = [Fraction(value) for value in row]
        for other in basis:
            own = less(own, other)
        if any(own):
            basis.append(own)
    for other in basis:
        x = less(x, other)
    return np.array([float(value) for value in x])


def less(x: list[Fraction], along: list[Fraction]) -> list[Fraction]:
    share = sum(a * b for a, b in zip(x, along, strict=True)) / sum(a * a for a in along)
    return [a - share * b for a, b in zip(x, along, strict=True)]


def a_face(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of small whole numbers, some of them sums of others, in units 2^±20 of rows and columns; v in those units."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(3, 9), rng.integers(1, 6)
    M = rng.integers(-3, 4, size=(m, n)).astype(float)
    if seed % 3 == 0:
        M = np.vstack([M, M[0] - 2 * M[-1]])
    M = M[np.abs(M).sum(1) > 0]
    units = np.exp2(rng.integers(-20, 21, size=n))
    return np.exp2(rng.integers(-20, 21, size=len(M)))[:, None] * M * units, rng.normal(size=n)


def check(M: np.ndarray, v: np.ndarray, x: np.ndarray, z: np.ndarray, *, broken: float, noise: float) -> None:
    np.testing.assert_allclose(x, projection(M, v), rtol=0, atol=1e-9 * np.abs(v).max())
    assert (np.abs(M @ x) <= broken * (np.abs(M) @ np.abs(x)) + noise * (np.abs(M) @ np.abs(v))).all()
    assert (np.abs(M.T @ z - (v - x)) <= 1e-9 * np.abs(v).max() + 1e-12 * (np.abs(M).T @ np.abs(z))).all()


@pytest.mark.parametrize("seed", range(20))
def test_the_projection_is_that_of_rational_numbers(seed: int) -> None:
    """By linear algebra, and through `SmoothedRows`, which asks for that where the kernel says that it is off the face."""
    M, v = a_face(seed)
    check(M, v, *faces.projected(M, v), broken=1e-9, noise=1e-12)
    rows = SmoothedRows(dfl.Program(G=M, h=np.ones(len(M))))
    inside, in_force = np.ones((1, len(v)), np.uint8), np.ones((1, len(M)), np.uint8)
    face = rows.face(inside, in_force, np.ones(1))
    x, z = face.along(v[None])[0], face.prices(v[None])[0]
    check(M, v, x, z, broken=OFF, noise=ROUNDED)


def test_a_vertex_has_no_gradient_in_any_units() -> None:
    """Three rows in force over three variables inside, of sizes 1e-3, 1 and 1e3: the decision cannot move."""
    a, b = 2.0**-11, 2.0**-23
    program = dfl.Program(
        G=[[3, 0, 0, -a, a, -b], [-1536, 0, -0.75, 0, 0, 2.0**-12], [0, 0, -768, 768, 256, 0.1875]],
        h=[1.125 * 2.0**-10, -1.6875, -384],
        lower=[0, 0, 0, 0, 0, -4096],
        upper=[a, 1, 1, 1, 1, np.inf],
    )
    y = torch.tensor([[-1e8, 40.0, -6e3, -25.0, 1e3, 0.01]], dtype=torch.float64)
    for regularizer in ("squared", "norm"):
        layer = dfl.Smoothed(program, 2.0**-5, regularizer=regularizer)
        leaf = y.clone().requires_grad_(True)
        w = layer(leaf)
        moved = layer(y + 1e-3 * torch.ones_like(y))
        (gradient,) = torch.autograd.grad(w[..., -1].sum(), leaf)
        assert torch.equal(gradient, torch.zeros_like(gradient)) == torch.allclose(moved, w, rtol=1e-9, atol=0.0)
