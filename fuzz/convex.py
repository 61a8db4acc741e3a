"""Families of the form with Q, predicted right-hand sides and recourse."""

from typing import Any

import numpy as np

from fuzz.bases import Rng, boxed, exact_numbers, feasible, integral, numbers, resized


def in_units(rng: Rng, out: dict[str, Any]) -> dict[str, Any]:
    """In units of any kind, or none."""
    n, m = len(out["w0"]), len(out["A"]) + len(out["G"])
    draw = rng.random()
    if draw < 0.5:
        return out
    if draw < 0.65:
        return resized(rng, out, (-1, 1))
    if draw < 0.8:
        return out | {"cost": float(2.0 ** rng.integers(-27, 28)), "row": 2.0 ** rng.integers(-20, 21, m)}
    return out | {"column": 2.0 ** rng.integers(-7, 8, n), "row": 2.0 ** rng.integers(-7, 8, m)}


def curve(rng: Rng, n: int) -> np.ndarray:
    """A positive semidefinite matrix of small numbers: of any rank, sometimes diagonal, with blocks, or definite."""
    R = numbers(rng, int(rng.integers(1, n + 2)), n, kind=exact_numbers(rng))
    R = R * (rng.random(R.shape) < rng.choice([0.3, 1.0]))
    Q = R.T @ R
    if rng.random() < 0.2:
        Q = np.diag(np.diag(Q))
    if rng.random() < 0.6:
        Q = Q + np.diag(rng.integers(1, 9, n) / 4)
    return Q * float(2.0 ** rng.integers(-4, 3))


def quadratic(rng: Rng) -> dict[str, Any]:
    """Quadratic costs, μ = 0 among the smoothings; boxes, unbounded ones, integers."""
    base = feasible(rng, kind=exact_numbers(rng))
    n = len(base["w0"])
    draw = rng.random()
    if draw < 0.15:
        base = integral(rng, base, float(rng.choice([0.4, 1.0])))
    elif draw < 0.75:
        base = boxed(rng, base)
    elif draw < 0.85:
        base["lower"] = np.where(rng.random(n) < 0.5, -np.inf, base["lower"])
    out = base | {"Q": curve(rng, n)}
    if rng.random() < 0.4:
        out["mu"] = 0.0
    units = in_units(rng, out)
    return out if out["integer"].any() else units


def _moved(rng: Rng, base: dict[str, Any]) -> dict[str, Any]:
    """With y in the right-hand sides: where it moves w0 (feasible as long as bounds are), or anywhere."""
    n, p, count = len(base["w0"]), int(rng.integers(1, 5)), int(rng.integers(2, 5))
    shift = rng.integers(-2, 3, (n, p)) * (rng.random((n, p)) < 0.5) / 2
    y = rng.integers(-4, 5, (count, p)) / 2
    anywhere = rng.random() < 0.3
    B, H = (rng.integers(-2, 3, (len(base[rows]), p)) / 1.0 if anywhere else base[rows] @ shift for rows in ("A", "G"))
    if not anywhere:
        reach = np.abs(shift) @ np.abs(y).max(0)
        base = base | {"lower": base["lower"] - reach, "upper": base["upper"] + reach}
    S = rng.integers(-4, 5, (n, p)) / 2 if rng.random() < 0.5 else np.zeros((n, p))
    d = base["y"][0] + rng.integers(0, 4, n)
    return base | {"y": y, "S": S, "d": d, "B": B if len(B) else None, "H": H if len(H) else None}


def predicted_sides(rng: Rng) -> dict[str, Any]:
    """A w = b + B y, G w ≤ h + H y; sometimes with Q, with integers, and with y that leave nothing feasible."""
    base = _moved(rng, boxed(rng, feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 7)))))
    draw = rng.random()
    if draw < 0.15:
        base = base | {"integer": rng.random(len(base["w0"])) < 0.5}
        base["integer"][np.flatnonzero(base["integer"])[2:]] = False
        return base
    if draw < 0.4:
        base = base | {"Q": curve(rng, len(base["w0"]))}
    return in_units(rng, base)


def recourse(rng: Rng) -> dict[str, Any]:
    """Some variables are decided again: slack at a price in some rows, and any of the others; integers before it."""
    base = _moved(rng, boxed(rng, feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 5)))))
    n, me, mi = len(base["w0"]), len(base["A"]), len(base["G"])
    again = np.zeros(n, bool) if rng.random() < 0.4 else rng.random(n) < 0.5
    slack = np.zeros((0, me + mi))
    for i in np.flatnonzero(rng.random(me + mi) < rng.choice([0.0, 0.7, 1.0])):
        signs = (1.0, -1.0) if i < me else (-1.0,)
        slack = np.vstack([slack, *(sign * float(rng.choice([1, 2])) * np.eye(me + mi)[i] for sign in signs)])
    k = len(slack)
    more = {"lower": np.zeros(k), "upper": np.where(rng.random(k) < 0.8, np.inf, 2.0), "w0": np.zeros(k)}
    more["d"] = rng.integers(1, 40, k) / 4
    base |= {name: np.append(base[name], part) for name, part in more.items()}
    base |= {"A": np.hstack([base["A"], slack[:, :me].T]), "G": np.hstack([base["G"], slack[:, me:].T])}
    base |= {"S": np.vstack([base["S"], np.zeros((k, base["S"].shape[1]))]), "integer": np.zeros(n + k, bool)}
    base["recourse"] = np.append(again, np.ones(k, bool))
    if rng.random() < 0.2:
        base["integer"][:n] = (rng.random(n) < 0.5) & ~again
        base["integer"][np.flatnonzero(base["integer"])[2:]] = False
        return base
    if rng.random() < 0.3:
        Q = np.zeros((n + k, n + k))
        Q[:n, :n] = curve(rng, n)
        base["Q"] = Q
    return in_units(rng, base)
