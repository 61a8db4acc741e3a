"""The check of a linear program's answer, against its formulas written out one instance at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.program import Instance, Program
from dflearn.solvers.certificate import Certifier


@pytest.mark.parametrize("seed", range(20))
def test_the_check_is_its_formula(seed: int) -> None:
    """Random decisions, prices and sides, three instances at once, against the bound and the errors written out row by row."""
    rng, n, count = np.random.RandomState(seed), 5, 3
    A, G = rng.normal(size=(2, n)), rng.normal(size=(3, n))
    lower, upper = np.full((count, n), -1.0), rng.uniform(0.5, 2, (count, n))
    w = np.clip(rng.uniform(-1.5, 2.5, (count, n)), lower, upper)
    spare = rng.choice([0.0, 0.7], (count, 3))
    b, h = w @ A.T, w @ G.T + spare
    c, y = rng.normal(size=(count, n)), np.hstack([rng.normal(size=(count, 2)), -rng.rand(count, 3)])
    if seed % 2:
        b, h = b + rng.normal(size=b.shape), h - 0.1
    program = Program(A=A, b=b[0], G=G, h=h[0], lower=-1, upper=upper[0])
    instance = Instance(b=torch.tensor(b), h=torch.tensor(h), lower=torch.tensor(lower), upper=torch.tensor(upper))
    verdict = Certifier(program).check(c, w, y, program.sides(instance, count))
    M = np.vstack([A, G])
    for i in range(count):
        q = np.concatenate([b[i], h[i]])
        excess = M @ w[i] - q
        terms = np.abs(M) @ np.abs(w[i]) + np.abs(q)
        own = np.where((np.arange(5) >= 2) & (excess < -1e-6), 0.0, y[i])
        r = c[i] - M.T @ own
        asked = np.where(r > 0, lower[i], upper[i])
        size = np.abs(c[i]) + np.abs(M).T @ np.abs(own)
        broken = np.append(np.abs(excess[:2]), np.maximum(excess[2:], 0)) * (np.abs(excess) > 1e-12)
        proven = q @ own + np.minimum(r * lower[i], r * upper[i]).sum()
        loss = np.abs(r * (w[i] - asked)).sum() + np.abs(own * excess).sum()
        assert verdict.primal[i] == pytest.approx((broken / terms).max(), abs=1e-12)
        assert verdict.dual[i] == pytest.approx(np.where(w[i] != asked, np.abs(r) / size, 0.0).max(), rel=1e-9)
        assert verdict.gap[i] == pytest.approx(loss / np.abs(c[i] * w[i]).sum(), rel=1e-9)
        assert verdict.bound[i] == pytest.approx(c[i] @ w[i] - loss, rel=1e-9)
        assert verdict.bound[i] <= proven + 1e-9
        if not seed % 2:
            assert verdict.bound[i] == pytest.approx(proven, abs=1e-9)
