"""The batches of `DavisYin` on a GPU: the iterations of `kernels.davis_yin` as products with dense matrices.

With M w̃ = r the scaled, ordered rows, T = (M Mᵀ)⁻¹ M and v as there,

    x = T v − (M Mᵀ)⁻¹ r,      z⁺ = κ y − α c − Mᵀ x

A loop of a fixed number of iterations is captured as a CUDA graph when it comes for the second time (`dense_rows.Captured`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.splitting import SplittingSides
from dflearn.kernels.davis_yin import CHECK_EVERY, CLOSER, errors_of
from dflearn.kernels.splitting_data import Rule, SplittingAnswer
from dflearn.layers.dense_rows import FullPrecision, constants_of
from dflearn.layers.splitting import CURVED_STEP, LARGEST, STEP, Run
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status

if TYPE_CHECKING:
    from dflearn.layers.davis_yin import DavisYin


class Answer(NamedTuple):
    """As of `kernels.splitting_data.SplittingAnswer`, as tensors."""

    z: Tensor
    inside: Tensor
    w: Tensor
    value: Tensor
    residual: Tensor
    iterations: Tensor
    prices: Tensor
    moved: Tensor


class TorchRun(Run):
    """`Run` where the costs are."""

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
        self.matrices, self.captured = constants_of(layer.rows, self.dtype, costs.device)
        self.delta = self.matrices.delta if q is None else self.matrices.delta + self._there(q)
        own = self._sides_there(self.matrices.inverse)
        self.shift, self.low, self.high = own.shift, own.lower, own.upper
        self.step = self._step_lengths(own.largest).to(self.dtype)[:, None]
        self.least = self._least_sizes(own.smallest).to(self.dtype)
        z = self.costs.new_zeros(self.count, layer.width)
        if start is not None:
            given = self._there(start)
            z = torch.where(torch.isfinite(given).all(1, keepdim=True), given, z)
        self.masks: Tensor | None = None
        self.there = self._iterate_there(z, layer.iterations, record)

    def _take(self, layer: DavisYin, costs: Tensor, sides: Sides, q: np.ndarray | None) -> None:
        super()._take(layer, costs, sides, q)
        self.device = costs.device
        self.count, n = costs.shape[:-1].numel(), layer.program.n
        self.costs = costs.detach().reshape(self.count, n).to(self.dtype)
        self.curved = layer.program.Q is not None or q is not None

    def _there(self, part: np.ndarray) -> Tensor:
        return torch.as_tensor(part).to(self.device, self.dtype)

    def _sides_there(self, inverse: Tensor) -> SplittingSides:
        """The sides on the device, with (M Mᵀ)⁻¹ given; the program's own are made once."""
        own, key = self.given is self.layer.program.own_sides, ("sides", self.dtype, self.device)
        self.r, self.lower, self.upper, *lengths = self.rows.sides(self.given, self.numbers)
        if own and key in self.rows.elsewhere:
            kept: SplittingSides = self.rows.elsewhere[key]
            return kept
        r, *ends = (self._there(np.array(np.atleast_2d(part), order="C")) for part in (self.r, self.lower, self.upper))
        with FullPrecision():
            shift = r @ inverse
        largest, smallest = (torch.from_numpy(np.array(part, np.float64)).to(self.device) for part in lengths)
        count = max(len(largest), len(smallest))
        found = SplittingSides(shift, *ends, *(part.expand(count).contiguous() for part in (largest, smallest)))
        if own:
            self.rows.elsewhere[key] = found
        return found

    @property
    def c(self) -> np.ndarray:  # type: ignore[override]
        return self.costs.cpu().numpy()

    @cached_property
    def answer(self) -> SplittingAnswer:  # type: ignore[override]
        """What was found, as arrays, for what the CPU does."""
        return SplittingAnswer(*(part.cpu().numpy().copy() for part in self.there))

    def _step_lengths(self, largest: Tensor) -> Tensor:
        """As `Run._steps`."""
        n, mu = self.costs.shape[1], self.mu
        if self.layer.step is not None:
            return self.costs.new_full((self.count,), self.layer.step)
        width = self.high[:, :n] - self.low[:, :n]
        size = torch.where(width > 0, self.costs.abs(), 0)
        reach = torch.where(torch.isfinite(width), width, largest[:, None].to(self.dtype))
        if mu:
            reach = torch.minimum(reach, size / mu)
        lengths = [part.double().square().sum(-1).sqrt().expand(self.count) for part in (reach, size)]
        steps = torch.where(lengths[1] > 0, STEP * lengths[0] / lengths[1], STEP / mu if mu else 1.0)
        if self.curved:
            steps = torch.minimum(steps, CURVED_STEP / self._whole())
        return steps

    def _whole(self) -> Tensor:
        """μ + ‖Q‖ `(count or 1,)`."""
        if self.bend.ndim:
            return torch.from_numpy(self.mu + self.bend).to(self.device)
        return torch.full((1,), self.mu + float(self.bend), dtype=torch.float64, device=self.device)

    def _least_sizes(self, smallest: Tensor) -> Tensor:
        """As `Run._smallest_length`."""
        whole = self._whole()
        most = self.costs.abs().amax(1).double() if self.costs.shape[1] else self.costs.new_zeros(self.count).double()
        pull = torch.where(whole > 0, most / whole, 0.0)
        pull = torch.where((pull > 0) & torch.isfinite(pull), pull, 1.0)
        return torch.where(torch.isfinite(smallest), smallest.double(), pull)

    # -- iterations ---------------------------------------------------------------------------------------------------

    def _kept_shares(self) -> Tensor:
        """κ `(count, N)`: 1 − α μ of the decisions, 1 of the slacks."""
        own = (1 - self.step * self.mu).expand(-1, self.costs.shape[1])
        return torch.cat([own, own.new_ones(self.count, self.layer.width - own.shape[1])], 1)

    def _bent(self, y: Tensor, delta: Tensor) -> Tensor:
        """Q y of the decisions, with zeros for the slacks, `(count, N)`."""
        n = self.costs.shape[1]
        own = y[:, :n]
        turned = (own @ self.matrices.R.T) @ self.matrices.R + delta * own
        return torch.nn.functional.pad(turned, (0, y.shape[1] - n))

    def _loop(self, steps: int, record: bool) -> Callable[..., tuple[Tensor, ...]]:
        """A function of z, α c, κ, α, δ, bounds and (M Mᵀ)⁻¹ r: so many iterations. → z, the one before, x; and the masks."""
        M, T, curved = self.matrices.M, self.matrices.T.T, self.curved

        def run(
            z: Tensor, cost: Tensor, keep: Tensor, step: Tensor, delta: Tensor, low: Tensor, high: Tensor, shift: Tensor
        ) -> tuple[Tensor, ...]:
            before, x, masks = z, z, []
            less, bias = -cost, -shift[0] if len(shift) == 1 else -shift
            for _ in range(steps):
                y = torch.clamp(z, low, high)
                base = torch.addcmul(less - step * self._bent(y, delta) if curved else less, keep, y)
                x = torch.addmm(bias, base + (y - z), T)
                before, z = z, torch.addmm(base, x, M, alpha=-1)
                if record:
                    masks.append((z > low) & (z < high))
            return (z, before, x, torch.stack(masks)) if record else (z, before, x)

        return run

    def _iterate_there(self, z: Tensor, limit: int, record: bool) -> Answer:
        n, N, rule = self.costs.shape[1], z.shape[1], self._rule()
        cost = torch.nn.functional.pad(self.step * self.costs, (0, N - n))
        constants = (cost, self._kept_shares(), self.step, self.delta, self.low, self.high, self.shift)
        whole: list[Tensor] = []
        steps, taken = torch.full((self.count,), limit, device=self.device), 0
        w, residual, moved, last = z[:, :n], torch.zeros_like(steps).double(), torch.zeros_like(steps).double(), z
        prices = residual.new_zeros(self.count, 0 if rule is None else len(self.rows.certifier.stored[0]) - 1)
        undone, goal = torch.ones_like(steps, dtype=torch.bool), torch.full_like(residual, self.tolerance)
        while taken < limit:
            chunk = limit if rule is None else min(CHECK_EVERY, limit - taken)
            taken += chunk
            with FullPrecision():
                z, before, x, *masks = self.captured(
                    (chunk, record, self.curved), self._loop(chunk, record), z, *constants
                )
            whole += masks
            far = self._way(z, before)
            if rule is None:
                w, residual, last = torch.clamp(z, self.low, self.high)[:, :n], far, z
                break
            near = (undone & ((far <= goal) | (taken == limit))).nonzero().squeeze(1)
            if not len(near):
                continue
            point, price, error = self._judged(rule, near, z[near], x[near])
            good = (error <= self.tolerance) | (taken == limit)
            goal[near] = CLOSER * far[near]
            chosen = near[good]
            last = _put(last, chosen, z[chosen])
            w, prices = _put(w, chosen, point[good]), _put(prices, chosen, price[good])
            residual = _put(residual, chosen, error[good] + 0.0 * far[chosen])
            moved, steps = _put(moved, chosen, far[chosen]), _put(steps, chosen, steps.new_full(chosen.shape, taken))
            undone[chosen] = False
            if not bool(undone.any()):
                break
        self.masks = torch.cat(whole) if record else None
        inside = ((last > self.low) & (last < self.high)).to(torch.uint8)
        return Answer(last, inside, w, self._values(w), residual, steps, prices, moved)

    def _way(self, z: Tensor, before: Tensor) -> Tensor:
        """How far z moved last, beside the size of the decisions, `(count,)`."""
        size = torch.maximum(_most(torch.clamp(before, self.low, self.high).abs()), self.least)
        return (_most((z - before).abs()) / size + z.sum(1) * 0).double()

    def _values(self, w: Tensor) -> Tensor:
        wide, c = w.double(), self.costs.double()
        value = (wide * (c + 0.5 * self.mu * wide)).sum(1)
        if self.curved:
            value = value + 0.5 * (wide * self._bent(w, self.delta).double()).sum(1)
        return value

    def _judged(self, rule: Rule, index: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        """Decisions, prices and errors of the instances at `index`, by the CPU: see `kernels.davis_yin.error_of`."""
        n = self.costs.shape[1]
        at, given = z.double().cpu().numpy(), x.double().cpu().numpy()
        w, prices = at[:, :n].copy(), np.zeros((len(at), len(rule.rows[0]) - 1))
        prices[:, rule.place] = -rule.scale * given / self.step[index].double().cpu().numpy()
        prices[:, rule.equalities :][at[:, n:] > 0] = 0.0
        out, least = np.empty(len(at)), self.least.double().cpu().numpy()
        errors_of(rule, self.c, least, index.cpu().numpy(), w, prices, out)
        return tuple(torch.from_numpy(part).to(self.device) for part in (w, prices, out))

    # -- statuses, and the way back -------------------------------------------------------------------------------

    def start(self) -> Tensor:
        return self.there.z.to(self.layer.start_dtype)

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.layer.tolerance is not None:
            return tuple(part.to(self.device) for part in super().outcome())  # type: ignore[return-value]
        residual, found = self.there.residual, self.there.residual <= LARGEST
        status = torch.where(found, int(Status.FEASIBLE), int(Status.FAILED)).to(torch.int8)
        w, value = torch.where(found[:, None], self.there.w, torch.nan), torch.where(found, self.there.value, torch.nan)
        return w, status, value, residual

    def way_back(self, gradient: Tensor) -> Tensor:
        g = gradient.detach().reshape(self.count, -1).to(self.dtype)
        rule = {"jfb": self._jacobian_free_there, "unrolled": self._unrolled_there, "implicit": self._implicit_there}
        with FullPrecision():
            return rule[self.gradient](g).reshape(gradient.shape).to(gradient)

    def _projected(self, g: Tensor) -> Tensor:
        """P g, P the projection onto the null space of M."""
        return torch.addmm(g, g @ self.matrices.T.T, self.matrices.M, alpha=-1)

    def _jacobian_free_there(self, g: Tensor) -> Tensor:
        n = g.shape[1]
        kept = torch.nn.functional.pad(g * self.there.inside[:, :n], (0, self.layer.width - n))
        return -self.step * self._projected(kept)[:, :n]

    def _unrolled_there(self, g: Tensor) -> Tensor:
        assert self.masks is not None
        arguments = (g, self.masks, self.there.iterations, self._kept_shares(), self.step, self.delta)
        return self.captured(("back", self.curved), self._back_through, *arguments)[0]

    def _back_through(
        self, g: Tensor, masks: Tensor, taken: Tensor, keep: Tensor, step: Tensor, delta: Tensor
    ) -> tuple[Tensor]:
        """The derivative through every iteration: see `kernels.davis_yin.adjoint`."""
        n = g.shape[1]
        wide = torch.nn.functional.pad(g, (0, keep.shape[1] - n))
        whole, total = torch.zeros_like(wide), torch.zeros_like(wide)
        for k in range(len(masks), 0, -1):
            whole = torch.where((taken == k)[:, None] & masks[k - 1], wide, whole)
            p = self._projected(whole)
            total = total - step * p
            if k > 1:
                inward = keep * p
                if self.curved:
                    inward = inward - step * self._bent(p, delta)
                whole = torch.where(masks[k - 2], inward, whole - p)
        return (total[:, :n],)

    def _implicit_there(self, g: Tensor) -> Tensor:
        if (
            self.layer.program.Q is None
            and self.q is None
            and (blocks := self.layer.face_blocks(self.device)) is not None
        ):
            inside, in_force = self._masks_of_face()
            out, off = blocks.rows.project(inside, blocks.rows.ordered(in_force), g.double())
            if not bool(off.status.any()):
                return out / -self.mu
        return torch.from_numpy(self._implicit(g.cpu().numpy())).to(g)

    def _masks_of_face(self) -> tuple[Tensor, Tensor]:
        """Which variables lie inside, which rows of the program are in force."""
        n, inside = self.costs.shape[1], self.there.inside
        is_inequality = torch.from_numpy(self.rows.form.is_inequality).to(self.device)
        in_force = inside.new_ones(self.count, len(is_inequality))
        in_force[:, is_inequality] = 1 - inside[:, n:]
        return inside[:, :n].contiguous(), in_force


def _most(parts: Tensor) -> Tensor:
    """The largest of each row of numbers ≥ 0; zero where there is none."""
    return parts.amax(1) if parts.shape[1] else parts.new_zeros(len(parts))


def _put(whole: Tensor, index: Tensor, part: Tensor) -> Tensor:
    return whole.index_copy(0, index, part.to(whole))
