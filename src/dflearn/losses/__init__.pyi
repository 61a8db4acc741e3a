"""The public names of dflearn.losses, each imported when it is first used."""

from .base import Combined as Combined, FunctionLoss as FunctionLoss, Loss as Loss, LossOutput as LossOutput
from .contrast import SCE as SCE, FenchelYoung as FenchelYoung, SmoothedSPOPlus as SmoothedSPOPlus, SPOPlus as SPOPlus
from .decision import (
    PEAR as PEAR,
    PerturbationGradient as PerturbationGradient,
    Regret as Regret,
    ScoreFunction as ScoreFunction,
    SquaredDecisionError as SquaredDecisionError,
    TaskLoss as TaskLoss,
)
from .optimality import LAVA as LAVA, CaVE as CaVE
from .pool import NCE as NCE, Ranking as Ranking
from .prediction import LODL as LODL, MSE as MSE, CostSensitive as CostSensitive, Quantile as Quantile
