"""The batches of `DavisYin` on their way through the kernels, and back.

This module imports numba. The layer imports it when it solves for the first time.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dflearn.kernels.davis_yin import (
    ROW_BYTES,
    SplittingAnswer,
    SplittingData,
    SplittingSystem,
    adjoint,
    iterate,
    jacobian_free,
    space_rows,
)
from dflearn.kernels.lanes import LANES, Tile, all_tiles, load, wide_tile
from dflearn.kernels.threads import run_tiles
from dflearn.layers.base import as_rows, in_shape
from dflearn.layers.rows import RowSystem, SmoothedRows
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status

if TYPE_CHECKING:
    from dflearn.layers.davis_yin import DavisYin

STEP = 0.3  # of the default step; a third or three times as much converges more slowly on the paper's problems
RESOLUTION = {torch.float32: 1e-5, torch.float64: 1e-12}  # residuals that each dtype reaches
CERTIFIED = 1e-3  # relative error allowed in a proof that an instance is infeasible or unbounded


class SplittingRows(RowSystem):
    """The rows with slacks, M (w, s) = r, and their factor in each dtype."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, slacks=True)
        self._systems: dict[Any, SplittingSystem] = {}
        self._own_sides: dict[Any, tuple[np.ndarray, ...]] = {}
        self.scratch = threading.local()

    @cached_property
    def faces(self) -> SmoothedRows:
        """The rows without slacks, whose faces the implicit gradient projects onto."""
        return SmoothedRows(self.program)

    def run(self, layer: DavisYin, costs: Tensor, sides: Sides, start: np.ndarray | None, record: bool) -> Run:
        """Solve a batch; `record` keeps what the unrolled gradient needs."""
        return Run(layer, costs, sides, start, record)

    def system(self, dtype: Any) -> SplittingSystem:
        if dtype not in self._systems:
            self._systems[dtype] = SplittingSystem.of(self.factor, dtype)
        return self._systems[dtype]

    def sides(self, sides: Sides, dtype: Any) -> tuple[np.ndarray, ...]:
        """r `(count or 1, m)`, and the bounds of variables and slacks, `(N,)` or `(count, N)`."""
        own = sides is self.program.own_sides
        if own and dtype in self._own_sides:
            return self._own_sides[dtype]
        bounds = np.broadcast_arrays(*self.form.bounds(sides))
        with np.errstate(over="ignore"):  # a bound too large for the dtype is none
            result = tuple(part.astype(dtype) for part in (self.right_hand_side(sides), *bounds))
        if own:
            self._own_sides[dtype] = result
        return result

    def multipliers(self, v: np.ndarray) -> np.ndarray:
        """(M Mᵀ)⁻¹ v in float64, `(count, m)`."""
        numeric = self.factor.numeric(np.ones((self.factor.matrix.shape[1], LANES)))
        out = np.empty_like(v)
        for first in range(0, len(v), LANES):
            part = np.zeros((v.shape[1], LANES))
            part[:, : len(v[first : first + LANES])] = v[first : first + LANES].T
            out[first : first + LANES] = numeric.solve(part).T[: len(v[first : first + LANES])]
        return out


class Run:
    """One batch on its way through the kernels, and back. Arrays are `(count, ·)` in the dtype of the computation."""

    def __init__(self, layer: DavisYin, costs: Tensor, sides: Sides, start: np.ndarray | None, record: bool) -> None:
        self.layer, self.rows = layer, layer.rows
        self.dtype = torch.float64 if costs.dtype == torch.float64 else torch.float32
        dtype = np.float64 if self.dtype == torch.float64 else np.float32
        self.c = as_rows(costs, costs.shape[:-1].numel(), dtype)
        self.system = self.rows.system(self.c.dtype)
        self.r, self.lower, self.upper = self.rows.sides(sides, self.c.dtype)
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
        steps = np.full(count, none)
        np.divide(STEP * lengths[0], lengths[1], where=lengths[1] > 0, out=steps)
        return steps.astype(self.c.dtype)

    @property
    def tolerance(self) -> float:
        return 0.0 if self.layer.tolerance is None else max(self.layer.tolerance, RESOLUTION[self.dtype])

    def _tiles(self) -> list[Tile]:
        """Wide rows are cheaper per instance; narrow ones where there are threads enough to take a tile each."""
        count, lanes = len(self.c), ROW_BYTES // self.c.itemsize
        if 2 * count <= lanes * torch.get_num_threads():
            lanes //= 2
        return all_tiles(count, lanes)

    def _space(self, lanes: int) -> np.ndarray:
        """This thread's work space, kept from call to call."""
        spaces, key = self.rows.scratch.__dict__, f"{self.c.dtype} {lanes}"
        if key not in spaces:
            spaces[key] = wide_tile(space_rows(self.system, self.layer.width), lanes, self.c.dtype)
        space: np.ndarray = spaces[key]
        return space

    def _bound(self, side: np.ndarray, index: np.ndarray) -> np.ndarray:
        if side.ndim == 1:
            return side
        tile = wide_tile(side.shape[1], len(index), side.dtype)
        load(side, index, tile["lane"])
        return tile

    def _iterate(self, z: np.ndarray, limit: int, record: bool) -> SplittingAnswer:
        count, width = len(self.c), self.layer.width
        data = SplittingData(self.c, self.r, self.alpha, z)
        answer = SplittingAnswer.empty(count, self.c.shape[1], width, self.c.dtype)

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
        """Prove that an instance is infeasible or unbounded: if its iterations diverge, z⁺ − z tends to a vector that tells why.

        Its part q that runs into bounds is a combination q = Âᵀη of the rows with ηᵀb̂ > max qᵀw over the bounds: no point
        within the bounds satisfies the rows. The other part d, which nothing stops, stays on the rows and lowers the
        costs: the objective falls without end (μ = 0 only, since smoothing stops it).
        """
        z = self.answer.z.astype(np.float64)
        shift = self._iterate(self.answer.z, 1, False).z - z
        lower, upper = np.broadcast_to(self.lower, z.shape), np.broadcast_to(self.upper, z.shape)
        stopped = np.where(shift > 0, np.isfinite(upper), np.isfinite(lower))
        q, d = np.where(stopped, shift, 0.0), np.where(stopped, 0.0, shift)
        M, r = self.rows.factor.matrix, np.broadcast_to(self.r, (len(z), self.r.shape[1])).astype(np.float64)
        eta = self.rows.multipliers((M @ q.T).T)
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

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        g = as_rows(gradient, len(self.c), self.c.dtype)
        rule = {"jfb": self._jacobian_free, "unrolled": self._unrolled, "implicit": self._implicit}
        return in_shape(rule[self.layer.gradient](g), gradient.shape[:-1]).to(gradient)

    def _jacobian_free(self, g: np.ndarray) -> np.ndarray:
        out = np.empty_like(g)

        def run(tile: Tile) -> None:
            index, used = tile
            jacobian_free(self.system, self.alpha, self.answer.inside, g, index, used, self._space(len(index)), out)

        run_tiles(run, self.tiles)
        return out

    def _unrolled(self, g: np.ndarray) -> np.ndarray:
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
        in_force[:, self.rows.form.is_inequality] -= inside[:, n:]
        inside, faces = np.ascontiguousarray(inside[:, :n]), self.rows.faces
        return faces.project(inside, faces.ordered(in_force), g.astype(np.float64)) / -self.layer.mu
