"""Davis-Yin three-operator splitting as a layer (DYS-Net): many cheap iterations, fused in one kernel.

The program is taken in its equality form, Â (w, s) = b̂ with one slack per inequality and bounds kept as bounds. The two
projections are then cheap: a clip onto the bounds, and P₁ onto the rows through one sparse factor of Â Âᵀ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

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
    from dflearn.kernels.davis_yin import Answer, System
    from dflearn.kernels.lanes import Tile
    from dflearn.paper.as_published import AsPublished, HasProgram

Gradient = Literal["jfb", "unrolled", "implicit"]
GRADIENTS: tuple[Gradient, ...] = ("jfb", "unrolled", "implicit")
STEP = 0.3  # of the default step; a third or three times as much converges more slowly on the paper's problems
RESOLUTION = {torch.float32: 1e-5, torch.float64: 1e-12}  # residuals that each dtype reaches
CERTIFIED = 1e-3  # relative error allowed in a proof that an instance is infeasible or unbounded


class DavisYin(Layer):
    """w(y) ≈ argmin obj(y, w) + (μ/2)‖w‖² over the LP relaxation, by Davis-Yin iterations from z = 0:

        x = clip(z, lower, upper),    z⁺ = z − x + P₁((2 − α μ_j) x − z − α c),    c = S y + d,

    with P₁(v) = v − Âᵀ(Â Âᵀ)⁻¹(Â v − b̂) and μ_j = μ on decision variables, 0 on slacks. The decision is the part of
    clip(z) that belongs to the decision variables: within its bounds always, on the rows in the limit. The limit is the
    smoothed solution for every step 0 < α < 2/μ; after few iterations the decision depends on α and on the start.

    Let D be the diagonal mask of z strictly inside the bounds at the last iteration, P = I − Âᵀ(Â Âᵀ)⁻¹Â, and E the
    columns of the identity that belong to decision variables. Gradients dw/dc (and dw/dy = dw/dc · S):

    - "jfb", Jacobian-free: the last iteration alone is differentiated, its argument z held fixed:
      dw/dc = −α Eᵀ D P E. Not the derivative of anything but that iteration; it scales with α.
    - "unrolled": the exact derivative through every iteration, with α held fixed.
    - "implicit": the derivative of the limit, −(1/μ) P_face, as of `Smoothed`, on the face where the last z lies (in force:
      equalities, and inequalities whose slack is zero). Exact once the iterations have found that face. Needs μ > 0.

    Args:
        program: integrality is dropped.
        mu: μ ≥ 0, in units of the costs.
        step: α < 2/μ. Default, for each instance: 0.3 ‖ω‖/‖c‖, where ω_j = min(upper_j − lower_j, |c_j|/μ) is how far
            costs may move decision j; for upper_j − lower_j = ∞ the largest distance of a row from the origin, at least
            one, takes its place. So units of costs and decisions do not matter (if μ is in the same).
        iterations: how many; with a tolerance, at most how many.
        tolerance: stop an instance when its residual is at most this, looked at every five iterations; float32 is taken
            to reach 1e-5. An instance that does not get there has no decision: its status says whether it is infeasible
            or unbounded, where that can be proven, and is NOT_FOUND otherwise. Without a tolerance every decision counts
            as FEASIBLE, and nothing is proven.
        gradient: "jfb", "unrolled" or "implicit".

    `Solution.residual` is max(‖z⁺ − z‖/(1 + ‖x‖), ‖z⁺ − z‖/(α (1 + ‖c‖))) in the largest norm: by how much x = clip(z)
    misses the rows, and by how much it misses optimality. A start is z, float32 `(*batch, n + inequalities)`, and is
    taken only with a tolerance, since otherwise the decision would depend on it. Computes in the dtype of the costs.
    """

    start_dtype = torch.float32

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
        if not (mu >= 0 and np.isfinite(mu)):
            raise ProgramError(f"DavisYin needs a finite mu ≥ 0, got {mu}")
        if step is not None and not (step > 0 and np.isfinite(step) and step * mu < 2):
            raise ProgramError(
                f"the iterations converge for steps 0 < α < 2/μ = {2 / mu if mu else np.inf}; got {step}"
            )
        if iterations < 1:
            raise ProgramError(f"iterations must be at least 1, got {iterations}")
        if tolerance is not None and not tolerance > 0:
            raise ProgramError(f"tolerance must be positive, or None for a fixed number of iterations; got {tolerance}")
        if gradient not in GRADIENTS:
            raise ProgramError(f"gradient is one of {', '.join(map(repr, GRADIENTS))}; got {gradient!r}")
        if gradient == "implicit" and mu == 0:
            raise ProgramError("the implicit gradient needs mu > 0: without smoothing the limit is piecewise constant")
        self.program = program.relax()
        self.mu, self.step, self.iterations = float(mu), step, int(iterations)
        self.tolerance, self.gradient = tolerance, gradient
        form = self.program.equality_form()
        self.width = form.n + form.slacks
        self.start_width = 0 if tolerance is None else self.width

    @staticmethod
    def as_published(
        problem: HasProgram | Program, tau: float, alpha: float = 0.01, iterations: int = 100, **options: Any
    ) -> AsPublished:
        """The layer of the paper's own code, in dense torch; see `AsPublished` for it and for its options."""
        from dflearn.paper.as_published import AsPublished

        return AsPublished(problem, tau, alpha, iterations, **options)

    def extra_repr(self) -> str:
        return (
            f"{self.program!r}, mu={self.mu}, step={self.step}, iterations={self.iterations}, "
            f"tolerance={self.tolerance}, gradient={self.gradient!r}"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_kernel", "_faces")}

    def regularization(self, w: Tensor) -> Tensor:
        """(μ/2)‖w‖², `(*batch, n)` → `(*batch,)`."""
        return 0.5 * self.mu * w.square().sum(-1)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch = y.shape[:-1]
        sides = self.program.sides(instance, batch.numel())
        given = check_start(start, batch, self.start_width)
        costs = self.objective.vector(y, instance)
        record = self.gradient == "unrolled" and costs.requires_grad and torch.is_grad_enabled()
        run = _Run(self, costs, sides, given, record)
        status = run.status()
        w = in_shape(run.answer.w, batch).to(y)
        return Solution(
            decision=_AttachGradient.apply(costs, w, run.backward),
            status=in_shape(status, batch),
            objective=in_shape(run.answer.value, batch),
            bound=torch.full(batch, -torch.inf, dtype=torch.float64),
            start=None if start is None else run.start().reshape(*batch, self.width),
            residual=in_shape(run.answer.residual, batch),
        )

    @cached_property
    def _kernel(self) -> _Kernel:
        return _Kernel(self.program)

    @cached_property
    def _faces(self) -> _Faces:
        return _Faces(self.program)


class _Run:
    """One batch on its way through the kernels, and back. Arrays are `(count, ·)` in the dtype of the computation."""

    def __init__(self, layer: DavisYin, costs: Tensor, sides: Sides, start: np.ndarray | None, record: bool) -> None:
        self.layer, self.kernel, self.sides = layer, layer._kernel, sides
        self.dtype = torch.float64 if costs.dtype == torch.float64 else torch.float32
        dtype = np.float64 if self.dtype == torch.float64 else np.float32
        self.c = as_rows(costs, costs.shape[:-1].numel(), dtype)
        self.system = self.kernel.system(self.c.dtype)
        self.r, self.lower, self.upper = self.kernel.sides(sides, self.c.dtype)
        self.alpha = self._steps()
        self.tiles = self._tiles()
        z = np.zeros((1, layer.width), self.c.dtype)
        if start is not None:
            z = np.where(np.isfinite(start).all(1, keepdims=True), start, 0).astype(self.c.dtype)
        self.inside: dict[int, np.ndarray] = {}  # by the first instance of a tile
        self.answer = self._iterate(z, layer.iterations, record)

    def _steps(self) -> np.ndarray:
        """α `(count,)`, as of `DavisYin`; the costs of fixed variables do not count."""
        n, mu, count = self.c.shape[1], self.layer.mu, len(self.c)
        if self.layer.step is not None:
            return np.full(count, self.layer.step, self.c.dtype)
        width = self.upper[..., :n] - self.lower[..., :n]
        size = np.where(width > 0, np.abs(self.c), 0)
        scale = np.maximum(1, np.abs(self.r).max(1, initial=0, keepdims=True))
        reach = np.where(np.isfinite(width), width, scale)
        if mu:
            reach = np.minimum(reach, size / mu)
        lengths = [np.broadcast_to(np.sqrt(np.square(part).sum(-1, dtype=np.float64)), count) for part in (reach, size)]
        none = STEP / mu if mu else 1.0  # where there are no costs, any step will do
        return np.divide(STEP * lengths[0], lengths[1], where=lengths[1] > 0, out=np.full(count, none)).astype(
            self.c.dtype
        )

    @property
    def tolerance(self) -> float:
        return 0.0 if self.layer.tolerance is None else max(self.layer.tolerance, RESOLUTION[self.dtype])

    def _tiles(self) -> list[Tile]:
        """Wide rows are cheaper per instance; narrow ones where there are threads enough to take a tile each."""
        from dflearn.kernels.davis_yin import ROW_BYTES
        from dflearn.kernels.lanes import all_tiles

        count, lanes = len(self.c), ROW_BYTES // self.c.itemsize
        if 2 * count <= lanes * torch.get_num_threads():
            lanes //= 2
        return all_tiles(count, lanes)

    def _space(self, lanes: int) -> np.ndarray:
        """This thread's work space, kept from call to call."""
        from dflearn.kernels.davis_yin import space_rows
        from dflearn.kernels.lanes import wide_tile

        spaces, key = self.kernel.scratch.__dict__, f"{self.c.dtype} {lanes}"
        if key not in spaces:
            spaces[key] = wide_tile(space_rows(self.system, self.layer.width), lanes, self.c.dtype)
        return spaces[key]

    def _bound(self, side: np.ndarray, index: np.ndarray) -> np.ndarray:
        from dflearn.kernels.davis_yin import load
        from dflearn.kernels.lanes import wide_tile

        if side.ndim == 1:
            return side
        tile = wide_tile(side.shape[1], len(index), side.dtype)
        load(side, index, tile)
        return tile

    def _iterate(self, z: np.ndarray, limit: int, record: bool) -> Answer:
        from dflearn.kernels.davis_yin import Answer, Data, iterate
        from dflearn.kernels.threads import run_tiles

        count, width = len(self.c), self.layer.width
        data = Data(self.c, self.r, self.alpha, z)
        answer = Answer.empty(count, self.c.shape[1], width, self.c.dtype)

        def solve(tile: Tile) -> None:
            index, used = tile
            lanes = len(index)
            inside = np.empty((limit if record else 1, width), f"u{lanes // 8}")
            lower, upper = self._bound(self.lower, index), self._bound(self.upper, index)
            iterate(
                self.system, data, lower, upper, self.layer.mu, limit, self.tolerance, index, used, self._space(lanes),
                record, inside, answer,
            )  # fmt: skip
            if record:
                self.inside[int(index[0])] = inside

        run_tiles(solve, self.tiles)
        return answer

    def start(self) -> Tensor:
        return torch.as_tensor(self.answer.z).to(self.layer.start_dtype)

    def status(self) -> np.ndarray:
        """One code per instance; those without a decision lose what is in its place."""
        residual = self.answer.residual
        usual = Status.FEASIBLE if self.layer.tolerance is None else Status.OPTIMAL
        status = np.full(len(residual), int(usual), np.int8)
        missing = ~(residual <= (self.tolerance or np.finfo(float).max))
        if missing.any():
            status[missing] = int(Status.NOT_FOUND)
            status[~np.isfinite(residual)] = int(Status.FAILED)
            if self.layer.tolerance is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    self._explain(status)
            self.answer.w[missing], self.answer.value[missing] = np.nan, np.nan
        return status

    def _explain(self, status: np.ndarray) -> None:
        """Where iterations do not converge, z⁺ − z tends to a vector that tells why (in so far as one is there).

        Its part q that runs into bounds is a combination q = Âᵀη of the rows with ηᵀb̂ > max qᵀw over the bounds: no point
        within the bounds satisfies the rows. The other part d, which nothing stops, stays on the rows and lowers the
        costs: the objective falls without end (μ = 0 only, since smoothing stops it).
        """
        z = self.answer.z.astype(np.float64)
        shift = self._iterate(self.answer.z, 1, False).z - z
        lower, upper = np.broadcast_to(self.lower, z.shape), np.broadcast_to(self.upper, z.shape)
        stopped = np.where(shift > 0, np.isfinite(upper), np.isfinite(lower))
        q, d = np.where(stopped, shift, 0.0), np.where(stopped, 0.0, shift)
        M, r = self.kernel.factor.matrix, np.broadcast_to(self.r, (len(z), self.r.shape[1])).astype(np.float64)
        eta = self.kernel.multipliers((M @ q.T).T)
        size_q, size_d, size_c = (np.linalg.norm(part, axis=1) for part in (q, d, self.c))
        reach = np.where(q > 0, q * upper, np.where(q < 0, q * lower, 0.0)).sum(1)
        spans = np.linalg.norm((M.T @ eta.T).T - q, axis=1) <= CERTIFIED * size_q
        separates = (eta * r).sum(1) - reach > CERTIFIED * size_q * (1 + np.abs(r).max(1, initial=0))
        falls = (self.c * d[:, : self.c.shape[1]]).sum(1) < -CERTIFIED * size_d * size_c
        stays = np.linalg.norm((M @ d.T).T, axis=1) <= CERTIFIED * size_d
        missing = status == Status.NOT_FOUND
        status[missing & stays & falls & (self.layer.mu == 0)] = Status.UNBOUNDED
        status[missing & spans & separates & (size_q > 0)] = Status.INFEASIBLE

    # -- the way back -------------------------------------------------------------------------------------------------

    def backward(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        g = as_rows(gradient, len(self.c), self.c.dtype)
        rule = {"jfb": self._jacobian_free, "unrolled": self._unrolled, "implicit": self._implicit}
        return in_shape(rule[self.layer.gradient](g), gradient.shape[:-1]).to(gradient)

    def _jacobian_free(self, g: np.ndarray) -> np.ndarray:
        from dflearn.kernels.davis_yin import jacobian_free
        from dflearn.kernels.threads import run_tiles

        out = np.empty_like(g)

        def run(tile: Tile) -> None:
            index, used = tile
            jacobian_free(self.system, self.alpha, self.answer.inside, g, index, used, self._space(len(index)), out)

        run_tiles(run, self.tiles)
        return out

    def _unrolled(self, g: np.ndarray) -> np.ndarray:
        from dflearn.kernels.davis_yin import adjoint
        from dflearn.kernels.threads import run_tiles

        out, steps = np.empty_like(g), self.answer.iterations

        def run(tile: Tile) -> None:
            index, used = tile
            inside = self.inside[int(index[0])]
            space = self._space(len(index))
            adjoint(self.system, self.alpha, self.layer.mu, inside, steps, g, index, used, space, out)

        run_tiles(run, self.tiles)
        return out

    def _implicit(self, g: np.ndarray) -> np.ndarray:
        n, inside = g.shape[1], self.answer.inside
        in_force = np.ones((len(g), self.r.shape[1]), np.uint8)
        in_force[:, self.kernel.form.is_inequality] -= inside[:, n:]
        inside = np.ascontiguousarray(inside[:, :n])
        return self.layer._faces.project(inside, in_force, g.astype(np.float64)) / -self.layer.mu


class _Kernel:
    """One program's side of the kernels: the factor, its numbers in each dtype, and the way to its order of rows."""

    def __init__(self, program: Program) -> None:
        from dflearn.kernels.cholesky import SparseFactor

        self.program, self.form = program, program.equality_form()
        self.factor = SparseFactor.of(self.form.matrix)
        self._systems: dict[Any, System] = {}
        self._own_sides: dict[Any, tuple[np.ndarray, ...]] = {}
        self.scratch = threading.local()

    def system(self, dtype: Any) -> System:
        from dflearn.kernels.davis_yin import System

        if dtype not in self._systems:
            self._systems[dtype] = System.of(self.factor, dtype)
        return self._systems[dtype]

    def sides(self, sides: Sides, dtype: Any) -> tuple[np.ndarray, ...]:
        """r `(count or 1, m)` for the scaled rows in elimination order, and bounds `(N,)` or `(count, N)`."""
        own = sides is self.program.own_sides
        if own and dtype in self._own_sides:
            return self._own_sides[dtype]
        r = self.form.right_hand_side(sides)[:, self.factor.order] * self.factor.scale
        with np.errstate(over="ignore"):  # a bound too large for the dtype is none
            result = tuple(part.astype(dtype) for part in (r, *np.broadcast_arrays(*self.form.bounds(sides))))
        if own:
            self._own_sides[dtype] = result
        return result

    def multipliers(self, v: np.ndarray) -> np.ndarray:
        """(M Mᵀ)⁻¹ v in float64, `(count, m)`."""
        from dflearn.kernels.lanes import LANES

        numeric = self.factor.numeric(np.ones((self.factor.matrix.shape[1], LANES)))
        out = np.empty_like(v)
        for first in range(0, len(v), LANES):
            part = np.zeros((v.shape[1], LANES))
            part[:, : len(v[first : first + LANES])] = v[first : first + LANES].T
            out[first : first + LANES] = numeric.solve(part).T[: len(v[first : first + LANES])]
        return out


class _Faces:
    """Projections onto faces of one program's feasible set."""

    def __init__(self, program: Program) -> None:
        from dflearn.kernels.cholesky import SparseFactor
        from dflearn.kernels.smoothed import System

        form = program.equality_form()
        self.factor = SparseFactor.of(form.rows_without_slacks())
        inequality = np.ascontiguousarray(form.is_inequality[self.factor.order])
        self.system = System(self.factor.pattern, self.factor.by_rows, self.factor.by_columns, inequality)

    def project(self, inside: np.ndarray, in_force: np.ndarray, v: np.ndarray) -> np.ndarray:
        """v on {x : x_j = 0 off the inside, (row x)_i = 0 where row i of Â is in force}; masks and v `(count, ·)`."""
        from dflearn.kernels.lanes import all_tiles
        from dflearn.kernels.smoothed import Workspace, project_tile
        from dflearn.kernels.threads import run_tiles

        out, ordered, one = np.empty_like(v), np.ascontiguousarray(in_force[:, self.factor.order]), np.ones(1)

        def project(tile: Tile) -> None:
            project_tile(self.system, inside, ordered, v, one, tile[0], tile[1], Workspace.of(self.factor), out)

        run_tiles(project, all_tiles(len(v)))
        return out


class _AttachGradient(torch.autograd.Function):
    """Costs c and the decision found for them → the decision, with the way back that `backward` computes."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, w: Tensor, backward: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.way_back = backward
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        return (ctx.way_back(gradient) if ctx.needs_input_grad[0] else None), None, None
