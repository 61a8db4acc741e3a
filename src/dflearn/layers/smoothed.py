"""The exactly solved, quadratically smoothed LP with its exact gradient.

    w_μ(y) = argmin over w of  obj(y, w) + (μ/2)‖w‖²   over the LP relaxation of the program

A cold instance is solved by a batched interior-point method, whose number of steps hardly depends on μ, and finished by
a dual Newton method, which finds the exact active set; an instance with a start goes to the Newton method at once.
What neither finishes is solved one by one by HiGHS, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers.base import Layer, as_rows, in_shape, with_gradient
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status, check_start

if TYPE_CHECKING:
    from dflearn.kernels.smoothed import SmoothedAnswer
    from dflearn.layers.rows import SmoothedRows

ACCEPTED_RESIDUAL = 1e-6  # relative; what `OPTIMAL` means here


class Smoothed(Layer):
    """w_μ(y) = argmin obj(y, w) + Ω(w) over the LP relaxation,  Ω(w) = (μ/2)‖w‖²  or, with regularizer="norm", μ‖w‖₂.

    Gradient, squared:  dw/dy = −(1/μ) P S, where P projects onto the face of the solution: {v : v_j = 0 where w_j is at a
    bound, (A v)_i = 0, (G v)_i = 0 where row i is in force}. Where the solution is degenerate (a variable at a bound, or a
    row met, with multiplier zero), the face counts such variables as fixed and such rows as not in force: one element of
    the generalized Jacobian. With the norm, w solves the squared problem with κ = μ/‖w‖ in place of μ, and
    dw/dy = −(1/κ) [P + (P w)(P w)ᵀ / (‖w‖² − wᵀP w)] S; where w = 0 the gradient is zero.

    Every optimal answer has a relative KKT residual of at most 1e-6 (usually 1e-12), reported in `Solution.residual`.

    Args:
        program: integrality is dropped; smoothing acts on the decision variables, never on slacks.
        mu: μ > 0, in units of the costs.
        regularizer: "squared" or "norm".
        tolerance: relative residual at which the Newton method stops.
    """

    program: Program

    def __init__(
        self,
        program: Program,
        mu: float = 1.0,
        *,
        regularizer: Literal["squared", "norm"] = "squared",
        tolerance: float = 1e-10,
    ) -> None:
        super().__init__(program.objective)
        if not (mu > 0 and np.isfinite(mu)):
            raise OptionError(f"Smoothed needs a finite mu > 0, got {mu}; for mu = 0 use Exact or DavisYin")
        if regularizer not in ("squared", "norm"):
            raise OptionError(f"regularizer is 'squared' or 'norm', got {regularizer!r}")
        if not 0 < tolerance <= ACCEPTED_RESIDUAL:
            raise OptionError(f"tolerance must lie in (0, {ACCEPTED_RESIDUAL}], got {tolerance}")
        self.program = program.relax()
        self.mu, self.regularizer, self.tolerance = float(mu), regularizer, float(tolerance)
        self._mu = np.array([self.mu])  # one for all instances
        form = self.program.equality_form()
        self.start_width = form.matrix.shape[0] + (regularizer == "norm")

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}, regularizer={self.regularizer!r}"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "rows"}

    @cached_property
    def rows(self) -> SmoothedRows:
        """The program's rows on the compiled side, made when they are first needed: numba may be missing until then."""
        from dflearn.layers.rows import SmoothedRows

        return SmoothedRows(self.program)

    def regularization(self, w: Tensor) -> Tensor:
        """Ω(w), `(*batch, n)` → `(*batch,)`."""
        if self.regularizer == "norm":
            norm: Tensor = w.norm(dim=-1)
            return self.mu * norm
        return 0.5 * self.mu * w.square().sum(-1)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch = y.shape[:-1]
        count = batch.numel()
        sides = self.program.sides(instance, count)
        costs = self.objective.vector(y, instance)
        c = as_rows(costs, count, np.float64 if self.regularizer == "norm" else None)
        given = check_start(start, batch, self.start_width)
        if self.regularizer == "norm":
            answer, kappa, status = self._solve_norm(c, sides, given)
        else:
            kappa = self._mu
            answer = self.rows.solve(self.rows.data(c, kappa, sides), given, self.tolerance)
            status = self._finish(c, kappa, sides, answer)
        decision = in_shape(answer.w, batch).to(costs)
        face = _Face(self.rows, answer.inside, answer.in_force, kappa)
        if self.regularizer == "norm":
            face = replace(face, w=np.array(as_rows(decision, count, np.float64)))
        bound = np.where(status, -np.inf, answer.objective) if status.any() else answer.objective  # OPTIMAL is 0
        new_start = None
        if start is not None:
            rows = np.hstack([answer.y, kappa[:, None]]) if self.regularizer == "norm" else answer.y
            new_start = in_shape(rows, batch)
        return Solution(
            decision=with_gradient(costs, decision, face.way_back),
            status=in_shape(status, batch),
            objective=in_shape(answer.objective, batch),
            bound=in_shape(bound, batch),
            start=new_start,
            residual=in_shape(answer.residual, batch),
            fallback=in_shape(answer.newton_steps < 0, batch),
        )

    # -- the norm as regularizer ----------------------------------------------------------------------------------

    def _solve_norm(
        self, c: np.ndarray, sides: Sides, start: np.ndarray | None
    ) -> tuple[SmoothedAnswer, np.ndarray, np.ndarray]:
        """The answer, κ and the status of each instance.

        w solves the squared problem with κ where κ‖w(κ)‖ = μ: the root of an increasing function of κ. Newton's method
        finds it, with the derivative ‖w‖ − wᵀP w/‖w‖ and a bracket to fall back on. If no κ is large enough, the origin
        is feasible and optimal; if none is small enough, there is no optimum: a norm grows no faster than costs can fall.
        """
        count = c.shape[0]
        size = np.maximum(np.abs(c).max(1, initial=0.0), self.mu)
        low, high = np.zeros(count), np.full(count, np.inf)
        floor, kappa, ceiling = 1e-10 * size, 0.1 * size, 1e10 * size
        starts = None
        if start is not None:
            known = np.isfinite(start).all(1)
            # What ended at the floor or the ceiling may have its root in between now.
            kappa[known] = np.clip(start[known, -1], 1e-6 * size[known], 1e6 * size[known])
            starts = start[:, :-1]
        infeasible = np.zeros(count, bool)
        for _ in range(60):
            answer = self.rows.solve(self.rows.data(c, kappa, sides), starts, self.tolerance)
            starts, w = answer.y, answer.w.copy()
            status = self._finish(c, kappa, sides, answer, infeasible)
            w = np.where(np.isnan(answer.w), w, answer.w)
            infeasible = status == int(Status.INFEASIBLE)
            norm = np.linalg.norm(w, axis=1)
            gap = kappa * norm - self.mu
            settled = (np.abs(gap) <= 10 * self.tolerance * self.mu) | (high - low <= 1e-15 * kappa)
            settled |= infeasible | (kappa >= ceiling) | (kappa <= floor)
            if settled.all():
                break
            low, high = np.where(gap <= 0, kappa, low), np.where(gap > 0, kappa, high)
            inside = self.rows.project(answer.inside, answer.in_force, w)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = kappa - gap / (norm - (w * inside).sum(1) / norm)
            middle = np.where(np.isinf(high), 10 * kappa, np.sqrt(np.maximum(low, 1e-3 * high) * high))
            usable = np.isfinite(newton) & (newton > low) & (newton < high)
            kappa = np.where(settled, kappa, np.where(usable, newton, middle))
        unbounded = (kappa <= floor) & ~infeasible & (gap > 1e-6 * self.mu)
        status[unbounded], answer.w[unbounded] = int(Status.UNBOUNDED), np.nan
        status[~settled & (status == int(Status.OPTIMAL))] = int(Status.FEASIBLE)
        objective = (c * answer.w).sum(1) + self.mu * np.linalg.norm(answer.w, axis=1)
        return answer._replace(objective=objective), kappa, status

    # -- what the kernels did not finish --------------------------------------------------------------------------

    def _finish(
        self,
        c: np.ndarray,
        mu: np.ndarray,
        sides: Sides,
        answer: SmoothedAnswer,
        infeasible: np.ndarray | None = None,
    ) -> np.ndarray:
        """Status per instance; those above the accepted residual, and not known to be infeasible, are solved by HiGHS."""
        status = np.zeros(c.shape[0], np.int8)  # OPTIMAL
        accepted = answer.residual <= ACCEPTED_RESIDUAL
        if accepted.all():
            return status
        from dflearn.layers.quadratic import no_result, solve_with_highs

        for i in np.flatnonzero(~accepted):
            own_mu, own_c = mu[i % len(mu)], c[i].astype(np.float64)
            if infeasible is not None and infeasible[i]:
                result = no_result(self.program, Status.INFEASIBLE)
            else:
                result = solve_with_highs(self.program, own_c, own_mu, sides.row(i))
            accurate = result.residual <= ACCEPTED_RESIDUAL or result.status is not Status.OPTIMAL
            status[i] = int(result.status if accurate else Status.FEASIBLE)
            answer.w[i] = result.w
            answer.objective[i] = own_c @ result.w + 0.5 * own_mu * (result.w @ result.w)
            answer.residual[i] = result.residual
            answer.inside[i] = result.inside
            answer.in_force[i] = self.rows.ordered(result.in_force)
            answer.newton_steps[i] = -1
        return status


@dataclass(frozen=True, eq=False)
class _Face:
    """The faces that the solutions of a batch lie on. κ is μ with the squared regularizer.

    w: the decisions `(count, n)` in float64 with the norm as regularizer, and `None` otherwise.
    """

    rows: SmoothedRows
    inside: np.ndarray
    in_force: np.ndarray
    kappa: np.ndarray
    w: np.ndarray | None = None

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient as stated in `Smoothed`, `(*batch, n)` → `(*batch, n)`."""
        v = as_rows(gradient, len(self.inside), None if self.w is None else np.float64)
        out = self.rows.project(self.inside, self.in_force, v, -1.0 / self.kappa)
        if self.w is not None:
            along = self.rows.project(self.inside, self.in_force, self.w)
            room = (self.w * self.w).sum(1) - (self.w * along).sum(1)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(room > 0, (self.w * out).sum(1) / room, 0.0)
            out = out + share[:, None] * along
        return in_shape(out, gradient.shape[:-1]).to(gradient)
