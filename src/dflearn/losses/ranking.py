"""Learning to rank a pool of decisions as the true costs rank them (Mandi et al., 2022)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer, weight
from dflearn.losses.base import Field, LossOutput
from dflearn.losses.pool import PoolLoss

Kind = Literal["pointwise", "pairwise", "pairwise-difference", "listwise"]


class Ranking(PoolLoss):
    """With w₁ … w_m the pool, f = obj(y, w_i), f̂ = obj(ŷ, w_i), and b the best of the pool under y:

        pointwise:            mean over i of (f̂_i − f_i)²
        pairwise:             mean over i ≠ b of max(0, ν + f̂_b − f̂_i)
        pairwise-difference:  mean over i ≠ b of ((f̂_i − f̂_b) − (f_i − f_b))²
        listwise:             −Σ_i p_i log p̂_i,   p = softmax(−f/τ),  p̂ = softmax(−f̂/τ)

    Each is convex in ŷ for a given pool. No optimal decisions are needed, only a pool to begin with.

    Args:
        margin: ν ≥ 0 of "pairwise", in units of the objective.
        temperature: τ > 0 of "listwise", in units of the objective: where it is small beside the differences in the
            pool, p is the best member alone.
    """

    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, kind: Kind = "pairwise", *, margin: float = 0.0, temperature: float = 1.0) -> None:
        super().__init__(layer)
        if kind not in get_args(Kind):
            raise OptionError(f"kind is one of {', '.join(get_args(Kind))}; got {kind!r}")
        self.kind: Kind = kind
        self.margin = weight(margin, "Ranking", "a finite margin >= 0", lambda value: value >= 0)
        self.temperature = weight(temperature, "Ranking", "a finite temperature > 0", lambda value: value > 0)

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, margin={self.margin}, temperature={self.temperature}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        pool, solution = self._pooled(predicted, batch)
        objective, instance = self.layer.objective, batch.instance
        costs = batch.require("costs")
        off = objective.predicted(predicted - costs) @ pool.T  # f̂ − f, without d, which may be much larger
        if self.kind == "pointwise":
            return LossOutput(off.square().mean(-1), solution)
        c, truth = objective.vector(predicted, instance), objective.vector(costs, instance)
        guessed, true = c @ pool.T, truth @ pool.T
        if self.kind == "listwise":
            share = torch.softmax(-true / self.temperature, -1)
            return LossOutput(-(share * torch.log_softmax(-guessed / self.temperature, -1)).sum(-1), solution)
        best = true.argmin(-1, keepdim=True)
        if self.kind == "pairwise":
            each = (self.margin - (guessed - guessed.gather(-1, best))).clamp(min=0)
        else:
            each = (off - off.gather(-1, best)).square()
        others = torch.ones_like(true).scatter(-1, best, 0.0)
        return LossOutput((each * others).sum(-1) / max(len(pool) - 1, 1), solution)
