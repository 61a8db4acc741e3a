"""The public names of dflearn.layers, each imported when it is first used."""

from .base import Exact as Exact, Layer as Layer
from .cvxpy import CvxpySmoothed as CvxpySmoothed
from .davis_yin import DavisYin as DavisYin
from .perturbed import Perturbed as Perturbed
from .smoothed import Smoothed as Smoothed
