"""Data: what a run trains and is judged on, read from tables, labelled by exact solves."""

from dflearn.data.dataset import (
    Batch as Batch,
    DecisionDataset as DecisionDataset,
    Split as Split,
    collate as collate,
)

__all__ = ["Batch", "DecisionDataset", "Split", "collate"]
