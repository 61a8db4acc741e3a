"""`as_dataset`: what people have as data, as a `DecisionDataset`."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, Subset, TensorDataset

from dflearn.data.dataset import DecisionDataset
from dflearn.errors import DataError

Data = DecisionDataset | Subset[Any] | TensorDataset


def as_dataset(data: Data, name: str = "data") -> DecisionDataset:
    """The data as a `DecisionDataset`: as they are, or made from torch's own kinds where that leaves no doubt.

    A `TensorDataset` of two tensors holds features and costs; of three, features, costs and decisions. A `Subset` of any of
    these is its part. Everything else is refused, with what to do instead.
    """
    if isinstance(data, DecisionDataset):
        return data
    if isinstance(data, Subset):
        if len(data.indices) and all(
            str(getattr(one, "dtype", type(one).__name__)).endswith("bool") for one in data.indices
        ):
            raise DataError(
                f"{name} is a Subset by a mask, whose True and False torch reads as rows 1 and 0: pass row numbers, "
                "mask.nonzero().flatten(), or DecisionDataset.subset(mask)"
            )
        return as_dataset(data.dataset, name).subset(list(data.indices))  # type: ignore[arg-type]
    if isinstance(data, TensorDataset) and len(data.tensors) in (2, 3):
        features, costs = data.tensors[:2]
        return DecisionDataset(features, costs, data.tensors[2] if len(data.tensors) == 3 else None)
    if isinstance(data, TensorDataset):
        raise DataError(
            f"{name} is a TensorDataset of {len(data.tensors)} tensors, which do not say what they are: name them, "
            "DecisionDataset(features, costs=…, decisions=…)"
        )
    if isinstance(data, DataLoader):
        raise DataError(
            f"{name} is a DataLoader, and batches are drawn here, by `seed`: pass its data set, loader.dataset, and "
            f"batch_size={data.batch_size}"
        )
    if isinstance(data, (tuple, list)) and len(data) in (2, 3):
        decisions = ", decisions=…" if len(data) == 3 else ""
        raise DataError(
            f"{name} is a {type(data).__name__} of {len(data)}: name its parts, DecisionDataset(features, costs=…{decisions}), "
            "which are floating-point tensors with one row per instance"
        )
    raise DataError(
        f"{name} must be a DecisionDataset; got a {type(data).__name__}: make one, "
        "DecisionDataset(features, costs=…), of floating-point tensors with one row per instance"
    )
