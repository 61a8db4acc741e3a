"""The public names of dflearn.data, each imported when it is first used."""

from .conversion import Data as Data, as_dataset as as_dataset
from .dataset import (
    Batch as Batch,
    DecisionDataset as DecisionDataset,
    Split as Split,
    collate as collate,
)
from .neighbours import label_by_neighbours as label_by_neighbours
from .split import (
    Parts as Parts,
    parts_of as parts_of,
    rolling_origins as rolling_origins,
    split_rows as split_rows,
)
