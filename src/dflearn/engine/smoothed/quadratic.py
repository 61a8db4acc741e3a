"""Quadratic objectives: a smoothed quadratic program is a smoothed linear one in other variables.

    min cᵀw + ½ wᵀQ w + (μ/2)‖w‖²   with   Q = RᵀR + diag(δ)   is   min (D c)ᵀv + ½‖v‖² + ½‖z‖²   over   w = D v,   z = R w,

D = diag(δ + μ)^(−1/2): the smoothed LP with μ = 1 over (v, z), with one more row for each row of R. Its exact gradient becomes the
QP's, −Z(Zᵀ(Q + μI)Z)⁻¹Zᵀ on the face, through the same change of variables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.program import Instance, Program, Quadratic
from dflearn.program.arrays import alike
from dflearn.program.sides import Sides

if TYPE_CHECKING:
    from dflearn.engine.smoothed.cpu import Answer, Face, SmoothedRows

KEPT = 64  # different q whose programs are kept


class Substitution:
    """The program over (v, z) for one μ, which may be zero where Q is definite; q `(n,)` is added to Q's diagonal.

    Arrays and tensors `(*batch, n)` alike. The program's equalities are A's, then z = R w.
    """

    def __init__(
        self,
        program: Program,
        mu: float,
        q: np.ndarray | None = None,
        infeasible: Callable[[Program], Callable[[Sides, int], np.ndarray]] | None = None,
    ) -> None:
        Q = program.Q if mu > 0 or program.Q is None else program.Q.definite
        if q is not None:
            Q = Quadratic(diagonal=q) if Q is None else Q.plus(q)
        assert Q is not None
        self.n, self.more, self.mu, self._infeasible = program.n, Q.factor.shape[0], mu, infeasible
        self.scale = 1 / np.sqrt(Q.diagonal + mu)
        self._scales = torch.tensor(self.scale)
        D, z = sp.diags_array(self.scale), sp.eye_array(self.more)
        beside = [sp.csr_array((part.shape[0], self.more)) for part in (program.A, program.G)]
        self.program = Program(
            A=sp.block_array([[program.A @ D, beside[0]], [Q.factor @ D, -z]]) if self.more else program.A @ D,
            b=np.concatenate([program.b, np.zeros(self.more)]),
            G=sp.hstack([program.G @ D, beside[1]]),
            h=program.h,
            lower=self._wide(program.lower / self.scale, -np.inf),
            upper=self._wide(program.upper / self.scale, np.inf),
            n=self.n + self.more,
            name=program.name,
        )
        self._own_sides = program.own_sides

    @cached_property
    def rows(self) -> SmoothedRows:
        """What solves it on the CPU."""
        from dflearn.engine.smoothed.cpu import SmoothedRows  # imports numba

        return SmoothedRows(self.program, self._infeasible)

    def costs(self, c: Any) -> Any:
        """Costs of w, or gradients in w, as those of (v, z), in float64."""
        return self._wide(c.double() * self._scale(c) if isinstance(c, Tensor) else c * self.scale)

    def decision(self, x: Any) -> Any:
        """Decisions (v, z), or gradients in their costs, as those of w."""
        return x[..., : self.n] * self._scale(x)

    def point(self, w: Any) -> Any:
        """Decisions w as (v, 0)."""
        return self._wide(w / self._scale(w))

    def sides(self, sides: Sides) -> Sides:
        if sides is self._own_sides:
            return self.program.own_sides
        ends = self._wide(sides.lower / self.scale, -np.inf), self._wide(sides.upper / self.scale, np.inf)
        return Sides(self._wide(sides.b), sides.h, *ends)

    def instance(self, instance: Instance | None) -> Instance | None:
        """The sides of an instance as tensors, wherever they are; without its d and q."""
        if instance is None:
            return None
        given = {name: value.double() for name, value in instance.present().items() if name not in ("d", "q")}
        if "b" in given:
            given["b"] = self._wide(given["b"])
        for name, end in (("lower", -np.inf), ("upper", np.inf)):
            if name in given:
                given[name] = self._wide(given[name] / self._scale(given[name]), end)
        return Instance(**given)

    def side_gradients(self, found: dict[str, Any]) -> dict[str, Any]:
        """Gradients in the sides of the program over (v, z) as those in the sides given."""
        bounds = {name: found[name][..., : self.n] / self._scale(found[name]) for name in ("lower", "upper")}
        return found | bounds | {"b": found["b"][..., : found["b"].shape[-1] - self.more]}

    def _scale(self, part: Any) -> Any:
        return self._scales.to(part.device) if isinstance(part, Tensor) else self.scale

    def _wide(self, part: Any, value: float = 0.0) -> Any:
        """With entries for z, or for the rows z = R w."""
        shape = (*part.shape[:-1], self.more)
        if isinstance(part, Tensor):
            return torch.cat([part, part.new_full(shape, value)], -1) if self.more else part
        return np.concatenate([part, np.full(shape, value)], -1) if self.more else part


class QuadraticFace(NamedTuple):
    """The faces of a batch: instances at `index` lie on `face`, in the variables of their substitution."""

    size: int
    parts: list[tuple[Any, Substitution, Face]]

    def project(self, v: np.ndarray) -> np.ndarray:
        """(dw/dc)ᵀ v as stated in `Smoothed`, `(count, n)` → `(count, n)`."""
        out = np.empty(v.shape)
        for index, change, face in self.parts:
            out[index] = change.decision(face.project(change.costs(v[index])))
        return out

    def side_gradients(self, sides: Sides, w: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
        """As of `Face.side_gradients`, and in q: for (Q + diag(q)) w + c + Mᵀy = 0 on the face, dw/dq = (dw/dc) diag(w)."""
        whole = {"q": self.project(v) * w}
        for index, change, face in self.parts:
            point, slope = change.point(w[index]), change.costs(v[index])
            found = face.side_gradients(change.sides(sides.rows(index)), point, slope)
            for name, part in change.side_gradients(found).items():
                whole.setdefault(name, np.empty((self.size, part.shape[1])))[index] = part
        return whole

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `QuadraticRows.face` makes it of, where all instances have the same objective."""
        ((_, change, face),) = self.parts
        return face.inside, face.in_force, np.array([change.mu])


class QuadraticRows:
    """The smoothed solver of a program with Q, or for instances with a q: those with the same q are solved together.

    infeasible: of a program, as of `SmoothedRows`.
    """

    def __init__(
        self, program: Program, infeasible: Callable[[Program], Callable[[Sides, int], np.ndarray]] | None = None
    ) -> None:
        self.program, self._infeasible = program, infeasible
        self._kept: dict[bytes, Substitution] = {}

    def at(self, mu: float, q: np.ndarray | None = None) -> Substitution:
        """The program in other variables, for one μ and q `(n,)`."""
        key = b"" if q is None else q.tobytes()
        found = self._kept.get(key)
        if found is None or found.mu != mu:
            found = Substitution(self.program, mu, q, self._infeasible)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(tuple(self._kept))), None)  # a copy: other threads write there too
            self._kept[key] = found
        return found

    def _groups(self, mu: float, q: np.ndarray | None) -> list[tuple[Any, Substitution]]:
        if q is None:
            return [(slice(None), self.at(mu))]
        rows = alike(q) or [(np.zeros(self.program.n), np.arange(0))]  # an empty batch has its shapes too
        return [(index, self.at(mu, row)) for row, index in rows]

    def answer(
        self,
        c: np.ndarray,
        mu: float,
        sides: Sides,
        start: np.ndarray | None,
        tolerance: float,
        q: np.ndarray | None = None,
    ) -> Answer:
        """min cᵀw + ½ wᵀ(Q + diag(q)) w + (μ/2)‖w‖² for c and q `(count, n)`; start: multipliers of the rows over (v, z)."""
        faces, parts = [], []
        for index, change in self._groups(mu, q):
            begin = None if start is None else start[index]
            part = change.rows.answer(change.costs(c[index]), 1.0, change.sides(sides.rows(index)), begin, tolerance)
            faces.append((index, change, part.face))
            parts.append(part._replace(w=change.decision(part.w)))
        face = QuadraticFace(len(c), faces)
        if q is None:
            return parts[0]._replace(face=face)
        back = np.argsort(np.concatenate([index for index, _, _ in faces]))
        none = [np.full(len(part.w), None) if part.reason is None else part.reason for part in parts]
        named = [part._replace(face=None, reason=reason) for part, reason in zip(parts, none, strict=True)]
        joined: list[Any] = [None if one[0] is None else np.concatenate(one)[back] for one in zip(*named, strict=True)]
        whole = type(parts[0])(*joined)
        return whole._replace(face=face, reason=None if all(part.reason is None for part in parts) else whole.reason)

    def face(self, inside: np.ndarray, in_force: np.ndarray, mu: np.ndarray) -> QuadraticFace:
        """The face of `QuadraticFace.arrays`."""
        change, one = self.at(float(mu[0])), np.ones(1)
        return QuadraticFace(len(inside), [(slice(None), change, change.rows.face(inside, in_force, one))])

    def face_of(
        self, inside: np.ndarray, inequalities: np.ndarray, mu: float, q: np.ndarray | None = None
    ) -> QuadraticFace:
        """As of `SmoothedRows.face_of`."""
        parts = []
        for index, change in self._groups(mu, q):
            free = np.ones((len(inside[index]), change.more), np.uint8)
            wide = np.ascontiguousarray(np.hstack([inside[index], free]))
            parts.append((index, change, change.rows.face_of(wide, inequalities[index], 1.0)))
        return QuadraticFace(len(inside), parts)
