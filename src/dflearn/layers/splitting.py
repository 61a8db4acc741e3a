"""The batches of `DavisYin` on their way through the kernels, and back.

This module imports numba. The layer imports it when it solves for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.certify import RESIDUE, ROUNDING, ZERO, Certifier
from dflearn.errors import OptionError
from dflearn.kernels.davis_yin import adjoint, iterate, jacobian_free
from dflearn.kernels.lanes import Tile, all_tiles, load, wide_tile
from dflearn.kernels.splitting_data import (
    ROW_BYTES,
    Curvature,
    Rule,
    SplittingAnswer,
    SplittingData,
    SplittingSystem,
    space_rows,
)
from dflearn.kernels.threads import run_tiles
from dflearn.layers.base import ACCEPTED_RESIDUAL, as_rows, in_shape, symmetric
from dflearn.layers.rows import RowSystem, SmoothedRows
from dflearn.layers.sides import gradients
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.convex import ConvexQP

if TYPE_CHECKING:
    from dflearn.layers.davis_yin import DavisYin
    from dflearn.layers.lifted import Lifted

STEP = 0.3  # of the default step; a third or three times as much converges more slowly on the paper's problems
CURVED_STEP = 1.5  # of the largest default step with Q, beside 1/(‖Q‖ + μ); twice that is the end of convergence
RESOLUTION = {torch.float32: 1e-5, torch.float64: 1e-12}  # errors that each dtype reaches
LARGEST = float(np.finfo(float).max)
NEAREST = 1e-10  # relative residual of the feasible point nearest to zero
FALLS = 1e-6  # what is left of costs on directions without end, beside the costs, from which on they are felt


class SplittingRows(RowSystem):
    """The rows with slacks, M (w, s) = r, and their factor in each dtype."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, slacks=True)
        self._systems: dict[Any, SplittingSystem] = {}
        self._curvatures: dict[Any, Curvature] = {}
        self._own_sides: dict[Any, tuple[np.ndarray, ...]] = {}
        self.scratch = threading.local()
        self.elsewhere: dict[Any, Any] = {}  # what `splitting_in_torch` keeps on each device

    @cached_property
    def faces(self) -> SmoothedRows:
        """The rows without slacks, whose faces the implicit gradient projects onto."""
        return SmoothedRows(self.program)

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    @cached_property
    def places(self) -> np.ndarray:
        """Which row of the program each row of the iterations is."""
        equalities = self.program.A.shape[0]
        return self.ordered(np.concatenate([self.form.kept, equalities + np.arange(self.form.slacks)]))

    def curvature(self, dtype: Any, *, bent: bool = False) -> Curvature | None:
        """Q in one dtype; where the objective is linear `None`, or zero if instances have a q."""
        Q = self.program.Q
        if Q is None and not bent:
            return None
        if dtype not in self._curvatures:
            whole = Quadratic(diagonal=np.zeros(self.program.n)) if Q is None else Q
            self._curvatures[dtype] = Curvature.of(whole.factor, whole.diagonal, dtype)
        return self._curvatures[dtype]

    def system(self, dtype: Any) -> SplittingSystem:
        if dtype not in self._systems:
            self._systems[dtype] = SplittingSystem.of(self.factor, self.ordered(self.form.is_inequality), dtype)
        return self._systems[dtype]

    def sides(self, sides: Sides, dtype: Any) -> tuple[np.ndarray, ...]:
        """r `(count or 1, m)`; the bounds of variables and slacks, `(N,)` or `(count, N)`; and two lengths `(count or 1,)`.

        These are the largest distance of a row from the origin, or else the largest bound, or else one; and the smallest
        length that right-hand sides and bounds name, infinite where there is none.
        """
        own = sides is self.program.own_sides
        if own and dtype in self._own_sides:
            return self._own_sides[dtype]
        bounds = np.broadcast_arrays(*self.form.bounds(sides))
        with np.errstate(over="ignore"):  # a bound too large for the dtype is none
            result = tuple(part.astype(dtype) for part in (self.right_hand_side(sides), *bounds))
        ends = (np.atleast_2d(np.abs(side[..., : self.form.n])) for side in result[1:])
        sizes = [np.abs(result[0]), *(np.where(np.isfinite(side), side, 0) for side in ends)]
        rows, *reach = (part.max(1, initial=0) for part in sizes)
        reach = np.maximum(*reach)
        least = [np.where(part > 0, part, np.inf).min(1, initial=np.inf) for part in sizes]
        largest = np.where(rows > 0, rows, np.where(reach > 0, reach, 1))
        result += (largest, np.minimum(np.minimum(least[0], least[1]), least[2]))
        if own:
            self._own_sides[dtype] = result
        return result


class Run:
    """One batch on its way through the kernels, and back. Arrays are `(count, ·)` in the dtype of the computation.

    record: keep what the unrolled gradient needs. q `(count, n)` is added to the diagonal of Q.
    """

    def __init__(
        self,
        layer: DavisYin,
        costs: Tensor,
        sides: Sides,
        start: np.ndarray | None,
        record: bool,
        q: np.ndarray | None = None,
    ) -> None:
        self._take(layer, costs, sides, q)
        self.c = as_rows(costs, costs.shape[:-1].numel(), self.numbers)
        self.system = self.rows.system(self.numbers)
        self.r, self.lower, self.upper, self.largest, self.smallest = self.rows.sides(sides, self.numbers)
        self.alpha = self._steps()
        self.tiles = self._tiles()
        z = np.zeros((1, layer.width), self.c.dtype)
        if start is not None:
            z = np.where(np.isfinite(start).all(1, keepdims=True), start, 0).astype(self.c.dtype)
        self.inside: dict[int, np.ndarray] = {}  # by the first instance of a tile
        self.answer = self._iterate(z, layer.iterations, record)

    def _take(self, layer: DavisYin, costs: Tensor, sides: Sides, q: np.ndarray | None) -> None:
        """What is asked for, as it is now: the layer's weights may change before the way back."""
        self.layer, self.rows, self.given, self.q = layer, layer.rows, sides, q
        self.mu, self.gradient = layer.mu, layer.gradient
        self.dtype = torch.float64 if costs.dtype == torch.float64 else torch.float32
        self.numbers = np.dtype(np.float64 if self.dtype == torch.float64 else np.float32)
        self.curvature = self.rows.curvature(self.numbers, bent=q is not None)
        self.bend = np.asarray(layer.bend if q is None else layer.bend + q.max(1, initial=0.0))  # of all, or of each
        if layer.step is not None and (layer.step * (self.mu + self.bend) >= 2).any():
            limit = float((2 / (self.mu + self.bend)).min())
            raise OptionError(
                f"with the instances' q, the iterations converge for steps 0 < α < {limit:g}; got {layer.step}"
            )
        self.faces: list[tuple[Lifted | None, Any]] = [(None, slice(None))]  # what knows the faces of which instances
        if layer.gradient == "implicit":
            if q is not None:
                self.faces = list(layer.bent.groups(q))
            elif layer.program.Q is not None:
                self.faces = [(layer.lifted, slice(None))]

    def _steps(self) -> np.ndarray:
        """α `(count,)`, as of `DavisYin`; the costs of fixed variables do not count."""
        n, mu, count = self.c.shape[1], self.mu, len(self.c)
        if self.layer.step is not None:
            return np.full(count, self.layer.step, self.c.dtype)
        width = self.upper[..., :n] - self.lower[..., :n]
        size = np.where(width > 0, np.abs(self.c), 0)
        reach = np.where(np.isfinite(width), width, self.largest[:, None])
        if mu:
            reach = np.minimum(reach, size / mu)
        lengths = [np.broadcast_to(np.sqrt(np.square(part).sum(-1, dtype=np.float64)), count) for part in (reach, size)]
        none = STEP / mu if mu else 1.0  # where there are no costs, any step will do
        steps = np.full(count, none)
        np.divide(STEP * lengths[0], lengths[1], where=lengths[1] > 0, out=steps)
        if self.curvature is not None:
            with np.errstate(divide="ignore"):
                steps = np.minimum(steps, np.divide(CURVED_STEP, mu + self.bend))
        return steps.astype(self.c.dtype)

    def _smallest_length(self) -> np.ndarray:
        """The smallest length that right-hand sides and bounds name, or else how far costs pull, or else one; `(count,)`."""
        least = self.smallest
        if not np.isfinite(least).all():
            whole, pull = np.broadcast_to(self.mu + self.bend, len(self.c)), np.zeros(len(self.c))
            np.divide(np.abs(self.c).max(1, initial=0), whole, where=whole > 0, out=pull)
            least = np.where(np.isfinite(least), least, np.where((pull > 0) & np.isfinite(pull), pull, 1))
        return np.broadcast_to(least, len(self.c)).astype(self.c.dtype)

    @property
    def tolerance(self) -> float:
        return 0.0 if self.layer.tolerance is None else max(self.layer.tolerance, RESOLUTION[self.dtype])

    def _rule(self) -> Rule | None:
        """What the kernel calls optimal; `None` without a tolerance."""
        if self.layer.tolerance is None:
            return None
        own, given, rounding = self.rows.certifier, self.given, 16.0 * torch.finfo(self.dtype).eps
        R = sp.csr_array((0, self.layer.program.n)) if self.layer.program.Q is None else self.layer.program.Q.factor
        curve = own.curve(self.mu) if self.q is None else own.curve(self.mu) + self.q
        lines = curve, given.right_hand_sides(), given.lines("lower"), given.lines("upper")
        return Rule(
            self.tolerance, max(RESIDUE, rounding), own.stored, own.equalities, max(ZERO, rounding), (R.indptr, R.indices, R.data), self.rows.places,
            self.rows.factor.scale, *(np.ascontiguousarray(part) for part in lines),
        )  # fmt: skip

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
            rows = space_rows(self.system, self.layer.width, self.rows.curvature(self.c.dtype, bent=True))
            spaces[key] = wide_tile(rows, lanes, self.c.dtype)
        space: np.ndarray = spaces[key]
        return space

    def _bound(self, side: np.ndarray, index: np.ndarray) -> np.ndarray:
        if side.ndim == 1:
            return side
        tile = wide_tile(side.shape[1], len(index), side.dtype)
        load(side, index, tile["lane"])
        return tile

    def _curvature(self, index: np.ndarray) -> Curvature | None:
        """Q of the instances at `index`."""
        if self.q is None or self.curvature is None:
            return self.curvature
        own = np.ascontiguousarray(self.curvature.diagonal + self.q, self.c.dtype)
        return self.curvature._replace(diagonal=self._bound(own, index))

    def _iterate(self, z: np.ndarray, limit: int, record: bool) -> SplittingAnswer:
        count, width = len(self.c), self.layer.width
        data = SplittingData(self.c, self.r, self.alpha, z, self._smallest_length())
        rule, rows = self._rule(), len(self.rows.certifier.matrix.indptr) - 1
        answer = SplittingAnswer.empty(count, self.c.shape[1], width, rows, self.c.dtype)

        def solve(tile: Tile) -> None:
            index, used = tile
            lanes = len(index)
            inside = np.empty((limit if record else 1, width), f"u{lanes // 8}")
            lower, upper = self._bound(self.lower, index), self._bound(self.upper, index)
            iterate(
                self.system, data, lower, upper, self.mu, limit, rule, index, used, self._space(lanes),
                record, inside, answer, self._curvature(index),
            )  # fmt: skip
            if record:
                self.inside[int(index[0])] = inside

        run_tiles(solve, self.tiles)
        if (Q := self.layer.program.Q) is not None:
            answer.value[:] += Q.value(answer.w.astype(np.float64))
        if self.q is not None:
            answer.value[:] += 0.5 * (self.q * np.square(answer.w, dtype=np.float64)).sum(1)
        return answer

    def start(self) -> Tensor:
        return torch.as_tensor(self.answer.z).to(self.layer.start_dtype)

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """w `(count, n)`, not numbers where there is no decision; statuses, objectives and residuals `(count,)`."""
        status, answer = self.status(), self.answer
        w, value, residual = (torch.from_numpy(part) for part in (answer.w, answer.value, answer.residual))
        return w, torch.from_numpy(status), value, residual

    def status(self) -> np.ndarray:
        """One code per instance; those without a decision lose what is in its place."""
        answer, residual = self.answer, self.answer.residual
        if self.layer.tolerance is not None:
            for i in np.flatnonzero((residual > self.tolerance) & (answer.moved <= self.tolerance)):
                self._allow(i)
        found = residual <= (self.tolerance or LARGEST)
        status = np.where(np.isnan(residual), int(Status.FAILED), int(Status.NOT_FOUND)).astype(np.int8)
        status[found] = int(Status.FEASIBLE if self.layer.tolerance is None else Status.OPTIMAL)
        if not found.all():
            if self.layer.tolerance is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    self._explain(status)
            answer.w[~found], answer.value[~found] = np.nan, np.nan
        return status

    def _allow(self, i: int | np.integer) -> None:
        """Instance i, which moves no more, is not optimal: is that rounding?"""
        answer, sides, certifier = self.answer, self.given.row(i), self.rows.certifier
        if self.q is not None:
            certifier = Certifier(replace(self.layer.program, Q=self._quadratic(i)))
        c, w = self.c[i].astype(np.float64), np.clip(answer.w[i].astype(np.float64), sides.lower, sides.upper)
        w, y, verdict = certifier.tidy(c, w, answer.prices[i], sides, self.mu)
        if verdict.error[0] > self.tolerance:
            rounding = max(ROUNDING, 4 * torch.finfo(self.dtype).eps)  # of the numbers that were computed with
            verdict = certifier.examine(c, w, y, sides, self.mu).verdict(rounding=rounding)
        answer.residual[i], answer.w[i] = verdict.error[0], w

    def _quadratic(self, i: int | np.integer) -> Quadratic:
        """Q of an instance."""
        program = self.layer.program
        Q = Quadratic(diagonal=np.zeros(program.n)) if program.Q is None else program.Q
        return Q if self.q is None else Q.plus(self.q[i])

    def _explain(self, status: np.ndarray) -> None:
        """Prove that instances which were not found are infeasible or, without smoothing, unbounded.

        As `Smoothed` does: multipliers that prove that no point satisfies the rows; or a point that satisfies them, and
        something left of −c in its projection onto the directions without end.
        """
        missing = np.flatnonzero(status == Status.NOT_FOUND)
        if not len(missing):
            return
        faces, sides, c = self.rows.faces, self.given.rows(missing), self.c[missing].astype(np.float64)
        nearest = faces.solve(faces.data(np.zeros_like(c), np.ones(1), sides), None, NEAREST)
        status[missing[nearest.infeasible.astype(bool)]] = Status.INFEASIBLE
        if not self.mu and self.curvature is not None:
            for k, i in enumerate(missing):
                whole = ConvexQP(replace(self.layer.program, Q=self._quadratic(i)))
                if (none := whole.no_decision(c[k], sides.row(k))) is not None:
                    status[i] = none
        elif not self.mu:
            endless = faces.pull_without_end(c, sides) > FALLS * np.linalg.norm(c, axis=1)
            status[missing[endless & (nearest.residual <= ACCEPTED_RESIDUAL)]] = Status.UNBOUNDED

    # -- the way back -------------------------------------------------------------------------------------------------

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        g = as_rows(gradient, len(self.c), self.c.dtype)
        rule = {"jfb": self._jacobian_free, "unrolled": self._unrolled, "implicit": self._implicit}
        return in_shape(rule[self.gradient](g), gradient.shape[:-1]).to(gradient)

    @property
    def way_back_again(self) -> Callable[[Tensor, Tensor], Tensor] | str:
        """The way back for second derivatives, or why there is none."""
        if self.gradient == "implicit":
            return lambda gradient, decision: symmetric(gradient, decision, self.way_back)
        return (
            f"DavisYin(gradient={self.gradient!r}) has no second derivatives: "
            "use DavisYin(…, gradient='implicit'), or Smoothed"
        )

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
            adjoint(self.system, self.alpha, self.mu, inside, steps, g, index, used, space, out, self._curvature(index))

        run_tiles(run, self.tiles)
        return out

    def _implicit(self, g: np.ndarray) -> np.ndarray:
        out, v = np.empty(g.shape), g.astype(np.float64)
        for lifted, index in self.faces:
            if lifted is None:
                out[index] = self.rows.faces.project(*self._face(), v) / -self.mu
            else:
                out[index] = lifted.way_back(*self._inside(index), v[index])
        return out

    def _inside(self, index: Any) -> tuple[np.ndarray, np.ndarray]:
        """Which variables lie inside their bounds, and which inequalities are in force, at the instances `index`."""
        n, inside = self.c.shape[1], self.answer.inside[index]
        return inside[:, :n], 1 - inside[:, n:]

    def _face(self) -> tuple[np.ndarray, np.ndarray]:
        """All of that as `SmoothedRows` wants it."""
        inside, inequalities = self._inside(slice(None))
        in_force = np.ones((len(inside), self.r.shape[1]), np.uint8)
        in_force[:, self.rows.form.is_inequality] = inequalities
        return np.ascontiguousarray(inside), self.rows.faces.ordered(in_force)

    def side_gradients(self, w: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
        """By name, the implicit (dw/d side)ᵀ v; w and v `(count, n)`."""
        program, whole = self.layer.program, dict[str, np.ndarray]()
        for lifted, index in self.faces:
            if lifted is None:
                return gradients(self.rows.faces, *self._face(), self.given, w, v)
            found = lifted.side_gradients(*self._inside(index), self.given.rows(index), w[index], v[index])
            for name, part in found.items():
                whole.setdefault(name, np.zeros((len(v), getattr(program, name).shape[-1])))[index] = part
        return whole
