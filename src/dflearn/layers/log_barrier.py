"""The program with a logarithmic barrier, and its exact gradient: IntOpt (Mandi and Guns, 2020).

    w_μ(y) = argmin over w of  obj(y, w) − μ Σ log(slack)   s.t.   A w = b

over the slacks of all inequality rows and finite bounds of the relaxation: an interior point stopped at the barrier parameter μ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import ProgramError
from dflearn.layers.base import Layer, weight, with_gradient
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
ACCEPTED = 1e-6  # the decrement that counts as solved
DEGENERATE = 1e-9  # relative to the largest: smaller singular values of the equality rows are zero
ROOM = 1e-9  # the least slack of a point that counts as inside


class LogBarrier(Layer):
    """w_μ(y) = argmin obj(y, w) − μ Σ_i log s_i(w) over A w = b, with s the slacks of G w ≤ h and of finite bounds.

    Gradient: dw/dy = −Z (ZᵀH Z)⁻¹ Zᵀ S, where H = Q + μ Σ_i ∇s_i ∇s_iᵀ / s_i² and the columns of Z are a basis of the null space
    of A. The objective lies above the optimum of the relaxation by at most μ times the number of slacks. Newton's
    method, damped by its decrement (self-concordance: no step leaves the inside), at falling μ; dense, for programs of some hundred variables.

    The barrier is infinite at vertices, where labels are, and moves with an instance's sides: it is no part of `Solution.objective`
    nor of `regularization`. So this layer is for `Regret` (IntOpt) and `SquaredDecisionError`; for Fenchel-Young losses, which
    compare Ω of the label, take `Smoothed`.

    Args:
        program: integrality is dropped. It needs a point strictly inside its inequality rows and bounds (fixed variables apart).
        mu: μ > 0, in units of the objective.
    """

    program: Program
    annealed = ("mu",)

    def __init__(self, program: Program, mu: float = 0.1) -> None:
        super().__init__(program.objective)
        self.program = program.relax()
        self.mu = mu
        self._shared: _Inside | None = None

    @property
    def mu(self) -> float:
        """μ; it may be set anew between two solves."""
        return self._mu

    @mu.setter
    def mu(self, mu: float) -> None:
        self._mu = weight(mu, "LogBarrier", "a finite mu > 0", lambda value: value > 0)

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None}

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch, count, n = y.shape[:-1], y.shape[:-1].numel(), self.program.n
        sides, costs = self.program.sides(instance, count), self.objective.vector(y, instance)
        c = costs.detach().double().cpu().reshape(count, n)
        groups = [slice(0, count)] if sides.is_shared else [slice(i, i + 1) for i in range(count)]
        w, value = torch.full((count, n), torch.nan).double(), torch.full((count,), torch.nan).double()
        status, residual = torch.zeros(count, dtype=torch.int8), torch.zeros(count).double()
        found: list[tuple[slice, _Inside, _Centre]] = []
        for group in groups if count else ():
            inside = self._inside(sides if sides.is_shared else sides.row(group.start))
            if inside.status is not Status.OPTIMAL:
                status[group] = int(inside.status)
                continue
            centre = _centre(inside, c[group], self.mu)
            found.append((group, inside, centre))
            solved = centre.decrement <= ACCEPTED
            status[group] = torch.where(solved, int(Status.OPTIMAL), int(Status.FAILED)).to(torch.int8)
            w[group], value[group] = centre.w, centre.value
            residual[group] = torch.nan_to_num(centre.decrement, nan=torch.inf)
        w[status != int(Status.OPTIMAL)] = torch.nan

        def way_back(gradient: Tensor) -> Tensor:
            g, slope = gradient.detach().double().cpu().reshape(count, n), torch.zeros(count, n).double()
            for group, inside, centre in found:
                reduced = torch.cholesky_solve((g[group] @ inside.basis).unsqueeze(-1), centre.factor).squeeze(-1)
                slope[group] = -reduced @ inside.basis.T
            return slope.reshape(costs.shape).to(gradient)

        why = "LogBarrier has no second derivatives: use Smoothed"
        return Solution(
            decision=with_gradient(costs, w.reshape(*batch, n).to(y), way_back, why),
            status=status.reshape(batch),
            objective=value.reshape(batch),
            bound=torch.full(batch, -torch.inf, dtype=torch.float64),
            start=start,
            residual=residual.reshape(batch),
        )

    def _inside(self, sides: Sides) -> _Inside:
        """The slacks of these sides and a point inside; remembered where they are the program's own."""
        if sides is not self.program.own_sides:
            return _find(self.program, sides)
        if self._shared is None:
            self._shared = _find(self.program, sides)
        return self._shared


class _Inside(NamedTuple):
    """slack = limits − rows w, `(slacks,)` and `(slacks, n)`; a point inside `(n,)`; a basis of {v : A v = 0}, `(n, k)`; Q."""

    status: Status
    rows: Tensor
    limits: Tensor
    point: Tensor
    basis: Tensor
    Q: Tensor | None


class _Centre(NamedTuple):
    """Minimizers `(count, n)` with their objective, barrier apart, Newton's decrement, and the Cholesky factor of ZᵀH Z."""

    w: Tensor
    value: Tensor
    decrement: Tensor
    factor: Tensor


def _find(program: Program, sides: Sides) -> _Inside:
    """max t  s.t.  A w = b,  slack_i ≥ t (in units of its row),  0 ≤ t ≤ 1:  a linear program, for one instance."""
    from dflearn.solvers.highs import HiGHS

    n, fixed = program.n, sides.lower == sides.upper
    below, above = np.isfinite(sides.lower) & ~fixed, np.isfinite(sides.upper) & ~fixed
    each = np.eye(n)
    rows = np.vstack([program.G.toarray(), -each[below], each[above]])
    limits = np.concatenate([sides.h, -sides.lower[below], sides.upper[above]])
    equal = np.vstack([program.A.toarray(), each[fixed]])
    right = np.concatenate([sides.b, sides.lower[fixed]])
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    phase = Program(
        A=sp.csr_array(np.hstack([equal, np.zeros((len(equal), 1))])),
        b=right,
        G=sp.csr_array(np.hstack([rows, np.where(size > 0, size, 1.0)])),
        h=limits,
        lower=np.append(np.full(n, -np.inf), 0.0),
        upper=np.append(np.full(n, np.inf), 1.0),
    )
    cost = torch.zeros(n + 1, dtype=torch.float64)
    cost[-1] = -1
    solution = HiGHS(phase).solve(cost)
    status, w = Status(int(solution.status)), solution.decision
    if status is Status.OPTIMAL and len(rows) and float(w[-1]) <= ROOM:
        raise ProgramError(
            f"{program!r} has no point strictly inside its inequality rows and bounds, so that it has no barrier: write what "
            "must hold with equality as equality rows, or use Smoothed"
        )
    _, values, vectors = np.linalg.svd(equal) if len(equal) else (None, np.empty(0), each)
    rank = int((values > DEGENERATE * max(values.max(initial=0.0), 1e-300)).sum())
    Q = None if program.Q is None else torch.as_tensor(program.Q.matrix.toarray())
    parts = (torch.as_tensor(rows), torch.as_tensor(limits), w[:-1], torch.as_tensor(vectors[rank:].T.copy()), Q)
    return _Inside(status, *parts)


def _centre(inside: _Inside, c: Tensor, mu: float) -> _Centre:
    """Newton's method from the point inside; each instance has a μ of its own, which falls whenever it is centred."""
    count, Z = len(c), inside.basis
    across = inside.rows @ Z
    curved = torch.zeros(Z.shape[1], Z.shape[1]).double() if inside.Q is None else Z.T @ inside.Q @ Z
    w, at = inside.point.expand(count, -1).clone(), (FIRST * c.abs().amax(-1)).clamp(min=mu)
    for _ in range(STEPS):
        slack = inside.limits - w @ inside.rows.T
        gradient = c if inside.Q is None else c + w @ inside.Q
        reduced = gradient @ Z + at[:, None] * (1 / slack) @ across
        factor, _ = torch.linalg.cholesky_ex(
            curved + at[:, None, None] * (across.T * slack.pow(-2).unsqueeze(-2)) @ across
        )
        step = -torch.cholesky_solve(reduced.unsqueeze(-1), factor).squeeze(-1)
        decrement = (-(reduced * step).sum(-1) / at).clamp(min=0).sqrt()
        last = at <= mu
        if bool((last & ~(decrement > DONE)).all()):
            break
        length = torch.where(decrement > NEAR, 1 / (1 + decrement), 1.0)
        w = w + torch.where(last & (decrement <= DONE), 0.0, length)[:, None] * (step @ Z.T)
        at = torch.where(~last & (decrement <= CENTRED), (at / FASTER).clamp(min=mu), at)
    decrement = torch.where(last, decrement, torch.inf)
    value = (c * w).sum(-1)
    return _Centre(w, value if inside.Q is None else value + 0.5 * (w @ inside.Q * w).sum(-1), decrement, factor)
