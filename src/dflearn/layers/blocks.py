"""`Smoothed` on a GPU: costs, faces and starts stay there, and nothing waits for it.

Kernels answer with a status per instance. Where a gradient is wanted, as in a training step, the statuses travel to the host
beside the work that follows and are looked at before the next solve, or when someone asks (`watch`); otherwise, and from the
first instance on that the kernels did not finish, a solve waits for them, and the CPU's own ways finish those instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.driver import Machine, gpu
from dflearn.cuda.rows import BlockAnswer, BlockRows, Costs, Told
from dflearn.layers.base import symmetric
from dflearn.layers.watch import Watch
from dflearn.program import Instance, Objective, Program
from dflearn.program.equality_form import CONTRADICTION
from dflearn.program.maps import LinearMap
from dflearn.program.sides import Side

if TYPE_CHECKING:
    from dflearn.kernels.smoothed import SmoothedAnswer
    from dflearn.layers.rows import SmoothedRows

DOUBLE = torch.float64


def blocks_on(program: Program, device: torch.device) -> SmoothedBlocks:
    """The program on a CUDA device; `NotHere` says why it cannot be there."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return SmoothedBlocks(program, gpu(index), torch.device(device.type, index))


class SmoothedBlocks:
    """A program on one device.

    Attributes:
        rows: its rows, with the kernels.
        own_right_hand_side: r of the plan's rows, where an instance has none of its own, `(1, m)`.
        origin_is_feasible: whether w = 0 is, with the program's sides.
        takes_y: whether the kernels take y and make c of it, in the way that `costs` says; `None`: c is y.
    """

    def __init__(self, program: Program, machine: Machine, device: torch.device, threads: int | None = None) -> None:
        self.program, self.device = program, device
        self.rows = BlockRows(program, machine, device, threads)
        form, own = self.rows.form, program.own_sides
        self._own = {name: self._constant(part) for name, part in own.parts().items()}
        self.own_right_hand_side = self.rows.right_hand_side(self._constant(form.right_hand_side(own)))
        right = form.right_hand_side(own)
        inside = bool((own.lower <= 0).all() and (own.upper >= 0).all())
        self.origin_is_feasible = inside and bool(np.where(form.is_inequality, right >= 0, right == 0).all())
        self._kept = torch.from_numpy(form.kept).to(device)
        self._dropped = torch.from_numpy(form.dropped).to(device)
        self._implied = LinearMap(form.combination) if len(form.dropped) else None
        self._implied_sizes = LinearMap(abs(form.combination)) if len(form.dropped) else None
        self._matrix = LinearMap(form.rows_without_slacks())
        objective = program.objective
        self.costs = Costs.of(objective, device) if objective.S is not None or objective.d.any() else None
        self.takes_y = self.costs is not None or (objective.S is None and not objective.d.any())
        self._mu: tuple[float, Tensor, Tensor] | None = None
        self._nothing: Tensor | None = None

    def __str__(self) -> str:
        spilled = f", {self.rows.spilled:.0%} of the factor in global memory" if self.rows.spilled else ""
        rows = self.rows
        wider = f", {rows.wide} for each of up to {rows.multiprocessors}" if rows.wide > rows.threads else ""
        return f"{self.device}, {rows.threads} threads for each instance{wider}{spilled}"

    def _constant(self, part: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(np.atleast_2d(part), np.float64, order="C")).to(self.device)

    def nothing(self, count: int) -> Tensor:
        """False for each instance: which of them were solved alone."""
        kept = self._nothing  # read once: another thread may put its own there meanwhile
        if kept is None or len(kept) != count:
            self._nothing = kept = torch.zeros(1, dtype=torch.bool, device=self.device).expand(count)
        return kept

    def weights(self, mu: float) -> tuple[Tensor, Tensor]:
        """μ and −1/μ as the kernels take them."""
        kept = self._mu
        if kept is None or kept[0] != mu:
            there: Any = {"dtype": DOUBLE, "device": self.device}
            self._mu = kept = mu, torch.full((1,), mu, **there), torch.full((1,), -1 / mu, **there)
        return kept[1], kept[2]

    def solve(
        self,
        c: Tensor,
        mu: float,
        instance: Instance | None,
        start: Tensor | None,
        tolerance: float,
        *,
        costs: Costs | None = None,
        multipliers: bool = True,
    ) -> BlockAnswer:
        """c `(count, n)`, or y as of `BlockRows.solve`; start `(count, m)`, multipliers of the program's rows. Waits for nothing.

        Rows of y are the plan's. An instance whose numbers make no sense is `FAILED`; the CPU's way then says why.
        """
        r, lower, upper, wrong = self.sides(instance, len(c))
        if wrong is not None:
            c = torch.where(wrong[:, None], torch.nan, c)
        starts = None if start is None else self.rows.inwards(start.to(self.device, DOUBLE))
        mus = self.weights(mu)[0]
        return self.rows.solve(c, mus, r, lower, upper, starts, tolerance, costs=costs, multipliers=multipliers)

    def side(self, name: Side, instance: Instance | None, count: int) -> Tensor:
        """b, h, lower or upper: `(count, k)`, or `(1, k)` where it is the program's."""
        value = None if instance is None else getattr(instance, name)
        return (
            self._own[name] if value is None else value.detach().to(self.device, DOUBLE).reshape(count, value.shape[-1])
        )

    def sides(self, instance: Instance | None, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """r of the plan's rows, lower and upper; and which instances cannot be, where they have sides of their own."""
        if instance is None:
            return self.own_right_hand_side, self._own["lower"], self._own["upper"], None
        given = instance.present()
        self.program.check_shapes(given, count)
        lower, upper = self.side("lower", instance, count), self.side("upper", instance, count)
        if not given.keys() - {"d"}:
            return self.own_right_hand_side, lower, upper, None
        wrong = ~((lower <= upper) & (lower < torch.inf) & (upper > -torch.inf)).all(1)
        if "b" not in given and "h" not in given:
            return self.own_right_hand_side, lower, upper, wrong
        b, h = self.side("b", instance, count), self.side("h", instance, count)
        kept = b.index_select(1, self._kept)
        parts = [part.expand(count, -1) for part in (kept, h)]
        rows = torch.cat(parts, 1)
        wrong = wrong | ~torch.isfinite(rows).all(1)
        if self._implied is not None and self._implied_sizes is not None and "b" in given:
            rest = b.index_select(1, self._dropped)
            size = rest.abs() + self._implied_sizes(kept.abs())
            wrong = wrong | ~((self._implied(kept) - rest).abs() <= CONTRADICTION * size).all(1)
        return self.rows.right_hand_side(rows), lower, upper, wrong

    def side_gradients(
        self, face: BlockFace, instance: Instance, names: list[str]
    ) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """The way back to those sides of the instance, as of `layers.sides`."""
        w, count = face.w, len(face.w)
        lower, upper = self.side("lower", instance, count), self.side("upper", instance, count)

        def way_back(gradient: Tensor) -> tuple[Tensor, ...]:
            v = gradient.detach().reshape(w.shape).to(DOUBLE)
            z, kept = face.prices(v), len(self._kept)
            b = torch.zeros(count, self.program.A.shape[0], dtype=DOUBLE, device=self.device)
            b.index_copy_(1, self._kept, z[:, :kept])
            pressed = torch.where(face.inside > 0, 0.0, v - self._matrix.transpose(z))
            low, high = (w - lower).abs(), (w - upper).abs()
            share = torch.where(low < high, 1.0, torch.where(low > high, 0.0, 0.5)).to(DOUBLE)
            found = {"b": b, "h": z[:, kept:], "lower": share * pressed, "upper": (1 - share) * pressed}
            values = (getattr(instance, name) for name in names)
            return tuple(found[name].reshape(like.shape).to(like) for name, like in zip(names, values, strict=True))

        return way_back

    def replace(
        self, answer: BlockAnswer, index: Tensor, by: SmoothedAnswer, status: np.ndarray, rows: SmoothedRows
    ) -> None:
        """The answers to the instances at `index` become the CPU's."""
        in_force, bound = np.empty_like(by.in_force), np.where(status, -np.inf, by.objective)
        in_force[:, rows.factor.order] = by.in_force
        mine = (answer.w, answer.inside, answer.objective, answer.bound, answer.residual, answer.status)
        for own, theirs in zip(mine, (by.w, by.inside, by.objective, bound, by.residual, status), strict=True):
            own[index] = torch.from_numpy(theirs).to(self.device)
        answer.in_force[index] = self.rows.ordered(torch.from_numpy(in_force).to(self.device))
        if answer.y is not None:
            answer.y[index] = self.rows.inwards(torch.from_numpy(by.y).to(self.device))
        answer.decision[index] = answer.w[index].to(answer.decision)


class BlockFace(NamedTuple):
    """The faces that the solutions w of a batch lie on, as of `smoothed.Face` with the squared regularizer."""

    rows: BlockRows
    inside: Tensor
    in_force: Tensor
    factor: Tensor
    watch: Watch
    w: Tensor
    objective: Objective | None = None
    costs: Costs | None = None

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient, `(*batch, n)` → `(*batch, p)`."""
        if self.objective is None or self.costs is None or self.watch.waiting:
            back = self.to_costs(gradient)
            return back if self.objective is None else self.objective.transpose(back)
        return self._led(gradient, self.costs)

    def way_back_again(self, gradient: Tensor, decision: Tensor) -> Tensor:
        back = symmetric(gradient, decision, self.to_costs)
        return back if self.objective is None else self.objective.transpose(back)

    def to_costs(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        return self._led(gradient, None)

    def _led(self, gradient: Tensor, costs: Costs | None) -> Tensor:
        v = gradient.detach()
        if v.dtype not in (DOUBLE, torch.float32):
            v = v.to(DOUBLE)
        v = v if v.ndim == 2 else v.reshape(self.inside.shape)
        out, off = self.rows.project(self.inside, self.in_force, v, self.factor, costs)
        for i, x, _ in self._mended(v, off):
            out[i] = (self.factor * x).to(out)
        return (out if gradient.ndim == 2 else out.reshape(*gradient.shape[:-1], out.shape[-1])).to(gradient)

    def prices(self, v: Tensor) -> Tensor:
        """(dw/dr)ᵀ v `(count, m)` for right-hand sides of the program's rows; v `(count, n)`."""
        out, off = self.rows.prices(self.inside, self.in_force, v)
        for i, _, z in self._mended(v, off):
            out[i] = z
        return self.rows.outwards(out)

    def _mended(self, v: Tensor, off: Told) -> Iterator[tuple[int, Tensor, Tensor]]:
        """P v and prices of the instances that the kernel left, if the layer waits for them; else it is told later."""
        if not self.watch.waiting:
            self.watch.begin(*off)
            return
        status = off.status
        if (status.is_cuda and torch.cuda.is_current_stream_capturing()) or not bool(status.any()):
            return
        from dflearn.layers.faces import projected

        matrix = self.rows.plan.matrix
        for i in status.nonzero().squeeze(1).tolist():
            free, on = (part[i].cpu().numpy().nonzero()[0] for part in (self.inside, self.in_force))
            x, z = v.new_zeros(v.shape[1], dtype=DOUBLE), v.new_zeros(self.rows.plan.m, dtype=DOUBLE)
            own, prices = projected(matrix[on][:, free].toarray(), v[i].cpu().double().numpy()[free])
            x[free], z[on] = torch.from_numpy(own).to(x), torch.from_numpy(prices).to(x)
            yield i, x, z
