"""dflearn: decision-focused learning for linear and mixed-integer programs."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy
from dflearn._version import __version__

if TYPE_CHECKING:
    from dflearn import errors as errors, losses as losses, problems as problems
    from dflearn.data import Batch as Batch, DecisionDataset as DecisionDataset
    from dflearn.layers.base import Exact as Exact, Layer as Layer
    from dflearn.layers.perturbed import Perturbed as Perturbed
    from dflearn.program import Instance as Instance, Objective as Objective, Program as Program
    from dflearn.solvers.base import Solution as Solution, Solver as Solver, Status as Status
    from dflearn.solvers.highs import HiGHS as HiGHS

_NAMES = {
    "dflearn": ("errors", "losses", "problems"),
    "dflearn.program": ("Instance", "Objective", "Program"),
    "dflearn.solvers.base": ("Solution", "Solver", "Status"),
    "dflearn.solvers.highs": ("HiGHS",),
    "dflearn.layers.base": ("Exact", "Layer"),
    "dflearn.layers.perturbed": ("Perturbed",),
    "dflearn.data": ("Batch", "DecisionDataset"),
}

__all__ = ["__version__", *(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
