"""Losses of predicted costs; each takes the layer that turns them into a decision."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.losses.base import Loss as Loss, LossOutput as LossOutput
    from dflearn.losses.cave import CaVE as CaVE
    from dflearn.losses.combined import Combined as Combined
    from dflearn.losses.fenchel_young import FenchelYoung as FenchelYoung
    from dflearn.losses.function import FunctionLoss as FunctionLoss
    from dflearn.losses.mse import MSE as MSE
    from dflearn.losses.regret import Regret as Regret
    from dflearn.losses.sce import SCE as SCE
    from dflearn.losses.spo_plus import SmoothedSPOPlus as SmoothedSPOPlus, SPOPlus as SPOPlus
    from dflearn.losses.squared_decision_error import SquaredDecisionError as SquaredDecisionError

_NAMES = {
    "dflearn.losses.base": ("Loss", "LossOutput"),
    "dflearn.losses.mse": ("MSE",),
    "dflearn.losses.regret": ("Regret",),
    "dflearn.losses.squared_decision_error": ("SquaredDecisionError",),
    "dflearn.losses.spo_plus": ("SPOPlus", "SmoothedSPOPlus"),
    "dflearn.losses.sce": ("SCE",),
    "dflearn.losses.fenchel_young": ("FenchelYoung",),
    "dflearn.losses.cave": ("CaVE",),
    "dflearn.losses.combined": ("Combined",),
    "dflearn.losses.function": ("FunctionLoss",),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
