"""The one canonical form. Every problem, solver, layer and loss of dflearn speaks about

    min over w of (S y + d)ᵀ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,   w_i ∈ ℤ for i in `integer`.

y (p) are the costs that are predicted; S (n, p) and d (n) are the known part of the objective (default: identity, zero).
A problem that maximizes has S = −I and keeps its data as values; `sense` matters for reporting only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import ProgramError, ShapeError
from dflearn.program.arrays import MatrixLike, VectorLike, read_mask, read_matrix, read_names, read_shape, read_vector
from dflearn.program.instance import Instance
from dflearn.program.names import Columns, RightHandSide, read_constraint_names, read_instance
from dflearn.program.objective import Objective, Sense
from dflearn.program.sides import ROUNDING, SIDES, Side, Sides, check_bounds

if TYPE_CHECKING:
    from dflearn.program.equality_form import EqualityForm

FEASIBLE = (
    1e-4  # by which share a decision, perhaps stored in float32, may violate constraints, and how far integrality
)


@dataclass(frozen=True, eq=False, repr=False, init=False)
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
        constraint_names: for each named constraint, where its right-hand side stands: `{"weight": ("h", 0)}`; optional.
            `instance` then finds columns of these names. See `RightHandSide`.
    """

    A: sp.csr_array
    b: np.ndarray
    G: sp.csr_array
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    S: sp.csr_array | None
    d: np.ndarray
    integer: np.ndarray
    n: int
    sense: Sense
    name: str
    variable_names: tuple[str, ...] | None
    cost_names: tuple[str, ...] | None
    constraint_names: Mapping[str, RightHandSide] | None
    objective: Objective = field(init=False)

    def __init__(
        self,
        A: MatrixLike | None = None,
        b: VectorLike | None = None,
        G: MatrixLike | None = None,
        h: VectorLike | None = None,
        lower: VectorLike = 0.0,
        upper: VectorLike = np.inf,
        S: MatrixLike | None = None,
        d: VectorLike | None = None,
        integer: Any = False,
        n: int = 0,
        sense: Sense = "minimize",
        name: str = "program",
        variable_names: Sequence[str] | None = None,
        cost_names: Sequence[str] | None = None,
        constraint_names: Mapping[str, RightHandSide | tuple[Any, ...]] | None = None,
    ) -> None:
        n = _count_variables(n, {"A": A, "G": G}, S, {"d": d, "lower": lower, "upper": upper})
        objective = Objective(n, S, d, sense)
        A, b = _read_rows("A", A, "b", b, n)
        G, h = _read_rows("G", G, "h", h, n)
        low, high = (read_vector(side, value, n, finite=False) for side, value in (("lower", lower), ("upper", upper)))
        check_bounds(low, high)
        fields = {
            "A": A,
            "b": b,
            "G": G,
            "h": h,
            "lower": low,
            "upper": high,
            "S": objective.S,
            "d": objective.d,
            "integer": read_mask(integer, n),
            "n": n,
            "sense": sense,
            "name": name,
            "variable_names": read_names("variable_names", variable_names, n, "variables"),
            "cost_names": read_names("cost_names", cost_names, objective.p, "predicted costs"),
            "constraint_names": read_constraint_names(constraint_names, {"b": len(b), "h": len(h), "bound": n}),
            "objective": objective,
        }
        for field_name, value in fields.items():
            object.__setattr__(self, field_name, value)  # frozen from here on

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
        return replace(self, integer=np.zeros(self.n, bool), name=f"{self.name} (relaxed)")

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
        from dflearn.program.equality_form import EqualityForm

        return EqualityForm.of(self)

    def __getstate__(self) -> dict[str, Any]:
        cached = {"_equality_form", "_row_sizes", "own_sides"}
        return {key: value for key, value in self.__dict__.items() if key not in cached}

    # -- instances ----------------------------------------------------------------------------------------------

    @cached_property
    def own_sides(self) -> Sides:
        """The program's own right-hand sides and bounds."""
        return Sides(self.b, self.h, self.lower, self.upper)

    def instance(self, columns: Columns) -> Instance:
        """The `Instance` `(*batch, …)` that columns `(*batch,)` describe, each found by its name.

        Args:
            columns: a DataFrame of pandas, a dict of arrays, or a `Table`. A column is called like a constraint, and holds
                its right-hand sides; or `lower:x`, `upper:x`, `d:x`, the bounds and the known cost of a variable x, in
                the sense of the program. Whatever has no column is as in the program.
        """
        return read_instance(self, columns)

    def sides(self, instance: Instance | None, count: int) -> Sides:
        """The right-hand sides and bounds of `count` instances: the program's own, where an instance does not override them.

        Checked here once for every solver and layer: shape, NaN, crossed bounds, naming the instance.
        """
        given = {} if instance is None else instance.present()
        if not given:
            return self.own_sides
        parts: dict[Side, np.ndarray] = self.own_sides.parts()
        for name, value in given.items():
            wanted = self.n if name == "d" else getattr(self, name).shape[-1]
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
            if name in SIDES:
                parts[name] = array
        check_bounds(parts["lower"], parts["upper"])
        return Sides(**parts)

    @cached_property
    def _row_sizes(self) -> tuple[tuple[sp.csr_array, np.ndarray], tuple[sp.csr_array, np.ndarray]]:
        """|A| and |G|, each with the largest entry of its rows."""

        def sizes(matrix: sp.csr_array) -> tuple[sp.csr_array, np.ndarray]:
            return abs(matrix), abs(matrix).max(axis=1).toarray().ravel() if matrix.nnz else np.zeros(matrix.shape[0])

        return sizes(self.A), sizes(self.G)

    def violation(self, w: Tensor, instance: Instance | None = None) -> Tensor:
        """The largest violation of a row or a bound at w, each relative to its own terms; float64 `(*batch,)`.

        The terms of a row are |b_i| + Σ_j |a_ij w_j|, those of a variable the largest of |w_j| and its finite bounds. What is
        below `ROUNDING` of the largest decision of the instance is rounding, and no violation.
        """
        if w.shape[-1:] != (self.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.n}); got {tuple(w.shape)}")
        flat = w.detach().cpu().double().reshape(-1, self.n).numpy()
        sides = self.sides(instance, flat.shape[0])
        size = np.abs(flat)
        rounding = ROUNDING * size.max(-1, keepdims=True)
        (equation_sizes, largest), (row_sizes, row_largest) = self._row_sizes
        with np.errstate(invalid="ignore"):
            finite = [np.where(np.isinf(bound), 0.0, np.abs(bound)) for bound in (sides.lower, sides.upper)]
            terms = np.maximum(size, np.maximum(*finite))
            parts = (
                (
                    np.abs((self.A @ flat.T).T - sides.b),
                    (equation_sizes @ size.T).T + np.abs(sides.b),
                    rounding * largest,
                ),
                ((self.G @ flat.T).T - sides.h, (row_sizes @ size.T).T + np.abs(sides.h), rounding * row_largest),
                (np.maximum(sides.lower - flat, flat - sides.upper), terms, rounding),
            )
        worst = np.zeros(flat.shape[0])
        for gap, whole, allowed in parts:
            if gap.shape[-1]:
                share = np.where(gap > allowed, gap, 0.0) / np.where(whole > 0, whole, 1.0)
                worst = np.maximum(worst, np.where(np.isnan(gap), np.nan, share).max(-1))
        return torch.as_tensor(worst).reshape(w.shape[:-1])

    def is_feasible(self, w: Tensor, instance: Instance | None = None) -> Tensor:
        """Whether w satisfies rows, bounds and integrality, up to `FEASIBLE`.  `(*batch, n)` → bool `(*batch,)`."""
        whole = w.detach().cpu()[..., torch.tensor(self.integer)]
        fraction = (whole - whole.round()).abs()
        integral = (fraction <= FEASIBLE).all(-1) & ~w.detach().cpu().isnan().any(-1)
        return integral & (self.violation(w, instance) <= FEASIBLE)


def _count_variables(n: Any, rows: dict[str, Any], S: Any, vectors: dict[str, Any]) -> int:
    """The number of variables, on which all parts that tell it agree."""
    if not isinstance(n, (int, np.integer)) or n < 0:
        raise ProgramError(f"n must be a positive integer, got {n!r}")
    counts: dict[str, int] = {"n": int(n)} if n else {}
    for name, value, axis in (*((name, value, 1) for name, value in rows.items()), ("S", S, 0)):
        if value is not None:
            shape = read_shape(name, value)
            if len(shape) != 2:
                raise ProgramError(f"{name} must be a matrix, got shape {tuple(shape)}")
            counts[name] = int(shape[axis])
    for name, value in vectors.items():
        if value is not None and len(read_shape(name, value)):
            counts[name] = int(read_shape(name, value)[0])
    if not counts:
        raise ProgramError("the number of variables is unknown: pass A, G, S, d, array bounds or n")
    if len(set(counts.values())) > 1:
        raise ProgramError(f"the parts of the program disagree on the number of variables: {counts}")
    if 0 in counts.values():
        raise ProgramError("a program needs at least one variable")
    return next(iter(counts.values()))


def _read_rows(name: str, matrix: Any, side_name: str, side: Any, n: int) -> tuple[sp.csr_array, np.ndarray]:
    """One set of rows with its right-hand side."""
    rows = read_matrix(name, matrix, n)
    empty = np.flatnonzero(np.diff(rows.indptr) == 0)
    if empty.size:
        raise ProgramError(
            f"row {empty[0]} of {name} is empty ({empty.size} such rows): it constrains nothing; drop it with its {side_name}"
        )
    if side is None and rows.shape[0]:
        raise ProgramError(f"{name} has {rows.shape[0]} rows but {side_name} is missing")
    return rows, read_vector(side_name, 0.0 if side is None else side, rows.shape[0], finite=True)
