"""A program as one system of equations: Â (w, s) = b̂ with one slack per inequality, bounds kept as bounds.

    A w = b,   G w + s = h,   lower ≤ w ≤ upper,   s ≥ 0

Linearly dependent rows of A are found and dropped (a slack makes every row of G independent); a right-hand side that
contradicts the dropped rows is an error that names the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from dflearn.errors import ProgramError
from dflearn.program.sides import Sides

DEPENDENT = 1e-7  # a row whose part orthogonal to the others is this short, relative to the row, counts as dependent
DIAGONAL = 1e-14  # added to that of M Mᵀ, whose rows have length one, so that it is never singular
SUSPECT = 1e-8  # squared sine at which a row is looked at more closely
ROUNDING = 1e-12  # share of a row's length up to which another row's part in it is rounding
CONTRADICTION = 1e-7  # relative gap between a dropped row's right-hand side and what the kept rows imply


@dataclass(frozen=True, eq=False)
class EqualityForm:
    """Â (m, n + slacks), rows: the kept equalities, then the inequalities; columns: the variables, then the slacks.

    Attributes:
        matrix: Â, CSR.
        n: decision variables; `slacks`: inequalities, one slack each.
        kept, dropped: rows of A.
        combination: dropped rows = combination @ kept rows, `(dropped, kept)`.
    """

    matrix: sp.csr_array
    n: int
    slacks: int
    kept: np.ndarray
    dropped: np.ndarray
    combination: sp.csr_array

    @classmethod
    def of(cls, A: sp.csr_array, G: sp.csr_array, own: Sides) -> EqualityForm:
        """The form of A w = b, G w ≤ h; `own` are the sides that must not contradict one another."""
        kept, dropped, combination = independent_rows(A)
        slacks, n = G.shape
        top = sp.hstack([A[kept], sp.csr_array((len(kept), slacks))])
        bottom = sp.hstack([G, sp.eye_array(slacks)]) if slacks else sp.csr_array((0, n))
        form = cls(sp.csr_array(sp.vstack([top, bottom])), n, slacks, kept, dropped, combination)
        form.right_hand_side(own)
        return form

    @property
    def is_inequality(self) -> np.ndarray:
        """Which rows of Â carry a slack, `(m,)`."""
        return np.arange(self.matrix.shape[0]) >= len(self.kept)

    def rows_without_slacks(self) -> sp.csr_array:
        """The kept equalities and the inequalities over the decision variables alone, `(m, n)`."""
        return sp.csr_array(self.matrix[:, : self.n])

    def right_hand_side(self, sides: Sides) -> np.ndarray:
        """b̂ `(count, m)`, or `(1, m)` where all instances share it; checked against the dropped rows."""
        self._check_dropped(sides.b)
        return replace(sides, b=sides.b[..., self.kept]).right_hand_sides()

    def bounds(self, sides: Sides) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of variables and slacks, `(n + slacks,)` or `(count, n + slacks)`."""

        def extended(part: np.ndarray, slack: float) -> np.ndarray:
            return np.concatenate([part, np.full((*part.shape[:-1], self.slacks), slack)], axis=-1)

        return extended(sides.lower, 0.0), extended(sides.upper, np.inf)

    def _check_dropped(self, b: np.ndarray) -> None:
        if not len(self.dropped):
            return
        implied = (self.combination @ b[..., self.kept].T).T
        size = np.abs(b[..., self.dropped]) + (abs(self.combination) @ np.abs(b[..., self.kept]).T).T
        wrong = np.argwhere(np.abs(implied - b[..., self.dropped]) > CONTRADICTION * size)
        if wrong.size:
            where = tuple(int(i) for i in wrong[0])
            row = int(self.dropped[where[-1]])
            who = f"instance {where[0]}: " if b.ndim == 2 else ""
            raise ProgramError(
                f"{who}equality row {row} is a combination of other rows, which imply b[{row}] = {implied[where]:.6g}, "
                f"but b[{row}] = {b[..., self.dropped][where]:.6g}: no decision satisfies both; correct b"
            )


def independent_rows(matrix: sp.csr_array) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """Rows to keep, rows that depend on them, and the combination that gives the latter from the former.

    A sparse factorization of M Mᵀ (rows scaled to length one) marks suspects by vanishing pivots; least squares on the
    other rows decides.
    """
    m = matrix.shape[0]
    everything, nothing = np.arange(m), np.zeros(0, np.int64)
    if m == 0:
        return everything, nothing, sp.csr_array((0, 0))
    factor = _factor(_unit_rows(matrix))
    suspects = np.flatnonzero(factor.U.diagonal()[factor.perm_c] <= SUSPECT)
    if not len(suspects):
        return everything, nothing, sp.csr_array((0, m))
    rest = np.setdiff1d(everything, suspects)
    weights, dependent = _spanned(matrix, rest, suspects)
    if dependent.all():
        return rest, suspects, weights
    kept = rest
    for row in suspects[~dependent]:  # independent after all, unless it depends on one that went back before it
        if not _spanned(matrix, kept, np.array([row]))[1].all():
            kept = np.sort(np.append(kept, row))
    dropped = np.setdiff1d(everything, kept)
    return kept, dropped, least_squares(matrix[kept], matrix[dropped])


def _spanned(matrix: sp.csr_array, kept: np.ndarray, rows: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """The weights of the kept rows that come closest to each of `rows`, and which of these they give: bool `(rows,)`."""
    weights = least_squares(matrix[kept], matrix[rows])
    leftover = sp.csr_array(matrix[rows] - weights @ matrix[kept])
    return weights, _lengths(leftover) <= DEPENDENT * _lengths(matrix[rows])


def _lengths(rows: sp.csr_array) -> np.ndarray:
    return np.asarray(np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)))


def _unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array(sp.diags_array(1 / _lengths(matrix)) @ matrix)


def _factor(rows: sp.csr_array) -> Any:
    """M Mᵀ = L U with its pivots on the diagonal, for rows of length one."""
    square = sp.csc_array(rows @ rows.T + DIAGONAL * sp.eye_array(rows.shape[0]))
    square.indices, square.indptr = square.indices.astype(np.int32), square.indptr.astype(np.int32)
    return splu(square, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def least_squares(basis: sp.csr_array, rows: sp.csr_array) -> sp.csr_array:
    """Weights W `(rows, basis rows)` with W · basis ≈ rows, small weights rounded away."""
    if not basis.shape[0]:
        return sp.csr_array((rows.shape[0], 0))
    unit, residual, weights = _unit_rows(basis), rows.toarray(), np.zeros((rows.shape[0], basis.shape[0]))
    factor = _factor(unit)
    for _ in range(3):  # with refinement
        weights += factor.solve(unit @ residual.T).T
        residual = rows.toarray() - (unit.T @ weights.T).T
    weights /= _lengths(basis)
    # In units of the rows: what remains is a combination of rows of any size, and no rounding of one.
    weights[np.abs(weights) * _lengths(basis) < ROUNDING * _lengths(rows)[:, None]] = 0.0
    return sp.csr_array(weights)
