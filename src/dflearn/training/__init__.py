"""Training: `fit` and what belongs to it."""

from dflearn.training.annealing import Anneal as Anneal
from dflearn.training.callbacks import Callback as Callback
from dflearn.training.history import History as History
from dflearn.training.loop import fit as fit
from dflearn.training.run import Run as Run
from dflearn.training.tuning import Tuning as Tuning, tune as tune

__all__ = ["Anneal", "Callback", "History", "Run", "Tuning", "fit", "tune"]
