"""Random linear models of every kind, in plain arrays, and what all front ends are tested for on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

import dflearn as dfl

COUNT = 12  # random models per front end


@dataclass(frozen=True)
class RandomModel:
    """min or max cᵀw + offset  s.t.  row_lower ≤ M w ≤ row_upper,  lower ≤ w ≤ upper,  w_i ∈ ℤ for some i; feasible and bounded."""

    M: np.ndarray
    row_lower: np.ndarray
    row_upper: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    integer: np.ndarray
    c: np.ndarray
    offset: float
    maximize: bool

    @property
    def n(self) -> int:
        return len(self.c)

    @property
    def names(self) -> list[str]:
        return [f"w{i}" for i in range(self.n)]

    def violation(self, w: np.ndarray) -> float:
        """How far w is from satisfying everything."""
        rows = self.M @ w
        gaps = [self.row_lower - rows, rows - self.row_upper, self.lower - w, w - self.upper]
        return max(np.max(np.concatenate(gaps)), np.abs(w - np.rint(w))[self.integer].max(initial=0.0))


def random_model(seed: int, *, integer: bool = True, free_rows: bool = True) -> RandomModel:
    """Equalities, one- and two-sided rows, rows of one variable and of none; free, one-sided, boxed and fixed variables."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    lower, upper = rng.integers(-4, 1, n).astype(float), rng.integers(1, 6, n).astype(float)
    whole = rng.random(n) < 0.4 if integer and seed % 2 else np.zeros(n, dtype=bool)
    point = np.where(whole, rng.integers(lower, upper + 1), rng.uniform(lower, upper))  # it stays feasible throughout
    rows, low, high = [], [], []

    def add(row: np.ndarray, kind: str) -> None:
        value = row @ point
        below, above = rng.uniform(0, 3, 2)
        rows.append(row)
        low.append({"=": value, "<": -np.inf, "free": -np.inf}.get(kind, value - below))
        high.append({"=": value, ">": np.inf, "free": np.inf}.get(kind, value + above))

    for kind in ("=", "<", ">", "range", *(["free"] if free_rows else [])):
        row = np.where(rng.random(n) < 0.6, rng.integers(-3, 4, n), 0).astype(float)
        row[rng.permutation(n)[:2]] = (1.0, -2.0)
        add(row, kind)
    single = np.zeros(n)
    single[rng.integers(n)] = rng.choice([-2.0, 3.0])
    add(single, rng.choice(["<", ">", "range"]))
    for kind in rng.choice(["free", "lower", "upper", "fixed"], 2):
        i = rng.integers(n)
        if kind == "fixed":
            lower[i] = upper[i] = point[i]
        elif lower[i] < upper[i]:  # an infinite bound is replaced by a row, which keeps the model bounded
            other = (i + 1) % n
            row = np.zeros(n)
            row[i], row[other] = 2.0, float(np.isfinite([lower[other], upper[other]]).all())
            add(row, "range")
            if kind in ("free", "lower"):
                upper[i] = np.inf
            if kind in ("free", "upper"):
                lower[i] = -np.inf
    return RandomModel(
        M=np.array(rows),
        row_lower=np.array(low),
        row_upper=np.array(high),
        lower=lower,
        upper=upper,
        integer=whole,
        c=rng.normal(size=n).round(2),
        offset=float(rng.integers(-5, 6)),
        maximize=bool(seed % 3 == 0),
    )


def with_costs(model: RandomModel, chosen: list[int], seed: int) -> tuple[RandomModel, np.ndarray]:
    """The same model with other coefficients for the chosen variables, and these coefficients: what a prediction says."""
    y = np.random.default_rng(seed).normal(size=len(chosen))
    c = model.c.copy()
    c[chosen] = y
    return replace(model, c=c), y


def choose(model: RandomModel, seed: int) -> list[int]:
    """Some variables, in any order."""
    rng = np.random.default_rng(seed + 1000)
    return rng.permutation(model.n)[: int(rng.integers(1, model.n + 1))].tolist()


def solve(program: dfl.Program, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The optimum in the program's own sense, and the decision."""
    solution = dfl.HiGHS(program).solve(torch.as_tensor(y)[None]).check((dfl.Status.OPTIMAL,))
    sign = -1 if program.sense == "maximize" else 1
    return sign * solution.objective.item(), solution.decision[0].numpy()


def check(model: RandomModel, program: dfl.Program, y: np.ndarray, optimum: float, offset: bool = False) -> None:
    """The program with costs y has the model's optimum, and its decision is feasible for the model.

    `optimum` includes the model's offset, the program does if `offset`.
    """
    assert program.sense == ("maximize" if model.maximize else "minimize")
    value, w = solve(program, y)
    np.testing.assert_allclose(value, optimum if offset else optimum - model.offset, rtol=1e-6, atol=1e-6)
    if program.variable_names is not None:
        by_name = dict(zip(program.variable_names, w, strict=True))
        w = np.array([by_name[name] for name in model.names])
    assert model.violation(w[: model.n]) < 1e-6
    np.testing.assert_allclose(model.c @ w[: model.n] + model.offset, optimum, rtol=1e-6, atol=1e-6)
