"""Recourse: rows that may be broken at a price, and programs over several scenarios (the extensive form)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError
from dflearn.program.names import matched
from dflearn.program.objective import Parts
from dflearn.program.quadratic import Quadratic

P = TypeVar("P", bound=Parts)


def with_slack(program: P, rows: Any, price: Any) -> P:
    """`Program.elastic`:   A w − above + below = b,   G w − above ≤ h,   at `price` per unit of slack."""
    places = _places(program, rows)
    prices = _prices(price, places)
    columns: list[tuple[str, int, float, float, str]] = []  # side, row, entry, price, name
    for (side, row), (above, below) in zip(places, prices, strict=True):
        name, sign = _row_name(program, side, row)
        over, under = (("above", above), ("below", below))[:: 1 if sign > 0 else -1]  # of the row as it is held
        columns.append((side, row, -1.0, over[1], f"{over[0]} {name}"))
        if side == "b":
            columns.append((side, row, 1.0, under[1], f"{under[0]} {name}"))
    more, n = len(columns), program.n

    def widened(matrix: sp.csr_array, side: str) -> sp.csr_array:
        own = [(entry, row, k) for k, (held, row, entry, *_) in enumerate(columns) if held == side]
        entries, row, column = zip(*own, strict=True) if own else ((), (), ())
        slack = sp.csr_array((np.array(entries, float), (row, column)), shape=(matrix.shape[0], more))
        return sp.csr_array(sp.hstack([matrix, slack]))

    S = sp.eye_array(n, format="csr") if program.S is None else program.S
    recourse = np.zeros(n, bool) if program.recourse is None else program.recourse
    names = program.variable_names
    return replace(
        program,
        A=widened(program.A, "b"),
        G=widened(program.G, "h"),
        lower=np.concatenate([program.lower, np.zeros(more)]),
        upper=np.concatenate([program.upper, np.full(more, np.inf)]),
        S=sp.csr_array(sp.vstack([S, sp.csr_array((more, program.p))])),
        d=np.concatenate([program.d, [column[3] for column in columns]]),
        Q=None if program.Q is None else program.Q.extended(more),
        integer=np.concatenate([program.integer, np.zeros(more, bool)]),
        recourse=np.concatenate([recourse, np.ones(more, bool)]),
        n=n + more,
        variable_names=None if names is None else (*names, *(column[4] for column in columns)),
    )


def _places(program: Parts, rows: Any) -> list[tuple[str, int]]:
    """Where the rows stand: ("b" or "h", position), each once."""
    if isinstance(rows, str) and rows == "predicted":
        both = (("b", program.B), ("h", program.H))
        known = [(side, np.flatnonzero(np.diff(part.indptr))) for side, part in both if part is not None]
        found = [(side, int(i)) for side, rows_of_side in known for i in rows_of_side]
        if not found:
            raise ProgramError("no right-hand side of this program is predicted: name the rows that may be broken")
        return found
    single = isinstance(rows, str) or (len(rows) == 2 and rows[0] in ("b", "h") and not isinstance(rows[1], str))
    places = [_place(program, row) for row in ([rows] if single else rows)]
    if not places or len(set(places)) < len(places):
        raise ProgramError(f"name each row that may be broken once, and at least one; got {rows!r}")
    return places


def _place(program: Parts, row: Any) -> tuple[str, int]:
    known = program.constraint_names or {}
    if isinstance(row, str):
        name = matched(row, known, "the row")
        if name is None or known[name].field not in ("b", "h"):
            remedy = "name a constraint, or its place as ('b' or 'h', position)"
            raise ProgramError(f"{row!r} is no row of {program.name}: {remedy}")
        return known[name].field, known[name].position
    side, position = row
    count = {"b": len(program.b), "h": len(program.h)}.get(side, 0)
    if not 0 <= int(position) < count:
        raise ProgramError(f"a row stands at ('b' or 'h', position below {count}); got {row!r}")
    return side, int(position)


def _prices(price: Any, places: list[tuple[str, int]]) -> list[tuple[float, float]]:
    """(exceeding, lacking) for each row."""
    each: Sequence[Any] = list(price) if isinstance(price, list | np.ndarray) else [price] * len(places)
    if len(each) != len(places):
        raise OptionError(f"{len(places)} rows may be broken, {len(each)} prices are given: one for all, or one each")
    pairs = [tuple(map(float, one)) if np.ndim(one) else (float(one),) * 2 for one in each]
    for pair in pairs:
        if len(pair) != 2 or not all(np.isfinite(value) and value > 0 for value in pair):
            raise OptionError(f"a price is a positive number, or a pair of them (exceeding, lacking); got {pair}")
    return [(pair[0], pair[1]) for pair in pairs]


def _row_name(program: Parts, side: str, row: int) -> tuple[str, float]:
    """What a row is called, and the sign with which it holds what the user wrote."""
    for name, held in (program.constraint_names or {}).items():
        if (held.field, held.position) == (side, row):
            return name, held.sign
    return f"{side}[{row}]", 1.0


def extensive_form(program: P, weights: Any) -> P:
    """`Program.scenarios`. The program's own variables and rows come first, as those of scenario 1; the others' follow."""
    share = _shares(weights)
    later = np.zeros(program.n, bool) if program.recourse is None else program.recourse
    count, own = len(share), np.flatnonzero(later)
    _check(program, later, count)
    n = program.n + (count - 1) * len(own)
    # place[k][j]: where variable j stands for scenario k.
    place = [np.arange(program.n) for _ in share]
    for k in range(1, count):
        place[k][own] = program.n + (k - 1) * len(own) + np.arange(len(own))
    own_rows, one_each = np.arange(program.n), np.ones(program.n)
    spread = [sp.csr_array((one_each, (own_rows, columns)), shape=(program.n, n)) for columns in place]
    S = sp.eye_array(program.n, format="csr") if program.S is None else program.S
    Q = program.Q

    def summed(values: np.ndarray) -> np.ndarray:
        """The weighted sum of what the variables `(n,)` have in each scenario."""
        return np.asarray(sum(part * (one.T @ values) for part, one in zip(share, spread, strict=True)))

    factor = diagonal = None
    if Q is not None:
        diagonal = summed(Q.diagonal)
        factor = sp.vstack([np.sqrt(part) * (Q.factor @ one) for part, one in zip(share, spread, strict=True)])
    A, b, B, equal = _rows(program.A, program.b, program.B, later, spread)
    G, h, H, less = _rows(program.G, program.h, program.H, later, spread)
    where = np.concatenate([np.arange(program.n), *(own for _ in range(count - 1))])
    if count == 1:
        return program
    rows: dict[str, Any] = {"A": A, "b": b, "G": G, "h": h, "B": B, "H": H}
    names = [f"{name} (scenario {k})" for k in range(1, count + 1) for name in program.cost_names or ()]
    return replace(
        program,
        **rows,
        S=sp.csr_array(sp.hstack([part * (one.T @ S) for part, one in zip(share, spread, strict=True)])),
        d=summed(program.d),
        Q=None if Q is None else Quadratic(factor, diagonal),
        lower=program.lower[where],
        upper=program.upper[where],
        integer=program.integer[where],
        recourse=later[where],
        n=n,
        name=f"{program.name}, {count} scenarios",
        variable_names=_numbered(program.variable_names, later, count),
        cost_names=None if program.cost_names is None else tuple(names),
        constraint_names=_constraints(program, {"b": equal, "h": less}, count),
    )


def _shares(weights: Any) -> np.ndarray:
    """Probabilities `(K,)`."""
    several = isinstance(weights, int | np.integer) and weights > 0
    given = np.ones(weights) if several else np.asarray(weights, np.float64)
    if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given > 0)).all():
        raise OptionError(f"weights are positive numbers, one for each scenario, or their number; got {weights!r}")
    return np.asarray(given / given.sum())


def _check(program: Parts, later: np.ndarray, count: int) -> None:
    """An error where equalities that each scenario moves have nothing that is decided later."""
    if program.B is None or count == 1:
        return
    helped = np.diff(program.A[:, np.flatnonzero(later)].indptr) > 0
    alone = np.flatnonzero((np.diff(program.B.indptr) > 0) & ~helped)
    if len(alone):
        raise ProgramError(
            f"equality row {int(alone[0])} of {program.name} is predicted and holds no recourse variable, so that no decision "
            "satisfies it in all scenarios; add priced slack, program.elastic(rows, price)"
        )


def _rows(
    matrix: sp.csr_array,
    side: np.ndarray,
    moves: sp.csr_array | None,
    later: np.ndarray,
    spread: Sequence[sp.csr_array],
) -> tuple[sp.csr_array, np.ndarray, sp.csr_array | None, np.ndarray]:
    """Rows, right-hand sides and where those are predicted, over all scenarios; and which rows each scenario has its own of."""
    own = np.diff(matrix[:, np.flatnonzero(later)].indptr) > 0
    if moves is not None:
        own |= np.diff(moves.indptr) > 0
    copied = np.flatnonzero(own)
    rows = sp.csr_array(sp.vstack([matrix @ spread[0], *(matrix[copied] @ one for one in spread[1:])]))
    sides = np.concatenate([side, *(side[copied] for _ in spread[1:])])
    if moves is None:
        return rows, sides, None, copied
    return rows, sides, sp.csr_array(sp.block_diag([moves, *(moves[copied] for _ in spread[1:])])), copied


def _numbered(names: Sequence[str] | None, later: np.ndarray, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    first = [f"{name} (scenario 1)" if own else name for name, own in zip(names, later, strict=True)]
    more = [f"{names[j]} (scenario {k})" for k in range(2, count + 1) for j in np.flatnonzero(later).tolist()]
    return (*first, *more)


def _constraints(program: Parts, copied: dict[str, np.ndarray], count: int) -> dict[str, Any] | None:
    """Where each named constraint stands, once or for each scenario."""
    if program.constraint_names is None:
        return None
    found: dict[str, Any] = {}
    for name, held in program.constraint_names.items():
        rows = copied.get(held.field, np.zeros(0, np.int64))
        if held.position not in rows:
            found[name] = held
            continue
        total = len(program.b) if held.field == "b" else len(program.h)
        further = (total + k * len(rows) + int(np.argmax(rows == held.position)) for k in range(count - 1))
        for k, position in enumerate((held.position, *further), 1):
            found[f"{name} (scenario {k})"] = held._replace(position=position)
    return found
