"""`LinearModel`: a foreign model as every front end reads it, and the one way from there to a `Program`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError
from dflearn.frontends.costs import Coefficients
from dflearn.program.names import Holder, RightHandSide, closest, matched
from dflearn.program.sides import ROUNDING, Sides, integer_bounds

if TYPE_CHECKING:
    from dflearn.program import Instance, Program, Sense

REFORMULATE = "a Program has a linear objective and linear rows: reformulate, or hand your own solve to from_callable"
SEMI_CONTINUOUS = "semi-continuous: write it with a binary variable z and the rows lower·z ≤ w ≤ upper·z"
CROSSING = 1e-12  # relative to their size: limits that cross by no more are meant to be equal, 0.3/3 < 0.1
CONSTANT = "constant"  # the name of the variable, fixed to 1, that carries a model's offset


class Rows:
    """row_lower ≤ M w ≤ row_upper as `Program` has it: A w = b, G w ≤ h and bounds on w.

    A row with equal limits is an equality, one with two limits two inequalities, one without limits nothing, one with a single
    variable bounds. Limits and bounds that cross by rounding alone, as 3 x ≤ 0.3 and x ≥ 0.1, are equal. The limits given here
    settle which row is which; `sides` then takes others, one set per instance.
    """

    def __init__(
        self,
        matrix: Any,
        row_lower: np.ndarray,
        row_upper: np.ndarray,
        integer: np.ndarray,
        names: Sequence[str] | None = None,
        equal: np.ndarray | None = None,
        predicted: sp.csr_array | None = None,
    ) -> None:
        M = sp.csr_array(matrix, dtype=np.float64)
        M.sum_duplicates()
        M.eliminate_zeros()
        self.integer, self.names, self.predicted = integer, names, predicted
        entries = np.diff(M.indptr)
        if predicted is not None:  # such a row stays one, whatever it holds
            own = np.diff(predicted.indptr) > 0
            self._check_predicted(own, entries, row_lower, row_upper)
            entries = np.where(own, np.maximum(entries, 2), entries)
        equal = (row_lower == row_upper) | _barely_crossed(row_lower, row_upper) if equal is None else equal
        self.empty = np.flatnonzero(entries == 0)
        self.single = np.flatnonzero(entries == 1)
        self.column, self.factor = M.indices[M.indptr[self.single]], M.data[M.indptr[self.single]]
        self.equal = np.flatnonzero((entries > 1) & equal)
        self.above = np.flatnonzero((entries > 1) & ~equal & np.isfinite(row_upper))
        self.below = np.flatnonzero((entries > 1) & ~equal & np.isfinite(row_lower))
        self.A = M[self.equal]
        self.G = sp.vstack([M[self.above], -M[self.below]], format="csr")

    def sides(self, row_lower: np.ndarray, row_upper: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Sides:
        """The sides of a `Program` or an `Instance`.  Limits `(*batch, rows)`, bounds `(*batch, n)`."""
        row_lower = np.where(_barely_crossed(row_lower, row_upper), row_upper, row_lower)
        self._check_possible(row_lower, row_upper)
        first, second = row_lower[..., self.single] / self.factor, row_upper[..., self.single] / self.factor
        batch = np.broadcast_shapes(first.shape[:-1], lower.shape[:-1], upper.shape[:-1])
        lower, upper = (np.broadcast_to(side, (*batch, side.shape[-1])).copy() for side in (lower, upper))
        own = lower.copy()
        np.maximum.at(lower.T, self.column, np.minimum(first, second).T)  # several rows may bound one variable
        np.minimum.at(upper.T, self.column, np.maximum(first, second).T)
        crossed = _barely_crossed(lower, upper)
        if crossed.any():  # the bound that a row implies gives way to the variable's own
            upper = np.where(crossed & (lower == own), lower, upper)
            lower = np.where(crossed, upper, lower)
        lower, upper = integer_bounds(lower, upper, self.integer)
        h = np.concatenate([row_upper[..., self.above], -row_lower[..., self.below]], axis=-1) + 0.0
        return Sides(row_lower[..., self.equal], h, lower, upper)

    def _check_predicted(
        self, own: np.ndarray, entries: np.ndarray, row_lower: np.ndarray, row_upper: np.ndarray
    ) -> None:
        """Every predicted row holds variables and has one right-hand side."""
        two = np.isfinite(row_lower) & np.isfinite(row_upper) & (row_lower != row_upper)
        none = np.isinf(row_lower) & np.isinf(row_upper)
        for wrong, why in ((entries == 0, "holds no variable"), (two | none, "has two limits or none")):
            if (own & wrong).any():
                row = int(np.argmax(own & wrong))
                called = repr(self.names[row]) if self.names is not None else str(row)
                raise ProgramError(f"row {called} {why}, so that its right-hand side cannot be predicted")

    def moves(self) -> dict[str, sp.csr_array]:
        """B and H of a `Program`, and which right-hand sides a prediction replaces."""
        if self.predicted is None:
            return {}
        T = self.predicted
        return {"B": T[self.equal], "H": sp.vstack([T[self.above], -T[self.below]], format="csr")}

    def constraint_names(self) -> dict[str, RightHandSide] | None:
        """Where the right-hand side of each named row stands; names that several rows share tell nothing."""
        if self.names is None:
            return None
        rows: tuple[tuple[Holder, np.ndarray], ...] = (("b", self.equal), ("h", self.above))
        places = {i: RightHandSide(field, k) for field, some in rows for k, i in enumerate(some.tolist())}
        places |= {
            i: RightHandSide("bound", k) for i, k in zip(self.single.tolist(), self.column.tolist(), strict=True)
        }
        neither = RightHandSide("none", 0)
        for place, i in enumerate(self.below.tolist(), start=len(self.above)):
            places[i] = neither if i in places else RightHandSide("h", place, -1.0)
        times = Counter(self.names)
        return {name: places.get(i, neither) for i, name in enumerate(self.names) if name and times[name] == 1}

    def _check_possible(self, row_lower: np.ndarray, row_upper: np.ndarray) -> None:
        """No row's limits cross, and 0 lies within those of a row without variables."""
        low, high = row_lower.copy(), row_upper.copy()
        low[..., self.empty] = np.maximum(low[..., self.empty], -ROUNDING)
        high[..., self.empty] = np.minimum(high[..., self.empty], ROUNDING)
        bad = np.argwhere((low > high) | np.isnan(low) | np.isnan(high) | (low == np.inf) | (high == -np.inf))
        if bad.size:
            *instance, row = (int(i) for i in bad[0])
            where = f"row {row if self.names is None else repr(self.names[row])}"
            where += f" of instance {instance[0]}" if instance else ""
            limits = f"between {row_lower[tuple(bad[0])]} and {row_upper[tuple(bad[0])]}"
            what = "holds no variable and should lie" if row in self.empty else "should lie"
            raise ProgramError(f"{where} {what} {limits}: nothing satisfies that; check the data of this row")


def _barely_crossed(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Where lower exceeds upper by rounding alone."""
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is no crossing
        return (lower > upper) & (lower - upper <= CROSSING * np.maximum(np.abs(lower), np.abs(upper)))


@dataclass(frozen=True)
class LinearModel:
    """min or max (S y + d)ᵀ w + ½ wᵀQ w + sᵀ y + offset   s.t.  row_lower ≤ M w ≤ row_upper,  lower ≤ w ≤ upper,  w_i ∈ ℤ for some i.

    All in the model's own sense. `coefficients` holds S, d and the names of the costs y.
    """

    rows: Rows
    sides: Sides
    coefficients: Coefficients
    integer: np.ndarray
    sense: Sense
    name: str
    variable_names: Sequence[str] | None
    offset: float = 0.0
    offset_costs: np.ndarray | None = None
    Q: sp.csr_array | None = None
    recourse: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        matrix: Any,
        limits: tuple[Any, Any],
        bounds: tuple[Any, Any],
        integer: np.ndarray,
        row_names: Sequence[str] | None = None,
        **others: Any,
    ) -> LinearModel:
        """From rows with `limits` (row_lower, row_upper) `(rows,)` and variables with `bounds` (lower, upper) `(n,)`."""
        row_lower, row_upper = (np.asarray(side, np.float64) for side in limits)
        lower, upper = (np.asarray(side, np.float64) for side in bounds)
        rows = Rows(matrix, row_lower, row_upper, integer, row_names, predicted=others["coefficients"].rows)
        return cls(rows=rows, sides=rows.sides(row_lower, row_upper, lower, upper), integer=integer, **others)

    def program(self, keep_offset: bool = False) -> Program:
        """The program. A model that maximizes gets −S, −d and −Q, so that its costs remain values in its own sense.

        The offset is dropped, which changes no regret. `keep_offset` keeps it, if there is one, by one more variable, fixed to 1.
        """
        from dflearn.program import Program  # loads torch, which reading a file does without

        S, d, cost_names, _, replaced = self.coefficients
        moves = self.rows.moves()
        A, G, sides, integer = self.rows.A, self.rows.G, self.sides, self.integer
        Q = self.Q if self.Q is None or self.sense == "minimize" else -self.Q
        names = None if self.variable_names is None else list(self.variable_names)
        s = np.zeros(S.shape[1]) if self.offset_costs is None else self.offset_costs
        if keep_offset and (self.offset or s.any()):
            S, d = sp.vstack([S, sp.csr_array(s[None])]), np.append(d, self.offset)
            A, G = (sp.hstack([matrix, sp.csr_array((matrix.shape[0], 1))]) for matrix in (A, G))
            sides = replace(sides, lower=np.append(sides.lower, 1.0), upper=np.append(sides.upper, 1.0))
            integer = np.append(integer, False)
            Q = None if Q is None else sp.block_diag([Q, sp.csr_array((1, 1))], format="csr")
            names = None if names is None else [*names, CONSTANT]
        for side, part in zip(("b", "h"), moves.values(), strict=False):  # predictions replace what the model holds
            sides = replace(sides, **{side: np.where(np.diff(part.indptr) > 0, 0.0, getattr(sides, side))})
        return Program(
            A=A,
            G=G,
            **sides.parts(),  # type: ignore[arg-type]  # the keys are known, and none is n
            **to_minimize(S, d, self.sense),
            integer=integer,
            sense=self.sense,
            name=self.name,
            variable_names=names,
            cost_names=cost_names,
            constraint_names=self.rows.constraint_names(),
            Q=Q,
            **moves,
            recourse=_named(self.recourse, names or []),
            replaced=replaced,
        )


def _named(recourse: Sequence[str], names: Sequence[str]) -> list[int]:
    """The variables of these names; a name may end in *."""
    place, found = {name: i for i, name in enumerate(names)}, list[int]()
    for wanted in [recourse] if isinstance(recourse, str) else recourse:
        prefix = wanted[:-1] if wanted.endswith("*") and wanted not in place else None
        known = matched(wanted, place, "the variable") if prefix is None else None
        some = [place[known]] if known is not None else []
        if prefix is not None:
            some = [i for name, i in place.items() if name.startswith(prefix)]
        if not some:
            raise OptionError(f"recourse: the model has no variable {wanted!r}{closest(wanted, names)}")
        found += some
    return found


def as_infinite(values: Any, from_: float = 1e20) -> np.ndarray:
    """±inf for what a modelling tool takes for infinite, a number of at least `from_`."""
    array = np.asarray(values, np.float64)
    return np.where(np.abs(array) >= from_, np.copysign(np.inf, array), array)


def to_minimize(S: sp.csr_array, d: np.ndarray, sense: Sense) -> dict[str, Any]:
    """S and d of a `Program` from those of a model in its own sense; S is `None` where it is the identity."""
    if sense == "maximize":
        return {"S": -S, "d": 0.0 - d}
    n, p = S.shape
    identity = n == p and S.nnz == n and bool((S.diagonal() == 1).all())
    return {"S": None if identity else S, "d": d + 0.0}


def as_instances(programs: Sequence[Program]) -> tuple[Program, Instance]:
    """The first program, and an `Instance` `(len(programs), …)` that holds what the others have otherwise.

    For models whose data change from day to day: read the model of each day, then put the days together. Right-hand
    sides, bounds and d may differ; the matrices A, G, S and the integer variables must be the same.

    Examples:
        >>> days = [dfl.from_linprog(A_eq=[[1, 1]], b_eq=[demand]) for demand in (1, 2, 3)]
        >>> first, instances = dfl.as_instances(days)
        >>> instances.b
        tensor([[1.],
                [2.],
                [3.]], dtype=torch.float64)
    """
    import torch  # here, since reading a file does without

    from dflearn.program import Instance

    if not programs:
        raise ProgramError("as_instances needs at least one program")
    first = programs[0]
    names = ("A", "G", "S", "integer", "sense", "B", "H", "recourse")
    shared = [{n: getattr(one, n) for n in names} | ({} if one.Q is None else one.Q.parts()) for one in programs]
    for number, held in enumerate(shared):
        differing = [name for name in {**shared[0], **held} if not _same(shared[0].get(name), held.get(name))]
        if differing:
            may = "instances may differ in b, h, lower, upper, d and q only"
            raise ProgramError(f"programs 0 and {number} differ in {differing[0]}; {may}")
    sides = ("b", "h", "lower", "upper", "d")
    values = {name: np.stack([getattr(program, name) for program in programs]) for name in sides}
    return first, Instance(**{name: torch.tensor(rows) for name, rows in values.items() if (rows != rows[:1]).any()})


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str):
        return one is other or one == other
    if one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else (one != other).nnz == 0
