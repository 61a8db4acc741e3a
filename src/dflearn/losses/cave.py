"""CaVE: the angle between the predicted costs and the cone of costs for which w* is optimal (Tang and Khalil, 2024)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import cosine_similarity

from dflearn.data import Batch
from dflearn.layers.base import held_fixed
from dflearn.layers.normal_cone import NormalCone
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Program


class CaVE(Loss):
    """1 − cos(v, p),   v = −(S ŷ + d + Q w*),   p = layer(ŷ) = projection of v onto the normal cone N of the relaxation at w*.

    w* is optimal for the relaxation if and only if v ∈ N, and then the loss is zero. p is a constant for the gradient.

    Only decisions are needed. Where v is opposite to the whole cone, p = 0 and the loss is one, without a gradient. At an
    integer w* that is no vertex of the relaxation N is too small a target: rows that do not bind at w*, but exclude
    better points, are missing from it.

    Args:
        program, variant, iterations: of the layer, see `NormalCone`. "exact" goes to the projection, "inner" a few
            interior-point steps towards it.
    """

    layer: NormalCone
    known_rows = True
    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, program: Program, *, variant: Literal["exact", "inner"] = "exact", iterations: int = 3) -> None:
        super().__init__(NormalCone(program, variant=variant, iterations=iterations))

    def __repr__(self) -> str:
        """Checkpoints compare it: it is the one of their first version, which knew no `NormalCone`."""
        names = ("layer", "projection") if self.layer.variant == "exact" else ("projection",)
        return "\n".join(["CaVE(", *(f"  ({name}): {self.layer.tangent!r}" for name in names), ")"])

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        cone = self.layer.at(batch.require("decisions"), batch.instance)
        solution = self.layer.solve(predicted, cone, batch.start).check()
        v = -self.layer.objective.vector(predicted, cone)
        p = held_fixed(solution.decision, v, "CaVE has no second derivatives: use FenchelYoung through Smoothed")
        size = (
            v.detach().abs().amax(-1, keepdim=True)
        )  # angles do not depend on it, `cosine_similarity` below 1e-8 does
        return LossOutput(1.0 - cosine_similarity(v / size.where(size > 0, 1.0), p, dim=-1), solution)
