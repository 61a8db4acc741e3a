"""The exactly solved, quadratically smoothed program with its exact gradient.

    w_μ(y) = argmin over w of  obj(y, w) + (μ/2)‖w‖²   over the relaxation of the program

A cold instance is solved by a batched interior-point method, whose number of steps hardly depends on μ, and finished on the
face it leads to, and by a dual Newton method, which finds the exact active set. An instance with a start goes to the Newton
method at once, and where that is not quick to interior points near the start. Every answer is judged by the rule of
`dflearn.engine.certify`; what does not pass is solved one by one by Clarabel (`quadratic`), and counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.certify import OPTIMAL
from dflearn.engine.smoothed.quadratic import QuadraticRows
from dflearn.errors import OptionError
from dflearn.layers.base import NUMBERS, FaceGradient, Layer, as_rows, in_shape, like, weight, with_gradient
from dflearn.layers.in_graph import number_of, solve_in_graph
from dflearn.layers.sides import wanted_sides, with_sides
from dflearn.layers.watch import Watch
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution, check_start
from dflearn.solvers.highs import proven_infeasible

if TYPE_CHECKING:
    from dflearn.engine.smoothed.cpu import SmoothedRows
    from dflearn.engine.smoothed.gpu import SmoothedBlocks
    from dflearn.engine.smoothed.norm import NormRows


class Smoothed(WithoutCaches, Layer):
    """w_μ(y) = argmin obj(y, w) + Ω(w) over the relaxation,  Ω(w) = (μ/2)‖w‖²  or, with regularizer="norm", μ‖w‖₂.

    Gradient, squared:  dw/dy = −(1/μ) P S, where P projects onto the face of the solution: {v : v_j = 0 where w_j is at a
    bound, (A v)_i = 0, (G v)_i = 0 where row i is in force}. Where the solution is degenerate (a variable at a bound, or a
    row met, with multiplier zero), the face counts such variables as fixed and such rows as not in force: one element of
    the generalized Jacobian. With the norm, w solves the squared problem with κ = μ/‖w‖ in place of μ, and
    dw/dy = −(1/κ) [P + (P w)(P w)ᵀ / (‖w‖² − wᵀP w)] S; where w = 0 the gradient is zero. Second derivatives are those on
    the face: zero, squared; of the formula above, with the norm.

    With a quadratic objective the gradient is −Z(Zᵀ(Q + μI)Z)⁻¹ZᵀS, the columns of Z a basis of the face, and μ may be zero
    if Q is positive definite: then w is the exact solution of the quadratic program. See `dflearn.engine.smoothed.quadratic`.

    b, h, lower, upper, d and q of an instance that require a gradient get theirs, with the squared regularizer. Instances with the
    same q are solved together, those with different ones one after the other: some milliseconds each.

    An answer is OPTIMAL if it passes the rule of `dflearn.engine.certify`. `Solution.residual` is its error there (usually 1e-12),
    `Solution.fallback` says which instances were left to Clarabel, and `Solution.reason` why one is not OPTIMAL.

    Costs on a GPU are solved there, and a training step does not wait for its statuses: see `gpu` and docs/how-to/gpu.md. `repr` says where.

    Args:
        program: integrality is dropped; smoothing acts on the decision variables, never on slacks.
        mu: μ > 0, in units of the costs; or 0, where Q is positive definite. May be set later, `layer.mu = …`.
        regularizer: "squared" or "norm".
        tolerance: relative residual at which the Newton method stops.

    Examples:
        >>> costs = predicted.clone().requires_grad_()
        >>> decision = dfl.Smoothed(program, mu=1.0)(costs)
        >>> (decision * data.costs).sum().backward()
        >>> decision.shape, costs.grad.shape
        (torch.Size([40, 12]), torch.Size([40, 12]))
    """

    program: Program
    annealed = ("mu",)
    made_anew: ClassVar[Mapping[str, Callable[[], Any]]] = {
        "watch": Watch,
        "number": int,
        "_places": dict,
        "_warned_q": bool,
    }  # of this process, and of its devices
    takes_q = True

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
        self.watch, self.number, self._warned_q = Watch(), number_of(self), False
        self.moves_rows = regularizer == "squared"
        self.mu = mu
        self.start_width = self.kernel_program.equality_form().matrix.shape[0] + (regularizer == "norm")

    @property
    def mu(self) -> float:
        """μ; it may be set anew between two solves."""
        return self._mu

    @mu.setter
    def mu(self, mu: float) -> None:
        Q = self.program.Q
        zero = Q is not None and Q.definite is not None
        if Q is None:
            wanted = "a finite mu > 0 (for mu = 0 use Exact or DavisYin)"
        elif zero:
            wanted = "a finite mu ≥ 0"
        else:
            wanted = "a finite mu > 0, since Q is singular (or nearly so, its diagonal scaled to one)"
        self._mu = weight(mu, "Smoothed", wanted, lambda value: value > 0 or (zero and value == 0))
        if Q is not None:
            self._places = {}  # which hold μ with Q

    def extra_repr(self) -> str:
        # Square brackets: a checkpoint leaves out what stands between "solved on" and the next round one, since runs may move.
        places = [f"solved on {place}".translate(str.maketrans("()", "[]")) for place in self._places.values()]
        return ", ".join([f"{self.program!r}, mu={self.mu}, regularizer={self.regularizer!r}", *places])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.number = number_of(self)

    @property
    def kernel_program(self) -> Program:
        """The program in the variables of the kernels: others than w with Q."""
        return self.program if self.program.Q is None else self.quadratic.at(self.mu).program

    def blocks(self, device: torch.device) -> SmoothedBlocks | None:
        """The program on that device; `None` where the CPU solves it, which is warned of once."""
        if device.type != "cuda" and device not in self._places:
            return None
        if device not in self._places:
            from dflearn.layers.gpu import blocks_or_reason

            change = None if self.program.Q is None else self.quadratic.at(self.mu)
            self._places[device] = blocks_or_reason(self.program, device, self.regularizer, change)
        place = self._places[device]
        return None if isinstance(place, str) else place

    def _checks_later(self, device: torch.device) -> bool:
        return self.program.Q is None and self.blocks(device) is not None

    def unsettled(self) -> bool:
        return bool(self._places and self.watch.end())

    @cached_property
    def rows(self) -> SmoothedRows:
        """The solver of linear objectives on the CPU, made when it is first needed: numba may be missing until then."""
        from dflearn.engine.smoothed.cpu import SmoothedRows

        return SmoothedRows(self.program, proven_infeasible)

    @cached_property
    def quadratic(self) -> QuadraticRows:
        """The solver of quadratic objectives on the CPU."""
        return QuadraticRows(self.program, proven_infeasible)

    @cached_property
    def _norm(self) -> NormRows:
        from dflearn.engine.smoothed.norm import NormRows

        return NormRows(self.rows)

    def backend(self) -> SmoothedRows | NormRows | QuadraticRows:
        """The solver on the CPU for instances without a q."""
        if self.regularizer == "norm":
            return self._norm
        return self.rows if self.program.Q is None else self.quadratic

    def regularization(self, w: Tensor) -> Tensor:
        """Ω(w), `(*batch, n)` → `(*batch,)`."""
        if self.regularizer == "norm":
            return self.mu * w.norm(dim=-1)  # type: ignore[no-any-return]
        return 0.5 * self.mu * w.square().sum(-1)

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        if torch.compiler.is_compiling():
            return solve_in_graph(self, y, instance, start)
        return super().solve(y, instance, start)

    def _check_instance(self, instance: Instance) -> None:
        if instance.q is not None and self.regularizer == "norm":
            raise OptionError("with regularizer='norm' instances have no q: smooth with 'squared'")
        super()._check_instance(instance)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        count = y.shape[:-1].numel()
        has_q = instance is not None and instance.q is not None
        if has_q and y.is_cuda and not self._warned_q:
            self._warned_q = True
            warnings.warn(
                "Smoothed solves instances with a q on the CPU, to which their costs are copied (docs/how-to/gpu.md)",
                RuntimeWarning,
                stacklevel=4,
            )
        blocks = None if has_q else self.blocks(y.device)
        if blocks is not None:
            from dflearn.layers.gpu import solve_on_gpu

            return solve_on_gpu(self, blocks, y, instance, start)
        # The gradient leads from w to y at once, unless the instance's d wants one too.
        through_d = instance is not None and instance.d is not None and instance.d.requires_grad
        if (instance is None or instance.d is None) and y.is_cpu and y.dtype in NUMBERS:
            costs, c = y, self.objective.rows(as_rows(y, count), np.float64)
            c = np.ascontiguousarray(c + self.objective.d if self.objective.has_d else c)
        else:
            exact = (y if through_d else y.detach()).double()  # d may be much larger than S y
            costs = self.objective.vector(exact, instance)
            c = as_rows(costs, count, np.float64)
        solution, face = self.solve_here(c, instance, start, y)
        norm = solution.decision.clone() if self.regularizer == "norm" else None
        gradient = FaceGradient(face, norm, None if through_d else self.objective)
        decision = with_gradient(costs if through_d else y, solution.decision, gradient.once, gradient.twice)
        if instance is not None and (wanted := wanted_sides(instance)):
            slopes = partial(face.side_gradients, self.program.sides(instance, count))
            decision = with_sides(decision, wanted, slopes)
        return solution.with_decision(decision)

    def solve_here(
        self, c: np.ndarray, instance: Instance | None, start: Tensor | None, y: Tensor
    ) -> tuple[Solution, Any]:
        """The answer for c `(count, n)` by the CPU, without a gradient, and the faces that it lies on; of the shape, dtype and
        device of y `(*batch, ·)`."""
        batch, q = y.shape[:-1], None if instance is None else instance.q
        sides, given = self.program.sides(instance, len(c)), check_start(start, batch, self.start_width)
        if q is None:
            answer = self.backend().answer(c, self._mu, sides, given, self.tolerance)
        else:
            answer = self.quadratic.answer(c, self._mu, sides, given, self.tolerance, as_rows(q, len(c), np.float64))
        solution = Solution(
            decision=like(answer.w, y),
            status=in_shape(answer.status, batch),
            objective=in_shape(answer.objective, batch),
            bound=in_shape(answer.bound, batch),
            start=None if start is None else in_shape(answer.start, batch),
            residual=in_shape(answer.residual, batch),
            fallback=in_shape(answer.fallback, batch),
            reason=answer.reason,
        )
        return solution, answer.face
