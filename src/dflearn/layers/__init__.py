"""Differentiable maps from costs to decisions."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.layers.base import Exact as Exact, Layer as Layer
    from dflearn.layers.cvxpy import CvxpySmoothed as CvxpySmoothed
    from dflearn.layers.davis_yin import DavisYin as DavisYin
    from dflearn.layers.perturbed import Perturbed as Perturbed
    from dflearn.layers.smoothed import Smoothed as Smoothed

_NAMES = {
    "dflearn.layers.base": ("Exact", "Layer"),
    "dflearn.layers.perturbed": ("Perturbed",),
    "dflearn.layers.smoothed": ("Smoothed",),
    "dflearn.layers.davis_yin": ("DavisYin",),
    "dflearn.layers.cvxpy": ("CvxpySmoothed",),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
