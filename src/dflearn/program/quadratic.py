"""The quadratic part of an objective, ½ wᵀQ w, as a sum of squares: Q = RᵀR + diag(δ)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from dflearn.errors import ProgramError
from dflearn.pickling import WithoutCaches
from dflearn.program.arrays import LinearMap, MatrixLike, VectorLike, read_matrix, read_shape, read_vector

SEMIDEFINITE = 1e-10  # in units in which Q has diagonal one: what is smaller, of either sign, is zero
SYMMETRIC = 1e-12  # likewise, what Q and its transpose may differ by
DEFINITE = 1e-8  # likewise, the least eigenvalue from which Q counts as definite
SPARSE = 0.2  # the share of entries below which a definite matrix has a factor with few entries as well
CANCELLED = 1e-8  # beside its terms: a sum that small is known to few digits
LARGEST = 3000  # variables that Q may tie together, directly or through others, before a factor must be given


class Quadratic(WithoutCaches):
    """½ wᵀQ w,   Q = RᵀR + diag(δ),   R `(k, n)`, δ `(n,)` ≥ 0: convex by its form.

    `Program(Q=matrix)` makes one from a symmetric positive semidefinite matrix, which is checked and taken apart. Where a
    factor is known (a factor model of risk, differences of neighbours), give it: `Program(Q=Quadratic(R, δ))` never forms Q.

    Attributes:
        factor, diagonal: R and δ.
        given: the matrix that it was made from, or `None`.
        n: the number of variables.

    Examples:
        >>> risk = dfl.Quadratic(diagonal=[2.0, 4.0])
        >>> split = dfl.Program(A=[[1, 1]], b=[1], Q=risk)
        >>> dfl.HiGHS(split).solve(torch.zeros(2)).decision
        tensor([0.6667, 0.3333])
    """

    def __init__(self, factor: MatrixLike | None = None, diagonal: VectorLike | None = None) -> None:
        if factor is None and (diagonal is None or not read_shape("the diagonal of Q", diagonal)):
            raise ProgramError("the quadratic part needs a factor R (k, n), a diagonal (n,), or both")
        shape = read_shape("the diagonal of Q", diagonal) if factor is None else read_shape("the factor of Q", factor)
        self.n = int(shape[-1]) if shape else 0
        self.factor = read_matrix("the factor of Q", factor, self.n)
        self.diagonal = read_vector("the diagonal of Q", 0.0 if diagonal is None else diagonal, self.n, finite=True)
        self.given: sp.csr_array | None = None
        if (self.diagonal < 0).any():
            j = int(np.argmin(self.diagonal))
            raise ProgramError(f"the diagonal of Q is {self.diagonal[j]:g} at variable {j}: not convex; it must be ≥ 0")

    @classmethod
    def of(cls, Q: Quadratic | MatrixLike) -> Quadratic:
        """A symmetric positive semidefinite matrix, taken apart; an error says why it is none."""
        if isinstance(Q, Quadratic):
            return Q
        matrix = read_matrix("Q", Q)
        if matrix.shape[0] != matrix.shape[1]:
            raise ProgramError(f"Q must be square, one row and column per variable; its shape is {matrix.shape}")
        factor, diagonal = _take_apart(matrix)
        whole = cls(factor, diagonal)
        whole.given = matrix
        return whole

    def __repr__(self) -> str:
        return f"Quadratic(n={self.n}, rank of the factor={self.factor.shape[0]})"

    @cached_property
    def matrix(self) -> sp.csr_array:
        """Q, CSR."""
        if self.given is not None:
            return self.given
        return sp.csr_array(self.factor.T @ self.factor + sp.diags_array(self.diagonal))

    @property
    def is_zero(self) -> bool:
        return not self.factor.nnz and not self.diagonal.any()

    def parts(self) -> dict[str, Any]:
        """What it was made from, by name: the matrix `Q`, or `Q.factor` and `Q.diagonal`. For files and fingerprints."""
        return {"Q": self.given} if self.given is not None else {"Q.factor": self.factor, "Q.diagonal": self.diagonal}

    @cached_property
    def definite(self) -> Quadratic | None:
        """The same Q with δ > 0 throughout; `None` where Q is singular, or nearly so."""
        if (self.diagonal > 0).all():
            return self
        if self.given is not None:
            return None
        other = Quadratic.of(self.matrix)
        return other if (other.diagonal > 0).all() else None

    @cached_property
    def norm(self) -> float:
        """‖Q‖, its largest eigenvalue."""
        if not self.factor.nnz:
            return float(self.diagonal.max(initial=0.0))
        if self.n <= LARGEST // 3:
            dense = (self.factor.T @ self.factor).toarray() + np.diag(self.diagonal)
            return float(scipy.linalg.eigvalsh(dense, subset_by_index=[self.n - 1, self.n - 1])[0])
        whole = scipy.sparse.linalg.LinearOperator((self.n, self.n), matvec=self.times, dtype=np.float64)
        start = np.random.default_rng(0).normal(size=self.n)
        return float(scipy.sparse.linalg.eigsh(whole, 1, which="LA", v0=start, return_eigenvectors=False)[0])

    def plus(self, q: np.ndarray) -> Quadratic:
        """Q + diag(q), q `(n,)` ≥ 0."""
        return Quadratic(self.factor, self.diagonal + q)

    def extended(self, more: int) -> Quadratic:
        """The same with so many further variables, which it does not speak of."""
        wide = sp.hstack([self.factor, sp.csr_array((self.factor.shape[0], more))])
        whole = Quadratic(wide, np.concatenate([self.diagonal, np.zeros(more)]))
        if self.given is not None:
            whole.given = sp.csr_array(sp.block_diag([self.given, sp.csr_array((more, more))]))
        return whole

    def times(self, w: np.ndarray) -> np.ndarray:
        """Q w, `(…, n)` → `(…, n)`."""
        flat = w.reshape(-1, self.n).T
        product = self.factor.T @ (self.factor @ flat) + self.diagonal[:, None] * flat
        return np.ascontiguousarray(product.T).reshape(w.shape)

    def sizes(self, w: np.ndarray) -> np.ndarray:
        """|R|ᵀ|R w| + δ |w|, the terms that Q w is summed from, `(…, n)`. What cancels in R w leaves its rounding there."""
        flat = w.reshape(-1, self.n).T
        inner = np.maximum(np.abs(self.factor @ flat), CANCELLED * (abs(self.factor) @ np.abs(flat)))
        terms = abs(self.factor).T @ inner + self.diagonal[:, None] * np.abs(flat)
        return np.ascontiguousarray(terms.T).reshape(w.shape)

    def value(self, w: np.ndarray) -> np.ndarray:
        """½ wᵀQ w, `(…, n)` → `(…,)`."""
        half: np.ndarray = 0.5 * (w * self.times(w)).sum(-1)
        return half

    @cached_property
    def _maps(self) -> tuple[LinearMap | None, Any]:
        import torch

        return LinearMap(self.factor) if self.factor.nnz else None, torch.tensor(self.diagonal)

    def slope(self, w: Tensor) -> Tensor:
        """Q w, differentiable, `(*batch, n)` → `(*batch, n)`."""
        factor, diagonal = self._maps
        own: Tensor = w * diagonal.to(w)
        return own if factor is None else own + factor.transpose(factor(w))


def _take_apart(Q: sp.csr_array) -> tuple[sp.csr_array, np.ndarray]:
    """R and δ with Q = RᵀR + diag(δ), in units in which the diagonal is one, block by block of variables tied together.

    δ is half the least eigenvalue of a block, where that is positive: kernels divide by δ, and R must stay a factor.
    """
    n, own = Q.shape[0], Q.diagonal()
    scale = np.sqrt(np.where(own > 0, own, 1.0))
    unit = sp.csr_array(sp.diags_array(1 / scale) @ Q @ sp.diags_array(1 / scale))
    skew = abs(unit - unit.T)
    if skew.nnz and skew.max() > SYMMETRIC:
        i, j = divmod(int(skew.toarray().argmax()), n) if n <= LARGEST else (-1, -1)
        where = f": Q[{i}, {j}] = {Q[i, j]:g}, Q[{j}, {i}] = {Q[j, i]:g}" if i >= 0 else ""
        raise ProgramError(f"Q is not symmetric{where}; ½ wᵀQ w is the same with (Q + Qᵀ)/2, if that is what is meant")
    if (own < 0).any():
        raise _indefinite(f"Q[{int(np.argmin(own))}, {int(np.argmin(own))}] = {own.min():g}")
    unit = sp.csr_array((unit + unit.T) / 2)
    if not (unit - sp.diags_array(unit.diagonal())).count_nonzero():
        return sp.csr_array((0, n)), own.copy()
    _, label = connected_components(unit, directed=False)
    diagonal, rows = own.copy(), []
    for tied in np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1]):
        if len(tied) == 1:
            continue
        if len(tied) > LARGEST:
            raise ProgramError(
                f"Q ties {len(tied)} variables together, and is taken apart for up to {LARGEST} only: give a factor "
                "instead, Program(Q=Quadratic(R, diagonal)), Q = RᵀR + diag"
            )
        dense = unit[tied][:, tied].toarray()
        least = float(scipy.linalg.eigvalsh(dense, subset_by_index=[0, 0])[0])
        if least < -SEMIDEFINITE * len(tied):
            why = f"the least eigenvalue of its part over {len(tied)} variables (the first: {tied[0]}) is {least:.3g}"
            raise _indefinite(f"with its diagonal scaled to one, {why}")
        delta = least / 2 if least > DEFINITE else 0.0
        block = sp.coo_array(_factor(dense - delta * np.eye(len(tied)), delta > 0) * scale[tied])
        rows.append(sp.csr_array((block.data, (block.coords[0], tied[block.coords[1]])), shape=(block.shape[0], n)))
        diagonal[tied] = delta * own[tied]
    return sp.csr_array(sp.vstack(rows)), diagonal


def _factor(matrix: np.ndarray, definite: bool) -> np.ndarray:
    """R with RᵀR = matrix: as many rows as its rank; of a definite matrix with few entries, one with few entries."""
    size = len(matrix)
    if definite and np.count_nonzero(matrix) < SPARSE * size**2:
        columns = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        lu = scipy.sparse.linalg.splu(sp.csc_matrix(matrix), **columns)
        pivots = lu.U.diagonal()
        if (lu.perm_r == lu.perm_c).all() and (pivots > 0).all():
            triangle: np.ndarray = np.sqrt(pivots)[:, None] * lu.L.toarray().T
            return triangle[:, lu.perm_c]
    upper, order, rank, _ = scipy.linalg.lapack.dpstrf(matrix, tol=SEMIDEFINITE)
    entries = np.zeros((rank, size))
    entries[:, order - 1] = np.triu(upper)[:rank]
    return entries


def _indefinite(why: str) -> ProgramError:
    return ProgramError(
        f"Q is not positive semidefinite: {why}. The objective would not be convex; if it is meant to be, and this is rounding "
        "of a matrix in single precision or of an estimate, add that much to its diagonal"
    )
