"""The whole way from features to decisions: `train` and `decide` on tables, and an estimator of scikit-learn's kind."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.estimator.decisions import Decisions as Decisions, decide as decide
    from dflearn.estimator.regressor import DecisionFocusedRegressor as DecisionFocusedRegressor
    from dflearn.estimator.workflow import TrainResult as TrainResult, train as train

_NAMES = {
    "dflearn.estimator.regressor": ("DecisionFocusedRegressor",),
    "dflearn.estimator.decisions": ("Decisions", "decide"),
    "dflearn.estimator.workflow": ("TrainResult", "train"),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
