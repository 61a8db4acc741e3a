"""The arguments of `scipy.optimize.linprog` and `scipy.optimize.milp`, under the names that they have there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint

from dflearn.errors import OptionError, ProgramError
from dflearn.frontends.costs import Coefficients, by_index
from dflearn.frontends.linear_model import SEMI_CONTINUOUS, LinearModel
from dflearn.program import Program
from dflearn.program.sides import integer_bounds


def from_linprog(
    c: Any = None,
    A_ub: Any = None,
    b_ub: Any = None,
    A_eq: Any = None,
    b_eq: Any = None,
    bounds: Any = (0, None),
    integrality: Any = None,
    *,
    costs: str | Sequence[int] = "all",
    name: str = "linprog",
    Q: Any = None,
) -> Program:
    """The program that `linprog` would solve: min cᵀw s.t. A_ub w ≤ b_ub, A_eq w = b_eq, bounds; with Q, plus ½ wᵀQ w.

    Args:
        c, A_ub, b_ub, A_eq, b_eq, bounds, integrality: as of `linprog`. The rows are kept one for one: G, h are A_ub,
            b_ub, and A, b are A_eq, b_eq. `c` may be left out where all costs are predicted.
        costs: which entries of c are predicted: "all", or their indices; the others are the known part d.
        name: of the program.

    Examples:
        >>> dfl.from_linprog(A_eq=[[1, 1, 1]], b_eq=[1]).p
        3
    """
    G, A = _matrix(A_ub), _matrix(A_eq)
    n = _count(c, G, A)
    integer = _integer(integrality, n)
    lower, upper = integer_bounds(*_bounds(bounds, n), integer)
    S, d, *_ = _coefficients(costs, c, n)
    b, h = (None if side is None else np.ravel(side) for side in (b_eq, b_ub))
    own: dict[str, Any] = {"lower": lower, "upper": upper, "integer": integer, "d": d, "name": name, "Q": Q}
    return Program(A=A, b=b, G=G, h=h, S=None if isinstance(costs, str) else S, **own)


def from_milp(
    c: Any = None,
    *,
    integrality: Any = None,
    bounds: Any = None,
    constraints: Any = None,
    costs: str | Sequence[int] = "all",
    name: str = "milp",
    Q: Any = None,
) -> Program:
    """The program that `milp` would solve: min cᵀw s.t. lb ≤ A w ≤ ub for each constraint, bounds, integrality; with Q,
    plus ½ wᵀQ w.

    Args:
        c, integrality, bounds, constraints: as of `milp`: constraints is a `LinearConstraint`, a tuple (A, lb, ub), or
            a list of either. `c` may be left out where all costs are predicted.
        costs: which entries of c are predicted: "all", or their indices; the others are the known part d.
        name: of the program.

    Examples:
        >>> dfl.from_milp([3, 2], integrality=1, constraints=([[1, 1]], 1, np.inf), costs=[0]).p
        1
    """
    parts = _constraints(constraints)
    matrices = [_matrix(part.A) for part in parts]
    n = _count(c, *matrices)
    counted = [(part, matrix.shape[0]) for part, matrix in zip(parts, matrices, strict=True)]
    low, high = (
        np.concatenate([np.zeros(0), *(np.broadcast_to(getattr(part, side), rows) for part, rows in counted)])
        for side in ("lb", "ub")
    )
    box = bounds if isinstance(bounds, Bounds) else Bounds(*((0, np.inf) if bounds is None else bounds))
    sides = np.broadcast_to(box.lb, n), np.broadcast_to(box.ub, n)
    about: dict[str, Any] = {"coefficients": _coefficients(costs, c, n), "sense": "minimize", "variable_names": None}
    rows, integer = sp.vstack([*matrices, sp.csr_array((0, n))]), _integer(integrality, n)
    return LinearModel.of(rows, (low, high), sides, integer, **about, name=name, Q=_matrix(Q)).program()


def _matrix(value: Any) -> Any:
    if value is None or sp.issparse(value):
        return value
    return sp.csr_array(np.atleast_2d(np.asarray(value, np.float64)))


def _count(c: Any, *matrices: Any) -> int:
    """The number of variables."""
    for matrix in matrices:
        if matrix is not None:
            return int(matrix.shape[1])
    if c is None:
        raise ProgramError("neither c nor a constraint tells the number of variables: pass c, zeros if need be")
    return int(np.size(c))


def _coefficients(costs: Any, c: Any, n: int) -> Coefficients:
    every = isinstance(costs, str) and costs == "all"
    if isinstance(costs, str) and not every:
        raise OptionError(f"costs is 'all' or the indices of the predicted entries of c; got {costs!r}")
    if c is None and not every:
        raise OptionError("costs selects part of the objective only, so the rest of it is needed: pass c")
    known = np.zeros(n) if c is None else np.asarray(c, np.float64).ravel()
    if known.size != n:
        raise ProgramError(f"c has {known.size} entries, but the constraints have {n} columns")
    return by_index(range(n) if every else costs, known, None)


def _bounds(bounds: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """lower and upper `(n,)` from one pair (low, high) for all or one per variable, where `None` is no bound."""
    try:
        pairs = np.array((0, None) if bounds is None else bounds, dtype=np.float64)  # None becomes NaN
        pairs = np.broadcast_to(pairs, (n, 2))
    except (TypeError, ValueError) as error:
        raise ProgramError(f"bounds is one pair (low, high), or one for each variable; got {bounds!r}") from error
    lower, upper = pairs.T
    return np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)


def _integer(integrality: Any, n: int) -> np.ndarray:
    kinds = np.broadcast_to(0 if integrality is None else np.asarray(integrality), n)
    if not np.isin(kinds, (0, 1)).all():
        raise ProgramError(f"integrality is 0 or 1; 2 and 3 are {SEMI_CONTINUOUS}")
    return kinds == 1


def _constraints(constraints: Any) -> list[Any]:
    """The constraints one by one; a single one may stand alone, as in SciPy."""
    if constraints is None:
        return []
    kinds = tuple, LinearConstraint
    several = isinstance(constraints, list | tuple) and all(isinstance(part, kinds) for part in constraints)
    parts = constraints if several else [constraints]
    try:
        return [part if isinstance(part, LinearConstraint) else LinearConstraint(*part) for part in parts]
    except (TypeError, ValueError) as error:
        kind = "a LinearConstraint, a tuple (A, lb, ub), or a list of these"
        raise ProgramError(f"constraints is {kind}; got {constraints!r}") from error
