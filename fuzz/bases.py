"""What families of programs are made from: numbers, feasible programs, bounds, integers, other units."""

from typing import Any

import numpy as np

Rng = np.random.Generator


def numbers(rng: Rng, *shape: int, kind: str) -> np.ndarray:
    """Small integers, eighths, or floats; these with 30 binary digits, so that rows at w0 are exact sums."""
    if kind == "integers":
        return rng.integers(-4, 5, shape).astype(float)
    if kind == "eighths":
        return rng.integers(-32, 33, shape) / 8
    return np.round(rng.normal(size=shape) * 2.0**30) / 2.0**30


def filled(rng: Rng, rows: np.ndarray) -> np.ndarray:
    """No row without an entry."""
    for row in rows:
        if not row.any():
            row[rng.integers(len(row))] = float(rng.choice([-2, -1, 1, 2]))
    return rows


def feasible(rng: Rng, *, n: int | None = None, kind: str = "", count: int = 2, **parts: Any) -> dict[str, Any]:
    """A feasible program: rows are drawn first, right-hand sides so that some w0 within the bounds satisfies them."""
    kind = kind or str(rng.choice(["integers", "eighths", "floats"]))
    n = int(rng.integers(1, 7)) if n is None else n
    me, mi = int(rng.integers(0, min(2, n - 1) + 1)), int(rng.integers(0, 4))
    A, G = (filled(rng, numbers(rng, m, n, kind=kind)) for m in (me, mi))
    A, G = (rows * (rng.random(rows.shape) < 0.8) for rows in (A, G))
    A, G = filled(rng, A), filled(rng, G)
    lower = np.where(rng.random(n) < 0.7, 0.0, -rng.integers(0, 3, n).astype(float))
    upper = np.where(rng.random(n) < 0.6, lower + rng.integers(1, 4, n), np.inf)
    w0 = lower + np.where(rng.random(n) < 0.5, rng.integers(0, 2, n), rng.integers(0, 5, n) / 4)
    w0 = np.minimum(w0, upper)
    h = G @ w0 + rng.integers(0, 3, mi) * rng.integers(0, 2, mi)
    out = {"A": A, "b": A @ w0, "G": G, "h": h, "lower": lower, "upper": upper, "w0": w0}
    out |= {"y": numbers(rng, count, n, kind=kind), "S": None, "d": np.zeros(n), "integer": np.zeros(n, bool)}
    return out | {"mu": float(2.0 ** rng.integers(-4, 4))} | parts


def boxed(rng: Rng, base: dict[str, Any]) -> dict[str, Any]:
    """With finite bounds on every variable, so that there is an optimum."""
    top = np.where(np.isfinite(base["upper"]), base["upper"], np.maximum(base["w0"], base["lower"]) + 3)
    bottom = np.where(np.isfinite(base["lower"]), base["lower"], base["w0"] - 3)
    return base | {"lower": bottom, "upper": top}


def integral(rng: Rng, base: dict[str, Any], share: float = 1.0) -> dict[str, Any]:
    """Integer variables within small ranges, around an integer point that satisfies the rows."""
    n = len(base["lower"])
    integer = rng.random(n) < share
    integer[rng.integers(n)] = True
    if integer.sum() > 4 and not integer.all():
        integer[np.flatnonzero(integer)[4:]] = False
    w0 = np.where(integer, np.round(base["w0"]), base["w0"])
    low = np.where(integer, np.minimum(np.floor(base["lower"]), w0), base["lower"])
    width = rng.integers(1, 3 if integer.all() else 2, n)
    high = np.where(integer, np.maximum(low + width, w0), np.maximum(base["upper"], w0))
    slack = rng.integers(0, 3, len(base["h"])) / 2
    rows = {"b": base["A"] @ w0, "h": base["G"] @ w0 + slack}
    return base | rows | {"integer": integer, "lower": low, "upper": high, "w0": w0}


def exact_numbers(rng: Rng) -> str:
    return str(rng.choice(["integers", "eighths"]))


def resized(rng: Rng, base: dict[str, Any], signs: tuple[int, ...]) -> dict[str, Any]:
    size = 2.0 ** (float(rng.choice(signs)) * rng.integers(10, 28))
    cost = size if rng.random() < 0.5 else float(2.0 ** rng.integers(-10, 11))
    return base | {"column": np.full(len(base["w0"]), size), "cost": cost}
