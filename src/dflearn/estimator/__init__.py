"""The whole way from features to decisions behind scikit-learn's conventions."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.estimator.regressor import DecisionFocusedRegressor as DecisionFocusedRegressor

_NAMES = {"dflearn.estimator.regressor": ("DecisionFocusedRegressor",)}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
