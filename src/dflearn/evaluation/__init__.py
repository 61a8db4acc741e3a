"""Evaluation: what decisions cost, by every definition of regret, with intervals."""

from dflearn.evaluation.comparison import Comparison as Comparison, compare as compare
from dflearn.evaluation.regret import (
    METRICS as METRICS,
    Evaluation as Evaluation,
    Regrets as Regrets,
    evaluate as evaluate,
    regrets_of as regrets_of,
)

__all__ = ["METRICS", "Comparison", "Evaluation", "Regrets", "compare", "evaluate", "regrets_of"]
