"""Contract checks for people who write their own solver, layer, loss or problem: call one from a test of your own."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.testing.layers import check_layer as check_layer
    from dflearn.testing.losses import check_loss as check_loss
    from dflearn.testing.optimality import (
        check_optimal as check_optimal,
        kkt_residuals as kkt_residuals,
        lp_bound as lp_bound,
    )
    from dflearn.testing.problems import check_problem as check_problem
    from dflearn.testing.solvers import check_solver as check_solver

_NAMES = {
    "dflearn.testing.layers": ("check_layer",),
    "dflearn.testing.losses": ("check_loss",),
    "dflearn.testing.optimality": ("check_optimal", "kkt_residuals", "lp_bound"),
    "dflearn.testing.problems": ("check_problem",),
    "dflearn.testing.solvers": ("check_solver",),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
