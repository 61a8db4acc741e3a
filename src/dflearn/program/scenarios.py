"""Programs over several scenarios: what is decided now once, what is decided later once for each of them (the extensive form).

min  Σ_k π_k obj(y_k, (w, v_k))    s.t.   (w, v_k) feasible for y_k,  k = 1 … K
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError
from dflearn.program.quadratic import Quadratic

if TYPE_CHECKING:
    from dflearn.program.program import Program


def extensive_form(program: Program, weights: Any) -> Program:
    """`Program.scenarios`. The program's own variables and rows come first, as those of scenario 1; the others' follow."""
    share = _shares(weights)
    later = np.zeros(program.n, bool) if program.recourse is None else program.recourse
    count, own = len(share), np.flatnonzero(later)
    _check(program, later, count)
    n = program.n + (count - 1) * len(own)
    # place[k][j]: where variable j stands for scenario k; the variables that are decided now stand where they stood.
    place = [np.arange(program.n) for _ in share]
    for k in range(1, count):
        place[k][own] = program.n + (k - 1) * len(own) + np.arange(len(own))
    spread = [
        sp.csr_array((np.ones(program.n), (np.arange(program.n), columns)), shape=(program.n, n)) for columns in place
    ]
    S = sp.eye_array(program.n, format="csr") if program.S is None else program.S
    d, Q = np.zeros(n), program.Q
    for part, columns in zip(share, place, strict=True):
        np.add.at(d, columns, part * program.d)
    factor = diagonal = None
    if Q is not None:
        diagonal = np.zeros(n)
        for part, columns in zip(share, place, strict=True):
            np.add.at(diagonal, columns, part * Q.diagonal)
        factor = sp.vstack([np.sqrt(part) * (Q.factor @ one) for part, one in zip(share, spread, strict=True)])
    A, b, B, equal = _rows(program.A, program.b, program.B, later, spread)
    G, h, H, less = _rows(program.G, program.h, program.H, later, spread)
    where = np.concatenate([np.arange(program.n), *(own for _ in range(count - 1))])
    if count == 1:
        return program
    return replace(
        program,
        A=A,
        b=b,
        G=G,
        h=h,
        B=B,
        H=H,
        S=sp.csr_array(sp.hstack([part * (one.T @ S) for part, one in zip(share, spread, strict=True)])),
        d=d,
        Q=None if Q is None else Quadratic(factor, diagonal),
        lower=program.lower[where],
        upper=program.upper[where],
        integer=program.integer[where],
        recourse=later[where],
        n=n,
        name=f"{program.name}, {count} scenarios",
        variable_names=_numbered(program.variable_names, later, count),
        cost_names=None
        if program.cost_names is None
        else tuple(f"{name} (scenario {k})" for k in range(1, count + 1) for name in program.cost_names),
        constraint_names=_constraints(program, {"b": equal, "h": less}, count),
    )


def _shares(weights: Any) -> np.ndarray:
    """Probabilities `(K,)`."""
    given = (
        np.ones(weights) if isinstance(weights, int | np.integer) and weights > 0 else np.asarray(weights, np.float64)
    )
    if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given > 0)).all():
        raise OptionError(
            f"weights are positive numbers, one for each scenario, or how many there are; got {weights!r}"
        )
    return np.asarray(given / given.sum())


def _check(program: Program, later: np.ndarray, count: int) -> None:
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
    count, p = len(spread), 0 if moves is None else moves.shape[1]
    own = np.diff(matrix[:, np.flatnonzero(later)].indptr) > 0
    if moves is not None:
        own |= np.diff(moves.indptr) > 0
    copied = np.flatnonzero(own)
    rows = [matrix @ spread[0], *(matrix[copied] @ one for one in spread[1:])]
    sides = [side, *(side[copied] for _ in spread[1:])]
    if moves is None:
        return sp.csr_array(sp.vstack(rows)), np.concatenate(sides), None, copied
    blocks = []
    for k in range(count):
        block = moves if k == 0 else moves[copied]
        beside = [sp.csr_array((block.shape[0], p)) for _ in range(count)]
        beside[k] = block
        blocks.append(sp.hstack(beside))
    return sp.csr_array(sp.vstack(rows)), np.concatenate(sides), sp.csr_array(sp.vstack(blocks)), copied


def _numbered(names: Sequence[str] | None, later: np.ndarray, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    first = [f"{name} (scenario 1)" if own else name for name, own in zip(names, later, strict=True)]
    more = [f"{names[j]} (scenario {k})" for k in range(2, count + 1) for j in np.flatnonzero(later).tolist()]
    return (*first, *more)


def _constraints(program: Program, copied: dict[str, np.ndarray], count: int) -> dict[str, Any] | None:
    """Where each named constraint stands, once or for each scenario."""
    if program.constraint_names is None:
        return None
    found: dict[str, Any] = {}
    for name, held in program.constraint_names.items():
        rows = copied.get(held.field, np.zeros(0, np.int64))
        place = np.flatnonzero(rows == held.position)
        if not len(place):
            found[name] = held
            continue
        total = len(program.b) if held.field == "b" else len(program.h)
        for k in range(1, count + 1):
            position = held.position if k == 1 else total + (k - 2) * len(rows) + int(place[0])
            found[f"{name} (scenario {k})"] = held._replace(position=position)
    return found
