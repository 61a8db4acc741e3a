"""The exactly solved, smoothed program with its exact gradient:  w_μ(y) = argmin obj(y, w) + Ω(w) over the relaxation.

A cold instance is solved by a batched interior-point method, and finished on the face that it leads to by a dual Newton method; an
instance with a start by the Newton method at once. Every answer is judged by the rule of `dflearn.engine.certify`; what does not pass
is solved by Clarabel (`quadratic`), and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.certify import OPTIMAL
from dflearn.engine.cuda.watch import Watch
from dflearn.engine.smoothed.quadratic import QuadraticRows
from dflearn.errors import OptionError
from dflearn.layers.base import (
    NUMBERS,
    FaceGradient,
    Layer,
    as_rows,
    in_shape,
    like,
    one_of,
    wanted_sides,
    weight,
    with_gradient,
    with_sides,
)
from dflearn.layers.in_graph import number_of, solve_in_graph
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution, check_start
from dflearn.solvers.highs import proven_infeasible

if TYPE_CHECKING:
    from dflearn.engine.smoothed.cpu import SmoothedRows
    from dflearn.engine.smoothed.gpu import SmoothedBlocks
    from dflearn.engine.smoothed.norm import NormRows
    from dflearn.layers.gpu import BlockFace


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

    Costs on a GPU are solved there, and a training step does not wait for its statuses: see docs/how-to/gpu.md. `repr` says where.

    Args:
        program: integrality is dropped.
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
    # Of this process, and of its devices.
    made_anew: ClassVar[Mapping[str, Callable[[], Any]]] = {"watch": Watch, "number": int, "_places": dict}
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
        if not 0 < tolerance <= OPTIMAL:
            raise OptionError(f"tolerance must lie in (0, {OPTIMAL}], got {tolerance}")
        self.program = program.relax()
        self.objective.make_ready(*NUMBERS)
        if regularizer == "norm" and program.Q is not None:
            raise OptionError(f"{program!r} has a quadratic objective: smooth it with regularizer='squared'")
        self.regularizer, self.tolerance = one_of("regularizer", regularizer, "squared", "norm"), float(tolerance)
        self._places: dict[torch.device, SmoothedBlocks | str] = {}
        self.watch, self.number = Watch(), number_of(self)
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
            self._places[device] = self._place(device)
        place = self._places[device]
        return None if isinstance(place, str) else place

    def _place(self, device: torch.device) -> SmoothedBlocks | str:
        """The program on a CUDA device, or where its costs are solved instead and why."""
        from dflearn.engine.cuda.nvrtc import NotHere
        from dflearn.engine.smoothed.gpu import SmoothedBlocks

        try:
            if self.regularizer == "norm":
                raise NotHere("the norm as regularizer is searched for there")
            change = None if self.program.Q is None else self.quadratic.at(self.mu)
            return SmoothedBlocks.prepare(self.program, device, change)
        except NotHere as reason:
            self._warn_of_cpu(f"Smoothed solves costs on {device} on the CPU, to which they are copied: {reason}")
            return f"the CPU for {device}: " + str(reason).partition("\n")[0].translate(
                {ord(one): None for one in "()"}
            )

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
        # The gradient leads from w to y at once, unless the instance's d wants one too.
        through_d = instance is not None and instance.d is not None and instance.d.requires_grad
        origin = self.objective.vector(y.double(), instance) if through_d else y
        training = torch.is_grad_enabled() and (origin.requires_grad or bool(wanted_sides(instance)))
        solution, face = self.answer(y, origin, instance, start, training)
        face = face if through_d else face._replace(objective=self.objective)
        decision = with_gradient(origin, solution.decision, face.backward)
        return solution.with_decision(with_sides(decision, instance, face.side_gradients))

    def answer(
        self, y: Tensor, origin: Tensor, instance: Instance | None, start: Tensor | None, training: bool
    ) -> tuple[Solution, FaceGradient | BlockFace]:
        """The answer, without a gradient, and the faces that it lies on, whose gradient ends at the costs c.

        origin: y `(*batch, p)`, or c `(*batch, n)`. training: whether a gradient is wanted, for which a GPU does not wait.
        """
        q = None if instance is None else instance.q
        if q is None and (blocks := self.blocks(y.device)) is not None:
            from dflearn.layers.gpu import answer_on_gpu

            return answer_on_gpu(self, blocks, y, origin, instance, start, training)
        if q is not None and y.is_cuda:
            self._warn_of_cpu("Smoothed solves instances with a q on the CPU, to which their costs are copied")
        batch, count = y.shape[:-1], y.shape[:-1].numel()
        if origin is y and (instance is None or instance.d is None) and y.is_cpu and y.dtype in NUMBERS:
            c = self.objective.rows(as_rows(y, count), np.float64)
            c = np.ascontiguousarray(c + self.objective.d if self.objective.has_d else c)
        else:  # d may be much larger than S y: in float64
            costs = self.objective.vector(y.detach().double(), instance) if origin is y else origin
            c = as_rows(costs, count, np.float64)
        sides, given = self.program.sides(instance, count), check_start(start, batch, self.start_width)
        if q is None:
            answer = self.backend().answer(c, self._mu, sides, given, self.tolerance)
        else:
            answer = self.quadratic.answer(c, self._mu, sides, given, self.tolerance, as_rows(q, count, np.float64))
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
        return solution, FaceGradient(answer.face, sides, self.regularizer == "norm")
