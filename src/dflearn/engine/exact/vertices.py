"""The vertices next to a vertex of a program's relaxation, by pivots of a dense tableau, or along directions that others find.

In equality form, Â z = b̂ with bounds, a vertex has a basis: columns of Â that determine it. Leaving a bound with one column
outside of the basis follows an edge to the next vertex, or, where the vertex is degenerate, leads to another basis of
the same vertex; those are visited too, up to a limit.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dflearn.errors import ProgramError
from dflearn.program.program import Program
from dflearn.program.sides import Sides

# In units of the variables' own, see `_units`.
TIGHT = 1e-5  # distance at which a bound counts as met: labels may be in single precision
SHORT = 1e-7  # an edge of at most this length leads nowhere
FAINT = 1e-7  # beside the largest decision: rounding, in single precision
PIVOT = 1e-9  # what is smaller in a tableau is zero


class Vertex:
    """A vertex w `(n,)` of a program's relaxation, and what lies beside it.

    It is held in equality form, Â z = b̂ with bounds, in units of the variables' own; `below` and `above` are the bounds that z
    meets.

    Args:
        sides: right-hand sides and bounds of this instance.
    """

    def __init__(self, program: Program, w: np.ndarray, sides: Sides) -> None:
        form = program.equality_form()
        matrix, right = form.matrix.toarray(), form.right_hand_side(sides)[0]
        lower, upper = form.bounds(sides)
        z = np.concatenate([w, right[len(form.kept) :] - form.rows_without_slacks()[len(form.kept) :] @ w])
        units = _units(w, np.abs(right) + np.abs(matrix[:, : form.n]) @ np.abs(w), matrix, lower, upper)
        z, lower, upper, matrix = z / units, lower / units, upper / units, matrix * units
        rows = np.abs(matrix).max(1, initial=0.0)
        rows[rows == 0] = 1.0
        matrix, right = matrix / rows[:, None], right / rows
        room = TIGHT * (1 + np.abs(z))
        self.n, self.units, self.matrix, self.lower, self.upper = form.n, units, matrix, lower, upper
        self.below, self.above = z - lower <= room, upper - z <= room
        if (
            not np.allclose(matrix @ z, right, atol=TIGHT, rtol=TIGHT)
            or (z < lower - room).any()
            or (z > upper + room).any()
        ):
            raise ProgramError("the decision breaks the program's constraints, so that it is none of its vertices")
        tableau, basis = _tableau(np.hstack([matrix, right[:, None]]), inside=~(self.below | self.above))
        resting = np.setdiff1d(np.arange(len(z)), basis)
        z[resting] = np.where(self.below, lower, upper)[resting]
        z[basis] = tableau[:, -1] - tableau[:, resting] @ z[resting]  # w in full precision
        self.z, self.first = z, (tableau, basis)

    def by_pivots(self, bases: int) -> tuple[np.ndarray, bool]:
        """The vertices that share an edge with this one, `(count, n)`, and whether these are all of them; edges without end
        are left out.

        Args:
            bases: how many bases of a degenerate vertex to visit. All of its edges leave from one of its bases, and there
                may be very many: where the limit is met, some vertices are missing.
        """
        z, lower, upper, below, above = self.z, self.lower, self.upper, self.below, self.above
        found: dict[bytes, np.ndarray] = {}
        seen, queue = {frozenset(self.first[1].tolist())}, deque([self.first])
        visited, all_seen = 0, True
        while queue and visited < bases:
            tableau, basis = queue.popleft()
            visited += 1
            outside = np.setdiff1d(np.arange(len(z)), basis)
            for j in outside[lower[outside] < upper[outside]]:
                for sign in ([1.0] if below[j] else []) + ([-1.0] if above[j] else []):
                    change = -sign * tableau[:, j]
                    change[np.abs(change) < PIVOT] = 0.0
                    length, blocking = _ratio(z, change, basis, lower, upper)
                    length = min(length, upper[j] - lower[j])
                    if length > SHORT:
                        if np.isfinite(length):
                            step = np.zeros_like(z)
                            step[basis], step[j] = length * change, sign * length
                            self._take(found, z + step)
                        continue
                    for row in blocking:
                        other = basis.copy()
                        other[row] = j
                        if frozenset(other.tolist()) in seen:
                            continue
                        if len(seen) >= 4 * bases:
                            all_seen = False
                            continue
                        seen.add(frozenset(other.tolist()))
                        queue.append((_pivoted(tableau, int(row), int(j)), other))
        return self._vertices(found), all_seen and not queue

    def cone(self) -> Program:
        """The directions δ `(columns,)` that stay feasible, cut where Σ_below δ − Σ_above δ = 1: a polytope, since this is a
        vertex, whose own vertices are the directions of its edges. Any linear costs lead to one of them."""
        matrix = np.vstack([self.matrix, self.below.astype(float) - self.above.astype(float)])
        return Program(
            A=matrix,
            b=np.append(np.zeros(len(self.matrix)), 1.0),
            lower=np.where(self.below, 0.0, -np.inf),
            upper=np.where(self.above, 0.0, np.inf),
        )

    def along(self, directions: np.ndarray) -> np.ndarray:
        """The vertices at the other ends of edges in these directions, `(count, columns)` → `(at most count, n)`."""
        found: dict[bytes, np.ndarray] = {}
        for direction in directions:
            change = np.where(np.abs(direction) < PIVOT, 0.0, direction)
            length, _ = _ratio(self.z, change, np.arange(len(self.z)), self.lower, self.upper)
            if SHORT < length < np.inf:
                self._take(found, self.z + length * change)
        return self._vertices(found)

    def apart(self, vertices: np.ndarray) -> np.ndarray:
        """Those of `(count, n)` that differ, each where it comes first."""
        _, first = np.unique(np.round(vertices / self.units[: self.n], 7), axis=0, return_index=True)
        return vertices[np.sort(first)]

    def _take(self, found: dict[bytes, np.ndarray], z: np.ndarray) -> None:
        found.setdefault((np.round(z[: self.n], 7) + 0.0).tobytes(), z[: self.n] * self.units[: self.n])

    def _vertices(self, found: dict[bytes, np.ndarray]) -> np.ndarray:
        found.pop((np.round(self.z[: self.n], 7) + 0.0).tobytes(), None)
        return np.array(list(found.values())).reshape(len(found), self.n)


def _units(w: np.ndarray, terms: np.ndarray, matrix: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """A unit for each column, `(columns,)`, powers of two: the size of the variable or of its bounds; of a slack, of its row.

    Where a variable is zero but for rounding, and has no bounds, it is the size of the others.
    """
    sizes = np.where(np.abs(w) > FAINT * np.abs(w).max(initial=0.0), np.abs(w), 0.0)
    for bound in (lower[: len(w)], upper[: len(w)]):
        sizes = np.maximum(sizes, np.where(np.isfinite(bound), np.abs(bound), 0.0))
    slacks = np.abs(matrix[:, len(w) :]).T @ terms  # each is in one row, with the entry 1
    sizes = np.concatenate([sizes, slacks])
    known = sizes > 0
    sizes[~known] = np.exp2(np.log2(sizes[known]).mean()) if known.any() else 1.0
    units: np.ndarray = np.exp2(np.round(np.log2(sizes)))
    return units


def _tableau(matrix: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """B⁻¹(Â, b̂) and the columns of B, one per row; columns strictly inside their bounds come first, and all must fit."""
    tableau, rows = matrix.copy(), matrix.shape[0]
    basis, free = np.full(rows, -1), np.ones(rows, bool)
    scale = np.abs(matrix).max(initial=1.0)
    for group, must in ((np.flatnonzero(inside), True), (np.flatnonzero(~inside), False)):
        for j in group:
            if not free.any():
                if must:
                    raise _no_vertex()
                break
            candidates = np.where(free, np.abs(tableau[:, j]), 0.0)
            row = int(candidates.argmax())
            if candidates[row] <= 1e-9 * scale:
                if must:
                    raise _no_vertex()
                continue
            tableau = _pivoted(tableau, row, int(j))
            basis[row], free[row] = j, False
    return tableau, basis


def _no_vertex() -> ProgramError:
    return ProgramError(
        "the decision is no vertex of the LP relaxation, so that it has no adjacent ones: label the data with a simplex solver, "
        "dflearn.HiGHS(program.relax()), whose decisions are vertices"
    )


def _pivoted(tableau: np.ndarray, row: int, column: int) -> np.ndarray:
    """The tableau after `column` enters the basis in `row`."""
    pivot = tableau[row] / tableau[row, column]
    result = tableau - np.outer(tableau[:, column], pivot)
    result[row] = pivot
    return result


def _ratio(
    z: np.ndarray, change: np.ndarray, basis: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, np.ndarray]:
    """How far the basic variables may move along `change`, and the rows that allow no more than nothing."""
    bound = np.where(change > 0, upper[basis], lower[basis])
    with np.errstate(divide="ignore", invalid="ignore"):
        lengths = np.where(change == 0, np.inf, np.maximum((bound - z[basis]) / change, 0.0))
    return float(lengths.min(initial=np.inf)), np.flatnonzero(lengths <= SHORT)
