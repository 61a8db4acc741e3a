"""Losses of predicted costs; each takes the layer that turns them into a decision."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.losses.base import Loss as Loss, LossOutput as LossOutput
    from dflearn.losses.fenchel_young import FenchelYoung as FenchelYoung
    from dflearn.losses.sce import SCE as SCE
    from dflearn.losses.spo_plus import SPOPlus as SPOPlus

_NAMES = {
    "dflearn.losses.base": ("Loss", "LossOutput"),
    "dflearn.losses.spo_plus": ("SPOPlus",),
    "dflearn.losses.sce": ("SCE",),
    "dflearn.losses.fenchel_young": ("FenchelYoung",),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
