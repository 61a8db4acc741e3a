"""Davis-Yin three-operator splitting as a layer (DYS-Net): many cheap iterations, fused in one kernel.

The program is taken in its equality form, Â (w, s) = b̂ with one slack per inequality and bounds kept as bounds. The two
projections are then cheap: a clip onto the bounds, and P₁ onto the rows through one sparse factor of Â Âᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.certify import ROUNDING, Certifier
from dflearn.engine.smoothed.quadratic import QuadraticRows
from dflearn.errors import OptionError
from dflearn.layers.base import FaceGradient, Layer, as_rows, one_of, weight, with_gradient, with_sides
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status, check_start

if TYPE_CHECKING:
    from dflearn.engine.davis_yin.batch import Answer, Backend, Batch
    from dflearn.engine.davis_yin.data import SplittingRows
    from dflearn.engine.smoothed.cpu import SmoothedRows

Gradient = Literal["jfb", "unrolled", "implicit"]
MOST_ENTRIES = 2**26  # of the rows as a dense matrix, on a GPU
RESOLUTION = {torch.float32: 1e-5, torch.float64: 1e-12}  # errors that each dtype reaches
LARGEST = float(np.finfo(float).max)


class DavisYin(WithoutCaches, Layer):
    """w(y) ≈ argmin obj(y, w) + (μ/2)‖w‖² over the LP relaxation, by Davis-Yin iterations from z = 0:

        x = clip(z, lower, upper),    z⁺ = z − x + P₁((2 − α μ_j) x − z − α c),    c = S y + d + Q x,

    with P₁(v) = v − Âᵀ(Â Âᵀ)⁻¹(Â v − b̂) and μ_j = μ on decision variables, 0 on slacks. The decision is clip(z) without the slacks:
    within its bounds always, on the rows in the limit, which is the smoothed solution for every step 0 < α < 2/(‖Q‖ + μ). After few
    iterations the decision depends on α and on the start. Q may be singular.

    Let D be the diagonal mask of z strictly inside the bounds at the last iteration, P = I − Âᵀ(Â Âᵀ)⁻¹Â, and E the
    columns of the identity that belong to decision variables. Gradients dw/dc (and dw/dy = dw/dc · S):

    - "jfb", Jacobian-free: −α Eᵀ D P E, of the last iteration alone, its argument z held fixed. It scales with α.
    - "unrolled": the exact derivative through every iteration, with α held fixed.
    - "implicit": the derivative of the limit, as of `Smoothed`, on the face where the last z lies (in force: equalities, and
      inequalities whose slack is zero). Exact once the iterations have found that face. Needs μ > 0, or Q positive definite. The only
      one with second derivatives (zero on a face); for the others they are an error.

    Args:
        program: integrality is dropped.
        mu: μ ≥ 0, in units of the costs; may be set later, `layer.mu = …`.
        step: α < 2/(‖Q‖ + μ). Default, for each instance: 0.3 ‖ω‖/‖c‖, where ω_j = min(upper_j − lower_j, |c_j|/μ) is how far
            costs may move decision j; for upper_j − lower_j = ∞ the largest distance of a row from the origin, or else
            the largest bound, takes its place. So units of costs and decisions do not matter (if μ is in the same). With Q
            at most 1.5/(‖Q‖ + μ).
        iterations: how many; with a tolerance, at most how many.
        tolerance: an instance stops, and is OPTIMAL, where the rule of `dflearn.engine.certify` holds with errors of at most this, in
            float32 at most 1e-5 and beside float32's rounding. One that does not get there has no decision: it is INFEASIBLE or
            UNBOUNDED, where that can be proven, or NOT_FOUND. Without a tolerance every decision counts as FEASIBLE.
        gradient: "jfb", "unrolled" or "implicit".

    `Solution.residual` is the error by that rule; without a tolerance it is ‖z⁺ − z‖/‖x‖, in the largest norm. b, h, lower, upper and q
    of an instance that require a gradient get theirs with the implicit rule. A start is z, float32 `(*batch, n + inequalities)`, and
    needs a tolerance: otherwise the decision would depend on it. Computes in the dtype of the costs.

    Examples:
        >>> layer = dfl.DavisYin(program, mu=1.0, iterations=200)
        >>> layer(predicted).shape
        torch.Size([40, 12])
    """

    program: Program
    start_dtype = torch.float32
    compiles_by_batch = True
    takes_q = True
    annealed = ("mu",)

    def __init__(
        self,
        program: Program,
        mu: float = 1.0,
        step: float | None = None,
        iterations: int = 100,
        *,
        tolerance: float | None = None,
        gradient: Gradient = "jfb",
    ) -> None:
        super().__init__(program.objective)
        if iterations < 1:
            raise OptionError(f"iterations must be at least 1, got {iterations}")
        if tolerance is not None and not tolerance > 0:
            raise OptionError(f"tolerance must be positive, or None for a fixed number of iterations; got {tolerance}")
        self.program = program.relax()
        self.gradient: Gradient = one_of("gradient", gradient, *get_args(Gradient))
        self.moves_rows = gradient == "implicit"
        self.norm_of_Q = 0.0 if program.Q is None else program.Q.norm
        self.step, self.iterations, self.tolerance = step, int(iterations), tolerance
        self.mu = mu
        form = self.program.equality_form()
        self.width = form.n + form.slacks
        self.start_width = 0 if tolerance is None else self.width

    @property
    def mu(self) -> float:
        """μ; it may be set anew between two solves, and the default step follows."""
        return self._mu

    @mu.setter
    def mu(self, mu: float) -> None:
        value, step = weight(mu, "DavisYin", "a finite mu ≥ 0", lambda value: value >= 0), self.step
        Q, whole = self.program.Q, value + self.norm_of_Q
        if step is not None and not (step > 0 and np.isfinite(step) and step * whole < 2):
            limit, name = 2 / whole if whole else np.inf, "2/μ" if Q is None else "2/(‖Q‖ + μ)"
            raise OptionError(f"the iterations converge for steps 0 < α < {name} = {limit}; got {step}")
        if self.gradient == "implicit" and value == 0 and (Q is None or Q.definite is None):
            why = "without smoothing the limit is piecewise constant" if Q is None else "Q is singular, or nearly so"
            raise OptionError(f"the implicit gradient needs mu > 0: {why}")
        self._mu = value

    def extra_repr(self) -> str:
        return (
            f"{self.program!r}, mu={self.mu}, step={self.step}, iterations={self.iterations}, "
            f"tolerance={self.tolerance}, gradient={self.gradient!r}"
        )

    @cached_property
    def rows(self) -> SplittingRows:
        """The program's rows with slacks."""
        from dflearn.engine.davis_yin.data import SplittingRows

        return SplittingRows(self.program)

    @cached_property
    def faces(self) -> SmoothedRows:
        """The rows without slacks, whose faces the implicit gradient projects onto."""
        from dflearn.engine.smoothed.cpu import SmoothedRows

        return SmoothedRows(self.program)

    @cached_property
    def quadratic(self) -> QuadraticRows:
        return QuadraticRows(self.program)

    def regularization(self, w: Tensor) -> Tensor:
        """(μ/2)‖w‖², `(*batch, n)` → `(*batch,)`."""
        return 0.5 * self.mu * w.square().sum(-1)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch = y.shape[:-1]
        sides = self.program.sides(instance, batch.numel())
        given = check_start(start, batch, self.start_width)
        costs, q = self.objective.vector(y, instance), None
        if instance is not None and instance.q is not None:
            q = as_rows(instance.q, batch.numel(), np.float64)
        record = self.gradient == "unrolled" and costs.requires_grad and torch.is_grad_enabled()
        run = self._run(costs, sides, q, given, record)
        w, *parts = run.outcome()
        w = w.reshape(*batch, w.shape[-1]).to(y)
        if self.gradient == "implicit":
            decision = self._implicit(run, costs, w, instance, q)
        else:
            why = f"DavisYin(gradient={self.gradient!r}) has no second derivatives: use DavisYin(…, gradient='implicit'), or Smoothed"
            decision = with_gradient(costs, w, lambda gradient, _: run.backward(gradient), why)
        status, objective, residual = (part.reshape(batch).to(y.device) for part in parts)
        return Solution(
            decision=decision,
            status=status,
            objective=objective,
            bound=objective.new_full(batch, -torch.inf),
            start=None if start is None else run.answer.z.to(self.start_dtype).reshape(*batch, self.width),
            residual=residual,
        )

    def _run(self, costs: Tensor, sides: Sides, q: np.ndarray | None, start: np.ndarray | None, record: bool) -> Run:
        """Iterate for c `(*batch, n)`. record: keep what the unrolled gradient needs."""
        from dflearn.engine.cuda.splitting import SplittingBlocks
        from dflearn.engine.davis_yin.batch import Batch
        from dflearn.engine.davis_yin.compiled import Compiled  # imports numba
        from dflearn.engine.davis_yin.dense import Dense

        Q, mu, count = self.program.Q, self.mu, costs.shape[:-1].numel()
        dtype = torch.float64 if costs.dtype == torch.float64 else torch.float32
        norm = np.asarray((0.0 if Q is None else Q.norm) + (0.0 if q is None else q.max(1, initial=0.0)))
        if q is not None and self.step is not None and (self.step * (mu + norm) >= 2).any():
            stop = float((2 / (mu + norm)).min())
            raise OptionError(f"with the instances' q, iterations converge for steps 0 < α < {stop:g}; got {self.step}")
        backend: Backend
        if self._stays_on(costs.device):
            recorded = self.iterations if record else 0
            blocks = SplittingBlocks.fitting(self.rows, dtype, costs.device, count, recorded)
            backend = blocks or Dense.of(self.rows, dtype, costs.device)
        else:
            backend = Compiled.of(self.rows, dtype, torch.device("cpu"))
        batch = Batch(_rows(costs, count, backend), sides, mu, norm, q, self.step, Q is not None or q is not None)
        tolerance = None if self.tolerance is None else max(self.tolerance, RESOLUTION[dtype])
        # With a tolerance the backend is `Compiled`.
        more: dict[str, Any] = {} if tolerance is None else {"start": start, "tolerance": tolerance}
        answer = backend.iterate(batch, self.iterations, record=record, **more)
        return Run(batch, backend, answer, tolerance)

    def _implicit(self, run: Run, costs: Tensor, w: Tensor, instance: Instance | None, q: np.ndarray | None) -> Tensor:
        """The decision with its derivative in costs and sides on the face."""
        rows = self.faces if self.program.Q is None and q is None else self.quadratic
        gradient = FaceGradient(rows.face_of(*run.face(), self.mu, q), run.batch.sides)
        decision = with_gradient(costs, w, gradient.backward)
        return with_sides(decision, instance, gradient.side_gradients)

    def _checks_later(self, device: torch.device) -> bool:
        return device.type == "cuda" and torch.cuda.is_current_stream_capturing()  # when nobody can look

    def _stays_on(self, device: torch.device) -> bool:
        """Whether costs on this device are solved there: on a GPU, without a tolerance, unless the rows are too many for a dense matrix."""
        if device.type != "cuda":
            return False
        rows = self.program.equality_form().matrix.shape[0]
        if self.tolerance is None and rows * self.width <= MOST_ENTRIES:
            return True
        why = "with a tolerance, which the CPU judges"
        if self.tolerance is None:
            why = f"its {rows} rows of {self.width} numbers are too many for a dense matrix"
        self._warn_of_cpu(f"DavisYin solves costs on {device} on the CPU, to which they are copied: {why}")
        return False


@dataclass(frozen=True)
class Run:
    """One batch and its answer, kept for the gradient. tolerance: `None` for a fixed number of iterations."""

    batch: Batch
    backend: Backend
    answer: Answer
    tolerance: float | None

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """w `(count, n)`, NaN where there is no decision; statuses, objectives and residuals `(count,)`."""
        if self.tolerance is not None:
            self._allow()
        answer, none = self.answer, Status.FAILED if self.tolerance is None else Status.NOT_FOUND
        optimal = Status.FEASIBLE if self.tolerance is None else Status.OPTIMAL
        known = answer.residual <= (self.tolerance or LARGEST)
        status = torch.where(known, int(optimal), int(none)).to(torch.int8)
        if self.tolerance is not None and not bool(known.all()):
            status[answer.residual.isnan()] = int(Status.FAILED)
            with np.errstate(invalid="ignore", over="ignore"):
                self._explain(status)
        w, value = torch.where(known[:, None], answer.w, torch.nan), torch.where(known, answer.value, torch.nan)
        return w, status, value, answer.residual

    def backward(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`: through all iterations if they were recorded, or through the last."""
        g = _rows(gradient, len(self.batch.c), self.backend)
        return self.backend.back(g, self.batch, self.answer).reshape(gradient.shape).to(gradient)

    def face(self) -> tuple[np.ndarray, np.ndarray]:
        """Which variables lie inside their bounds `(count, n)`, which inequalities are in force `(count, slacks)`; 1 or 0."""
        n, inside = self.batch.c.shape[1], self.answer.inside.cpu().numpy()
        return np.ascontiguousarray(inside[:, :n]), 1 - inside[:, n:]

    def _allow(self) -> None:
        """Judge the instances that move no more and are not optimal again: is that rounding?"""
        answer, rows, tolerance = self.answer, self.backend.rows, self.tolerance
        assert answer.moved is not None
        assert answer.prices is not None
        assert tolerance is not None
        for i in ((answer.residual > tolerance) & (answer.moved <= tolerance)).nonzero().flatten().tolist():
            sides, certifier, mu, Q = self.batch.sides.row(i), rows.certifier, self.batch.mu, rows.program.Q
            if self.batch.q is not None:
                Q = rows.quadratic(self.batch.q[i])
                certifier = Certifier(replace(rows.program, Q=Q))
            c, w = (part[i].double().numpy() for part in (self.batch.c, answer.w))
            w, y, verdict = certifier.tidy(c, np.clip(w, sides.lower, sides.upper), answer.prices[i].numpy(), sides, mu)
            if verdict.error[0] > tolerance:
                rounding = max(ROUNDING, 4 * torch.finfo(answer.w.dtype).eps)  # of the numbers that were computed with
                verdict = certifier.examine(c, w, y, sides, mu).verdict(rounding=rounding)
            answer.residual[i], answer.w[i] = float(verdict.error[0]), torch.from_numpy(w)
            answer.value[i] = c @ w + 0.5 * mu * (w @ w) + (0.0 if Q is None else Q.value(w))

    def _explain(self, status: Tensor) -> None:
        """Prove that instances without an answer are infeasible or, without smoothing, unbounded."""
        program, batch = self.backend.rows.program, self.batch
        missing = (status == Status.NOT_FOUND).nonzero().flatten().numpy()
        if not len(missing):
            return
        from dflearn.solvers.convex import ConvexQP

        convex = ConvexQP(program)
        infeasible = convex.linear.proven_infeasible(batch.sides.rows(missing), len(missing))
        status[missing[infeasible]] = int(Status.INFEASIBLE)
        for i in [] if batch.mu else missing[~infeasible].tolist():
            if batch.q is not None:
                convex = ConvexQP(replace(program, Q=self.backend.rows.quadratic(batch.q[i])))
            none = convex.no_decision(batch.c[i].double().numpy(), batch.sides.row(i))
            status[i] = int(Status.NOT_FOUND if none is None else none)


def _rows(x: Tensor, count: int, backend: Backend) -> Tensor:
    """`(*batch, k)` as `(count, k)` for a backend."""
    if backend.device.type == "cpu":
        return torch.from_numpy(as_rows(x, count, backend.numbers))
    return x.detach().reshape(count, x.shape[-1]).to(backend.device, backend.dtype)
