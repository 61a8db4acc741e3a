"""The public names of dflearn.data, each imported when it is first used."""

from .dataset import (
    Batch as Batch,
    Data as Data,
    DecisionDataset as DecisionDataset,
    Split as Split,
    as_dataset as as_dataset,
    collate as collate,
)
from .labels import label_by_neighbours as label_by_neighbours
from .split import (
    Parts as Parts,
    parts_of as parts_of,
    rolling_origins as rolling_origins,
    split_rows as split_rows,
)
