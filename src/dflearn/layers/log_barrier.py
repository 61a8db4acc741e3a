"""The program with a logarithmic barrier, and its exact gradient: IntOpt (Mandi and Guns, 2020).

Newton's equations have two forms, of as many unknowns as A leaves directions free, or as there are rows:

    H v = t   over   A v = 0,      H = Q / μ + Σ_i ∇s_i ∇s_iᵀ / s_i²
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.engine.certify import OPTIMAL, ROUNDING, Certifier
from dflearn.errors import ProgramError
from dflearn.layers.base import Layer, PositiveWeight, with_gradient
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Program
from dflearn.program.arrays import LinearMap
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status
from dflearn.solvers.structured import independent

# μ of the first stage, in units of the largest cost, and what it is divided by from stage to stage.
FIRST, FASTER = 1.0, 5.0
STEPS = 500  # of Newton's method
NEAR = 0.25  # Newton's decrement below which whole steps are taken
DONE, CENTRED = 1e-10, 0.1  # the decrement at which the last stage ends, and the others
FINE = 1e-4  # a slack that is a smaller share of its terms is not their difference
ROOM = 1e-9  # the least slack of a point that counts as inside
REFINEMENTS = 3  # of prices of rows
DEGENERATE = 1e-9  # relative to the largest: smaller singular values of the equality rows are zero
FAR = 1e3  # Newton's way from a larger point may be without end: one of least length is looked for


class LogBarrier(WithoutCaches, Layer):
    """w_μ(y) = argmin obj(y, w) − μ Σ_i log s_i(w) over A w = b, with s the slacks of G w ≤ h and of finite bounds.

    Gradient: dw/dy = −Z (ZᵀH Z)⁻¹ Zᵀ S, where H = Q + μ Σ_i ∇s_i ∇s_iᵀ / s_i² and the columns of Z are a basis of the null space
    of A. The objective lies above the optimum of the relaxation by at most μ times the number of slacks. Newton's method, damped by
    its decrement, at falling μ; its equations are dense, in the cheaper form, and where that does not find the centre, in the other.

    The barrier is infinite at vertices, where labels are: it is no part of `Solution.objective` nor of `regularization`. So this
    layer is for `Regret` (IntOpt) and `SquaredDecisionError`; for Fenchel-Young losses, which compare Ω of the label, take `Smoothed`.

    OPTIMAL: rows hold as `certify` wants, the decision is strictly inside, and Newton's decrement and every variable's reduced cost of
    the problem with its barrier, beside its terms, are at most 1e-6. The decision is then the barrier's optimum, not the program's.

    Args:
        program: integrality is dropped. It needs a point strictly inside its inequality rows and bounds (fixed variables apart).
        mu: μ > 0, in units of the objective.

    Examples:
        >>> box = dfl.Program(n=2, upper=1.0)  # 0 ≤ w ≤ 1
        >>> dfl.layers.LogBarrier(box, mu=0.1)(torch.zeros(2))
        tensor([0.5000, 0.5000])
    """

    program: Program
    annealed = ("mu",)
    mu = PositiveWeight("μ")

    def __init__(self, program: Program, mu: float = 0.1) -> None:
        super().__init__(program.objective)
        self.program = program.relax()
        self.mu = mu
        self._certifier = Certifier(self.program)

    @cached_property
    def _own(self) -> _Inside:
        """A point inside the program's own sides."""
        return _find(self.program, self.program.own_sides)

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}"

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch, count, n, mu = y.shape[:-1], y.shape[:-1].numel(), self.program.n, self.mu
        sides, costs = self.program.sides(instance, count), self.objective.vector(y, instance)
        c = costs.detach().double().cpu().reshape(count, n)
        groups = (torch.arange(count),) if sides.is_shared else torch.arange(count).split(1)
        w, value = torch.full((count, n), torch.nan).double(), torch.full((count,), torch.nan).double()
        status, residual = torch.zeros(count, dtype=torch.int8), torch.zeros(count).double()
        fallback, found = torch.zeros(count, dtype=torch.bool), list[tuple[Tensor, Newton, _Centre]]()
        for group in groups if count else ():
            own = sides if sides.is_shared else sides.row(int(group[0]))
            inside = self._own if own is self.program.own_sides else _find(self.program, own)
            status[group] = int(inside.status)
            rest = group if inside.status is Status.OPTIMAL else group[:0]
            for again in (False, True):
                if not len(rest):
                    break
                newton = inside.surer if again else inside.cheaper
                centre = _centre(inside, newton, c[rest], mu)
                found.append((rest, newton, centre))
                w[rest] = torch.from_numpy(np.clip(centre.w.numpy(), own.lower, own.upper))  # fixed variables are fixed
                error, value[rest] = torch.from_numpy(self._errors(c[rest].numpy(), w[rest].numpy(), own)), centre.value
                residual[rest] = torch.maximum(centre.decrement, error).nan_to_num(nan=torch.inf)
                solved, fallback[rest] = residual[rest] <= OPTIMAL, again
                status[rest] = torch.where(solved, int(Status.OPTIMAL), int(Status.FAILED)).to(torch.int8)
                rest = rest[~solved] if inside.surer is not newton else rest[:0]
        w[status != int(Status.OPTIMAL)] = torch.nan
        failed = (status == int(Status.FAILED)).numpy()
        reason = np.where(failed, "no centre was found; if optimal decisions run off without end, there is none", "")

        def backward(gradient: Tensor, _: Tensor) -> Tensor:
            g, slope = gradient.detach().double().cpu().reshape(count, n), torch.zeros(count, n).double()
            for group, newton, centre in found:  # what was solved again comes later
                slope[group] = newton.direction(centre.factor, -g[group] / mu)[0]
            return slope.reshape(costs.shape).to(gradient)

        why = "LogBarrier has no second derivatives: use Smoothed"
        return Solution(
            decision=with_gradient(costs, w.reshape(*batch, n).to(y), backward, why),
            status=status.reshape(batch),
            objective=value.reshape(batch),
            bound=torch.full(batch, -torch.inf, dtype=torch.float64),
            start=start,
            residual=residual.reshape(batch),
            fallback=fallback.reshape(batch),
            reason=reason.astype(object),
        )

    def _errors(self, c: np.ndarray, w: np.ndarray, sides: Sides) -> np.ndarray:
        """The worst error of a row, as of `certify`, or of a variable, `(count,)`; infinite off the inside.

        With the prices π = μ/s of the slacks the variable's is |ρ_j| / s_j, ρ = c + Q w + Gᵀπ + π_upper − π_lower − Aᵀλ, beside its
        terms. λ is the best. By how much rounding of the slacks may change ρ_j is allowed for.
        """
        program, free, each = self.program, sides.lower < sides.upper, sp.eye_array(self.program.n)
        rows, limits = sp.vstack([program.G, -each, each]), np.concatenate([sides.h, -sides.lower, sides.upper])
        sizes, kept = abs(rows), np.concatenate([np.full(len(sides.h), True), free, free])
        with np.errstate(all="ignore"):
            slacks, terms_of_slacks = limits - (rows @ w.T).T, np.abs(limits) + (sizes @ np.abs(w).T).T
            prices = np.where(np.isinf(slacks), 0.0, self.mu / slacks)
            noise = ROUNDING * np.where(prices > 0, prices * terms_of_slacks / slacks, 0.0)
            pull, terms = c + (rows.T @ prices.T).T, np.abs(c) + (sizes.T @ prices.T).T
            inside, allowed = (slacks[:, kept] > 0).all(1), (sizes.T @ noise.T).T
        if program.Q is not None:
            pull, terms = pull + program.Q.times(w), terms + program.Q.sizes(w)
        inside &= np.isfinite(pull[:, free]).all(1) & np.isfinite(w).all(1)
        worst = np.full(len(c), np.inf)
        if inside.any():
            pull, terms, allowed = (part[inside][:, free] for part in (pull, terms, allowed))
            A = program.A.toarray()[:, free]
            weighted = A.T / np.where(terms > 0, terms, 1.0)[..., None]
            lengths = np.linalg.norm(weighted, axis=1, keepdims=True)
            scaled = torch.from_numpy(weighted / np.where(lengths > 0, lengths, 1.0))
            wanted = torch.from_numpy(pull / np.where(terms > 0, terms, 1.0))[..., None]
            best = np.zeros((1, 0))
            if len(A):
                best = torch.linalg.lstsq(scaled, wanted, driver="gelsd").solution.numpy()[..., 0]
            prices_of_rows = best / np.where(lengths > 0, lengths, 1.0)[:, 0]
            wrong = np.maximum(np.abs(pull - prices_of_rows @ A) - allowed, 0.0)
            beside = terms + np.abs(prices_of_rows) @ np.abs(A)
            share = np.divide(wrong, beside, where=wrong > 0, out=np.zeros_like(wrong))
            worst[inside] = np.maximum(share.max(1, initial=0.0), self._certifier.violation(w[inside], sides))
        return worst


# -- Newton's equations -----------------------------------------------------------------------------------------------


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
        return torch.linalg.cholesky_ex(H)[0]  # type: ignore[no-any-return]

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


# -- the centre -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inside:
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


class _Centre(NamedTuple):
    """Minimizers `(count, n)` with their objective, barrier apart, Newton's decrement, and the equations' factor there."""

    w: Tensor
    value: Tensor
    decrement: Tensor
    factor: Any


def _find(program: Program, sides: Sides) -> _Inside:
    """max t  s.t.  A w = b,  slack_i ≥ t,  0 ≤ t ≤ 1:  a linear program, for one instance."""
    from dflearn.layers.smoothed import Smoothed
    from dflearn.solvers.highs import HiGHS

    n, form = program.n, BarrierForm.of(program, sides)
    phase = Program(
        A=sp.hstack([form.equal, sp.csr_array((form.equal.shape[0], 1))]),
        b=form.right,
        G=sp.hstack([form.rows, np.ones((form.rows.shape[0], 1))]),
        h=form.limits,
        lower=np.append(np.full(n, -np.inf), 0.0),
        upper=np.append(np.full(n, np.inf), 1.0),
    )
    cost = torch.zeros(n + 1, dtype=torch.float64)
    cost[-1] = -1
    solution = HiGHS(phase).solve(cost)
    status, w = Status(int(solution.status)), solution.decision
    if status is Status.OPTIMAL and len(form.limits) and float(w[-1]) <= ROOM:
        raise ProgramError(
            f"{program!r} has no point strictly inside its inequality rows and bounds, so that it has no barrier: write what "
            "must hold with equality as equality rows, or use Smoothed"
        )
    point = w[:-1]
    if status is Status.OPTIMAL and bool((point.abs() > FAR).any()):
        half = Program(A=form.equal, b=form.right, G=form.rows, h=form.limits - 0.5 * float(w[-1]))
        near = Smoothed(half, 1.0).solve(torch.zeros(n, dtype=torch.float64))
        if int(near.status) == int(Status.OPTIMAL):
            point = near.decision
    Q = None if program.Q is None else torch.as_tensor(program.Q.matrix.toarray())
    return _Inside(status, point, form, Q)


def _centre(inside: _Inside, newton: Newton, c: Tensor, mu: float) -> _Centre:
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
    return _Centre(w, value if inside.Q is None else value + 0.5 * (w @ inside.Q * w).sum(-1), decrement, factor)
