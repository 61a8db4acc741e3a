"""The program with a logarithmic barrier, and its exact gradient: IntOpt (Mandi and Guns, 2020)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.engine.barrier import BarrierForm, Centre, Inside, Newton, find_centre
from dflearn.engine.certify import OPTIMAL, ROUNDING, Certifier
from dflearn.errors import ProgramError
from dflearn.layers.base import Layer, PositiveWeight, with_gradient
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status

ROOM = 1e-9  # the least slack of a point that counts as inside
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
    def _own(self) -> Inside:
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
        fallback, found = torch.zeros(count, dtype=torch.bool), list[tuple[Tensor, Newton, Centre]]()
        for group in groups if count else ():
            own = sides if sides.is_shared else sides.row(int(group[0]))
            inside = self._own if own is self.program.own_sides else _find(self.program, own)
            status[group] = int(inside.status)
            rest = group if inside.status is Status.OPTIMAL else group[:0]
            for again in (False, True):
                if not len(rest):
                    break
                newton = inside.surer if again else inside.cheaper
                centre = find_centre(inside, newton, c[rest], mu)
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


def _find(program: Program, sides: Sides) -> Inside:
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
    return Inside(status, point, form, Q)
