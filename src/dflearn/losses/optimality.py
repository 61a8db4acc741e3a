"""Losses that ask whether the label is optimal for the predicted costs: CaVE by its normal cone, LAVA by the vertices next to it."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from dflearn.data import Batch
from dflearn.errors import DflearnError, OptionError
from dflearn.layers.base import held_fixed, weight
from dflearn.layers.normal_cone import NormalCone
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.pickling import WithoutCaches
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.randomness import generator_of
from dflearn.solvers.base import Status


class CaVE(Loss):
    """1 − cos(v, p),   v = −(S ŷ + d + Q w*),   p = layer(ŷ) = projection of v onto the normal cone N of the relaxation at w*.

    w* is optimal for the relaxation if and only if v ∈ N, and then the loss is zero. p is a constant for the gradient.

    Only decisions are needed. Where v is opposite to the whole cone, p = 0 and the loss is one, without a gradient. At an
    integer w* that is no vertex of the relaxation N is too small: it lacks rows that exclude better points but do not bind.

    Args:
        program, variant, iterations: of the layer, see `NormalCone`. "exact" goes to the projection, "inner" a few
            interior-point steps towards it.

    Examples:
        >>> loss = dfl.losses.CaVE(program)
        >>> loss(batch.costs, batch).max() < 1e-6  # zero where the label is optimal
        tensor(True)
    """

    layer: NormalCone
    known_rows = True
    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, program: Program, *, variant: Literal["exact", "inner"] = "exact", iterations: int = 3) -> None:
        super().__init__(NormalCone(program, variant=variant, iterations=iterations))

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        cone = self.layer.at(batch.require("decisions"), batch.instance)
        solution = self.layer.solve(predicted, cone, batch.start).check()
        v = -self.layer.objective.vector(predicted, cone)
        p = held_fixed(solution.decision, v, "CaVE has no second derivatives: use FenchelYoung through Smoothed")
        # Angles do not depend on the size, but `cosine_similarity` below 1e-8 does.
        size = v.detach().abs().amax(-1, keepdim=True)
        return LossOutput(1.0 - cosine_similarity(v / size.where(size > 0, 1.0), p, dim=-1), solution)


class LAVA(WithoutCaches, Loss):
    """Σ over the vertices v next to w* of max(obj(ŷ, w*) − obj(ŷ, v), −ε).

    A vertex of a linear program is optimal if and only if no vertex next to it is better, so the loss is at its least
    exactly where w* is optimal with a margin of ε against each of them. Convex in ŷ, piecewise linear; decisions suffice. The
    vertices of each decision are found once, and kept. For integer programs they are those of the relaxation, and w* must be one.

    Pivots find them. A degenerate vertex (paths, matchings, tours) may have more bases than can be visited: where `bases` are not
    enough, `directions` linear programs over its cone of feasible directions, with random costs, find further edges, perhaps not all.

    Args:
        program: its relaxation is what has vertices.
        margin: ε ≥ 0, in units of the objective.
        bases: of a degenerate vertex, how many to visit.
        directions: how many linear programs to solve where these are not all; 0: none.

    Examples:
        >>> loss = dfl.losses.LAVA(program, margin=0.1)
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    known_rows = linear = True
    needs: tuple[Field, ...] = ("decisions",)
    made_anew: ClassVar = {"_known": dict}

    def __init__(self, program: Program, margin: float = 0.1, *, bases: int = 20, directions: int = 100) -> None:
        super().__init__()
        self._check_form(program)
        if bases < 1 or directions < 0:
            raise OptionError(f"LAVA visits at least one basis and at least 0 directions; got {bases}, {directions}")
        self.program, self.bases, self.directions = program.relax(), int(bases), int(directions)
        self.margin = weight(margin, "LAVA", "a finite margin >= 0", lambda value: value >= 0)
        self._known: dict[bytes, np.ndarray] = {}

    def extra_repr(self) -> str:
        return f"{self.program!r}, margin={self.margin}, bases={self.bases}, directions={self.directions}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        label, n = batch.require("decisions"), self.program.n
        rows = label.detach().cpu().double().reshape(-1, n).numpy()
        sides = self.program.sides(batch.instance, len(rows))
        beside = [self._beside(i, w, sides.row(i)) - w for i, w in enumerate(rows)]
        owner = torch.tensor(np.repeat(np.arange(len(rows)), [len(edges) for edges in beside]), device=predicted.device)
        edges = torch.as_tensor(np.concatenate([np.empty((0, n)), *beside])).to(predicted)
        c = self.program.objective.vector(predicted, batch.instance).reshape(-1, n)
        behind = -(c[owner] * edges).sum(-1).clamp(max=self.margin)
        value = predicted.new_zeros(len(rows)).index_add(0, owner, behind)
        return LossOutput(value.reshape(predicted.shape[:-1]))

    def _beside(self, i: int, w: np.ndarray, sides: Sides) -> np.ndarray:
        key = w.tobytes() + b"".join(part.tobytes() for part in sides.parts().values())
        if key not in self._known:
            try:
                self._known[key] = self._found(w, sides)
            except DflearnError as error:
                raise type(error)(f"instance {i}: {error}") from error
        return self._known[key]

    def _found(self, w: np.ndarray, sides: Sides) -> np.ndarray:
        from dflearn.engine.exact.vertices import Vertex

        vertex = Vertex(self.program, w, sides)
        beside, all_of_them = vertex.by_pivots(self.bases)
        if all_of_them or not self.directions:
            return beside
        from dflearn.solvers.highs import HiGHS

        cone, shape = vertex.cone(), (self.directions, self.program.n)
        costs = torch.zeros(self.directions, cone.n, dtype=torch.float64)
        costs[:, : self.program.n] = torch.randn(shape, generator=generator_of(0), dtype=torch.float64)
        solution = HiGHS(cone).solve(costs)
        solved = solution.status == int(Status.OPTIMAL)
        return vertex.apart(np.vstack([beside, vertex.along(solution.decision[solved].numpy())]))
