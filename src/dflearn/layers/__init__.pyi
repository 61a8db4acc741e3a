"""The public names of dflearn.layers, each imported when it is first used."""

from .base import Exact as Exact, Layer as Layer
from .cvxpy import CvxpySmoothed as CvxpySmoothed
from .davis_yin import DavisYin as DavisYin
from .gradient_rules import (
    AdaptiveImplicitMLE as AdaptiveImplicitMLE,
    BlackBox as BlackBox,
    ImplicitMLE as ImplicitMLE,
    NegativeIdentity as NegativeIdentity,
)
from .log_barrier import LogBarrier as LogBarrier
from .perturbed import Perturbed as Perturbed
from .smoothed import Smoothed as Smoothed
