"""Bound propagation: the bounds on each variable that the rows imply, and what they make superfluous.

From a row Σ_j a_j w_j ≤ r and bounds on all other variables follows  a_k w_k ≤ r − Σ_{j≠k} min(a_j lower_j, a_j upper_j).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

ROUNDS = 10  # a chain of rows passes a bound on by one row a round
PROGRESS = 1e-3  # a round that moves no bound by this share of its size is the last
LOOSE = 1e3  # a bound or side that is so many times what the rows imply can be dropped
LARGEST = 1e20  # what solvers take for infinite
EPS = float(np.finfo(np.float64).eps)
ROUNDING = 1e-11  # a coefficient that is so small a share of the others in its row is none


class Propagation:
    """The rows of one program, prepared once:  M w = right in the first `equalities` rows,  M w ≤ right in the others.

    matrix: M `(rows, n)`.
    """

    def __init__(self, matrix: sp.csr_array, equalities: int) -> None:
        self.matrix, self.equalities = matrix, equalities
        rows = sp.csr_array(sp.vstack([matrix, -matrix[:equalities]], format="csr"))
        rows.eliminate_zeros()
        self.sizes = abs(matrix)
        self.entries, self.column, lengths = rows.data, rows.indices, np.diff(rows.indptr)
        self.filled = np.flatnonzero(lengths)
        self.row = np.repeat(np.arange(len(self.filled)), lengths[self.filled])
        self.starts = rows.indptr[:-1][self.filled]
        self.rounding = (lengths[self.filled] + 8) * EPS
        positive = self.entries > 0
        self.positive = positive
        self.groups = [_by_column(self.column, np.flatnonzero(way)) for way in (positive, ~positive)]

    def bounds(self, right: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds that hold for every w that meets the rows within `lower` and `upper`.

        They are at least as tight as those, and rounded outwards. Where they cross, no such w exists.

        Args:
            right: `(…, rows)`, may hold +inf in inequalities.
            lower, upper: `(…, n)`, may be infinite.
        """
        right = np.concatenate([right, -right[..., : self.equalities]], axis=-1)
        shape = (*np.broadcast_shapes(right.shape[:-1], lower.shape[:-1], upper.shape[:-1]), self.matrix.shape[1])
        low, high = (np.broadcast_to(bound, shape).copy() for bound in (lower, upper))
        a, column, row, starts = self.entries, self.column, self.row, self.starts
        if not len(a):
            return low, high
        right = right[..., self.filled]
        with np.errstate(all="ignore"):
            for _ in range(ROUNDS):
                # The least that an entry contributes.
                term = np.where(self.positive, a * low[..., column], a * high[..., column])
                endless = np.isinf(term)
                term[endless] = 0.0
                missing = np.add.reduceat(endless, starts, axis=-1, dtype=np.int64)
                room = right - np.add.reduceat(term, starts, axis=-1)
                room += self.rounding * (np.abs(right) + np.add.reduceat(np.abs(term), starts, axis=-1))
                bound = (room[..., row] + term) / a
                bound = np.where((missing[..., row] - endless == 0) & ~np.isnan(bound), bound, np.copysign(np.inf, a))
                new_low, new_high = low.copy(), high.copy()
                for (entries, first, where), new, pick in zip(
                    self.groups, (new_high, new_low), (np.minimum, np.maximum), strict=True
                ):
                    if len(entries):
                        new[..., where] = pick(new[..., where], pick.reduceat(bound[..., entries], first, axis=-1))
                moved = _moved(low, new_low) or _moved(high, new_high)
                low, high = new_low, new_high
                if not moved or (low > high).any():
                    break
        return low, high

    def without_loose(
        self, right: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """right, lower and upper with infinity for what can never be active, since rows imply much tighter bounds; of one instance.

        And the largest |w_j| that the rows allow, 0 where there is no end; `None` where no w exists. Solvers measure their errors by the
        largest number that they are given, so that a side of 1e15, meant as "no limit", would hide all others.
        """
        inequality = np.arange(len(right)) >= self.equalities
        right = np.where(inequality & (right >= LARGEST), np.inf, right)
        lower, upper = np.where(lower <= -LARGEST, -np.inf, lower), np.where(upper >= LARGEST, np.inf, upper)
        low, high = self.bounds(right, lower, upper)
        if (low > high).any():
            return right, lower, upper, None
        reach = np.maximum(np.abs(low), np.abs(high))
        # A decision that breaks only what is dropped here cannot exist: on the way to it lies one at which that is active.
        with np.errstate(invalid="ignore", over="ignore"):
            terms = np.nan_to_num(self.sizes @ reach, nan=np.inf)
            lower = np.where(-lower > LOOSE * reach, -np.inf, lower)
            upper = np.where(upper > LOOSE * reach, np.inf, upper)
            right = np.where(inequality & (right > LOOSE * terms), np.inf, right)
        return right, lower, upper, np.where(np.isfinite(reach), reach, 0.0)


def without_big_m(
    rows: sp.csr_array, right: np.ndarray, lower: np.ndarray, upper: np.ndarray, binary: np.ndarray
) -> tuple[sp.csr_array, np.ndarray] | None:
    """Rows  G w ≤ h  in which no binary variable has a larger coefficient than it takes to switch its row off; `None` where none shrinks.

    With w_k at its loose value v₀ a row asks  Σ_{j≠k} a_j w_j ≤ h − a_k v₀,  at the other, v₁, h − a_k v₁. Where bounds allow the sum
    no more than s < h − a_k v₀, that side becomes s, the other stays. The same integer points remain.

    Args:
        lower, upper: bounds that the whole program implies, `(n,)`.
        binary: variables with two values, `lower` and `upper`, bool `(n,)`.
    """
    out, sides, changed = sp.csr_array(rows, dtype=np.float64, copy=True), right.copy(), False
    for i in range(rows.shape[0]):
        entries = slice(out.indptr[i], out.indptr[i + 1])
        a, j = out.data[entries], out.indices[entries]
        switches = np.flatnonzero(binary[j] & (a != 0))
        if not len(switches) or not np.isfinite(right[i]):
            continue
        k = switches[np.abs(a[switches]).argmax()]
        rest, most = np.delete(a, k), np.delete(np.maximum(a * lower[j], a * upper[j]), k)
        if not rest.any():
            continue
        loose, tight = (lower[j[k]], upper[j[k]]) if a[k] > 0 else (upper[j[k]], lower[j[k]])
        others = float(most.sum() + len(a) * EPS * np.abs(most).sum())
        smaller = (others - right[i] + a[k] * tight) / (tight - loose)
        if np.isfinite(smaller) and LOOSE * abs(smaller) < abs(a[k]):
            smaller = smaller if abs(smaller) > ROUNDING * np.abs(rest).max() else 0.0
            sides[i], changed = others + smaller * loose, True
            out.data[entries.start + k] = smaller
    return (out, sides) if changed else None


def _by_column(column: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries in the order of their columns, where each column begins among them, and those columns."""
    entries = entries[np.argsort(column[entries], kind="stable")]
    where, first = np.unique(column[entries], return_index=True)
    return entries, first, where


def _moved(old: np.ndarray, new: np.ndarray) -> bool:
    changed = old != new
    return bool((np.abs(new - old)[changed] > PROGRESS * np.abs(new)[changed]).any())
