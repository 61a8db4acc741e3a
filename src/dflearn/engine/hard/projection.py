"""The projection onto one face in plain linear algebra: for the faces whose rows the kernels' normal equations lose.

Rows that are independent may be nearly dependent in the units of the variables (tonnes beside grams), and M D Mᵀ squares that.
Whether rows depend on each other does not change with units: it is decided where every row and column of M is of size one. The
projection is that of the user's units, by a QR factorization, which squares nothing.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg import qr, solve_triangular

from dflearn.engine.hard.scaling import equilibrated

REFINEMENTS = 3
DEPENDENT = 1e-11  # beside the largest pivot of a balanced matrix


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
