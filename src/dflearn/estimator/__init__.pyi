"""The public names of dflearn.estimator, each imported when it is first used."""

from .decisions import Decisions as Decisions, decide as decide
from .modules import Imported as Imported
from .regressor import DecisionFocusedRegressor as DecisionFocusedRegressor
from .workflow import TrainResult as TrainResult, train as train
