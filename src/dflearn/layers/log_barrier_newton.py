"""Newton's equations of the logarithmic barrier, in the two forms that they are cheap in.

    H v = t   over   A v = 0,      H = Q / μ + Σ_i ∇s_i ∇s_iᵀ / s_i²

over slacks s of inequality rows and of finite bounds: as many unknowns as A leaves directions free, or as there are rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.program import Program
from dflearn.program.sides import Sides

REFINEMENTS = 3  # of prices of rows
DEGENERATE = 1e-9  # relative to the largest: smaller singular values of the equality rows are zero


class BarrierForm(NamedTuple):
    """rows w ≤ limits, those of G first, then finite bounds; equal w = right, fixed variables among them. All rows are of length
    one (a barrier moves by a constant where its rows are scaled), or zero.

    below, above: which variables have a slack of their own, in the order of the rows.
    """

    rows: sp.csr_array
    limits: np.ndarray
    equal: sp.csr_array
    right: np.ndarray
    below: np.ndarray
    above: np.ndarray
    fixed: int

    @classmethod
    def of(cls, program: Program, sides: Sides) -> BarrierForm:
        fixed = sides.lower == sides.upper
        below, above, each = (
            np.isfinite(sides.lower) & ~fixed,
            np.isfinite(sides.upper) & ~fixed,
            sp.eye_array(program.n).tocsr(),
        )
        rows = sp.vstack([program.G, -each[below], each[above]], format="csr")
        limits = np.concatenate([sides.h, -sides.lower[below], sides.upper[above]])
        equal = sp.vstack([program.A, each[fixed]], format="csr")
        right = np.concatenate([sides.b, sides.lower[fixed]])
        rows, limits = _of_length_one(rows, limits)
        equal, right = _of_length_one(equal, right)
        return cls(rows, limits, equal, right, np.flatnonzero(below), np.flatnonzero(above), int(fixed.sum()))

    @property
    def few_rows(self) -> bool:
        """Whether `ByRows` is cheaper than `ByDirections`. It needs a bound on every variable: then their part of H is positive."""
        n, equal, slacks = self.equal.shape[1], self.equal.shape[0], len(self.limits)
        if len(np.union1d(self.below, self.above)) < n or self.fixed:
            return False
        rows, free = equal + self.rows.shape[0] - len(self.below) - len(self.above), max(n - equal, 0)
        return bool(rows**3 / 3 + n * rows < slacks * free**2 + free**3 / 3)


class Newton(ABC):
    """The equations of one form; batches `(count, n)` and `(count, slacks)`."""

    def __init__(self, form: BarrierForm) -> None:
        self.limits = torch.as_tensor(form.limits)

    def slacks(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """limits − rows w, and the size of its terms."""
        return self.limits - self.across(w), self.limits.abs() + self.sizes(w)

    @abstractmethod
    def across(self, w: Tensor) -> Tensor:
        """rows w."""

    @abstractmethod
    def sizes(self, w: Tensor) -> Tensor:
        """|rows| |w|."""

    @abstractmethod
    def pull(self, x: Tensor) -> Tensor:
        """rowsᵀ x: minus Σ_i x_i ∇s_i."""

    @abstractmethod
    def factor(self, slack: Tensor, mu: Tensor) -> Any:
        """What `direction` needs of H at these slacks, and μ `(count,)`."""

    @abstractmethod
    def direction(self, factor: Any, t: Tensor, w: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """v, and vᵀH v `(count,)`. With w, A v is what A w lacks, so that rounding does not add up."""


class ByDirections(Newton):
    """v = Z u with A Z = 0:  ZᵀH Z u = Zᵀt."""

    def __init__(self, form: BarrierForm, Q: Tensor | None) -> None:
        super().__init__(form)
        equal, n = form.equal.toarray(), form.equal.shape[1]
        _, values, vectors = np.linalg.svd(equal) if len(equal) else (None, np.empty(0), np.eye(n))
        rank = int((values > DEGENERATE * max(values.max(initial=0.0), 1e-300)).sum())
        self.basis, self.rows = torch.as_tensor(vectors[rank:].T.copy()), torch.as_tensor(form.rows.toarray())
        self.along = self.rows @ self.basis
        self.curved = None if Q is None else self.basis.T @ Q @ self.basis

    def across(self, w: Tensor) -> Tensor:
        return w @ self.rows.T

    def sizes(self, w: Tensor) -> Tensor:
        return w.abs() @ self.rows.abs().T

    def pull(self, x: Tensor) -> Tensor:
        return x @ self.rows

    def factor(self, slack: Tensor, mu: Tensor) -> Tensor:
        H = (self.along.T * slack.pow(-2).unsqueeze(-2)) @ self.along
        lower: Tensor = torch.linalg.cholesky_ex(H if self.curved is None else H + self.curved / mu[:, None, None])[0]
        return lower

    def direction(self, factor: Tensor, t: Tensor, w: Tensor | None = None) -> tuple[Tensor, Tensor]:
        reduced = t @ self.basis
        u = torch.cholesky_solve(reduced.unsqueeze(-1), factor).squeeze(-1)
        return u @ self.basis.T, (reduced * u).sum(-1)


class ByRows(Newton):
    """H = D + Gᵀ E G, with D > 0 diagonal, of the bounds. With N = (A; G), A of independent rows, and F = (0; E⁻¹):

    (N D⁻¹ Nᵀ + diag F) u = N D⁻¹ t − (b − A w; 0),      v = D⁻¹ (t − Nᵀu)

    In v all that presses on a row in force cancels. So u is refined until N v = F u + (b − A w; 0) holds beside v.
    """

    def __init__(self, form: BarrierForm) -> None:
        super().__init__(form)
        count = form.rows.shape[0] - len(form.below) - len(form.above)
        kept = _independent(form.equal)
        N = sp.vstack([form.equal[kept], form.rows[:count]], format="csc")
        self.G, self.equal, self.right = count, len(kept), torch.as_tensor(form.right[kept])
        self.N, self.n = torch.as_tensor(N.toarray()), N.shape[1]
        self.below, self.above = torch.as_tensor(form.below), torch.as_tensor(form.above)
        self.pairs = _pairs(N)

    def across(self, w: Tensor) -> Tensor:
        return torch.cat([w @ self.N[self.equal :].T, -w[:, self.below], w[:, self.above]], -1)

    def sizes(self, w: Tensor) -> Tensor:
        w = w.abs()
        return torch.cat([w @ self.N[self.equal :].abs().T, w[:, self.below], w[:, self.above]], -1)

    def pull(self, x: Tensor) -> Tensor:
        rows, below, above = x.split([self.G, len(self.below), len(self.above)], -1)
        inner: Tensor = rows @ self.N[self.equal :]
        return inner.index_add(-1, self.above, above).index_add(-1, self.below, -below)

    def factor(self, slack: Tensor, mu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The Cholesky factor, D and E."""
        rows, below, above = slack.pow(-2).split([self.G, len(self.below), len(self.above)], -1)
        D = torch.zeros(len(slack), self.n).double().index_add(-1, self.below, below).index_add(-1, self.above, above)
        size, (place, column, value) = len(self.N), self.pairs
        M = torch.zeros(len(slack), size * size).double().index_add_(-1, place, value / D[:, column])
        M = M.reshape(len(slack), size, size)
        M.diagonal(dim1=-2, dim2=-1)[:, self.equal :] += 1 / rows
        return torch.linalg.cholesky_ex(M)[0], D, rows

    def direction(
        self, factor: tuple[Tensor, Tensor, Tensor], t: Tensor, w: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        lower, D, E = factor
        missing, F = t.new_zeros(len(t), self.equal), torch.cat([t.new_zeros(len(t), self.equal), 1 / E], -1)
        if w is not None:
            missing = self.right - w @ self.N[: self.equal].T
        u, v = torch.zeros_like(F), t / D
        for _ in range(REFINEMENTS):
            right = v @ self.N.T - F * u
            right[:, : self.equal] -= missing
            more = torch.cholesky_solve(right.unsqueeze(-1), lower).squeeze(-1)
            u, v = u + more, v - more @ self.N / D
        return v, (D * v.square()).sum(-1) + (E * (v @ self.N[self.equal :].T).square()).sum(-1)


def _of_length_one(rows: sp.csr_array, right: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Rows in any units are told from zero, and from each other."""
    size = np.sqrt(np.asarray(rows.power(2).sum(axis=1)).reshape(-1))
    size[size == 0] = 1.0
    return sp.csr_array(sp.diags_array(1 / size) @ rows), right / size


def _independent(rows: sp.csr_array) -> np.ndarray:
    """Rows that span the others."""
    if not rows.shape[0]:
        return np.empty(0, int)
    triangle, order = scipy.linalg.qr(rows.toarray().T, mode="r", pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.sort(order[: int((size > DEGENERATE * max(size.max(initial=0.0), 1e-300)).sum())])


def _pairs(N: sp.csc_array) -> tuple[Tensor, Tensor, Tensor]:
    """N diag(x) Nᵀ as a sum: places in the matrix, row by row, the entry of x that counts there, and its weight."""
    place, column, value = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
    for j in range(N.shape[1]):
        own = slice(N.indptr[j], N.indptr[j + 1])
        at, entries = N.indices[own].astype(int), N.data[own]
        place.append((at[:, None] * N.shape[0] + at).reshape(-1))
        column.append(np.full(len(at) ** 2, j))
        value.append(np.outer(entries, entries).reshape(-1))
    return tuple(torch.as_tensor(np.concatenate(part)) for part in (place, column, value))  # type: ignore[return-value]
