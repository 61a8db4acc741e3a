"""Losses that contrast the label with the decision of a layer: SCE, Fenchel-Young and SPO+; each needs two decisions and no Jacobian.

The label is the data's decision w*, or the smoothed program's own, w_μ(y) = layer(y): solved once for each instance, and kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Layer, one_of
from dflearn.losses.base import Field, Loss, LossOutput, with_slope
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance

Label = Literal["exact", "smoothed"]
BYTES = 2**28  # of decisions that a loss keeps; other instances are solved at each step


class Labels(WithoutCaches):
    """What a loss contrasts with: the data's decision w*, or layer(y), a constant.

    layer(y) is kept by a digest of the costs and the instance's fields, until the layer, its μ, the dtype or the device changes. A layer
    with a state, such as noise or a pool, is asked at each step.
    """

    made_anew: ClassVar[Mapping[str, Callable[[], Any]]] = {"_found": dict, "_of": tuple}

    def __init__(self, label: Label) -> None:
        self.label = one_of("label", label, "exact", "smoothed")
        self._found: dict[bytes, Tensor] = {}
        self._of: tuple[Any, ...] = ()

    def of(self, layer: Layer, batch: Batch) -> tuple[Tensor, float]:
        """The labels of a batch `(*batch, n)`, and the seconds that solving took."""
        if self.label == "exact":
            return batch.require("decisions"), 0.0
        costs, instance = batch.require("costs").detach(), batch.instance
        captured = costs.is_cuda and torch.cuda.is_current_stream_capturing()
        has_state = any(not isinstance(value, dict) or bool(value) for value in layer.state_dict().values())
        if torch.compiler.is_compiling() or captured or has_state:
            return _solved(layer, costs, instance)
        settings = (layer, costs.dtype, costs.device, *(getattr(layer, number) for number in layer.annealed))
        if settings != self._of:
            self._found, self._of = {}, settings
        shape, count = costs.shape[:-1], costs.shape[:-1].numel()
        costs = costs.reshape(count, costs.shape[-1])
        if instance is not None:
            instance = instance.map(lambda value: value.detach().reshape(count, value.shape[-1]))
        keys, spent = _digests(costs, instance), 0.0
        missing = [row for row, key in enumerate(keys) if key not in self._found]
        new: dict[bytes, Tensor] = {}
        if missing or not count:
            rows = torch.tensor(missing, dtype=torch.int64, device=costs.device)
            decisions, spent = _solved(layer, costs[rows], None if instance is None else instance[rows])
            if not count:
                return decisions.reshape(*shape, decisions.shape[-1]), spent
            new = {keys[row]: decision for row, decision in zip(missing, decisions, strict=True)}
        labels = torch.stack([new[key] if key in new else self._found[key] for key in keys])
        if (len(self._found) + len(new)) * labels[0].nbytes <= BYTES:
            self._found |= new
        return labels.reshape(*shape, labels.shape[-1]), spent


def _solved(layer: Layer, costs: Tensor, instance: Instance | None) -> tuple[Tensor, float]:
    """layer(y), always cold: the same instance has the same label whatever was solved before."""
    with torch.no_grad():
        solution = layer.solve(costs, instance).check()
        if solution.deferred and layer.unsettled():  # a GPU left instances to the CPU
            solution = layer.solve(costs, instance).check()
    return solution.decision, solution.seconds


def _digests(costs: Tensor, instance: Instance | None) -> list[bytes]:
    """One per instance: equal where costs and the instance's fields are equal, bit for bit."""
    fields = {} if instance is None else instance.present()
    names = " ".join(fields).encode()
    parts = [np.ascontiguousarray(value.cpu().double().numpy()) for value in (costs, *fields.values())]
    return [
        hashlib.blake2b(names + b"".join(part[row].tobytes() for part in parts), digest_size=16).digest()
        for row in range(len(costs))
    ]


class Contrast(Loss):
    """A loss that contrasts the layer's decision with a label."""

    layer: Layer
    known_rows = True

    def __init__(self, layer: Layer, label: Label, *needs: Field) -> None:
        super().__init__(layer)
        self.labels = Labels(label)
        self.needs = tuple(dict.fromkeys((*needs, "decisions" if label == "exact" else "costs")))

    def extra_repr(self) -> str:
        return f"label={self.labels.label!r}"


class SCE(Contrast):
    """With w = layer(ŷ):

        shifted:  obj(ŷ, w*) − obj(ŷ, w) + obj(y, w) − obj(y, w*)  =  (ŷ − y)ᵀ Sᵀ(w* − w)
        plain:    obj(ŷ, w*) − obj(ŷ, w)

    Through `Exact` both have the subgradient Sᵀ(w* − w); through a differentiable layer they differ. The plain one
    needs no true costs, but is minimized by S ŷ + d = 0 too, where there is no Q.

    Args:
        variant: "shifted" (default) or "plain".
        label: "exact" contrasts with the data's decision w*; "smoothed" with layer(y), see `SmoothedSPOPlus`, which makes the
            shifted loss at least μ‖layer(y) − w‖² through a layer with Ω = (μ/2)‖w‖², where an exact label can make
            it slightly negative.

    Examples:
        >>> loss = dfl.losses.SCE(dfl.Smoothed(program, mu=1.0))
        >>> history = dfl.fit(dfl.models.Linear(10, 12), loss, data, epochs=2)
        >>> history.rows[1]["loss"] < history.rows[0]["loss"]
        True
    """

    by_layer = True

    def __init__(
        self, layer: Layer, *, variant: Literal["shifted", "plain"] = "shifted", label: Label = "exact"
    ) -> None:
        super().__init__(layer, label, *(("costs",) if variant == "shifted" else ()))
        self.variant = one_of("variant", variant, "shifted", "plain")

    def extra_repr(self) -> str:
        return f"variant={self.variant!r}, {super().extra_repr()}"

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


class FenchelYoung(Contrast):
    """obj(ŷ, w*) + Ω(w*) − min over w of (obj(ŷ, w) + Ω(w)),   gradient Sᵀ(w* − layer(ŷ)).

    Through `Smoothed`, Ω = (μ/2)‖w‖². Through `Perturbed` the minimum is the average over the noise and Ω is its conjugate: the value
    leaves out the constant Ω(w*). Through `Exact` it is plain SCE. `Solution.slope`, where there is one, takes the place of Sᵀ layer(ŷ).
    The gradient needs no Jacobian; second derivatives are −Sᵀ(dw/dy), the layer's.

    Args:
        label: "exact", the data's decision w*; or "smoothed", layer(y), see `SmoothedSPOPlus`. Only the latter needs true costs.

    Examples:
        >>> layer = dfl.Perturbed(problem.solver(), sigma=0.5, samples=5, generator=0)
        >>> dfl.losses.FenchelYoung(layer)(predicted, batch).shape
        torch.Size([40])
    """

    def __init__(self, layer: Layer, *, label: Label = "exact") -> None:
        super().__init__(layer, label)

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

    Examples:
        >>> loss = dfl.losses.SPOPlus(dfl.Exact(problem.solver()))
        >>> loss(batch.costs, batch).abs().max()  # no loss at the true costs
        tensor(0.)
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


class SmoothedSPOPlus(Contrast):
    """SPO+ of the smoothed program, the Fenchel-Young loss at the costs of SPO+:

        obj(2ŷ − y, v) + Ω(v) − min over w of (obj(2ŷ − y, w) + Ω(w)),   gradient 2Sᵀ(v − layer(2ŷ − y)).

    Convex and smooth in ŷ, and no Jacobian of the layer is needed. The label v is layer(y), which is solved once for each
    instance and kept: the loss is zero, and least, at ŷ = y (docs/explanation/label.md). With the data's exact decision, v = w*, its
    gradient vanishes at inflated costs instead, which ruins decisions where known costs stand beside predicted ones.
    Through `Exact` (Ω = 0) it is SPO+.

    Args:
        label: "smoothed", v = layer(y); or "exact", v = w*.

    Examples:
        >>> loss = dfl.losses.SmoothedSPOPlus(dfl.Smoothed(program, mu=1.0))
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    def __init__(self, layer: Layer, *, label: Label = "smoothed") -> None:
        super().__init__(layer, label, "costs")

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return fenchel_young(self.layer, 2 * predicted - batch.require("costs"), batch, self.labels)
