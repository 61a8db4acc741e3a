"""SCE: self-contrastive estimation (Mulamba et al., 2021), the loss of the paper that this library grew from."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput


class SCE(Loss):
    """With w = layer(ŷ):

        shifted:  obj(ŷ, w*) − obj(ŷ, w) + obj(y, w) − obj(y, w*)  =  (ŷ − y)ᵀ Sᵀ(w* − w)
        plain:    obj(ŷ, w*) − obj(ŷ, w)

    Through `Exact` both have the subgradient Sᵀ(w* − w); through a differentiable layer they differ. The plain one
    needs no true costs, but is minimized by S ŷ + d = 0 too, where there is no Q.

    Args:
        label: "exact" contrasts with the data's decision w*; "smoothed" with layer(y), constant, which makes the
            shifted loss at least μ‖layer(y) − w‖² through a layer with Ω = (μ/2)‖w‖², where an exact label can make
            it slightly negative. It costs a second solve; where that matters, put layer(y) in the data's decisions.
    """

    layer: Layer
    known_rows = True
    by_layer = True

    def __init__(
        self,
        layer: Layer,
        *,
        variant: Literal["shifted", "plain"] = "shifted",
        label: Literal["exact", "smoothed"] = "exact",
    ) -> None:
        super().__init__(layer)
        if variant not in ("shifted", "plain"):
            raise OptionError(f"variant is 'shifted' or 'plain', got {variant!r}")
        if label not in ("exact", "smoothed"):
            raise OptionError(f"label is 'exact' or 'smoothed', got {label!r}")
        self.variant, self.label = variant, label
        costs: tuple[Field, ...] = ("costs",) if variant == "shifted" or label == "smoothed" else ()
        decisions: tuple[Field, ...] = ("decisions",) if label == "exact" else ()
        self.needs = costs + decisions

    def extra_repr(self) -> str:
        return f"variant={self.variant!r}, label={self.label!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, instance = self.layer.objective, batch.instance
        solution = self.layer.solve(predicted, instance, batch.start).check()
        if self.label == "exact":
            label = batch.require("decisions")
        else:
            with torch.no_grad():
                contrast = self.layer.solve(batch.require("costs"), instance).check()
            label = contrast.decision
            solution = replace(solution, seconds=solution.seconds + contrast.seconds)
        if self.variant == "plain":
            value = objective.difference(predicted, label, solution.decision, instance)
        else:
            difference = objective.transpose(label - solution.decision)
            value = ((predicted - batch.require("costs")) * difference).sum(-1)
        return LossOutput(value, solution)
