"""Losses that contrast the label with the decision of a layer: SCE, Fenchel-Young and SPO+; each needs two decisions and no Jacobian."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput, with_slope
from dflearn.losses.labels import Label, Labels, check_label


class SCE(Loss):
    """With w = layer(ŷ):

        shifted:  obj(ŷ, w*) − obj(ŷ, w) + obj(y, w) − obj(y, w*)  =  (ŷ − y)ᵀ Sᵀ(w* − w)
        plain:    obj(ŷ, w*) − obj(ŷ, w)

    Through `Exact` both have the subgradient Sᵀ(w* − w); through a differentiable layer they differ. The plain one
    needs no true costs, but is minimized by S ŷ + d = 0 too, where there is no Q.

    Args:
        label: "exact" contrasts with the data's decision w*; "smoothed" with layer(y), see `SmoothedSPOPlus`, which makes the
            shifted loss at least μ‖layer(y) − w‖² through a layer with Ω = (μ/2)‖w‖², where an exact label can make
            it slightly negative.
    """

    layer: Layer
    known_rows = True
    by_layer = True

    def __init__(
        self,
        layer: Layer,
        *,
        variant: Literal["shifted", "plain"] = "shifted",
        label: Label = "exact",
    ) -> None:
        super().__init__(layer)
        if variant not in ("shifted", "plain"):
            raise OptionError(f"variant is 'shifted' or 'plain', got {variant!r}")
        self.variant, self.labels = variant, Labels(label)
        costs: tuple[Field, ...] = ("costs",) if variant == "shifted" else ()
        self.needs = tuple(dict.fromkeys(costs + check_label(label)))

    def extra_repr(self) -> str:
        return f"variant={self.variant!r}, label={self.labels.label!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, instance = self.layer.objective, batch.instance
        label, spent = self.labels.of(self.layer, batch)
        solution = self.layer.solve(predicted, instance, batch.start).check()
        solution = solution.timed(solution.seconds + spent)
        if self.variant == "plain":
            value = objective.difference(predicted, label, solution.decision, instance)
        else:
            difference = objective.transpose(label - solution.decision)
            value = ((predicted - batch.require("costs")) * difference).sum(-1)
        return LossOutput(value, solution)


class FenchelYoung(Loss):
    """obj(ŷ, w*) + Ω(w*) − min over w of (obj(ŷ, w) + Ω(w)),   gradient Sᵀ(w* − layer(ŷ)).

    Through `Smoothed`, Ω = (μ/2)‖w‖². Through `Perturbed` the minimum is the average over the noise and Ω is its
    conjugate, unknown in closed form: the value then leaves out the constant Ω(w*). Through `Exact` it is plain SCE.
    Where the optimum of the layer has another gradient than Sᵀ layer(ŷ), `Solution.slope`, it takes its place.
    The gradient needs no Jacobian; second derivatives are −Sᵀ(dw/dy), the layer's.

    Args:
        label: "exact", the data's decision w*; or "smoothed", layer(y), see `SmoothedSPOPlus`. Only the latter needs true costs.
    """

    layer: Layer
    known_rows = True

    def __init__(self, layer: Layer, *, label: Label = "exact") -> None:
        super().__init__(layer)
        self.labels, self.needs = Labels(label), check_label(label)

    def extra_repr(self) -> str:
        return f"label={self.labels.label!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return fenchel_young(self.layer, predicted, batch, self.labels)


def fenchel_young(layer: Layer, costs: Tensor, batch: Batch, labels: Labels) -> LossOutput:
    """The Fenchel-Young loss of the batch's labels at any costs `(*batch, p)`."""
    (label, spent), instance = labels.of(layer, batch), batch.instance
    solution = layer.solve(costs, instance, batch.start).check()
    solution = solution.timed(solution.seconds + spent)
    c, difference = layer.objective.vector(costs, instance), label - solution.decision
    exact = label.double()  # what is left of two large numbers
    at_label = layer.objective(costs.detach().double(), exact, instance) + layer.regularization(exact)
    value = (at_label.detach() - solution.objective.to(at_label)).to(costs)
    if solution.slope is None:
        loss = with_slope(c, value, difference)  # by Danskin's theorem: with the decision held fixed
    else:
        loss = with_slope(costs, value, layer.objective.transpose(label) - solution.slope.to(costs))
    if label.requires_grad:
        loss = loss + (at_label - at_label.detach()).to(loss)
    return LossOutput(loss, solution)


class SPOPlus(Loss):
    """obj(2ŷ − y, w*) − obj(2ŷ − y, w̃),   w̃ = layer(2ŷ − y).

    The known part of the objective enters once, since 2(Sŷ + d) − (Sy + d) = S(2ŷ − y) + d, and likewise Q.
    Through `Exact`: subgradient 2Sᵀ(w* − w̃). Through a differentiable layer: the full gradient
    2Sᵀ(w* − w̃) − 2(∂w̃)ᵀ(S(2ŷ − y) + d + Q w̃).
    """

    layer: Layer
    known_rows = True
    by_layer = True
    exact = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        shifted = 2 * predicted - batch.require("costs")
        solution = self.layer.solve(shifted, batch.instance, batch.start).check()
        pair = batch.require("decisions"), solution.decision
        return LossOutput(self.layer.objective.difference(shifted, *pair, batch.instance), solution)


class SmoothedSPOPlus(Loss):
    """SPO+ of the smoothed program, the Fenchel-Young loss at the costs of SPO+:

        obj(2ŷ − y, v) + Ω(v) − min over w of (obj(2ŷ − y, w) + Ω(w)),   gradient 2Sᵀ(v − layer(2ŷ − y)).

    Convex and smooth in ŷ, and no Jacobian of the layer is needed. The label v is layer(y), which is solved once for each
    instance and kept: the loss is zero, and least, at ŷ = y (docs/explanation/label.md). With the data's exact decision, v = w*, its
    gradient vanishes at inflated costs instead, which ruins decisions where known costs stand beside predicted ones.
    Through `Exact` (Ω = 0) it is SPO+.

    Args:
        label: "smoothed", v = layer(y); or "exact", v = w*.
    """

    layer: Layer
    known_rows = True

    def __init__(self, layer: Layer, *, label: Label = "smoothed") -> None:
        super().__init__(layer)
        self.labels, self.needs = Labels(label), tuple(dict.fromkeys(("costs", *check_label(label))))

    def extra_repr(self) -> str:
        return f"label={self.labels.label!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return fenchel_young(self.layer, 2 * predicted - batch.require("costs"), batch, self.labels)
