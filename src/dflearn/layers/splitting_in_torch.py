"""The batches of `DavisYin` on a GPU: the iterations of `kernels.davis_yin` as products with dense matrices.

With M w̃ = r the scaled, ordered rows, T = (M Mᵀ)⁻¹ M and v as there,

    x = T v − (M Mᵀ)⁻¹ r,      z⁺ = κ y − α c − Mᵀ x

A loop of a fixed number of iterations is captured as a CUDA graph when it comes for the second time (`dense_rows.Captured`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.splitting import SplittingSides
from dflearn.kernels.davis_yin import CHECK_EVERY, MOST_ROUNDING
from dflearn.kernels.optimality import FAR_PRICE, SILENT
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
        self.right, self.shift, self.low, self.high = own.r, own.shift, own.lower, own.upper
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
        found = SplittingSides(r, shift, *ends, *(part.expand(count).contiguous() for part in (largest, smallest)))
        if own:
            self.rows.elsewhere[key] = found
        return found

    @property
    def c(self) -> np.ndarray:  # type: ignore[override]
        return self.costs.cpu().numpy()

    @property
    def answer(self) -> Any:  # type: ignore[override]
        return self.there

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
        n, N, tolerance = self.costs.shape[1], z.shape[1], self.tolerance
        cost = torch.nn.functional.pad(self.step * self.costs, (0, N - n))
        keep = self._kept_shares()
        constants = (cost, keep, self.step, self.delta, self.low, self.high, self.shift)
        chunk = CHECK_EVERY if tolerance > 0 else limit
        whole: list[Tensor] = []
        done, answer, taken = torch.zeros(self.count, dtype=torch.bool, device=self.device), None, 0
        while taken < limit:
            steps = min(chunk, limit - taken)
            taken += steps
            with FullPrecision():
                z, before, x, *masks = self.captured(
                    (steps, record, self.curved), self._loop(steps, record), z, *constants
                )
                whole += masks
                fresh = self._looked_at(z, before, x, cost, taken)
            if answer is None:
                answer = fresh
            else:
                answer = Answer(*(_chosen(done, old, new) for old, new in zip(answer, fresh, strict=True)))
            if tolerance > 0:
                done = done | (fresh.residual <= tolerance)
                if bool(done.all()):
                    break
        assert answer is not None
        self.masks = torch.cat(whole) if record else None
        return answer

    def _looked_at(self, z: Tensor, before: Tensor, x: Tensor, cost: Tensor, taken: int) -> Answer:
        n = self.costs.shape[1]
        y = torch.clamp(z, self.low, self.high)
        gap = (z - before).abs().amax(1)
        size = torch.maximum(torch.clamp(before, self.low, self.high).abs().amax(1), self.least)
        w, missing = self._residual(y[:, :n], x, cost[:, :n])
        residual = torch.maximum(gap / size, missing) + z.sum(1) * 0
        wide, c = w.double(), self.costs.double()
        value = (wide * (c + 0.5 * self.mu * wide)).sum(1)
        if self.curved:
            value = value + 0.5 * (wide * self._bent(w, self.delta)[:, :n].double()).sum(1)
        inside = ((z > self.low) & (z < self.high)).to(torch.uint8)
        steps = torch.full((self.count,), taken, device=self.device)
        return Answer(z, inside, w, value, residual.double(), steps)

    def _residual(self, w: Tensor, x: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        """w, what rounding left of zeros in it removed where there is a tolerance; and as `relative_residual` of the kernels."""
        own, alpha, mu, n = self.matrices, self.step, self.mu, w.shape[1]
        low, high = self.low[:, :n], self.high[:, :n]
        x = torch.where(own.inequality, x.clamp(min=0), x)
        turn = torch.zeros_like(w)
        turn_size = turn
        if self.curved:
            image = w @ own.R.T
            turn_size = alpha * (image.abs() @ own.R.abs() + self.delta * w.abs())
            turn = alpha * (image @ own.R + self.delta * w)
        pull = (alpha * mu * w).abs() + turn_size
        felt = torch.where((w > low) & (w < high), torch.maximum(cost.abs(), pull), pull)
        largest = torch.maximum(self.least, _most(w.abs()))
        prices, costs = _most(x.abs()), _most(torch.maximum(cost.abs(), pull))
        rounding = min(16.0 * torch.finfo(self.dtype).eps, MOST_ROUNDING)
        faint = rounding * torch.maximum(_most(felt), torch.minimum(prices, FAR_PRICE * costs))
        quiet = rounding * largest
        if self.tolerance > 0:
            w = torch.where(w.abs() > quiet[:, None], w, torch.clamp(torch.zeros_like(w), low, high))
        smooth = alpha * mu * w
        reduced = cost + smooth + turn + x @ own.M[:, :n]
        total = cost.abs() + smooth.abs() + turn_size + x.abs() @ own.sizes
        wrong = torch.maximum((w < high) * (-reduced).clamp(min=0), (w > low) * reduced.clamp(min=0))
        wrong = torch.where(total > faint[:, None], wrong, 0)
        worst = _most(torch.where(wrong > 0, wrong / total, 0))
        value = ((cost * w).abs() + 0.5 * (smooth * w).abs() + 0.5 * (turn * w).abs()).sum(1)
        room = torch.where(reduced > 0, w - low, high - w)
        loss = torch.where(wrong > 0, wrong * torch.minimum(room, largest[:, None]), 0).sum(1)
        gap, size = w @ own.M[:, :n].T - self.right, w.abs() @ own.sizes.T + self.right.abs()
        broken = (gap.abs() > quiet[:, None]) | (size > SILENT * quiet[:, None])
        wrong = torch.where(broken, gap.abs(), 0)
        loss = loss + (wrong * x.abs()).sum(1)
        wrong = torch.where(wrong > 0, wrong / size, 0)
        row, column, entry = own.entries
        part = entry * x.abs().index_select(1, row)
        share = torch.where(part > faint[:, None], part / total.index_select(1, column), 0)
        shares = torch.zeros_like(wrong).scatter_reduce(1, row.expand(len(w), -1), share, "amax")
        wrong = torch.where(own.inequality & ~(gap > 0), torch.minimum(wrong, shares), wrong)
        worst = torch.maximum(worst, _most(wrong))
        loss = torch.where(loss > faint * largest, loss, 0)
        return w, torch.maximum(worst, torch.where(loss > 0, loss / (value + loss), 0))

    # -- statuses, and the way back -------------------------------------------------------------------------------

    def start(self) -> Tensor:
        return self.there.z.to(self.layer.start_dtype)

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        residual = self.there.residual
        usual = Status.FEASIBLE if self.layer.tolerance is None else Status.OPTIMAL
        found = residual <= (self.tolerance or LARGEST)
        status = torch.where(torch.isfinite(residual), int(Status.NOT_FOUND), int(Status.FAILED))
        status = torch.where(found, int(usual), status).to(torch.int8)
        if self.layer.tolerance is not None and not bool(found.all()):
            codes = status.cpu().numpy()
            with np.errstate(invalid="ignore", over="ignore"):
                self._explain(codes)
            status = torch.from_numpy(codes).to(self.device)
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
        self._bring_home()
        return torch.from_numpy(self._implicit(g.cpu().numpy())).to(g)

    def _masks_of_face(self) -> tuple[Tensor, Tensor]:
        """Which variables lie inside, which rows of the program are in force."""
        n, inside = self.costs.shape[1], self.there.inside
        is_inequality = torch.from_numpy(self.rows.form.is_inequality).to(self.device)
        in_force = inside.new_ones(self.count, len(is_inequality))
        in_force[:, is_inequality] = 1 - inside[:, n:]
        return inside[:, :n].contiguous(), in_force

    def _bring_home(self) -> None:
        """What the CPU needs to know of a face, as an array."""
        if isinstance(self.there.inside, Tensor):
            self.there = self.there._replace(inside=self.there.inside.cpu().numpy())  # type: ignore[arg-type]

    def side_gradients(self, w: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
        self._bring_home()
        return super().side_gradients(w, v)


def _most(parts: Tensor) -> Tensor:
    """The largest of each row of numbers ≥ 0; zero where there is none."""
    return parts.amax(1) if parts.shape[1] else parts.new_zeros(len(parts))


def _chosen(done: Tensor, old: Tensor, new: Tensor) -> Tensor:
    return torch.where(done if old.ndim == 1 else done[:, None], old, new)
