"""Rows that may be broken at a price: slack variables, decided once the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError
from dflearn.program.names import matched

if TYPE_CHECKING:
    from dflearn.program.program import Program


def with_slack(program: Program, rows: Any, price: Any) -> Program:
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
        slack = sp.lil_array((matrix.shape[0], more))
        for k, (own, row, entry, _, _) in enumerate(columns):
            if own == side:
                slack[row, k] = entry
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


def _places(program: Program, rows: Any) -> list[tuple[str, int]]:
    """Where the rows stand: ("b" or "h", position), each once."""
    if isinstance(rows, str) and rows == "predicted":
        both = (("b", program.B), ("h", program.H))
        found = [
            (side, int(i)) for side, part in both if part is not None for i in np.flatnonzero(np.diff(part.indptr))
        ]
        if not found:
            raise ProgramError("no right-hand side of this program is predicted: name the rows that may be broken")
        return found
    single = isinstance(rows, str) or (len(rows) == 2 and rows[0] in ("b", "h") and not isinstance(rows[1], str))
    places = [_place(program, row) for row in ([rows] if single else rows)]
    if not places or len(set(places)) < len(places):
        raise ProgramError(f"name each row that may be broken once, and at least one; got {rows!r}")
    return places


def _place(program: Program, row: Any) -> tuple[str, int]:
    known = program.constraint_names or {}
    if isinstance(row, str):
        name = matched(row, known, "the row")
        if name is None or known[name].field not in ("b", "h"):
            raise ProgramError(
                f"{row!r} is no row of {program.name}: name a constraint, or its place as ('b' or 'h', position)"
            )
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
        raise OptionError(
            f"{len(places)} rows may be broken, and {len(each)} prices are given: one for all, or one each"
        )
    pairs = [tuple(map(float, one)) if np.ndim(one) else (float(one),) * 2 for one in each]
    for pair in pairs:
        if len(pair) != 2 or not all(np.isfinite(value) and value > 0 for value in pair):
            raise OptionError(f"a price is a positive number, or a pair of them (exceeding, lacking); got {pair}")
    return [(pair[0], pair[1]) for pair in pairs]


def _row_name(program: Program, side: str, row: int) -> tuple[str, float]:
    """What a row is called, and the sign with which it holds what the user wrote."""
    for name, held in (program.constraint_names or {}).items():
        if (held.field, held.position) == (side, row):
            return name, held.sign
    return f"{side}[{row}]", 1.0
