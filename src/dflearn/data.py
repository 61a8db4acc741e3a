"""Data with names: `Batch` (what a loss sees) and `DecisionDataset` (what a run trains and is judged on)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from dflearn.errors import DataError
from dflearn.program import Instance


@dataclass(frozen=True)
class Batch:
    """Some instances. Every field but the features may be missing.

    Attributes:
        features: `(*batch, k)` for a joint predictor, or `(*batch, p, k)` for one shared by all cost coefficients.
        costs: true costs y, `(*batch, p)`.
        decisions: optimal (or observed) decisions w*, `(*batch, n)`.
        instance: what differs between instances (right-hand sides, bounds, d).
        ids: dataset-wide instance numbers, int64 `(*batch,)`.
        start: what the layer may start from, `(*batch, width)`; put there by the training run.
    """

    features: Tensor
    costs: Tensor | None = None
    decisions: Tensor | None = None
    instance: Instance | None = None
    ids: Tensor | None = None
    start: Tensor | None = None

    def require(self, field: Literal["costs", "decisions", "ids"]) -> Tensor:
        value = getattr(self, field)
        if value is None:
            raise DataError(f"this batch holds no {field}")
        return value

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """As of `Tensor.to`; ids keep their dtype."""
        moved = {
            f.name: value.to(*args, **kwargs)
            for f in fields(self)
            if (value := getattr(self, f.name)) is not None and f.name not in ("ids", "start")
        }
        return replace(self, **moved)


class DecisionDataset(torch.utils.data.Dataset[Batch]):
    """A whole data set by named fields, held as tensors; slicing gives batches."""

    def __init__(
        self,
        features: Tensor,
        costs: Tensor | None = None,
        decisions: Tensor | None = None,
        instance: Instance | None = None,
        ids: Tensor | None = None,
    ) -> None:
        count = features.shape[0]
        self.features, self.costs, self.decisions, self.instance = features, costs, decisions, instance
        self.ids = torch.arange(count) if ids is None else ids
        named = {"costs": costs, "decisions": decisions, "ids": self.ids, **(instance.present() if instance else {})}
        for name, value in named.items():
            if value is not None and value.shape[:1] != (count,):
                raise DataError(f"{name} has {tuple(value.shape)} where the features have {count} rows")

    def __len__(self) -> int:
        return self.features.shape[0]

    def __repr__(self) -> str:
        held = [name for name in ("costs", "decisions", "instance") if getattr(self, name) is not None]
        return f"DecisionDataset({len(self)} instances, features {tuple(self.features.shape[1:])}, {', '.join(held)})"

    def batch(self, index: Any = slice(None)) -> Batch:
        """The instances at `index` (anything that indexes a tensor)."""
        pick = lambda value: None if value is None else value[index]  # noqa: E731
        return Batch(
            self.features[index],
            pick(self.costs),
            pick(self.decisions),
            pick(self.instance),
            self.ids[index],
        )

    def __getitem__(self, index: Any) -> Batch:
        return self.batch(index)
