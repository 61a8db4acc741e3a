"""The public names of dflearn.tables, each imported when it is first used."""

from .decisions import Decisions as Decisions, decide as decide, load as load
from .regressor import DecisionFocusedRegressor as DecisionFocusedRegressor
from .result import TrainResult as TrainResult
from .saving import Imported as Imported
from .spo_tree import SPOTree as SPOTree
from .workflow import train as train
