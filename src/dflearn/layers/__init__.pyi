"""The public names of dflearn.layers, each imported when it is first used."""

from .base import Exact as Exact, Layer as Layer
from .black_box import BlackBox as BlackBox
from .cvxpy import CvxpySmoothed as CvxpySmoothed
from .davis_yin import DavisYin as DavisYin
from .implicit_mle import AdaptiveImplicitMLE as AdaptiveImplicitMLE, ImplicitMLE as ImplicitMLE
from .log_barrier import LogBarrier as LogBarrier
from .negative_identity import NegativeIdentity as NegativeIdentity
from .perturbed import Perturbed as Perturbed
from .smoothed import Smoothed as Smoothed
