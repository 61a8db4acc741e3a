"""Data: what a run trains and is judged on, read from tables, labelled by exact solves."""

from dflearn.data.conversion import Data as Data, as_dataset as as_dataset
from dflearn.data.dataset import (
    Batch as Batch,
    DecisionDataset as DecisionDataset,
    Split as Split,
    collate as collate,
)
from dflearn.data.split import (
    Parts as Parts,
    parts_of as parts_of,
    rolling_origins as rolling_origins,
    split_rows as split_rows,
)

__all__ = [
    "Batch",
    "Data",
    "DecisionDataset",
    "Parts",
    "Split",
    "as_dataset",
    "collate",
    "parts_of",
    "rolling_origins",
    "split_rows",
]
