"""Exact solvers: costs in, one `Solution` out."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.solvers.base import Solution as Solution, Solver as Solver, Status as Status
    from dflearn.solvers.highs import HiGHS as HiGHS

_NAMES = {
    "dflearn.solvers.base": ("Solution", "Solver", "Status"),
    "dflearn.solvers.highs": ("HiGHS",),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
