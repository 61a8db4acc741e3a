"""Families of rows and bounds that never bind, of large finite bounds, and of independent parts in units far apart."""

from __future__ import annotations

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
    joined = {
        name: np.concatenate([base[name] for base in bases])
        for name in ("b", "h", "lower", "upper", "integer", "d", "w0")
    }
    joined |= {name: scipy.linalg.block_diag(*(base[name] for base in bases)) for name in ("A", "G")}
    joined["y"] = np.hstack([base["y"] * unit[2] for base, unit in zip(bases, units, strict=True)])
    if bent:
        joined["Q"] = scipy.linalg.block_diag(
            *(curve(rng, len(base["w0"])) * unit[2] for base, unit in zip(bases, units, strict=True))
        )
    row = [np.full(len(base[rows]), unit[1]) for rows in ("A", "G") for base, unit in zip(bases, units, strict=True)]
    return joined | {
        "S": None,
        "mu": float(2.0 ** rng.integers(-4, 4)),
        "column": np.concatenate([np.full(len(base["w0"]), unit[0]) for base, unit in zip(bases, units, strict=True)]),
        "row": np.concatenate(row),
        "block": block,
        "factor": factor,
    }
