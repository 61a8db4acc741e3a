"""Data: what a run trains and is judged on, read from tables, labelled by exact solves."""

from dflearn.data.conversion import Data as Data, as_dataset as as_dataset
from dflearn.data.dataset import (
    Batch as Batch,
    DecisionDataset as DecisionDataset,
    Split as Split,
    collate as collate,
)
from dflearn.data.split import split_rows as split_rows

__all__ = ["Batch", "Data", "DecisionDataset", "Split", "as_dataset", "collate", "split_rows"]
