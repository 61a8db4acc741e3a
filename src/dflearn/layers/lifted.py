"""A smoothed quadratic program as a smoothed linear one, by a change of variables.

    min cᵀw + ½ wᵀQ w + (μ/2)‖w‖²   with   Q = RᵀR + diag(δ)   is   min (D c)ᵀv + ½‖v‖² + ½‖z‖²   over   w = D v,   z = R w,

D = diag(δ + μ)^(−1/2): the smoothed LP with μ = 1 over (v, z), with one more row for each of R, which the kernels solve as
any other. Its exact gradient becomes the QP's, −Z(Zᵀ(Q + μI)Z)⁻¹Zᵀ on the face, through the same two maps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.layers.sides import moved_by
from dflearn.program import Instance, Program, Quadratic
from dflearn.program.arrays import alike
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, joined

if TYPE_CHECKING:
    from dflearn.layers.smoothed import Smoothed


class Lifted:
    """The layer over (v, z) for one program with Q and one μ, which may be zero where Q is definite; q `(n,)` is added to Q's
    diagonal."""

    def __init__(self, program: Program, mu: float, tolerance: float = 1e-10, q: np.ndarray | None = None) -> None:
        from dflearn.layers.smoothed import Smoothed

        Q = program.Q if mu > 0 or program.Q is None else program.Q.definite
        if q is not None:
            Q = Quadratic(diagonal=q) if Q is None else Q.plus(q)
        assert Q is not None
        self.n, self.more, self.mu = program.n, Q.factor.shape[0], mu
        scale = 1 / np.sqrt(Q.diagonal + mu)
        D, z = sp.diags_array(scale), sp.eye_array(self.more)
        beside = [sp.csr_array((part.shape[0], self.more)) for part in (program.A, program.G)]
        rows = sp.block_array([[program.A @ D, beside[0]], [Q.factor @ D, -z]]) if self.more else program.A @ D
        free = np.full(self.more, np.inf)
        whole = Program(
            A=rows,
            b=np.concatenate([program.b, np.zeros(self.more)]),
            G=sp.hstack([program.G @ D, beside[1]]),
            h=program.h,
            lower=np.concatenate([program.lower / scale, -free]),
            upper=np.concatenate([program.upper / scale, free]),
            n=self.n + self.more,
            name=program.name,
        )
        self.layer: Smoothed = Smoothed(whole, mu=1.0, tolerance=tolerance)
        if self.more:
            self.layer.lift = sp.csr_array(D @ Q.squares @ D)
        self.scale = torch.tensor(scale)

    def solve(self, costs: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        """The answer for c `(*batch, n)`, differentiable in c. Its start is the multipliers of rows, those of R last but for G."""
        solution = self.layer._solve(self.widened(costs), self.instance(instance), start)
        return replace(solution, decision=self.narrowed(solution.decision).to(costs))

    def widened(self, part: Tensor, *, divide: bool = False) -> Tensor:
        """Costs or gradients of w `(*batch, n)` as those of (v, z), in float64; or (divide) decisions, with z left zero."""
        scale, part = self.scale.to(part.device), part.double()
        return self._with_entries(part / scale if divide else part * scale)

    def narrowed(self, part: Tensor, *, divide: bool = False) -> Tensor:
        """Decisions (v, z), or gradients in their costs, as those of w `(*batch, n)`; or (divide) gradients in bounds."""
        scale, part = self.scale.to(part.device), part[..., : self.n]
        return part / scale if divide else part * scale

    def face(self, inside: np.ndarray, inequalities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A face of the program as one over (v, z), for `SmoothedRows`: which variables lie inside `(count, n)`, which rows of G
        are in force `(count, rows)`."""
        form, count = self.layer.rows.form, len(inside)
        wide = np.hstack([inside, np.ones((count, self.more), np.uint8)])
        rows = np.hstack([np.ones((count, len(form.kept)), np.uint8), inequalities])
        return np.ascontiguousarray(wide), self.layer.rows.ordered(rows)

    def way_back(self, inside: np.ndarray, inequalities: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(dw/dc)ᵀ v on such a face, `(count, n)` → `(count, n)`."""
        scale = self.scale.numpy()
        wide = np.hstack([v * scale, np.zeros((len(v), self.more))])
        back: np.ndarray = -scale * self.layer.rows.project(*self.face(inside, inequalities), wide)[:, : self.n]
        return back

    def side_gradients(
        self, inside: np.ndarray, inequalities: np.ndarray, sides: Sides, w: np.ndarray, v: np.ndarray
    ) -> dict[str, np.ndarray]:
        """By name, (dw/d side)ᵀ v on such a face; w and v `(count, n)`."""
        scale, none = self.scale.numpy(), np.zeros((len(v), self.more))
        ends = (np.hstack([np.broadcast_to(side / scale, v.shape), none]) for side in (sides.lower, sides.upper))
        wide = (np.hstack([part, none]) for part in (w / scale, v * scale))
        own = Sides(sides.b, sides.h, *ends)
        found = self.layer.rows.side_gradients(*self.face(inside, inequalities), own, *wide)
        bounds = {name: found[name][:, : self.n] / scale for name in ("lower", "upper")}
        return {"b": found["b"][:, : sides.b.shape[-1]], "h": found["h"], **bounds}

    def _with_entries(self, part: Tensor, value: float = 0.0) -> Tensor:
        """With entries for z."""
        if not self.more:
            return part
        return torch.cat([part, part.new_full((*part.shape[:-1], self.more), value)], -1)

    def instance(self, instance: Instance | None) -> Instance | None:
        if instance is None:
            return None
        given = {name: value.double() for name, value in instance.present().items() if name not in ("d", "q")}
        if "b" in given:
            given["b"] = self._with_entries(given["b"])
        for name, end in (("lower", -np.inf), ("upper", np.inf)):
            if name in given:
                given[name] = self._with_entries(given[name] / self.scale.to(given[name].device), end)
        return Instance(**given)


class Bent:
    """The `Lifted` of each q that instances have, for one program and one μ; the last ones are kept."""

    KEPT = 64

    def __init__(self, program: Program, mu: float, tolerance: float = 1e-10) -> None:
        self.program, self.mu, self.tolerance = program, mu, tolerance
        self._kept: dict[bytes, Lifted] = {}

    def groups(self, q: np.ndarray) -> list[tuple[Lifted, np.ndarray]]:
        """For q `(count, n)`, what solves the instances that have the same one, and their numbers."""
        return [(self._of(row), index) for row, index in alike(q)]

    def _of(self, q: np.ndarray) -> Lifted:
        key = q.tobytes()
        found = self._kept.get(key)
        if found is None:
            found = Lifted(self.program, self.mu, self.tolerance, q)
            found.layer.in_blocks = False  # a plan for each q would cost more than it brings
            while len(self._kept) >= self.KEPT:
                self._kept.pop(next(iter(tuple(self._kept))), None)  # a copy: other threads write there too
            self._kept[key] = found
        return found

    def solve(self, costs: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        """The answer for c `(*batch, n)`, differentiable in c, in the instance's sides and in its q."""
        assert instance is not None
        assert instance.q is not None
        batch, q = costs.shape[:-1], instance.q
        point: list[Tensor] = []
        flat = with_curvature(costs, q, point).reshape(-1, costs.shape[-1])
        own, starts = flat_instance(instance, len(flat)), None if start is None else start.reshape(len(flat), -1)
        parts, places = [], []
        for lifted, index in self.groups(flat_q(q)):
            parts.append(lifted.solve(flat[index], own[index], None if starts is None else starts[index]))
            places.append(index)
        whole = joined(parts, places, batch)
        if starts is not None:
            back = np.argsort(np.concatenate(places))
            rows = torch.cat([part.start for part in parts if part.start is not None])[back]
            whole = replace(whole, start=rows.reshape(start.shape if start is not None else rows.shape))
        point.append(whole.decision.detach())
        return whole


def flat_q(q: Tensor) -> np.ndarray:
    """q `(*batch, n)` as float64 `(count, n)`."""
    return np.ascontiguousarray(q.detach().cpu().double().reshape(-1, q.shape[-1]).numpy()) + 0.0


def flat_instance(instance: Instance, count: int) -> Instance:
    """The instance with one row for each of `count`."""
    return instance.map(lambda part: part.reshape(count, part.shape[-1]))


def with_curvature(costs: Tensor, q: Tensor, point: list[Tensor]) -> Tensor:
    """The costs c `(*batch, n)`, whose gradient flows to q too: dw/dq = (dw/dc) diag(w), w the decision that `point` will hold.

    For (Q + diag(q)) w + c + Mᵀy = 0 on the face: what dq does to w is what diag(w) dq in place of dc does.
    """
    if not (q.requires_grad and torch.is_grad_enabled()):
        return costs
    return moved_by(costs, lambda gradient: ((gradient * point[0].to(gradient)).to(q),), q)
