"""Losses over a pool of feasible decisions that grows while training: NCE (Mulamba et al., 2021) and rankings (Mandi et al., 2022)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer, one_of, weight
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.solvers.base import Solution
from dflearn.solvers.wrappers import Pooled


class PoolLoss(Loss):
    """A loss over the decisions that `Exact(Pooled(solver, ratio, initial=…))` knows.

    Each batch asks the layer at ŷ first, which solves it with probability `ratio`, and the pool grows by what it found.
    """

    layer: Layer
    known_rows = linear = exact = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        if not isinstance(layer.solver, Pooled):
            remedy = 'pass Exact(Pooled(solver, ratio, per="batch", initial=data.decisions))'
            raise OptionError(
                f"{type(self).__name__} compares with a pool of decisions, and {layer!r} has none: {remedy}"
            )
        self._pool = layer.solver

    def _pooled(self, predicted: Tensor, batch: Batch) -> tuple[Tensor, Solution]:
        """The pool `(size, n)` after this batch, in the dtype and on the device of ŷ, and the layer's answer."""
        solution = self.layer.solve(predicted.detach(), batch.instance, batch.start).check()
        return self._pool.decisions.to(predicted), solution


class NCE(PoolLoss):
    """mean over w in the pool of

        plain:    obj(ŷ, w*) − obj(ŷ, w)
        shifted:  (ŷ − y)ᵀ Sᵀ(w* − w)

    Linear in ŷ, so that only the mean of the pool matters: gradient Sᵀ(w* − w̄). With the pool's best member in place of
    its mean it is contrastive MAP, which is `SCE` through the same layer. `variant` is "plain" or "shifted".

    Examples:
        >>> loss = dfl.losses.NCE(dfl.Exact(dfl.Pooled(problem.solver(), ratio=0.1, generator=0)))
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    def __init__(self, layer: Layer, *, variant: Literal["plain", "shifted"] = "plain") -> None:
        super().__init__(layer)
        self.variant = one_of("variant", variant, "plain", "shifted")
        self.needs = ("decisions",) if variant == "plain" else ("costs", "decisions")

    def extra_repr(self) -> str:
        return f"variant={self.variant!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        pool, solution = self._pooled(predicted, batch)
        difference = batch.require("decisions") - pool.mean(0)
        if self.variant == "plain":
            return LossOutput(self.layer.objective(predicted, difference, batch.instance), solution)
        error = predicted - batch.require("costs")
        return LossOutput((error * self.layer.objective.transpose(difference)).sum(-1), solution)


Kind = Literal["pointwise", "pairwise", "pairwise-difference", "listwise"]


class Ranking(PoolLoss):
    """With w₁ … w_m the pool, f = obj(y, w_i), f̂ = obj(ŷ, w_i), and b the best of the pool under y:

        pointwise:            mean over i of (f̂_i − f_i)²
        pairwise:             mean over i ≠ b of max(0, ν + f̂_b − f̂_i)
        pairwise-difference:  mean over i ≠ b of ((f̂_i − f̂_b) − (f_i − f_b))²
        listwise:             −Σ_i p_i log p̂_i,   p = softmax(−f/τ),  p̂ = softmax(−f̂/τ)

    Each is convex in ŷ for a given pool. No optimal decisions are needed, only a pool to begin with.

    Args:
        layer: `Exact` of a `Pooled` solver, which has the pool.
        kind: which of the four, "pairwise" by default.
        margin: ν ≥ 0 of "pairwise", in units of the objective.
        temperature: τ > 0 of "listwise", in units of the objective: where it is small beside the differences in the
            pool, p is the best member alone.

    Examples:
        >>> pooled = dfl.Pooled(problem.solver(), ratio=0.1, initial=data.decisions, generator=0)
        >>> loss = dfl.losses.Ranking(dfl.Exact(pooled), "listwise")
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, kind: Kind = "pairwise", *, margin: float = 0.0, temperature: float = 1.0) -> None:
        super().__init__(layer)
        self.kind: Kind = one_of("kind", kind, *get_args(Kind))
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
