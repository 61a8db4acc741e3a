"""The one canonical form. Every problem, solver, layer and loss of dflearn speaks about

    min over w of (S y + d)ᵀ w + ½ wᵀQ w    s.t.   A w = b + B y,   G w ≤ h + H y,   lower ≤ w ≤ upper,
                                                   w_i ∈ ℤ for i in `integer`.

y (p) is what is predicted: costs, and where B and H say so right-hand sides. S (n, p), d (n) and Q (n, n), symmetric and
positive semidefinite, are the known part of the objective (default: identity, zero, zero). `recourse` marks the variables
that are decided once y is known. A problem that maximizes has S = −I and keeps its data as values; `sense` matters for
reporting only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import ProgramError, ShapeError
from dflearn.program.arrays import (
    LinearMap,
    MatrixLike,
    VectorLike,
    read_mask,
    read_matrix,
    read_names,
    read_shape,
    read_vector,
)
from dflearn.program.columns import read_instance
from dflearn.program.equality_form import EqualityForm
from dflearn.program.instance import Instance
from dflearn.program.names import Columns, RightHandSide, read_constraint_names
from dflearn.program.objective import Objective, Parts, Sense
from dflearn.program.quadratic import Quadratic
from dflearn.program.recourse import extensive_form, with_slack
from dflearn.program.sides import NO_LIMIT, ROUNDING, SIDES, Side, Sides, check_bounds

# By which share a decision, perhaps stored in float32, may violate constraints, and how far it may be from integers.
FEASIBLE = 1e-4


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Program(Parts):
    """min over w of (S y + d)ᵀ w + ½ wᵀQ w   s.t.  A w = b + B y,  G w ≤ h + H y,  lower ≤ w ≤ upper,  w_i ∈ ℤ, i in `integer`.

    Args:
        A, b: equality rows, `(rows, n)` (anything scipy.sparse reads) and `(rows,)`.
        G, h: inequality rows, likewise; +inf in h is no limit, and held as 1e30.
        lower, upper: bounds, scalars or `(n,)`; ±inf is allowed. Default: w ≥ 0.
        S, d: the known part of the objective, `(n, p)` and `(n,)`. Default: identity and zero.
        integer: which variables are integer: `True` (all), a boolean mask `(n,)` or indices.
        n: the number of variables, where nothing else tells it.
        sense: "minimize" or "maximize", for reports only; to maximize, negate S and d.
        name: shown in messages and reports.
        variable_names, cost_names: what the n variables and the p costs are called, each name once; optional.
        constraint_names: for each named constraint, where its right-hand side stands: `{"weight": ("h", 0)}`; optional.
            `instance` then finds columns of these names. See `RightHandSide`.
        Q: the quadratic part of the objective, symmetric positive semidefinite `(n, n)`, or a `Quadratic` of a factor.
        B, H: where right-hand sides are predicted, `(rows of A, p)` and `(rows of G, p)`. Default: nowhere.
        recourse: which variables are decided once the truth is known, as `integer`. Default: none.
        replaced: by variable, the coefficients of a model that predicted costs replace; d is without them. For `train` to tell.

    Examples:
        >>> knapsack = dfl.Program(G=[[3, 4, 5]], h=[7], upper=1, integer=True, S=-np.eye(3), sense="maximize")
        >>> dfl.HiGHS(knapsack).solve(torch.tensor([4.0, 5.0, 6.0])).decision
        tensor([1., 1., 0.])
    """

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
        Q: Quadratic | MatrixLike | None = None,
        B: MatrixLike | None = None,
        H: MatrixLike | None = None,
        recourse: Any = False,
        replaced: Mapping[int, float] | None = None,
    ) -> None:
        quadratic = None if Q is None else Quadratic.of(Q)
        n = _count_variables(n, {"A": A, "G": G}, S, {"d": d, "lower": lower, "upper": upper}, quadratic)
        quadratic = None if quadratic is None or quadratic.is_zero else quadratic
        if sense == "maximize" and S is None:
            raise ProgramError(
                "sense='maximize' says what the numbers mean, and (S y + d)ᵀw is minimized all the same: to maximize yᵀw, pass "
                "S=-numpy.eye(n), and negate d and Q too"
            )
        objective = Objective(n, S, d, sense, Q=quadratic)
        A, b = _read_rows("A", A, "b", b, n)
        G, h = _read_rows("G", G, "h", h, n)
        low, high = (read_vector(side, value, n, finite=False) for side, value in (("lower", lower), ("upper", upper)))
        check_bounds(low, high)
        later = None if recourse is None else read_mask("recourse", recourse, n)
        fields = {"A": A, "b": b, "G": G, "h": h, "lower": low, "upper": high, "n": n, "sense": sense, "name": name}
        fields |= {
            "S": objective.S,
            "d": objective.d,
            "integer": read_mask("integer", integer, n),
            "variable_names": read_names("variable_names", variable_names, n, "variables"),
            "cost_names": read_names("cost_names", cost_names, objective.p, "predicted costs"),
            "constraint_names": read_constraint_names(constraint_names, {"b": len(b), "h": len(h), "bound": n}),
            "objective": objective,
            "Q": quadratic,
            "B": _read_predicted("B", B, "A", len(b), objective.p),
            "H": _read_predicted("H", H, "G", len(h), objective.p),
            "recourse": None if later is None or not later.any() else later,
            "replaced": replaced,
        }
        for field_name, value in fields.items():
            object.__setattr__(self, field_name, value)  # frozen from here on

    # -- what it is ---------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        kind = ("" if not self.is_integer else "I" if self.integer.all() else "MI") + ("LP" if self.Q is None else "QP")
        finite_upper = int(np.isfinite(self.upper).sum())
        integer = f" ({int(self.integer.sum())} integer)" if self.is_integer else ""
        parts = [f"{self.n} variables{integer}", f"{self.p} predicted costs", f"{self.A.shape[0]} equalities"]
        parts += [
            f"{self.G.shape[0]} inequalities",
            f"{finite_upper} upper bounds",
            f"{self.A.nnz + self.G.nnz} nonzeros",
        ]
        if self.predicts_rows:
            rows = sum(0 if part is None else int((np.diff(part.indptr) > 0).sum()) for part in (self.B, self.H))
            parts.append(f"{rows} predicted right-hand sides")
        if self.recourse is not None:
            parts.append(f"{int(self.recourse.sum())} recourse variables")
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
            digest.update(name.encode() + (b"" if matrix is None else _bytes(matrix)))
        for name in ("b", "h", "lower", "upper", "d"):
            digest.update(name.encode() + getattr(self, name).tobytes())
        digest.update(self.integer.tobytes())
        further = ({} if self.Q is None else self.Q.parts()) | {"B": self.B, "H": self.H, "recourse": self.recourse}
        for name, part in further.items():
            if part is not None:
                digest.update(name.encode() + (part.tobytes() if isinstance(part, np.ndarray) else _bytes(part)))
        return digest.hexdigest()

    def equality_form(self) -> EqualityForm:
        """Â w̃ = b̂ with one slack per inequality, bounds kept as bounds, dependent rows dropped (cached)."""
        return self._equality_form

    @cached_property
    def _equality_form(self) -> EqualityForm:
        return EqualityForm.of(self.A, self.G, self.own_sides)

    # -- instances ----------------------------------------------------------------------------------------------

    def instance(self, columns: Columns) -> Instance:
        """The `Instance` `(*batch, …)` that columns `(*batch,)` describe, each found by its name.

        Args:
            columns: a DataFrame of pandas, a dict of arrays, or a `Table`. A column is called like a constraint, and holds
                its right-hand sides; or `lower:x`, `upper:x`, `d:x`, the bounds and the known cost of a variable x, in
                the sense of the program. Whatever has no column is as in the program. A predicted right-hand side has none.
        """
        return read_instance(self, columns)

    def elastic(self, rows: Any, price: float | tuple[float, float] | Sequence[Any]) -> Program:
        """The program with rows that may be broken at a price: slack that is decided once the truth is known (`recourse`).

        A row of G gets one slack, for what exceeds its right-hand side. A row of A gets two, for what exceeds it and for what
        it lacks; a pair (exceeding, lacking) prices them apart.

        Args:
            rows: names of constraints, or places ("b" or "h", position); one or several; "predicted" for all those that B
                and H predict.
            price: per unit, > 0: a number or a pair for all, or a list with one for each row.
        """
        return with_slack(self, rows, price)

    def scenarios(self, weights: int | Sequence[float]) -> Program:
        """The extensive form: recourse is decided for each of K scenarios, everything else once, for the mean cost.

            min Σ_k π_k obj(y_k, (w, v_k))   s.t.  (w, v_k) feasible for y_k

        What is predicted is (y_1, …, y_K), `(*batch, K p)`. The first n variables are those of this program, recourse as of
        scenario 1; the recourse variables of scenarios 2 … K follow. So `w[..., :n]` is a decision of this program, and
        `TaskLoss(layer, program=this)` trains a predictor of scenarios by what its decisions cost.

        Args:
            weights: of the scenarios, positive, in any unit; or K, for equal ones.
        """
        return extensive_form(self, weights)

    @cached_property
    def _predicted_rows(self) -> dict[Literal["b", "h"], LinearMap]:
        both: dict[Literal["b", "h"], sp.csr_array | None] = {"b": self.B, "h": self.H}
        return {name: LinearMap(part) for name, part in both.items() if part is not None}

    def realize(self, y: Tensor, instance: Instance | None = None) -> Instance | None:
        """The instance `(*batch, …)` whose right-hand sides are b + B y and h + H y; differentiable in y `(*batch, p)`."""
        if self.B is None and self.H is None:
            return instance
        if y.shape[-1:] != (self.p,):
            raise ShapeError(f"costs must have shape (*batch, {self.p}); got {tuple(y.shape)}")
        given = {} if instance is None else instance.present()
        exact = y.double()
        for name, moves in self._predicted_rows.items():
            own = given[name].to(exact) if name in given else torch.tensor(getattr(self, name), device=y.device)
            given[name] = own + moves(exact)
        return Instance(**given)

    def check_shapes(self, given: dict[str, Tensor], count: int) -> None:
        """An error where a field of an instance does not fit so many instances."""
        for name, value in given.items():
            wanted = self.n if name in ("d", "q") else getattr(self, name).shape[-1]
            if not isinstance(value, Tensor):
                raise ShapeError(f"the instance's {name} must be a tensor, got a {type(value).__name__}")
            if value.shape[-1:] != (wanted,) or value.shape[:-1].numel() != count:
                raise ShapeError(
                    f"the instance's {name} must have shape (*batch, {wanted}) for {count} instances; got {tuple(value.shape)}"
                )

    def sides(self, instance: Instance | None, count: int) -> Sides:
        """The right-hand sides and bounds of `count` instances, checked: the program's own, unless an instance overrides them."""
        given = {} if instance is None else instance.present()
        if not given:
            return self.own_sides
        parts: dict[Side, np.ndarray] = self.own_sides.parts()
        self.check_shapes(given, count)
        for name, value in given.items():
            array = np.array(value.detach().cpu().double().numpy(), order="C").reshape(count, value.shape[-1])
            bounds = name in ("lower", "upper")
            array = np.minimum(array, NO_LIMIT) if name == "h" else array
            wrong = np.isnan(array) if bounds else ~np.isfinite(array)
            if wrong.any():
                bad, what = int(np.flatnonzero(wrong.any(1))[0]), "a NaN" if bounds else "a NaN or an infinity"
                raise ShapeError(f"instance {bad}: {name} holds {what}")
            if name == "q" and (array < 0).any():
                bad, j = map(int, np.argwhere(array < 0)[0])
                raise ShapeError(f"instance {bad}: q[{j}] is {array[bad, j]:g}: not convex; q must be ≥ 0")
            if name in SIDES:
                parts[name] = array
        check_bounds(parts["lower"], parts["upper"])
        return Sides(**parts)

    @cached_property
    def _rows(self) -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
        """M = (A, G), |M|, and the largest entry of each of its rows."""
        matrix = sp.csr_array(sp.vstack([self.A, self.G], format="csr"))
        sizes = abs(matrix)
        return matrix, sizes, sizes.max(axis=1).toarray().ravel() if matrix.nnz else np.zeros(matrix.shape[0])

    def violation(self, w: Tensor, instance: Instance | None = None) -> Tensor:
        """The largest violation of a row or a bound at w, each relative to its own terms; float64 `(*batch,)`.

        The terms of a row are |b_i| + Σ_j |a_ij w_j|, those of a variable the largest of |w_j| and its finite bounds. Less than
        `ROUNDING` of the largest decision of the instance is no violation.
        """
        if w.shape[-1:] != (self.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.n}); got {tuple(w.shape)}")
        flat = w.detach().cpu().double().reshape(-1, self.n).numpy()
        sides = self.sides(instance, flat.shape[0])
        size, right, (matrix, sizes, largest) = np.abs(flat), sides.right_hand_sides(), self._rows
        allowed = ROUNDING * size.max(-1, keepdims=True) * np.append(largest, np.ones(self.n))
        with np.errstate(invalid="ignore"):
            finite = [np.where(np.isinf(bound), 0.0, np.abs(bound)) for bound in (sides.lower, sides.upper)]
            rows = (matrix @ flat.T).T - right
            rows = np.where(np.arange(len(largest)) < self.A.shape[0], np.abs(rows), rows)
            gap = np.hstack([rows, np.maximum(sides.lower - flat, flat - sides.upper)])
            whole = np.hstack([(sizes @ size.T).T + np.abs(right), np.maximum(size, np.maximum(*finite))])
        share = np.where(gap > allowed, gap, 0.0) / np.where(whole > 0, whole, 1.0)
        worst = np.where(np.isnan(gap), np.nan, share).max(-1)
        return torch.as_tensor(worst).reshape(w.shape[:-1])

    def is_feasible(self, w: Tensor, instance: Instance | None = None) -> Tensor:
        """Whether w satisfies rows, bounds and integrality, up to `FEASIBLE`.  `(*batch, n)` → bool `(*batch,)`."""
        whole = w.detach().cpu()[..., torch.tensor(self.integer)]
        fraction = (whole - whole.round()).abs()
        integral = (fraction <= FEASIBLE).all(-1) & ~w.detach().cpu().isnan().any(-1)
        return integral & (self.violation(w, instance) <= FEASIBLE)


def _bytes(matrix: sp.csr_array) -> bytes:
    """The content of a matrix, for a hash."""
    parts = (np.asarray(matrix.shape), matrix.indptr, matrix.indices)
    return b"".join(part.astype(np.int64).tobytes() for part in parts) + bytes(matrix.data.tobytes())


def _read_predicted(name: str, matrix: Any, rows_name: str, rows: int, p: int) -> sp.csr_array | None:
    """B or H; `None` where it is zero."""
    if matrix is None:
        return None
    moves = read_matrix(name, matrix)
    if moves.shape != (rows, p):
        maps = f"{name} maps the {p} predicted numbers to the {rows} rows of {rows_name}"
        raise ProgramError(f"{maps}, so its shape is ({rows}, {p}); got {moves.shape}")
    return moves if moves.nnz else None


def _count_variables(
    n: Any, rows: dict[str, Any], S: Any, vectors: dict[str, Any], quadratic: Quadratic | None = None
) -> int:
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
    if quadratic is not None:
        counts["Q"] = quadratic.n
    if not counts:
        raise ProgramError("the number of variables is unknown: pass A, G, S, d, Q, array bounds or n")
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
        which = f"row {empty[0]} of {name} is empty ({empty.size} such rows)"
        raise ProgramError(f"{which}: it constrains nothing; drop it with its {side_name}")
    if side is None and rows.shape[0]:
        raise ProgramError(f"{name} has {rows.shape[0]} rows but {side_name} is missing")
    right = read_vector(side_name, 0.0 if side is None else side, rows.shape[0], finite=side_name != "h")
    if side_name == "h":
        right = read_vector("h", np.minimum(right, NO_LIMIT), rows.shape[0], finite=True)
    return rows, right
