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
from dflearn.cuda.rows import BlockAnswer, BlockRows, Told
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
        nothing: False, for one instance.
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
        self.nothing = torch.zeros(1, dtype=torch.bool, device=device)
        self._mu: tuple[float, Tensor, Tensor] | None = None

    def __str__(self) -> str:
        spilled = f", {self.rows.spilled:.0%} of the factor in global memory" if self.rows.spilled else ""
        return f"{self.device}, {self.rows.plan.threads} threads for each instance{spilled}"

    def _constant(self, part: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(np.atleast_2d(part), np.float64, order="C")).to(self.device)

    def weights(self, mu: float) -> tuple[Tensor, Tensor]:
        """μ and −1/μ as the kernels take them."""
        if self._mu is None or self._mu[0] != mu:
            there: Any = {"dtype": DOUBLE, "device": self.device}
            self._mu = mu, torch.full((1,), mu, **there), torch.full((1,), -1 / mu, **there)
        return self._mu[1], self._mu[2]

    def solve(
        self, c: Tensor, mu: float, instance: Instance | None, start: Tensor | None, tolerance: float
    ) -> BlockAnswer:
        """c `(count, n)` in float64; start `(count, m)`, multipliers of the program's rows. Waits for nothing.

        Rows of y are the plan's. An instance whose numbers make no sense is `FAILED`; the CPU's way then says why.
        """
        r, lower, upper, wrong = self.sides(instance, len(c))
        if wrong is not None:
            c = torch.where(wrong[:, None], torch.nan, c)
        starts = None if start is None else self.rows.inwards(start.to(self.device, DOUBLE))
        return self.rows.solve(c, self.weights(mu)[0], r, lower, upper, starts, tolerance)

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
        answer.y[index] = self.rows.inwards(torch.from_numpy(by.y).to(self.device))


class BlockFace(NamedTuple):
    """The faces that the solutions w of a batch lie on, as of `smoothed.Face` with the squared regularizer."""

    rows: BlockRows
    inside: Tensor
    in_force: Tensor
    factor: Tensor
    watch: Watch
    w: Tensor
    objective: Objective | None = None

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient, `(*batch, n)` → `(*batch, p)`."""
        back = self.to_costs(gradient)
        return back if self.objective is None else self.objective.transpose(back)

    def way_back_again(self, gradient: Tensor, decision: Tensor) -> Tensor:
        back = symmetric(gradient, decision, self.to_costs)
        return back if self.objective is None else self.objective.transpose(back)

    def to_costs(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        v = gradient.detach().to(DOUBLE)
        v = v if v.ndim == 2 else v.reshape(self.inside.shape)
        out, off = self.rows.project(self.inside, self.in_force, v, self.factor)
        for i, x, _ in self._mended(v, off):
            out[i] = self.factor * x
        return (out if gradient.ndim == 2 else out.reshape(gradient.shape)).to(gradient)

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
            x, z = v.new_zeros(v.shape[1]), v.new_zeros(self.rows.plan.m)
            own, prices = projected(matrix[on][:, free].toarray(), v[i].cpu().numpy()[free])
            x[free], z[on] = torch.from_numpy(own).to(v), torch.from_numpy(prices).to(v)
            yield i, x, z
