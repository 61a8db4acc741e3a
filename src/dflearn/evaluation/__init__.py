"""Evaluation: what decisions cost, by every definition of regret, with intervals."""

from dflearn.evaluation.comparison import Comparison, compare
from dflearn.evaluation.regret import METRICS, Evaluation, Regrets, evaluate, regrets_of

__all__ = ["METRICS", "Comparison", "Evaluation", "Regrets", "compare", "evaluate", "regrets_of"]
