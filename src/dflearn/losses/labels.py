"""The smoothed program's own label, w_μ(y) = layer(y): solved once for each instance of the data, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance

Label = Literal["exact", "smoothed"]
BYTES = 2**28  # of decisions that a loss keeps; other instances are solved at each step


def check_label(label: str) -> tuple[Field, ...]:
    """The field of a batch that such a label comes from."""
    if label not in ("exact", "smoothed"):
        raise OptionError(f"label is 'exact' or 'smoothed', got {label!r}")
    return ("decisions",) if label == "exact" else ("costs",)


class Labels(WithoutCaches):
    """What a loss contrasts with: the data's decision w*, or layer(y), a constant.

    layer(y) is kept by a digest of all that it depends on, the costs and the instance's fields. So one store serves the training
    and the validation data, subsets, any order and any process. It is emptied when the layer, its μ, the dtype or the device
    changes. A layer with a state, such as noise or a pool, is asked at each step.
    """

    made_anew: ClassVar[Mapping[str, Callable[[], Any]]] = {"_found": dict, "_of": tuple}

    def __init__(self, label: Label) -> None:
        self.label = label
        self._found: dict[bytes, Tensor] = {}
        self._of: tuple[Any, ...] = ()

    def of(self, layer: Layer, batch: Batch) -> tuple[Tensor, float]:
        """The labels of a batch `(*batch, n)`, and the seconds that solving took."""
        if self.label == "exact":
            return batch.require("decisions"), 0.0
        costs, instance = batch.require("costs").detach(), batch.instance
        settings = (layer, costs.dtype, costs.device, *(getattr(layer, number) for number in layer.annealed))
        if settings != self._of:
            self._found, self._of = {}, settings
        if _has_state(layer) or torch.compiler.is_compiling() or _is_captured(costs):
            return _solved(layer, costs, instance)
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


def _has_state(layer: Layer) -> bool:
    return any(not isinstance(value, dict) or bool(value) for value in layer.state_dict().values())


def _is_captured(costs: Tensor) -> bool:
    return costs.is_cuda and torch.cuda.is_current_stream_capturing()


def _digests(costs: Tensor, instance: Instance | None) -> list[bytes]:
    """One per instance: equal where costs and the instance's fields are equal, bit for bit."""
    fields = {} if instance is None else instance.present()
    names = " ".join(fields).encode()
    parts = [np.ascontiguousarray(value.cpu().double().numpy()) for value in (costs, *fields.values())]
    return [
        hashlib.blake2b(names + b"".join(part[row].tobytes() for part in parts), digest_size=16).digest()
        for row in range(len(costs))
    ]
