"""Training: `fit` and what belongs to it."""

from dflearn.training.callbacks import Anneal, Callback
from dflearn.training.loop import Tuning, fit, tune
from dflearn.training.run import Run
from dflearn.training.validation import History

__all__ = ["Anneal", "Callback", "History", "Run", "Tuning", "fit", "tune"]
