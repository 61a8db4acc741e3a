"""Families of what an attacker tries next: ties beside huge bounds, nearly dependent rows, numbers of many sizes, zeros, mixed batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.bases import Rng, boxed, exact_numbers, feasible, filled, integral


def ties(rng: Rng) -> dict[str, Any]:
    """Equal costs, huge upper bounds, rows that are others, or sums of others, up to 1e-9."""
    base = boxed(rng, feasible(rng, kind="integers", n=int(rng.integers(2, 6))))
    n, w0, tiny = len(base["w0"]), base["w0"].copy(), 2.0**-30
    G, h = np.vstack([base["G"], np.ones(n)]), np.append(base["h"], w0.sum() + 1)
    # With slack: beside a row and its opposite, they would decide by less than every tolerance.
    near = G[rng.integers(len(G), size=2)] + tiny * rng.integers(-2, 3, (2, n))
    G, h = np.vstack([G, near]), np.append(h, near @ w0 + rng.integers(1, 3, 2))
    A = filled(rng, rng.integers(-2, 3, (2, n)).astype(float))
    # The fixed variable makes the sum exact, so that nothing depends on what is far below all tolerances.
    fixed = np.eye(n)[rng.integers(n)]
    A = np.vstack([A, A[0] + A[1] + tiny * fixed])
    lower, upper = np.where(fixed > 0, w0, base["lower"]), np.where(fixed > 0, w0, base["upper"])
    huge = (rng.random(n) < 0.5) & (fixed == 0)
    upper = np.where(huge, float(10.0 ** rng.integers(6, 13)), upper)
    y = np.repeat(rng.integers(-1, 2, (2, 1)), n, axis=1).astype(float)
    out = {"A": A, "b": A @ w0, "G": G, "h": h, "lower": lower, "upper": upper, "y": y}
    return base | (out if rng.random() < 0.5 else out | {"A": base["A"], "b": base["b"]})


def wide(rng: Rng) -> dict[str, Any]:
    """Costs of up to twelve orders of magnitude in one block; sometimes integers with coefficients of 1e6 … 1e9 beside 1."""
    base = boxed(rng, feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 6))))
    n = len(base["w0"])
    if rng.random() < 0.5:
        base = integral(rng, base, float(rng.choice([0.5, 1.0])))
        large, k = float(10.0 ** rng.integers(6, 10)), int(np.flatnonzero(base["integer"])[0])
        row = rng.integers(-1, 2, n).astype(float)
        row[k] = large * rng.choice([-1.0, 1.0])  # half of it is room enough for all that stands beside it
        base |= {"G": np.vstack([base["G"], row]), "h": np.append(base["h"], row[k] * base["w0"][k] + large / 2)}
    return base | {"y": base["y"] * 10.0 ** rng.integers(-6, 7, n)}


def zeros(rng: Rng) -> dict[str, Any]:
    """All right-hand sides are zero; or free variables, and equations only."""
    base = feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 6)))
    n = len(base["w0"])
    if rng.random() < 0.3:
        A = filled(rng, rng.integers(-2, 3, (int(rng.integers(1, n + 1)), n)).astype(float))
        y = base["y"] if rng.random() < 0.3 else rng.integers(-3, 4, (2, len(A))) @ A  # every decision is optimal
        none, free = {"G": np.zeros((0, n)), "h": np.zeros(0)}, np.full(n, np.inf)
        return base | none | {"A": A, "b": A @ base["w0"], "y": y, "lower": -free, "upper": free}
    lower = np.where(rng.random(n) < 0.7, 0.0, -1.0)
    upper = np.where(rng.random(n) < 0.5, rng.integers(0, 3, n), np.inf)
    y = base["y"] if rng.random() < 0.5 else np.abs(base["y"])
    sides = {name: np.zeros_like(base[name]) for name in ("b", "h", "w0")}
    return base | sides | {"lower": lower, "upper": upper, "y": y}


def fates(rng: Rng) -> dict[str, Any]:
    """One batch in which some instances have an optimum, some are infeasible, and some unbounded."""
    base = feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 6)), count=4)
    n = len(base["w0"])
    row = filled(rng, rng.integers(-2, 3, (1, n)).astype(float))
    G = np.vstack([base["G"], row, -row])
    at, gap = G @ base["w0"], rng.integers(0, 3, (4, len(G))).astype(float)
    gap[rng.random(4) < 0.4, -1] = -float(2.0 ** rng.integers(0, 4))
    y = np.where(rng.random((4, 1)) < 0.5, np.abs(base["y"]), base["y"])
    return base | {"G": G, "h": at + gap, "y": y, "integer": np.full(n, rng.random() < 0.2)}
