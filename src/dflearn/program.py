"""The one canonical form. Every problem, solver, layer and loss of dflearn speaks about

    min over w of (S y + d)ᵀ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,   w_i ∈ ℤ for i in `integer`.

y (p) are the costs that are predicted; S (n, p) and d (n) are the known part of the objective (default: identity, zero).
A problem that maximizes has S = −I and keeps its data as values; `sense` matters for reporting only.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import ProgramError, ShapeError

if TYPE_CHECKING:
    from dflearn.equality_form import EqualityForm

Sense = Literal["minimize", "maximize"]
ROUNDING = 1e-9  # how far from an integer a bound may lie and still be meant as one


@dataclass(frozen=True)
class Instance:
    """What differs from instance to instance; each field is optional and batched, `(*batch, rows or n)`.

    A field that is `None` is the program's own. Matrices are shared by all instances.
    """

    b: Tensor | None = None
    h: Tensor | None = None
    lower: Tensor | None = None
    upper: Tensor | None = None
    d: Tensor | None = None

    def present(self) -> dict[str, Tensor]:
        """The fields that are set, by name."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def map(self, function: Any) -> Instance:
        """The instance with `function` applied to each field that is set."""
        return Instance(**{name: function(value) for name, value in self.present().items()})

    def __getitem__(self, index: Any) -> Instance:
        return self.map(lambda value: value[index])

    def to(self, *args: Any, **kwargs: Any) -> Instance:
        return self.map(lambda value: value.to(*args, **kwargs))

    @property
    def shape(self) -> torch.Size:
        """The batch shape, by which scikit-learn knows that an instance can be cut into folds like an array."""
        return self.batch_shape() or torch.Size()

    def batch_shape(self) -> torch.Size | None:
        """The common leading shape of the fields, or `None` when none is set."""
        shapes = {name: value.shape[:-1] for name, value in self.present().items()}
        if len(set(shapes.values())) > 1:
            raise ShapeError(f"the fields of an Instance must share their batch shape; got {shapes}")
        return next(iter(shapes.values()), None)


class Objective:
    """obj(y, w) = (S y + d)ᵀ w: linear in the predicted costs y (p) and in the decision w (n).

    `S=None` is the identity (n = p); `d=None` is zero. Calling it gives obj, `vector` gives c = S y + d,
    `transpose` gives Sᵀ v. All are differentiable and keep dtype and device of their first argument.
    """

    def __init__(self, n: int, S: Any = None, d: Any = None, sense: Sense = "minimize") -> None:
        if sense not in ("minimize", "maximize"):
            raise ProgramError(f"sense is 'minimize' or 'maximize', got {sense!r}")
        self.n = int(n)
        self.sense: Sense = sense
        self.S = None if S is None else _matrix("S", S)
        if self.S is not None and self.S.shape[0] != n:
            raise ProgramError(
                f"S maps the p predicted costs to the {n} variables, so it needs {n} rows; its shape is {self.S.shape}"
            )
        self.p = self.n if self.S is None else self.S.shape[1]
        self.d = _vector("d", 0.0 if d is None else d, n, finite=True)
        self._constants: dict[tuple[torch.dtype, torch.device], tuple[Tensor, ...]] = {}

    def __repr__(self) -> str:
        return f"Objective(n={self.n}, p={self.p}, sense={self.sense!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_constants": {}}

    @cached_property
    def _single_entry_rows(self) -> bool:
        """Whether every variable depends on at most one cost: then S y is a gather and a product."""
        return self.S is not None and bool((np.diff(self.S.indptr) <= 1).all())

    @cached_property
    def _diagonal(self) -> bool:
        """Whether variable j depends on cost j at most: then S y is a product."""
        if self.S is None or self.S.shape[0] != self.S.shape[1] or not self._single_entry_rows:
            return False
        return bool((self.S.indices == np.flatnonzero(np.diff(self.S.indptr))).all())

    @cached_property
    def _has_d(self) -> bool:
        return bool(self.d.any())

    def _tensors(self, like: Tensor) -> tuple[Tensor, ...]:
        """d, and S as (column, value) per row or as a sparse matrix and its transpose, for this dtype and device."""
        key = (like.dtype, like.device)
        if key not in self._constants:
            d = torch.tensor(self.d, dtype=like.dtype, device=like.device)
            if self.S is None:
                self._constants[key] = (d,)
            elif self._single_entry_rows:
                column, value = np.zeros(self.n, np.int64), np.zeros(self.n)
                filled = np.diff(self.S.indptr) == 1
                column[filled], value[filled] = self.S.indices, self.S.data
                scale = torch.as_tensor(value, dtype=like.dtype, device=like.device)
                self._constants[key] = (d, torch.as_tensor(column, device=like.device), scale)
            else:
                both = (_torch_sparse(self.S, like), _torch_sparse(self.S.T.tocsr(), like))
                self._constants[key] = (d, *both)
        return self._constants[key]

    def vector(self, y: Tensor, instance: Instance | None = None) -> Tensor:
        """c = S y + d.  y `(*batch, p)` → `(*batch, n)`; an instance's own d replaces the program's."""
        if y.shape[-1:] != (self.p,):
            raise ShapeError(f"costs must have shape (*batch, {self.p}); got {tuple(y.shape)}")
        own, *S = self._tensors(y)
        d = own if self._has_d else None
        if instance is not None and instance.d is not None:
            if instance.d.shape[-1:] != (self.n,):
                raise ShapeError(f"the instance's d must have shape (*batch, {self.n}); got {tuple(instance.d.shape)}")
            d = instance.d.to(y)
        if self.S is None:
            c = y
        elif self._single_entry_rows:
            c = (y if self._diagonal else y.index_select(-1, S[0])) * S[1]
        else:
            c = _SparseMap.apply(y, S[0], S[1])
        return c if d is None else c + d

    def transpose(self, v: Tensor) -> Tensor:
        """Sᵀ v: a gradient with respect to c becomes one with respect to y.  `(*batch, n)` → `(*batch, p)`."""
        _, *S = self._tensors(v)
        if self.S is None:
            return v
        if self._diagonal:
            return v * S[1]
        if self._single_entry_rows:
            return v.new_zeros(*v.shape[:-1], self.p).index_add(-1, S[0], v * S[1])
        return _SparseMap.apply(v, S[1], S[0])

    def __call__(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Tensor:
        """obj(y, w) = (S y + d)ᵀ w.  y `(*batch, p)`, w `(*batch, n)` → `(*batch,)`."""
        if w.shape[-1:] != (self.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.n}); got {tuple(w.shape)}")
        return (self.vector(y, instance) * w).sum(-1)


class _SparseMap(torch.autograd.Function):
    """x → x Mᵀ for a constant sparse M, whose transpose is at hand for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.pair = (transpose, matrix)
        return (matrix @ x.reshape(-1, x.shape[-1]).T).T.reshape(*x.shape[:-1], matrix.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _SparseMap.apply(gradient, *ctx.pair), None, None


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
            rows = _matrix(matrix, getattr(self, matrix), n)
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
                _vector(side, 0.0 if getattr(self, side) is None else getattr(self, side), rows.shape[0], finite=True),
            )
        for side in ("lower", "upper"):
            put(side, _vector(side, getattr(self, side), n, finite=False))
        check_bounds(self.lower, self.upper)
        put("integer", _mask(self.integer, n))
        put("objective", Objective(n, self.S, self.d, self.sense))
        put("S", self.objective.S)
        put("d", self.objective.d)
        put("variable_names", _names("variable_names", self.variable_names, n, "variables"))
        put("cost_names", _names("cost_names", self.cost_names, self.objective.p, "predicted costs"))

    def _count_variables(self) -> int:
        if not isinstance(self.n, (int, np.integer)) or self.n < 0:
            raise ProgramError(f"n must be a positive integer, got {self.n!r}")
        counts: dict[str, int] = {"n": int(self.n)} if self.n else {}
        for name, axis in (("A", 1), ("G", 1), ("S", 0)):
            value = getattr(self, name)
            if value is not None:
                shape = _shape(name, value)
                if len(shape) != 2:
                    raise ProgramError(f"{name} must be a matrix, got shape {tuple(shape)}")
                counts[name] = int(shape[axis])
        for name in ("d", "lower", "upper"):
            value = getattr(self, name)
            if value is not None and len(_shape(name, value)):
                counts[name] = int(_shape(name, value)[0])
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


def _shape(name: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
    except ValueError as error:
        raise ProgramError(f"{name} has lines of different lengths: {error}") from error


def _plain(value: Any) -> Any:
    """A tensor as a numpy array; anything else as it is."""
    return value.detach().to_dense().cpu().numpy() if isinstance(value, Tensor) else value


def _matrix(name: str, value: Any, columns: int | None = None) -> sp.csr_array:
    if value is None:
        return sp.csr_array((0, columns or 0), dtype=np.float64)
    try:
        matrix = sp.csr_array(_plain(value), dtype=np.float64, copy=True)
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{name} cannot be read as a matrix of numbers: {error}") from error
    if matrix.ndim != 2:
        raise ProgramError(f"{name} must be a matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix.data).all():
        raise ProgramError(f"{name} holds a NaN or an infinity")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


def _vector(name: str, value: Any, length: int, *, finite: bool) -> np.ndarray:
    try:
        vector = np.array(_plain(value), dtype=np.float64) + 0.0  # −0 becomes 0
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{name} cannot be read as a vector of numbers: {error}") from error
    if vector.ndim == 0:
        vector = np.full(length, float(vector))
    if vector.shape != (length,):
        raise ProgramError(f"{name} must have shape ({length},), got {vector.shape}")
    if np.isnan(vector).any() or (finite and np.isinf(vector).any()):
        where = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ProgramError(
            f"{name}[{where}] is {vector[where]}: {'finite numbers' if finite else 'numbers or ±inf'} only"
        )
    vector.flags.writeable = False
    return vector


def _mask(value: Any, n: int) -> np.ndarray:
    array = np.asarray(value)
    mask = np.zeros(n, dtype=bool)
    if array.dtype == bool and array.ndim == 0:
        mask[:] = bool(array)
    elif array.dtype == bool and array.shape == (n,):
        mask[:] = array
    elif array.ndim == 1 and (
        array.size == 0 or (np.issubdtype(array.dtype, np.integer) and array.min() >= 0 and array.max() < n)
    ):
        mask[array.astype(np.int64)] = True
    else:
        raise ProgramError(f"integer must be True, a boolean mask of shape ({n},) or indices below {n}; got {value!r}")
    mask.flags.writeable = False
    return mask


def _names(field: str, value: Any, count: int, what: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if len(names) != count or not all(isinstance(name, str) for name in names):
        raise ProgramError(
            f"{field} must be {count} strings, one for each of the {what}; got {len(names)}: {names[:5]}"
        )
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ProgramError(f"{field} holds {repeated[0]!r} more than once ({len(repeated)} such names): name each once")
    return names


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


def _torch_sparse(matrix: sp.csr_array, like: Tensor) -> Tensor:
    coo = matrix.tocoo()
    index = torch.as_tensor(np.vstack(coo.coords).astype(np.int64))
    value = torch.tensor(coo.data, dtype=like.dtype)
    return torch.sparse_coo_tensor(index, value, coo.shape, check_invariants=False).coalesce().to(like.device)
