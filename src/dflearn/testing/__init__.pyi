"""The public names of dflearn.testing, each imported when it is first used."""

from .layers import check_layer as check_layer
from .losses import check_loss as check_loss
from .optimality import check_optimal as check_optimal, kkt_residuals as kkt_residuals
from .problems import check_problem as check_problem
from .solvers import check_solver as check_solver
