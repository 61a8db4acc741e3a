"""The linear system of optimality conditions on a face, dense or sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse.linalg import splu

REGULARIZATION = 1e-11  # in units of about one; refinement takes it out again
REFINEMENTS = 3
SOLVED = 1e-9  # a residual that is larger is that of equations which contradict each other a little
DENSE = 250  # unknowns up to which the system is dense
FILLED = 0.1  # the share of entries from which it is dense
Solve = Callable[[np.ndarray], np.ndarray]


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
