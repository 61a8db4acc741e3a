"""`Case`: one random program with a few instances, in ordinary numbers, and the units in which the library meets it.

The base program has ordinary numbers, so that its answer can be found exactly. The library sees it in other units, all
powers of two, so that nothing is rounded on the way:

    w′ = D w,   rows × R,   costs × γ / D:    A′ = R A D⁻¹,  b′ = R b,  lower′ = D lower,  S′ = γ D⁻¹ S,  d′ = γ D⁻¹ d.

The optimum is then γ times that of the base, at D times its decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn import Instance, Program
from dflearn.program.sides import Sides

FAR = 1e5  # beside decisions of size one


@dataclass(frozen=True, eq=False)
class Case:
    """Arrays of the base program; b, h, lower, upper and d are `(k,)`, or `(count, k)` where instances differ.

    Attributes:
        y: predicted costs, `(count, p)`.
        mu: the weight of Ω, in base units where all columns share one unit.
        column, row, cost: the units D `(n,)`, R `(rows,)`, γ.
        starts: seed of the random starts.
        Q, B, H, recourse: as of `Program`, in base units; none by default.
        sizes: the typical size of each variable in base units, `(n,)`; one by default.
        block: the independent part of the program that each variable belongs to, `(n,)`; one part by default.
        factor: what the costs of each part are multiplied with (they are so in y and Q), `(parts,)`.
    """

    family: str
    seed: int
    A: np.ndarray
    b: np.ndarray
    G: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    y: np.ndarray
    S: np.ndarray | None
    d: np.ndarray
    integer: np.ndarray
    mu: float
    column: np.ndarray
    row: np.ndarray
    cost: float = 1.0
    dtype: str = "float64"
    starts: int = 0
    Q: np.ndarray | None = None
    B: np.ndarray | None = None
    H: np.ndarray | None = None
    recourse: np.ndarray | None = None
    sizes: np.ndarray | None = None
    block: np.ndarray | None = None
    factor: np.ndarray | None = None
    remembered: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        return len(self.column)

    @property
    def count(self) -> int:
        return len(self.y)

    def given(self, name: str, i: int) -> np.ndarray:
        """b, h, lower, upper or d of instance i, in base units."""
        part = getattr(self, name)
        return part if part.ndim == 1 else part[i]

    def line(self, name: str, i: int) -> np.ndarray:
        """The same with what y adds to it: b + B y, h + H y."""
        moves = {"b": self.B, "h": self.H}.get(name)
        return self.given(name, i) if moves is None else self.given(name, i) + moves @ self.y[i]

    @cached_property
    def other(self) -> np.ndarray:
        """Predictions that are not y: those of other instances or, if there is one only, its numbers for other variables."""
        if self.count != 1:
            return self.y[::-1]
        unit = 1.0 if self.factor is None else self.factor[self.block]
        return np.asarray(np.roll(self.y / unit, 1, axis=1) * unit)

    @property
    def far(self) -> bool:
        """Whether parts in units of their own, or sides that no decision ever reaches, lie beside each other."""
        sides = np.abs(np.concatenate([getattr(self, name).ravel() for name in ("b", "h", "lower", "upper")]))
        return self.block is not None or bool((sides[np.isfinite(sides)] >= FAR).any())

    @property
    def predicts_rows(self) -> bool:
        return self.B is not None or self.H is not None

    def bent(self, w: np.ndarray) -> np.ndarray:
        """½ wᵀQ w in base units, `(…, n)` → `(…,)`."""
        value: np.ndarray = np.zeros(w.shape[:-1]) if self.Q is None else 0.5 * ((w @ self.Q) * w).sum(-1)
        return value

    def c(self, i: int) -> np.ndarray:
        """S y + d of instance i, in base units."""
        known = self.y[i] if self.S is None else self.S @ self.y[i]
        return known + self.line("d", i)

    def lines(self, i: int) -> list[np.ndarray]:
        """c, b, h, lower and upper of instance i, with what y adds to them."""
        make = lambda: [self.c(i), *(self.line(name, i) for name in ("b", "h", "lower", "upper"))]  # noqa: E731
        lines: list[np.ndarray] = self.once(("lines", i), make)
        return lines

    def key(self, i: int) -> bytes:
        """Instances with the same lines have the same key."""
        key: bytes = self.once(("key", i), lambda: b"".join(line.tobytes() for line in self.lines(i)))
        return key

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for this case."""
        if key not in self.remembered:
            self.remembered[key] = make()
        return self.remembered[key]

    def changed(self, **parts: Any) -> Case:
        return replace(self, remembered={}, **parts)

    @cached_property
    def parts(self) -> list[tuple[Case, np.ndarray]]:
        """The independent parts, each in base units of its own, and the variables of each."""
        if self.block is None or self.factor is None:
            return [(self, np.arange(self.n))]
        assert self.S is None
        assert not self.predicts_rows
        assert self.recourse is None
        owner = [self.block[np.argmax(rows != 0, axis=1)] if len(rows) else np.zeros(0) for rows in (self.A, self.G)]
        out = []
        for k in np.unique(self.block):
            own, factor = np.flatnonzero(self.block == k), float(self.factor[k])
            equal, less = (np.flatnonzero(rows == k) for rows in owner)
            part = self.changed(
                A=self.A[np.ix_(equal, own)], b=self.b[..., equal], G=self.G[np.ix_(less, own)], h=self.h[..., less],
                lower=self.lower[..., own], upper=self.upper[..., own], integer=self.integer[own],
                y=self.y[:, own] / factor, d=self.d[..., own] / factor, cost=self.cost * factor,
                Q=None if self.Q is None else self.Q[np.ix_(own, own)] / factor,
                column=self.column[own], row=np.concatenate([self.row[equal], self.row[len(self.A) + less]]),
                sizes=None if self.sizes is None else self.sizes[own], block=None, factor=None,
            )  # fmt: skip
            out.append((part.changed(mu=self.user_mu() * part.size**2 / part.cost), own))
        return out

    @cached_property
    def program(self) -> Program:
        S = self.S
        if S is None and (self.cost != 1 or (self.column != 1).any()):
            S = np.eye(self.n)
        parts: dict[str, Any] = {name: self._shared(name) for name in ("b", "h", "lower", "upper", "d")}
        for rows, side, moves in (("A", "b", "B"), ("G", "h", "H")):
            row, matrix, moved = self._unit(side)[:, None], getattr(self, rows), getattr(self, moves)
            parts[rows] = matrix * row / self.column if len(matrix) else None
            parts[side] = parts[side] if len(matrix) else None
            parts[moves] = None if moved is None else row * moved
        if S is not None:
            parts["S"] = self.cost * S / self.column[:, None]
        if self.Q is not None:
            parts["Q"] = self.cost * self.Q / self.column / self.column[:, None]
        return Program(**parts, integer=self.integer, recourse=self.recourse, n=self.n)

    @cached_property
    def relaxed(self) -> Program:
        return self.program.relax()

    def _unit(self, name: str) -> np.ndarray:
        if name in ("b", "h"):
            return np.split(self.row, [len(self.A)])[name == "h"]
        return self.cost / self.column if name == "d" else self.column

    def _shared(self, name: str) -> np.ndarray:
        """The program's own; where instances differ, something that is not theirs."""
        part = getattr(self, name)
        if part.ndim == 2:
            base = part[0] if len(part) else np.zeros(part.shape[1])
            part = base + 1.0 if name in ("b", "h", "upper", "d") else base - 1.0
        return part * self._unit(name)

    @cached_property
    def instance(self) -> Instance | None:
        names = [name for name in ("b", "h", "lower", "upper", "d") if getattr(self, name).ndim == 2]
        own = {name: torch.tensor(getattr(self, name) * self._unit(name)) for name in names}
        return Instance(**own) if own else None

    @cached_property
    def costs(self) -> Tensor:
        return torch.tensor(self.y, dtype=getattr(torch, self.dtype))

    def user_c(self, i: int) -> np.ndarray:
        return self.c(i) * self.cost / self.column

    def user_sides(self, i: int) -> Sides:
        return Sides(*(self.line(name, i) * self._unit(name) for name in ("b", "h", "lower", "upper")))

    @cached_property
    def size(self) -> float:
        """K, the unit of decisions: of a typical column."""
        return float(2.0 ** np.round(np.log2(self.column).mean())) if self.n else 1.0

    def user_mu(self, regularizer: str = "squared") -> float:
        """μ of the layer: μ γ/K² for the square, μ γ/K for the norm."""
        return self.mu * self.cost / (self.size**2 if regularizer == "squared" else self.size)

    @cached_property
    def curvature(self) -> np.ndarray:
        """(μ/2)‖w′‖² = γ · ½ Σ q_j w_j² in base units: q `(n,)`."""
        return self.user_mu() * self.column**2 / self.cost

    @cached_property
    def norm_weights(self) -> np.ndarray:
        """μ‖w′‖₂ = γ ‖v ∘ w‖₂ in base units: v `(n,)`."""
        return self.user_mu("norm") * self.column / self.cost

    @property
    def tolerance(self) -> float:
        """What an answer may miss, given the dtype in which it is told."""
        return {"float64": 1e-6, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[self.dtype]
