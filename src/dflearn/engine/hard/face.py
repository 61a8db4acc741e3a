"""Plain linear algebra on one face: the KKT equations, and the projection where the kernels' normal equations lose rows.

Of a projection: rows that are independent may be nearly dependent in the units of the variables (tonnes beside grams), and M D Mᵀ squares that.
Whether rows depend on each other does not change with units: it is decided where every row and column of M is of size one. The
projection is that of the user's units, by a QR factorization, which squares nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse.linalg import splu

from dflearn.engine.hard.scaling import equilibrated

# Of the equations on a face.
REGULARIZATION = 1e-11  # in units of about one; refinement takes it out again
REFINEMENTS = 3
SOLVED = 1e-9  # a residual that is larger is that of equations which contradict each other a little
DENSE = 250  # unknowns up to which the system is dense
FILLED = 0.1  # the share of entries from which it is dense
DEPENDENT = 1e-11  # beside the largest pivot of a balanced matrix
Solve = Callable[[np.ndarray], np.ndarray]


def projected(M: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P v, P the orthogonal projection onto {x : M x = 0}, and prices z with v − P v = Mᵀz.  M `(rows, n)`, v `(n,)`.

    Rows that depend on others get the price zero.
    """
    z = np.zeros(len(M))
    if not M.size:
        return v.copy(), z
    columns, rows = equilibrated(sp.csc_array((M.shape[1], M.shape[1])), M)
    balanced = rows[:, None] * M * columns
    rank = count_independent(balanced)
    # Long rows first and pivoted columns: the factorization is then right in every row, whatever its size.
    lengths = np.abs(M).max(1)
    lengths[lengths == 0] = 1.0
    across = (M / lengths[:, None]).T
    order = np.argsort(-np.abs(across).max(1), kind="stable")
    basis, triangle, pivots = qr(across[order], mode="economic", pivoting=True)
    basis, x, own = basis[:, :rank], np.zeros_like(v), v[order]
    across = across[np.ix_(order, pivots[:rank])]
    for _ in range(REFINEMENTS):
        left = own - across @ z[pivots[:rank]]
        z[pivots[:rank]] += solve_triangular(triangle[:rank, :rank], basis.T @ left)
    if rank < len(v):
        once = own - basis @ (basis.T @ own)
        x[order] = once - basis @ (basis.T @ once)  # and what rounding left
    return x, z / lengths


def count_independent(M: np.ndarray) -> int:
    """How many rows of a balanced matrix are independent."""
    pivots = np.abs(np.diag(qr(M.T, mode="r", pivoting=True)[0]))
    return int((pivots > DEPENDENT * pivots.max(initial=0.0)).sum())


def kkt_solver(H: Any, M: Any) -> Solve:
    """A solver of  [H Mᵀ; M 0] (x, y) = right-hand side, H `(n, n)` and M `(rows, n)` sparse with entries of about one.

    Where the solution is not unique, it gives a short one.
    """
    n, m = M.shape[1], M.shape[0]
    if not n + m:
        return np.copy  # nothing is left to solve for
    more = np.concatenate([np.full(n, REGULARIZATION), np.full(m, -REGULARIZATION)])
    small = n + m <= DENSE
    K: Any
    apply: Solve
    if small or H.nnz + 2 * M.nnz > FILLED * (n + m) ** 2:
        K = np.zeros((n + m, n + m))
        K[:n, :n], K[n:, :n] = H.toarray(), M.toarray()
        K[:n, n:] = K[n:, :n].T
        factor, order, _ = dgetrf(K + np.diag(more))
        apply = lambda v: dgetrs(factor, order, v)[0]  # noqa: E731
    else:
        K = sp.csc_array(sp.block_array([[H, M.T], [M, None]]))
        options = {"SymmetricMode": True}
        lu = splu(sp.csc_array(K + sp.diags_array(more)), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
        apply = lu.solve

    def solve(v: np.ndarray) -> np.ndarray:
        z: np.ndarray = apply(v)
        for _ in range(REFINEMENTS):
            z = z + apply(v - K @ z)
        if small and not np.abs(v - K @ z).max() <= SOLVED:
            z = np.linalg.lstsq(K, v, rcond=1e-12)[0]
        return z

    return solve
