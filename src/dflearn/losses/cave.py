"""CaVE: the angle between the predicted costs and the cone of costs for which w* is optimal (Tang and Khalil, 2024)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from dflearn.data import Batch
from dflearn.errors import DataError, ProgramError
from dflearn.layers.smoothed import Smoothed
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Instance, Program

TIGHT = 1e-6  # distance, relative to the size of the right-hand side, at which a row or bound binds

VANISHING = 1e-7  # a projection shorter than this, of a vector of length one, is zero


class CaVE(Loss):
    """1 − cos(v, p),   v = −(S ŷ + d),   p = projection of v onto the normal cone N of the LP relaxation at w*.

    w* is optimal for the relaxation if and only if v ∈ N, and then the loss is zero. N is spanned by the rows and bounds
    that bind at w*. It is never formed: p = v − Proj(v onto the tangent cone), and that projection is a smoothed LP with
    zero right-hand sides, on the same kernel, in the memory of one. p is a constant for the gradient.

    Only decisions are needed. Where v is opposite to the whole cone, p = 0 and the loss is one, without a gradient. At an integer w* that is no vertex of the relaxation N is too small a target: rows that do
    not bind at w*, but exclude better points, are missing from it.

    Args:
        program: its relaxation's constraints are the ones that may bind.
        variant: "exact", or "inner": p is where an interior-point method stands after a few steps, strictly inside N.
        iterations: how many steps, for "inner".
    """

    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, program: Program, *, variant: Literal["exact", "inner"] = "exact", iterations: int = 3) -> None:
        if variant not in ("exact", "inner"):
            raise DataError(f"variant is 'exact' or 'inner', got {variant!r}")
        if iterations < 1:
            raise DataError(f"iterations must be at least 1, got {iterations}")
        cone = Program(
            A=program.A, b=0.0, G=program.G, h=0.0, lower=-np.inf, upper=np.inf, n=program.n, name="tangent cone"
        )
        projection = Smoothed(cone, mu=1.0)
        super().__init__(projection if variant == "exact" else None)  # the inner variant has no use for a start
        self.projection = projection
        self.program, self.variant, self.iterations = program.relax(), variant, int(iterations)
        # A row that does not bind gets a right-hand side that no vector of length one reaches.
        self._out_of_reach = 2.0 * np.sqrt(np.asarray(program.G.multiply(program.G).sum(axis=1)).reshape(-1))

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        v = -self.program.objective.vector(predicted, batch.instance)
        unit = v.detach().double() / v.detach().double().norm(dim=-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
        cone = self.tangent_cone(batch.require("decisions"), batch.instance)
        if self.variant == "inner":
            flat = np.ascontiguousarray(-unit.reshape(-1, unit.shape[-1]).cpu().numpy())
            sides = self.projection.program.sides(cone, flat.shape[0])
            target = torch.as_tensor(self.projection.multiplier_slope(flat, sides, self.iterations)).reshape(unit.shape)
            solution = None
        else:
            solution = self.projection.solve(-unit, cone, batch.start).check()
            target = unit.cpu() - solution.decision.detach().cpu()
            # A vector opposite to the whole cone projects to zero; what rounding leaves of it has no direction.
            target = torch.where(target.norm(dim=-1, keepdim=True) > VANISHING, target, 0.0)
        return LossOutput(1.0 - cosine_similarity(v, target.to(v), dim=-1), solution)

    def tangent_cone(self, w: Tensor, instance: Instance | None = None) -> Instance:
        """The directions that stay feasible at w, as right-hand sides and bounds of the cone's program."""
        flat = w.detach().double().reshape(-1, self.program.n).cpu().numpy()
        sides = self.program.sides(instance, flat.shape[0])
        feasible = self.program.is_feasible(w, instance).reshape(-1)
        if not bool(feasible.all()):
            bad = int((~feasible).nonzero()[0])
            raise ProgramError(
                f"instance {bad}: the decision violates the program's constraints, so it has no normal cone; "
                "CaVE needs decisions of this very program"
            )
        slack = sides.h - np.asarray((self.program.G @ flat.T).T)
        tight = slack <= TIGHT * (1 + np.abs(sides.h))
        low = flat - sides.lower <= TIGHT * (1 + np.abs(flat))
        high = sides.upper - flat <= TIGHT * (1 + np.abs(flat))
        field = lambda array: torch.as_tensor(np.ascontiguousarray(array)).reshape(*w.shape[:-1], array.shape[-1])  # noqa: E731
        return Instance(
            h=field(np.where(tight, 0.0, self._out_of_reach)),
            lower=field(np.where(low, 0.0, -np.inf)),
            upper=field(np.where(high, 0.0, np.inf)),
        )
