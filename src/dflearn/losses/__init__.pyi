"""The public names of dflearn.losses, each imported when it is first used."""

from .base import Loss as Loss, LossOutput as LossOutput
from .cave import CaVE as CaVE
from .combined import Combined as Combined
from .cost_sensitive import CostSensitive as CostSensitive
from .fenchel_young import FenchelYoung as FenchelYoung
from .function import FunctionLoss as FunctionLoss
from .lava import LAVA as LAVA
from .mse import MSE as MSE
from .nce import NCE as NCE
from .pear import PEAR as PEAR
from .perturbation_gradient import PerturbationGradient as PerturbationGradient
from .quantile import Quantile as Quantile
from .ranking import Ranking as Ranking
from .regret import Regret as Regret
from .sce import SCE as SCE
from .score_function import ScoreFunction as ScoreFunction
from .spo_plus import SmoothedSPOPlus as SmoothedSPOPlus, SPOPlus as SPOPlus
from .squared_decision_error import SquaredDecisionError as SquaredDecisionError
from .task import TaskLoss as TaskLoss
