"""The exactly solved, quadratically smoothed LP with its exact gradient: our own layer.

    w_μ(y) = argmin over w of  obj(y, w) + (μ/2)‖w‖²   over the LP relaxation of the program

A cold instance is solved by a batched interior-point method, whose number of steps hardly depends on μ, and finished by
a dual Newton method, which finds the exact active set; an instance with a start goes to the Newton method at once.
What neither finishes is solved one by one by HiGHS, and counted.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dflearn.errors import ProgramError
from dflearn.layers.base import Layer, as_rows, in_shape
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status, check_start

if TYPE_CHECKING:
    from dflearn.kernels.lanes import Tile
    from dflearn.kernels.smoothed import Answer, Data, System, Workspace

WARM_STEPS = 10  # Newton steps from a start, before the interior-point method takes over
POLISH_STEPS = 50
INTERIOR_STEPS = 80
INTERIOR_TOLERANCE = 1e-8
ACCEPTED_RESIDUAL = 1e-6  # relative; what `OPTIMAL` means here
ONE = np.ones(1)


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
            raise ProgramError(f"Smoothed needs a finite mu > 0, got {mu}; for mu = 0 use Exact or DavisYin")
        if regularizer not in ("squared", "norm"):
            raise ProgramError(f"regularizer is 'squared' or 'norm', got {regularizer!r}")
        if not 0 < tolerance <= ACCEPTED_RESIDUAL:
            raise ProgramError(f"tolerance must lie in (0, {ACCEPTED_RESIDUAL}], got {tolerance}")
        self.program = program.relax()
        self.mu, self.regularizer, self.tolerance = float(mu), regularizer, float(tolerance)
        self._mu = np.array([self.mu])  # one for all instances
        self._scratch = threading.local()
        form = self.program.equality_form()
        self.start_width = form.matrix.shape[0] + (regularizer == "norm")

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}, regularizer={self.regularizer!r}"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_scratch", "_kernel")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._scratch = threading.local()

    def regularization(self, w: Tensor) -> Tensor:
        """Ω(w), `(*batch, n)` → `(*batch,)`."""
        if self.regularizer == "norm":
            return self.mu * w.norm(dim=-1)
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
            answer = self._solve_squared(c, kappa, sides, given)
            status = self._finish(c, kappa, sides, answer)
        face = _Face(self, answer.inside, answer.in_force, kappa)
        decision = _AttachGradient.apply(costs, in_shape(answer.w, batch).to(costs), face)
        bound = np.where(status, -np.inf, answer.objective) if status.any() else answer.objective  # OPTIMAL is 0
        new_start = None
        if start is not None:
            rows = np.hstack([answer.y, kappa[:, None]]) if self.regularizer == "norm" else answer.y
            new_start = in_shape(rows, batch)
        return Solution(
            decision=decision,
            status=in_shape(status, batch),
            objective=in_shape(answer.objective, batch),
            bound=in_shape(bound, batch),
            start=new_start,
            residual=in_shape(answer.residual, batch),
            fallback=in_shape(answer.newton_steps < 0, batch),
        )

    # -- the squared regularizer ----------------------------------------------------------------------------------

    @cached_property
    def _kernel(self) -> _Kernel:
        return _Kernel(self.program)

    def _workspace(self) -> Workspace:
        """This thread's scratch."""
        if not hasattr(self._scratch, "space"):
            self._scratch.space = self._kernel.workspace()
        return self._scratch.space

    def _solve_squared(self, c: np.ndarray, mu: np.ndarray, sides: Sides, start: np.ndarray | None) -> Answer:
        """Instances with a start by Newton's method; the others, and those it does not finish, from scratch."""
        from dflearn.kernels.lanes import all_tiles, tiles
        from dflearn.kernels.smoothed import Answer

        data = self._kernel.data(c, mu, sides)
        answer = Answer.empty(c.shape[0], self.program.n, self._kernel.rows, c.dtype)
        if start is None:
            self._run(data, all_tiles(c.shape[0]), False, POLISH_STEPS, answer)
            return answer
        known = np.isfinite(start).all(1)
        answer.y[:] = self._kernel.inwards(start)  # the rows of unknown ones are not read
        self._run(data, all_tiles(len(c)) if known.all() else tiles(np.flatnonzero(known)), True, WARM_STEPS, answer)
        pending = answer.newton_steps < 0  # not finished, or not begun
        if pending.any():
            self._run(data, tiles(np.flatnonzero(pending)), False, POLISH_STEPS, answer)
        return answer._replace(y=self._kernel.outwards(answer.y))

    def _run(self, data: Data, tiles: list[Tile], warm: bool, newton_limit: int, answer: Answer) -> None:
        from dflearn.kernels.smoothed import solve_tile
        from dflearn.kernels.threads import run_tiles

        def solve(tile: Tile) -> None:
            solve_tile(
                self._kernel.system, data, tile[0], tile[1], warm, newton_limit, INTERIOR_STEPS, self.tolerance,
                INTERIOR_TOLERANCE, self._workspace(), answer,
            )  # fmt: skip

        run_tiles(solve, tiles)

    def project(self, inside: np.ndarray, in_force: np.ndarray, v: np.ndarray, factor: np.ndarray = ONE) -> np.ndarray:
        """factor · P v for each instance's face; `(count, n)`."""
        from dflearn.kernels.lanes import all_tiles
        from dflearn.kernels.smoothed import project_tile
        from dflearn.kernels.threads import run_tiles

        out = np.empty_like(v)

        def project(tile: Tile) -> None:
            project_tile(self._kernel.system, inside, in_force, v, factor, tile[0], tile[1], self._workspace(), out)

        run_tiles(project, all_tiles(v.shape[0]))
        return out

    def multiplier_slope(self, c: np.ndarray, sides: Sides, steps: int) -> np.ndarray:
        """Mᵀy − z_l + z_u after so many interior-point steps on costs c `(count, n)` of size about one; `(count, n)`."""
        from dflearn.kernels.lanes import all_tiles
        from dflearn.kernels.smoothed import cone_tile
        from dflearn.kernels.threads import run_tiles

        data, out = self._kernel.data(c, self._mu, sides), np.empty_like(c)

        def run(tile: Tile) -> None:
            cone_tile(self._kernel.system, data, tile[0], tile[1], steps, self._workspace(), out)

        run_tiles(run, all_tiles(c.shape[0]))
        return out

    # -- the norm as regularizer ----------------------------------------------------------------------------------

    def _solve_norm(
        self, c: np.ndarray, sides: Sides, start: np.ndarray | None
    ) -> tuple[Answer, np.ndarray, np.ndarray]:
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
            answer = self._solve_squared(c, kappa, sides, starts)
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
            inside = self.project(answer.inside, answer.in_force, w)
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
        answer: Answer,
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
            answer.in_force[i] = self._kernel.inwards_mask(result.in_force)
            answer.newton_steps[i] = -1
        return status


class _Kernel:
    """One program's side of the kernels: the factor's pattern, and the way between its row order and ours."""

    def __init__(self, program: Program) -> None:
        from dflearn.kernels.cholesky import SparseFactor
        from dflearn.kernels.smoothed import System

        self.form = program.equality_form()
        self.factor = SparseFactor.of(self.form.rows_without_slacks())
        inequality = np.ascontiguousarray(self.form.is_inequality[self.factor.order])
        self.system: System = System(self.factor.pattern, self.factor.by_rows, self.factor.by_columns, inequality)
        self.rows = self.factor.rows
        self.own_sides = self._sides(program.own_sides)
        self.program = program

    def workspace(self) -> Workspace:
        from dflearn.kernels.smoothed import Workspace

        return Workspace.of(self.factor)

    def data(self, c: np.ndarray, mu: np.ndarray, sides: Sides) -> Data:
        from dflearn.kernels.smoothed import Data

        lines = self.own_sides if sides is self.program.own_sides else self._sides(sides)
        return Data(c, np.ascontiguousarray(mu), *lines)

    def _sides(self, sides: Sides) -> tuple[np.ndarray, ...]:
        """r, lower and upper of the kernels."""
        r = self.form.right_hand_side(sides)[:, self.factor.order] * self.factor.scale
        return tuple(np.ascontiguousarray(part) for part in (r, sides.lines("lower"), sides.lines("upper")))

    def inwards(self, y: np.ndarray) -> np.ndarray:
        """Multipliers of the program's rows → of the scaled rows in elimination order."""
        return y[:, self.factor.order] / self.factor.scale

    def inwards_mask(self, mask: np.ndarray) -> np.ndarray:
        return mask[self.factor.order]

    def outwards(self, y: np.ndarray) -> np.ndarray:
        out = np.empty_like(y)
        out[:, self.factor.order] = y * self.factor.scale
        return out


class _Face(NamedTuple):
    """Where the solution lies: all that the gradient needs."""

    layer: Smoothed
    inside: np.ndarray
    in_force: np.ndarray
    kappa: np.ndarray


class _AttachGradient(torch.autograd.Function):
    """Costs c and the decision found for them → the decision, with dw/dc as stated in `Smoothed`."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, w: Tensor, face: _Face) -> Tensor:
        ctx.face = face
        ctx.save_for_backward(w)
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        layer, inside, in_force, kappa = ctx.face
        v = as_rows(gradient, len(inside), np.float64 if layer.regularizer == "norm" else None)
        out = layer.project(inside, in_force, v, -1.0 / kappa)
        if layer.regularizer == "norm":
            (w,) = ctx.saved_tensors
            w = as_rows(w, len(inside), np.float64)
            along = layer.project(inside, in_force, w)
            room = (w * w).sum(1) - (w * along).sum(1)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(room > 0, (w * out).sum(1) / room, 0.0)
            out = out + share[:, None] * along
        return in_shape(out, gradient.shape[:-1]).to(gradient), None, None
