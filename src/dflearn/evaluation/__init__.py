"""Evaluation: what decisions cost, by every definition of regret, with intervals."""

from dflearn.evaluation.regret import (
    METRICS as METRICS,
    Comparison as Comparison,
    Evaluation as Evaluation,
    compare as compare,
    evaluate as evaluate,
)

__all__ = ["METRICS", "Comparison", "Evaluation", "compare", "evaluate"]
