"""The program with a logarithmic barrier, and its exact gradient: IntOpt (Mandi and Guns, 2020).

    w_μ(y) = argmin over w of  obj(y, w) − μ Σ log(slack)   s.t.   A w = b

over the slacks of all inequality rows and finite bounds of the relaxation: an interior point stopped at the barrier parameter μ.
"""

from __future__ import annotations

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
from dflearn.layers.log_barrier_newton import BarrierForm, ByDirections, ByRows, Newton
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status

FIRST, FASTER = (
    1.0,
    5.0,
)  # μ of the first stage, in units of the largest cost, and what it is divided by from stage to stage
STEPS = 500  # of Newton's method
NEAR = 0.25  # Newton's decrement below which whole steps are taken
DONE, CENTRED = 1e-10, 0.1  # the decrement at which the last stage ends, and the others
FINE = 1e-4  # a slack that is a smaller share of its terms is not their difference
ROOM = 1e-9  # the least slack of a point that counts as inside
FAR = 1e3  # Newton's way from a larger point may be without end: one of least length is looked for


class LogBarrier(Layer):
    """w_μ(y) = argmin obj(y, w) − μ Σ_i log s_i(w) over A w = b, with s the slacks of G w ≤ h and of finite bounds.

    Gradient: dw/dy = −Z (ZᵀH Z)⁻¹ Zᵀ S, where H = Q + μ Σ_i ∇s_i ∇s_iᵀ / s_i² and the columns of Z are a basis of the null space
    of A. The objective lies above the optimum of the relaxation by at most μ times the number of slacks. Newton's
    method, damped by its decrement (self-concordance: no step leaves the inside), at falling μ. Its equations are as many as A has
    free directions, or as there are rows, whichever is cheaper; they are dense. Where the form by rows does not find the centre, the
    other one is tried.

    The barrier is infinite at vertices, where labels are, and moves with an instance's sides: it is no part of `Solution.objective`
    nor of `regularization`. So this layer is for `Regret` (IntOpt) and `SquaredDecisionError`; for Fenchel-Young losses, which
    compare Ω of the label, take `Smoothed`.

    OPTIMAL: rows hold as `certify` wants, the decision is strictly inside, and Newton's decrement and every variable's reduced cost of
    the problem with its barrier, beside its terms, are at most 1e-6. The decision is then the barrier's optimum, not the program's.

    Args:
        program: integrality is dropped. It needs a point strictly inside its inequality rows and bounds (fixed variables apart).
        mu: μ > 0, in units of the objective.
    """

    program: Program
    annealed = ("mu",)
    mu = PositiveWeight("μ")

    def __init__(self, program: Program, mu: float = 0.1) -> None:
        super().__init__(program.objective)
        self.program = program.relax()
        self.mu = mu
        self._shared: _Inside | None = None
        self._certifier = Certifier(self.program)

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None}

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
            inside = self._inside(own)
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

        def way_back(gradient: Tensor) -> Tensor:
            g, slope = gradient.detach().double().cpu().reshape(count, n), torch.zeros(count, n).double()
            for group, newton, centre in found:  # what was solved again comes later
                slope[group] = newton.direction(centre.factor, -g[group] / mu)[0]
            return slope.reshape(costs.shape).to(gradient)

        why = "LogBarrier has no second derivatives: use Smoothed"
        return Solution(
            decision=with_gradient(costs, w.reshape(*batch, n).to(y), way_back, why),
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
        program, free = self.program, sides.lower < sides.upper
        with np.errstate(all="ignore"):
            slacks = sides.h - (program.G @ w.T).T, w - sides.lower, sides.upper - w
            ends = (np.abs(w) + np.abs(end) for end in (sides.lower, sides.upper))
            sizes = np.abs(sides.h) + (abs(program.G) @ np.abs(w).T).T, *ends
            prices = [np.where(np.isinf(slack), 0.0, self.mu / slack) for slack in slacks]
            noise = [
                ROUNDING * np.where(pi > 0, pi * size / slack, 0.0)
                for pi, size, slack in zip(prices, sizes, slacks, strict=True)
            ]
            inside = np.all(
                [(part[:, kept] > 0).all(1) for part, kept in zip(slacks, (slice(None), free, free), strict=True)],
                axis=0,
            )
            pull = c + (program.G.T @ prices[0].T).T - prices[1] + prices[2]
            terms = np.abs(c) + (abs(program.G).T @ prices[0].T).T + prices[1] + prices[2]
            allowed = (abs(program.G).T @ noise[0].T).T + noise[1] + noise[2]
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
            best = (
                torch.linalg.lstsq(scaled, wanted, driver="gelsd").solution.numpy()[..., 0]
                if len(A)
                else np.zeros((1, 0))
            )
            prices_of_rows = best / np.where(lengths > 0, lengths, 1.0)[:, 0]
            wrong = np.maximum(np.abs(pull - prices_of_rows @ A) - allowed, 0.0)
            beside = terms + np.abs(prices_of_rows) @ np.abs(A)
            share = np.divide(wrong, beside, where=wrong > 0, out=np.zeros_like(wrong))
            rows = self._certifier.violation(w[inside], sides)
            worst[inside] = np.maximum(share.max(1, initial=0.0), rows)
        return worst

    def _inside(self, sides: Sides) -> _Inside:
        """The slacks of these sides and a point inside; remembered where they are the program's own."""
        if sides is not self.program.own_sides:
            return _find(self.program, sides)
        if self._shared is None:
            self._shared = _find(self.program, sides)
        return self._shared


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
