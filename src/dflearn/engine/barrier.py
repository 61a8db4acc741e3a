"""The centre of a program with a logarithmic barrier, by Newton's method.

Newton's equations have two forms, of as many unknowns as A leaves directions free, or as there are rows:

    H v = t   over   A v = 0,      H = Q / μ + Σ_i ∇s_i ∇s_iᵀ / s_i²
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.engine.status import Status
from dflearn.program import Program
from dflearn.program.arrays import LinearMap
from dflearn.program.sides import Sides

# μ of the first stage, in units of the largest cost, and what it is divided by from stage to stage.
FIRST, FASTER = 1.0, 5.0
STEPS = 500  # of Newton's method
NEAR = 0.25  # Newton's decrement below which whole steps are taken
DONE, CENTRED = 1e-10, 0.1  # the decrement at which the last stage ends, and the others
FINE = 1e-4  # a slack that is a smaller share of its terms is not their difference
REFINEMENTS = 3  # of prices of rows
DEGENERATE = 1e-9  # relative to the largest: smaller singular values of the equality rows are zero


class BarrierForm(NamedTuple):
    """rows w ≤ limits, those of G first, then finite bounds; equal w = right, fixed variables among them. All rows are of length one,
    or zero. below, above: which variables have a slack of their own, in the order of the rows."""

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
        below, above = np.isfinite(sides.lower) & ~fixed, np.isfinite(sides.upper) & ~fixed
        each = sp.eye_array(program.n).tocsr()
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
    """The equations of one form; batches `(count, n)` and `(count, slacks)`. `across(w)` is rows w."""

    def __init__(self, form: BarrierForm) -> None:
        self.limits = torch.as_tensor(form.limits)
        self.across, self.sizes = LinearMap(form.rows), LinearMap(sp.csr_array(abs(form.rows)))

    def slacks(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """limits − rows w, and the size of its terms."""
        return self.limits - self.across(w), self.limits.abs() + self.sizes(w.abs())

    def pull(self, x: Tensor) -> Tensor:
        """rowsᵀ x: minus Σ_i x_i ∇s_i."""
        return self.across.transpose(x)

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
        self.basis = torch.as_tensor(vectors[rank:].T.copy())
        self.along = torch.as_tensor(form.rows @ self.basis.numpy())
        self.quadratic = None if Q is None else self.basis.T @ Q @ self.basis

    def factor(self, slack: Tensor, mu: Tensor) -> Tensor:
        H = (self.along.T * slack.pow(-2).unsqueeze(-2)) @ self.along
        H = H if self.quadratic is None else H + self.quadratic / mu[:, None, None]
        return torch.linalg.cholesky_ex(H)[0]

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
        kept = independent(form.equal.toarray().T, DEGENERATE)  # rows are of length one
        N = sp.vstack([form.equal[kept], form.rows[:count]], format="csr")
        self.G, self.equal, self.right = count, len(kept), torch.as_tensor(form.right[kept])
        self.N, self.n = torch.as_tensor(N.toarray()), N.shape[1]
        self.below, self.above = torch.as_tensor(form.below), torch.as_tensor(form.above)
        # x → N diag(x) Nᵀ, row by row.
        products = [sp.csr_array((0, N.shape[1])), *(N.multiply(N[[i]]) for i in range(N.shape[0]))]
        self.products = LinearMap(sp.csr_array(sp.vstack(products)))

    def factor(self, slack: Tensor, mu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The Cholesky factor, D and E."""
        rows, below, above = slack.pow(-2).split([self.G, len(self.below), len(self.above)], -1)
        D = torch.zeros(len(slack), self.n).double().index_add(-1, self.below, below).index_add(-1, self.above, above)
        M = self.products(1 / D).reshape(len(slack), *(len(self.N),) * 2)
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


def independent(columns: np.ndarray, least: float) -> np.ndarray:
    """The numbers of columns of which more than `least` is left, each without what those before it span."""
    if not columns.size:
        return np.zeros(0, np.int64)
    R, order = scipy.linalg.qr(columns, mode="r", pivoting=True)
    return np.sort(order[: int((np.abs(np.diag(R)) > least).sum())])


@dataclass(frozen=True)
class Inside:
    """A point inside `(n,)`; Newton's equations in the cheaper form, and in the one whose rounding is less; Q, dense."""

    status: Status
    point: Tensor
    form: BarrierForm
    Q: Tensor | None

    @cached_property
    def cheaper(self) -> Newton:
        return ByRows(self.form) if self.Q is None and self.form.few_rows else self.surer

    @cached_property
    def surer(self) -> Newton:
        return ByDirections(self.form, self.Q)


class Centre(NamedTuple):
    """Minimizers `(count, n)` with their objective, barrier apart, Newton's decrement, and the equations' factor there."""

    w: Tensor
    value: Tensor
    decrement: Tensor
    factor: Any


def find_centre(inside: Inside, newton: Newton, c: Tensor, mu: float) -> Centre:
    """Newton's method from the point inside; each instance has a μ of its own, which falls whenever it is centred.

    Slacks that are tiny beside their terms move with the steps: as differences of sides and rows they would be rounding.
    """
    w, at = inside.point.expand(len(c), -1).clone(), (FIRST * c.abs().amax(-1)).clamp(min=mu)
    slack, _ = newton.slacks(w)
    for _ in range(STEPS):
        gradient = c if inside.Q is None else c + w @ inside.Q
        factor = newton.factor(slack, at)
        step, squared = newton.direction(factor, -gradient / at[:, None] - newton.pull(1 / slack), w)
        decrement = squared.clamp(min=0).sqrt()
        last = at <= mu
        if bool((last & ~(decrement > DONE)).all()):
            break
        length = torch.where(decrement > NEAR, 1 / (1 + decrement), 1.0)
        step = torch.where(last & (decrement <= DONE), 0.0, length)[:, None] * step
        w, moved = w + step, slack - newton.across(step)
        slack, terms = newton.slacks(w)
        slack = torch.where(slack > FINE * terms, slack, moved)
        at = torch.where(~last & (decrement <= CENTRED), (at / FASTER).clamp(min=mu), at)
    decrement = torch.where(last, decrement, torch.inf)
    value = (c * w).sum(-1)
    return Centre(w, value if inside.Q is None else value + 0.5 * (w @ inside.Q * w).sum(-1), decrement, factor)
