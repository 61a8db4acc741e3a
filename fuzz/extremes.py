"""Families of limits that never bind, of large bounds, of independent parts in units far apart, and of what an attacker tries next:
ties beside huge bounds, nearly dependent rows, numbers of many sizes, zeros, mixed batches.
"""

from typing import Any

import numpy as np
import scipy.linalg

from fuzz.bases import Rng, boxed, exact_numbers, feasible, filled, integral, numbers
from fuzz.convex import curve, in_units

FAR = 27  # 2²⁷ is about 10⁸


def limit(rng: Rng) -> float:
    """What people write for "no limit": 1e9 … 1e30."""
    return float(10.0 ** rng.integers(9, 31))


def with_loose_rows(rng: Rng, base: dict[str, Any], least: int = 1) -> dict[str, Any]:
    """With a few rows whose right-hand side no decision ever reaches."""
    n, count = len(base["w0"]), int(rng.integers(least, 4))
    rows = filled(rng, numbers(rng, count, n, kind=exact_numbers(rng)) * (rng.random((count, n)) < 0.8))
    if rng.random() < 0.3:
        rows = np.ones_like(rows)
    order = rng.permutation(len(base["h"]) + count)
    G, h = np.vstack([base["G"], rows])[order], np.append(base["h"], [limit(rng) for _ in range(count)])[order]
    return base | {"G": G, "h": h}


def with_loose_bounds(rng: Rng, base: dict[str, Any], smallest: int = 9) -> dict[str, Any]:
    """Some bounds become rows of their own, and the bound itself any large number, or infinite."""
    n, bounds = len(base["w0"]), {"lower": base["lower"].copy(), "upper": base["upper"].copy()}
    rows, right = [], []
    for name, sign in (("upper", 1.0), ("lower", -1.0)):
        for j in np.flatnonzero(rng.random(n) < 0.4):
            if np.isfinite(bounds[name][j]):
                rows.append(sign * np.eye(n)[j])
                right.append(sign * bounds[name][j])
            bounds[name][j] = sign * (np.inf if rng.random() < 0.3 else float(10.0 ** rng.integers(smallest, 31)))
    return base | bounds | {"G": np.vstack([base["G"], *rows]), "h": np.append(base["h"], right)}


def loose(rng: Rng) -> dict[str, Any]:
    """An ordinary program and, beside it, limits that are none. It is the same program without them."""
    draw = rng.random()
    kind = exact_numbers(rng) if draw < 0.4 or rng.random() < 0.5 else "floats"
    base = boxed(rng, feasible(rng, kind=kind, n=int(rng.integers(1, 6))))
    if draw < 0.25:
        base = integral(rng, base, float(rng.choice([0.4, 1.0])))
        base = boxed(rng, base)
    elif draw < 0.4:
        base = base | {"Q": curve(rng, len(base["w0"]))}
    if rng.random() < 0.5:
        base = with_loose_bounds(rng, base)
    base = with_loose_rows(rng, base)
    return base if base["integer"].any() or rng.random() < 0.6 else in_units(rng, base)


def wide_quadratic(rng: Rng) -> dict[str, Any]:
    """A convex quadratic program with bounds of 1e6 … 1e30, and rows that never bind."""
    base = feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(1, 6)))
    n = len(base["w0"])
    if rng.random() < 0.3:
        base = with_loose_bounds(rng, boxed(rng, base), 6) | {"Q": curve(rng, n)}
    else:
        R = numbers(rng, n, n, kind="eighths")
        base["Q"] = (R.T @ R) * float(rng.choice([0.0, 0.25])) + np.diag(rng.integers(1, 9, n) / 4)
    upper = float(10.0 ** rng.integers(6, 31))
    base["upper"] = np.where(np.isinf(base["upper"]) & (rng.random(n) < 0.8), upper, base["upper"])
    if rng.random() < 0.3:
        base["lower"] = np.where(rng.random(n) < 0.5, -float(10.0 ** rng.integers(6, 31)), base["lower"])
    if rng.random() < 0.5:
        base = with_loose_rows(rng, base)
    if rng.random() < 0.3:
        base["mu"] = 0.0
    return base if rng.random() < 0.6 else in_units(rng, base)


def blocks(rng: Rng) -> dict[str, Any]:
    """Two or three programs that have nothing to do with each other, in one: units of each its own, up to 10^±8."""
    bent, whole = rng.random() < 0.2, rng.random() < 0.2
    bases, units = [], []
    for _ in range(int(rng.integers(2, 4))):
        kind = exact_numbers(rng) if whole or rng.random() < 0.6 else "floats"
        base = boxed(rng, feasible(rng, n=int(rng.integers(1, 4)), kind=kind))
        if whole:
            base = boxed(rng, integral(rng, base))
        bases.append(base)
        far = 2.0 ** (FAR * rng.integers(-1, 2, 3) if rng.random() < 0.7 else rng.integers(-FAR, FAR + 1, 3))
        units.append(np.where([whole, False, False], 1.0, far))
    block = np.repeat(np.arange(len(bases)), [len(base["w0"]) for base in bases])
    factor = np.array([unit[2] for unit in units])
    lines = ("b", "h", "lower", "upper", "integer", "d", "w0")
    joined = {name: np.concatenate([base[name] for base in bases]) for name in lines}
    joined |= {name: scipy.linalg.block_diag(*(base[name] for base in bases)) for name in ("A", "G")}
    joined["y"] = np.hstack([base["y"] * unit for base, unit in zip(bases, factor, strict=True)])
    if bent:
        curves = (curve(rng, len(base["w0"])) * unit for base, unit in zip(bases, factor, strict=True))
        joined["Q"] = scipy.linalg.block_diag(*curves)
    both = list(zip(bases, units, strict=True))
    row = [np.full(len(base[rows]), unit[1]) for rows in ("A", "G") for base, unit in both]
    joined["column"] = np.concatenate([np.full(len(base["w0"]), unit[0]) for base, unit in both])
    mu = float(2.0 ** rng.integers(-4, 4))
    return joined | {"S": None, "mu": mu, "row": np.concatenate(row), "block": block, "factor": factor}


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
