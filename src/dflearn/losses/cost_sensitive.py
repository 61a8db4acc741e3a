"""Cost-sensitive regression: errors that cannot change the decision count less (Schutte et al., 2026; arXiv 2605.18005)."""

from __future__ import annotations

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import weight
from dflearn.losses.base import Loss, LossOutput
from dflearn.program import Program

AT_BOUND = 1e-6  # distance at which a decision is at a bound, relative to its size


class CostSensitive(Loss):
    """(1/n) Σ_j ρ_j e_j²,   e = S(ŷ − y),   ρ_j = κ where w*_j is at its lower bound and e_j > 0, or at its upper bound
    and e_j < 0; ρ_j = 1 otherwise.

    Those errors are harmless: eᵀ(w − w*) ≥ 0 for every feasible w, so that w* stays optimal under c + e. With κ = 0 a loss
    of zero therefore means no regret; with κ = 1 this is the squared error of the costs of the variables. Convex, and
    nothing is solved.

    It is the asymmetric part of the paper; its instance-based costs are not here, and costs are not normalized: let the
    model work in units of the costs (`models.Scaled`).

    Args:
        program: its bounds say which errors are harmless.
        harmless: κ in [0, 1].
    """

    known_rows = linear = True

    def __init__(self, program: Program, harmless: float = 0.1) -> None:
        super().__init__()
        self._check_form(program)
        self.program = program
        self.harmless = weight(harmless, "CostSensitive", "harmless from 0 to 1", lambda value: 0 <= value <= 1)

    def extra_repr(self) -> str:
        return f"{self.program!r}, harmless={self.harmless}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, label = self.program.objective, batch.require("decisions")
        error = objective.predicted(predicted - batch.require("costs"))  # without d, which may be much larger
        sides = self.program.sides(batch.instance, label.shape[:-1].numel())
        lower, upper = (
            torch.tensor(bound).to(label).expand(label.shape[:-1].numel(), -1).reshape(label.shape)
            for bound in (sides.lower, sides.upper)
        )
        room = AT_BOUND * label.abs().amax(-1, keepdim=True)
        harmless = ((label - lower <= room) & (error > 0)) | ((upper - label <= room) & (error < 0))
        return LossOutput((torch.where(harmless, self.harmless, 1.0) * error.square()).mean(-1))
