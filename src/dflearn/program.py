"""The one canonical form. Every problem, solver, layer and loss of dflearn speaks about

    min over w of (S y + d)ᵀ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,   w_i ∈ ℤ for i in `integer`.

y (p) are the costs that are predicted; S (n, p) and d (n) are the known part of the objective (default: identity, zero).
A problem that maximizes has S = −I and keeps its data as values; `sense` matters for reporting only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dflearn.arrays import read_mask, read_matrix, read_names, read_shape, read_vector
from dflearn.errors import ProgramError, ShapeError
from dflearn.objective import Instance, Objective, Sense

if TYPE_CHECKING:
    from dflearn.equality_form import EqualityForm

ROUNDING = 1e-9  # how far from an integer a bound may lie and still be meant as one


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """min over w of (S y + d)ᵀ w   s.t.  A w = b,  G w ≤ h,  lower ≤ w ≤ upper,  w_i ∈ ℤ for i in `integer`.

    Args:
        A, b: equality rows, `(rows, n)` (anything scipy.sparse reads) and `(rows,)`.
        G, h: inequality rows, likewise.
        lower, upper: bounds, scalars or `(n,)`; ±inf is allowed. Default: w ≥ 0.
        S, d: the known part of the objective, `(n, p)` and `(n,)`. Default: identity and zero.
        integer: which variables are integer: `True` (all), a boolean mask `(n,)` or indices.
        n: the number of variables, where nothing else tells it.
        sense: "minimize" or "maximize", for reports only; to maximize, negate S and d.
        name: shown in messages and reports.
        variable_names, cost_names: what the n variables and the p costs are called, each name once; optional.
    """

    A: Any = None
    b: Any = None
    G: Any = None
    h: Any = None
    lower: Any = 0.0
    upper: Any = np.inf
    S: Any = None
    d: Any = None
    integer: Any = False
    n: int = 0
    sense: Sense = "minimize"
    name: str = "program"
    variable_names: Any = None
    cost_names: Any = None
    objective: Objective = field(init=False)

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        n = self._count_variables()
        put("n", n)
        for matrix, side in (("A", "b"), ("G", "h")):
            rows = read_matrix(matrix, getattr(self, matrix), n)
            put(matrix, rows)
            empty = np.flatnonzero(np.diff(rows.indptr) == 0)
            if empty.size:
                raise ProgramError(
                    f"row {empty[0]} of {matrix} is empty ({empty.size} such rows): it constrains nothing; drop it with its {side}"
                )
            if getattr(self, side) is None and rows.shape[0]:
                raise ProgramError(f"{matrix} has {rows.shape[0]} rows but {side} is missing")
            put(
                side,
                read_vector(
                    side, 0.0 if getattr(self, side) is None else getattr(self, side), rows.shape[0], finite=True
                ),
            )
        for side in ("lower", "upper"):
            put(side, read_vector(side, getattr(self, side), n, finite=False))
        check_bounds(self.lower, self.upper)
        put("integer", read_mask(self.integer, n))
        put("objective", Objective(n, self.S, self.d, self.sense))
        put("S", self.objective.S)
        put("d", self.objective.d)
        put("variable_names", read_names("variable_names", self.variable_names, n, "variables"))
        put("cost_names", read_names("cost_names", self.cost_names, self.objective.p, "predicted costs"))

    def _count_variables(self) -> int:
        if not isinstance(self.n, (int, np.integer)) or self.n < 0:
            raise ProgramError(f"n must be a positive integer, got {self.n!r}")
        counts: dict[str, int] = {"n": int(self.n)} if self.n else {}
        for name, axis in (("A", 1), ("G", 1), ("S", 0)):
            value = getattr(self, name)
            if value is not None:
                shape = read_shape(name, value)
                if len(shape) != 2:
                    raise ProgramError(f"{name} must be a matrix, got shape {tuple(shape)}")
                counts[name] = int(shape[axis])
        for name in ("d", "lower", "upper"):
            value = getattr(self, name)
            if value is not None and len(read_shape(name, value)):
                counts[name] = int(read_shape(name, value)[0])
        if not counts:
            raise ProgramError("the number of variables is unknown: pass A, G, S, d, array bounds or n")
        if len(set(counts.values())) > 1:
            raise ProgramError(f"the parts of the program disagree on the number of variables: {counts}")
        if 0 in counts.values():
            raise ProgramError("a program needs at least one variable")
        return next(iter(counts.values()))

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def p(self) -> int:
        """How many costs are predicted."""
        return self.objective.p

    @property
    def is_integer(self) -> bool:
        return bool(self.integer.any())

    def __repr__(self) -> str:
        kind = "LP" if not self.is_integer else "ILP" if self.integer.all() else "MILP"
        finite_upper = int(np.isfinite(self.upper).sum())
        parts = [
            f"{self.n} variables" + (f" ({int(self.integer.sum())} integer)" if self.is_integer else ""),
            f"{self.p} predicted costs",
            f"{self.A.shape[0]} equalities",
            f"{self.G.shape[0]} inequalities",
            f"{finite_upper} upper bounds",
            f"{self.A.nnz + self.G.nnz} nonzeros",
        ]
        return f"Program({self.name!r}: {self.sense} {kind}, {', '.join(parts)})"

    def relax(self) -> Program:
        """The same program with integrality dropped."""
        if not self.is_integer:
            return self
        return self._replace(integer=False, name=f"{self.name} (relaxed)")

    def _replace(self, **changes: Any) -> Program:
        return replace(self, **changes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the whole content (names apart): equal programs have equal fingerprints on every machine."""
        digest = hashlib.sha256(f"program-1 {self.n} {self.p} {self.sense}".encode())
        for name in ("A", "G", "S"):
            matrix = getattr(self, name)
            digest.update(name.encode())
            if matrix is not None:
                digest.update(np.asarray(matrix.shape, np.int64).tobytes())
                digest.update(matrix.indptr.astype(np.int64).tobytes())
                digest.update(matrix.indices.astype(np.int64).tobytes())
                digest.update(matrix.data.tobytes())
        for name in ("b", "h", "lower", "upper", "d"):
            digest.update(name.encode() + getattr(self, name).tobytes())
        digest.update(self.integer.tobytes())
        return digest.hexdigest()

    def equality_form(self) -> EqualityForm:
        """Â w̃ = b̂ with one slack per inequality, bounds kept as bounds, dependent rows dropped (cached)."""
        return self._equality_form

    @cached_property
    def _equality_form(self) -> EqualityForm:
        from dflearn.equality_form import EqualityForm

        return EqualityForm.of(self)

    def __getstate__(self) -> dict[str, Any]:
        cached = {"_equality_form"}
        return {key: value for key, value in self.__dict__.items() if key not in cached}

    # -- instances ----------------------------------------------------------------------------------------------

    def sides(self, instance: Instance | None, count: int) -> Mapping[str, np.ndarray]:
        """b, h, lower, upper with an instance's overrides: float64, `(count, k)` or `(k,)` where all share one.

        Checked here once for every solver and layer: shape, NaN, crossed bounds, naming the instance.
        """
        sides: dict[str, np.ndarray] = {name: getattr(self, name) for name in ("b", "h", "lower", "upper")}
        if instance is None:
            return sides
        for name, value in instance.present().items():
            wanted = self.n if name == "d" else sides[name].shape[-1]
            if not isinstance(value, Tensor):
                raise ShapeError(f"the instance's {name} must be a tensor, got a {type(value).__name__}")
            if value.shape[-1:] != (wanted,) or value.shape[:-1].numel() != count:
                raise ShapeError(
                    f"the instance's {name} must have shape (*batch, {wanted}) for {count} instances; got {tuple(value.shape)}"
                )
            array = np.array(value.detach().cpu().double().numpy(), order="C").reshape(count, wanted)
            bounds = name in ("lower", "upper")
            wrong = np.isnan(array) if bounds else ~np.isfinite(array)
            if wrong.any():
                bad, what = int(np.flatnonzero(wrong.any(1))[0]), "a NaN" if bounds else "a NaN or an infinity"
                raise ShapeError(f"instance {bad}: {name} holds {what}")
            if name != "d":
                sides[name] = array
        check_bounds(sides["lower"], sides["upper"])
        return sides

    def violation(self, w: Tensor, instance: Instance | None = None) -> Tensor:
        """The largest violation of rows and bounds at w, each row relative to 1 + |right-hand side|; float64 `(*batch,)`."""
        if w.shape[-1:] != (self.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.n}); got {tuple(w.shape)}")
        flat = w.detach().cpu().double().reshape(-1, self.n).numpy()
        sides = self.sides(instance, flat.shape[0])
        worst = np.zeros(flat.shape[0])
        for gap in (
            np.abs(self._product("A", flat) - sides["b"]) / (1 + np.abs(sides["b"])),
            (self._product("G", flat) - sides["h"]) / (1 + np.abs(sides["h"])),
            sides["lower"] - flat,
            flat - sides["upper"],
        ):
            if gap.shape[-1]:
                worst = np.maximum(worst, gap.max(-1))
        return torch.as_tensor(worst).reshape(w.shape[:-1])

    def _product(self, name: str, flat: np.ndarray) -> np.ndarray:
        return np.asarray((getattr(self, name) @ flat.T).T)


# -- reading what the user passed ---------------------------------------------------------------------------------


def check_bounds(lower: np.ndarray, upper: np.ndarray) -> None:
    """Every lower bound is at most its upper bound, and neither is the wrong infinity; arrays `(n,)` or `(count, n)`."""
    crossed = np.argwhere((lower > upper) | (lower == np.inf) | (upper == -np.inf))
    if crossed.size:
        where = tuple(int(i) for i in crossed[0])
        low, high = np.broadcast_arrays(lower, upper)
        place = f"variable {where[-1]}" + (f" of instance {where[0]}" if len(where) > 1 else "")
        how = "cross" if low[where] > high[where] else "leave nothing"
        raise ProgramError(f"the bounds of {place} {how}: lower {low[where]}, upper {high[where]}")


def integer_bounds(lower: np.ndarray, upper: np.ndarray, integer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds with those of integer variables rounded inwards, up to rounding errors: 2.9999999999 is 3.

    The same decisions remain. HiGHS 1.15 needs this: given fractional bounds of integer variables, it is wrong about
    some MILPs.
    """
    low = np.where(integer, np.ceil(lower - ROUNDING), lower) + 0.0
    high = np.where(integer, np.floor(upper + ROUNDING), upper) + 0.0
    return low, high
