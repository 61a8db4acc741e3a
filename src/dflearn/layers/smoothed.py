"""The exactly solved, quadratically smoothed program with its exact gradient.

    w_μ(y) = argmin over w of  obj(y, w) + (μ/2)‖w‖²   over the relaxation of the program

A cold instance is solved by a batched interior-point method, whose number of steps hardly depends on μ, and finished on the
face it leads to, and by a dual Newton method, which finds the exact active set. An instance with a start goes to the Newton
method at once, and where that is not quick to interior points near the start. Every answer is judged by the rule of
`dflearn.certify`; what does not pass is solved one by one by Clarabel (`quadratic`), and counted.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.certify import OPTIMAL
from dflearn.errors import OptionError
from dflearn.layers.base import (
    NUMBERS,
    Layer,
    as_rows,
    in_shape,
    like,
    weight,
    with_gradient,
)
from dflearn.layers.in_graph import number_of, solve_in_graph
from dflearn.layers.norm import Finished, solve_norm
from dflearn.layers.watch import Watch
from dflearn.layers.way_back import Face
from dflearn.program import Instance, Objective, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status, check_start

if TYPE_CHECKING:
    import scipy.sparse as sp

    from dflearn.kernels.smoothed import SmoothedAnswer
    from dflearn.layers.blocks import SmoothedBlocks
    from dflearn.layers.lifted import Bent, Lifted
    from dflearn.layers.quadratic import Result
    from dflearn.layers.rows import SmoothedRows


class Smoothed(Layer):
    """w_μ(y) = argmin obj(y, w) + Ω(w) over the relaxation,  Ω(w) = (μ/2)‖w‖²  or, with regularizer="norm", μ‖w‖₂.

    Gradient, squared:  dw/dy = −(1/μ) P S, where P projects onto the face of the solution: {v : v_j = 0 where w_j is at a
    bound, (A v)_i = 0, (G v)_i = 0 where row i is in force}. Where the solution is degenerate (a variable at a bound, or a
    row met, with multiplier zero), the face counts such variables as fixed and such rows as not in force: one element of
    the generalized Jacobian. With the norm, w solves the squared problem with κ = μ/‖w‖ in place of μ, and
    dw/dy = −(1/κ) [P + (P w)(P w)ᵀ / (‖w‖² − wᵀP w)] S; where w = 0 the gradient is zero. Second derivatives are those on
    the face: zero, squared; of the formula above, with the norm.

    With a quadratic objective the gradient is −Z(Zᵀ(Q + μI)Z)⁻¹ZᵀS, the columns of Z a basis of the face, and μ may be zero
    if Q is positive definite: then w is the exact solution of the quadratic program. See `lifted`.

    b, h, lower, upper, d and q of an instance that require a gradient get theirs, with the squared regularizer: see `sides`, and
    `lifted` for q. Instances with the same q are solved together, those with different ones one after the other: some milliseconds each.

    An answer is OPTIMAL if it passes the rule of `dflearn.certify`. `Solution.residual` is its error there (usually 1e-12),
    `Solution.fallback` says which instances were left to Clarabel, and `Solution.reason` why one is not OPTIMAL.

    Costs on a GPU are solved there; `repr` says where, and why not where they are not. A
    training step then does not wait for its statuses: see `blocks` and docs/gpu.md.

    Args:
        program: integrality is dropped; smoothing acts on the decision variables, never on slacks.
        mu: μ > 0, in units of the costs; or 0, where Q is positive definite. May be set later, `layer.mu = …`.
        regularizer: "squared" or "norm".
        tolerance: relative residual at which the Newton method stops.
    """

    program: Program
    annealed = ("mu",)
    in_blocks = True  # costs on a GPU are solved there, where that can be
    bends = True
    lift: sp.csr_array | None = None  # of a program that `Lifted` made: RᵀR

    def __init__(
        self,
        program: Program,
        mu: float = 1.0,
        *,
        regularizer: Literal["squared", "norm"] = "squared",
        tolerance: float = 1e-10,
    ) -> None:
        super().__init__(program.objective)
        if regularizer not in ("squared", "norm"):
            raise OptionError(f"regularizer is 'squared' or 'norm', got {regularizer!r}")
        if not 0 < tolerance <= OPTIMAL:
            raise OptionError(f"tolerance must lie in (0, {OPTIMAL}], got {tolerance}")
        self.program = program.relax()
        self.objective.make_ready(*NUMBERS)
        if regularizer == "norm" and program.Q is not None:
            raise OptionError(f"{program!r} has a quadratic objective: smooth it with regularizer='squared'")
        self.regularizer, self.tolerance = regularizer, float(tolerance)
        self._places: dict[torch.device, SmoothedBlocks | str] = {}
        self.watch, self.number, self._said_q = Watch(), number_of(self), False
        self.moves_rows = regularizer == "squared"
        self.mu = mu
        if self.program.Q is None:
            self.start_width = self.program.equality_form().matrix.shape[0] + (regularizer == "norm")
        else:
            self.start_width = self.lifted.layer.start_width

    @property
    def mu(self) -> float:
        """μ; it may be set anew between two solves."""
        return self._mu

    @mu.setter
    def mu(self, mu: float) -> None:
        Q = self.program.Q
        if Q is not None and Q.definite is not None:
            self._mu = weight(mu, "Smoothed", "a finite mu ≥ 0", lambda value: value >= 0)
        elif Q is not None:
            wanted = "a finite mu > 0, since Q is singular (or nearly so, its diagonal scaled to one)"
            self._mu = weight(mu, "Smoothed", wanted, lambda value: value > 0)
        else:
            wanted = "a finite mu > 0 (for mu = 0 use Exact or DavisYin)"
            self._mu = weight(mu, "Smoothed", wanted, lambda value: value > 0)
        for made in ("lifted", "bent"):
            self.__dict__.pop(made, None)

    def extra_repr(self) -> str:
        said = [f"{self.program!r}, mu={self.mu}, regularizer={self.regularizer!r}"]
        # Square brackets: a checkpoint leaves out what stands between "solved on" and the next round one, since runs may move.
        places = [f"solved on {place}".translate(str.maketrans("()", "[]")) for place in self._places.values()]
        return ", ".join(said + places)

    def __getstate__(self) -> dict[str, Any]:
        own = ("rows", "lifted", "bent", "watch", "number", "_places", "_said_q")  # of this process, and of its devices
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = {"watch": Watch(), "number": number_of(self), "_places": {}, "_said_q": False}
        super().__setstate__({**state, **own})  # type: ignore[no-untyped-call]

    def blocks(self, device: torch.device) -> SmoothedBlocks | None:
        """The program on that device; `None` where the CPU solves it, which is said once."""
        if not self.in_blocks or (device.type != "cuda" and device not in self._places):
            return None
        if device not in self._places:
            from dflearn.cuda.errors import NotHere
            from dflearn.layers.blocks import blocks_on

            try:
                self._places[device] = blocks_on(self.program, device)
            except NotHere as reason:
                shown = str(reason).partition("\n")[0].translate({ord(one): None for one in "()"})
                self._places[device] = f"the CPU for {device}: {shown}"
                warnings.warn(
                    f"Smoothed solves costs on {device} on the CPU, to which they are copied: {reason} (docs/gpu.md)",
                    RuntimeWarning,
                    stacklevel=5,
                )
        place = self._places[device]
        return None if isinstance(place, str) else place

    def _checks_later(self, device: torch.device) -> bool:
        return self.program.Q is None and self.blocks(device) is not None

    def unsettled(self) -> bool:
        inner = self.__dict__.get("lifted")
        return bool(self.watch.end()) or (inner is not None and inner.layer.unsettled())

    @cached_property
    def lifted(self) -> Lifted:
        """What solves a program with Q, for the present μ."""
        from dflearn.layers.lifted import Lifted

        return Lifted(self.program, self.mu, self.tolerance)

    @cached_property
    def bent(self) -> Bent:
        """What solves instances with a q, for the present μ."""
        from dflearn.layers.lifted import Bent

        return Bent(self.program, self.mu, self.tolerance)

    @cached_property
    def rows(self) -> SmoothedRows:
        """The program's rows on the compiled side, made when they are first needed: numba may be missing until then."""
        from dflearn.layers.rows import SmoothedRows

        return SmoothedRows(self.program, self.lift)

    def regularization(self, w: Tensor) -> Tensor:
        """Ω(w), `(*batch, n)` → `(*batch,)`."""
        if self.regularizer == "norm":
            norm: Tensor = w.norm(dim=-1)
            return self.mu * norm
        return 0.5 * self.mu * w.square().sum(-1)

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        if torch.compiler.is_compiling():
            return solve_in_graph(self, y, instance, start)
        return super().solve(y, instance, start)

    def _costs(self, y: np.ndarray) -> np.ndarray:
        """c `(count, n)` in float64 of y `(count, p)`, with the program's own d."""
        c = self.objective.rows(y, np.float64)
        return np.ascontiguousarray(c + self.objective.d if self.objective.has_d else c)

    def _check_instance(self, instance: Instance) -> None:
        if instance.q is not None and self.regularizer == "norm":
            raise OptionError("with regularizer='norm' instances have no q: smooth with 'squared'")
        super()._check_instance(instance)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        count = y.shape[:-1].numel()
        if instance is not None and instance.q is not None:
            self.program.sides(instance, count)  # checks the instance, in the user's words
            if not count:
                return self._solve(y, replace(instance, q=None), start)
            if y.is_cuda and not self._said_q:
                self._said_q = True
                warnings.warn(
                    "Smoothed solves instances with a q on the CPU, to which their costs are copied (docs/gpu.md)",
                    RuntimeWarning,
                    stacklevel=4,
                )
            solution = self.bent.solve(self.objective.vector(y.double(), instance), instance, start)
            return solution.with_decision(solution.decision.to(y.dtype))
        if self.program.Q is not None:
            self.program.sides(instance, count)  # checks the instance, in the user's words
            solution = self.lifted.solve(self.objective.vector(y.double(), instance), instance, start)
            return solution.with_decision(solution.decision.to(y.dtype))
        blocks = self.blocks(y.device)
        if blocks is not None:
            from dflearn.layers.on_gpu import solve_on_gpu

            return solve_on_gpu(self, blocks, y, instance, start)
        # The way back leads from w to y at once, unless the instance's d wants a gradient too.
        own_d = instance is None or instance.d is None
        through_d = instance is not None and instance.d is not None and instance.d.requires_grad
        if own_d and y.is_cpu and y.dtype in NUMBERS:
            costs, c = y, self._costs(as_rows(y, count))
        else:
            exact = (y if through_d else y.detach()).double()  # d may be much larger than S y
            costs = self.objective.vector(exact, instance)
            c = as_rows(costs, count, np.float64)
        back_to = None if through_d else self.objective
        solution, face = self.solve_here(c, instance, start, y, back_to)
        decision = with_gradient(costs if through_d else y, solution.decision, face.way_back, face.way_back_again)
        if wanted := self.wanted_sides(instance):
            from dflearn.layers.sides import gradients, with_sides

            slopes = partial(gradients, self.rows, face.inside, face.in_force, self.program.sides(instance, count))
            decision = with_sides(decision, wanted, slopes)
        return solution.with_decision(decision)

    def solve_here(
        self,
        c: np.ndarray,
        instance: Instance | None,
        start: Tensor | None,
        y: Tensor,
        objective: Objective | None = None,
    ) -> tuple[Solution, Face]:
        """The answer for c `(count, n)` by the CPU, without a gradient, and the faces that it lies on; of the shape, dtype and
        device of y `(*batch, ·)`.

        objective: that of `Face`.
        """
        batch, count = y.shape[:-1], len(c)
        sides = self.program.sides(instance, count)
        given = check_start(start, batch, self.start_width)
        if self.regularizer == "norm":
            answer, kappa, (status, slow, reason) = solve_norm(self, c, sides, given)
        else:
            kappa = np.array([self._mu])  # one for all instances
            answer = self.rows.solve(self.rows.data(c, kappa, sides), given, self.tolerance)
            status, slow, reason = self.finish(c, kappa, sides, answer)
        decision = like(answer.w, y)
        face = Face(self.rows, answer.inside, answer.in_force, kappa, self.mu, objective)
        if self.regularizer == "norm":
            face = face._replace(w=np.array(as_rows(decision, count, np.float64)))
        value = bound = in_shape(answer.objective, batch)
        if any(status.tolist()):  # OPTIMAL is 0
            bound = in_shape(np.where(status, -np.inf, answer.objective), batch)
        new_start = None
        if start is not None:
            largest = np.finfo(np.float64).max  # a start is known by its numbers
            rows = (
                np.hstack([answer.y, np.minimum(kappa, largest)[:, None]]) if self.regularizer == "norm" else answer.y
            )
            new_start = in_shape(rows, batch)
        solution = Solution(
            decision=decision,
            status=in_shape(status, batch),
            objective=value,
            bound=bound,
            start=new_start,
            residual=in_shape(answer.residual, batch),
            fallback=in_shape(slow, batch),
            reason=reason,
        )
        return solution, face

    def wanted_sides(self, instance: Instance | None) -> dict[str, Tensor]:
        """The right-hand sides and bounds that a gradient is wanted for."""
        if instance is None or not torch.is_grad_enabled():
            return {}
        return {name: value for name, value in instance.learned().items() if name not in ("d", "q")}

    # -- what the kernels did not finish --------------------------------------------------------------------------

    def finish(self, c: np.ndarray, mu: np.ndarray, sides: Sides, answer: SmoothedAnswer) -> Finished:
        """The gate. What the rule of `dflearn.certify` lets pass, with its allowance for rounding, is OPTIMAL. For the others: is
        there a feasible point at all? Then the kernels try from other starts, and what still does not pass goes to Clarabel."""
        count = len(c)
        status, slow, reason = np.zeros(count, np.int8), np.zeros(count, bool), np.full(count, "", object)  # OPTIMAL
        self.rows.look_at_dropped(answer, sides)
        if max(answer.residual.tolist(), default=0.0) <= OPTIMAL:  # for a few, quicker than in numpy
            return Finished(status, slow, reason)
        rows, hard = self.rows, self.rows.hard

        def write(i: int, result: Result) -> None:
            status[i], reason[i], own, value = int(result.status), result.reason, c[i], float(mu[i % len(mu)])
            answer.w[i], answer.residual[i], answer.y[i] = result.w, result.residual, -result.y[rows.used]
            answer.objective[i] = own @ result.w + 0.5 * value * (result.w @ result.w)
            answer.inside[i], answer.in_force[i] = result.inside, rows.ordered(result.in_force[rows.used])

        def clear(index: np.ndarray) -> np.ndarray:
            """Those of the instances that do not pass."""
            left = []
            for i in index[(~(answer.residual <= OPTIMAL) & (answer.infeasible == 0))[index]]:
                prices, found = rows.prices_of_all(answer.y[i]), None
                if answer.residual[i] < np.inf:
                    found = hard.cleared(c[i], answer.w[i], prices, float(mu[i % len(mu)]), sides.row(i))
                if found is None:
                    left.append(i)
                else:
                    write(i, found)
            return np.array(left, int)

        open_ = clear(np.arange(count))
        if len(open_):
            answer.infeasible[open_] = hard.no_feasible_point(sides.rows(open_), len(open_))
            open_ = open_[answer.infeasible[open_] == 0]
            rows.solve_again(rows.data(c, mu, sides), open_, self.tolerance, answer)
            rows.look_at_dropped(answer, sides)
            open_ = clear(open_)
        for i in open_:
            guess = np.clip(answer.w[i], sides.row(i).lower, sides.row(i).upper), rows.prices_of_all(answer.y[i])
            write(i, hard.solve(c[i], float(mu[i % len(mu)]), sides.row(i), guess))
        slow[open_] = True
        none = answer.infeasible == 1
        answer.w[none], answer.residual[none], status[none] = np.nan, np.inf, int(Status.INFEASIBLE)
        return Finished(status, slow, reason)
