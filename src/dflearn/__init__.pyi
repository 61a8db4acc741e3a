"""The public names of dflearn, each imported when it is first used."""

from . import (
    data as data,
    errors as errors,
    evaluation as evaluation,
    layers as layers,
    losses as losses,
    models as models,
    problems as problems,
    solvers as solvers,
    testing as testing,
    training as training,
)
from ._version import __version__ as __version__
from .data import Batch as Batch, DecisionDataset as DecisionDataset
from .data.labels import label as label
from .doctor import Diagnosis as Diagnosis, diagnose as diagnose
from .evaluation import Evaluation as Evaluation, compare as compare, evaluate as evaluate
from .frontends.cvxpy import CvxpyProgram as CvxpyProgram, from_cvxpy as from_cvxpy
from .frontends.files import from_lp as from_lp, from_mps as from_mps
from .frontends.gurobi import from_gurobi as from_gurobi
from .frontends.linear_model import as_instances as as_instances
from .frontends.pyepo import from_pyepo as from_pyepo, to_pyepo as to_pyepo
from .frontends.pyomo import from_pyomo as from_pyomo
from .frontends.scipy import from_linprog as from_linprog, from_milp as from_milp
from .layers.base import Exact as Exact, Layer as Layer
from .layers.cvxpy import CvxpySmoothed as CvxpySmoothed
from .layers.davis_yin import DavisYin as DavisYin
from .layers.perturbed import Perturbed as Perturbed
from .layers.smoothed import Smoothed as Smoothed
from .program import Instance as Instance, Objective as Objective, Program as Program, Quadratic as Quadratic
from .solvers.base import Solution as Solution, Solver as Solver, Status as Status
from .solvers.callable import from_callable as from_callable
from .solvers.gurobi import Gurobi as Gurobi
from .solvers.highs import HiGHS as HiGHS
from .solvers.scip import SCIP as SCIP
from .solvers.wrappers import Parallel as Parallel, Pooled as Pooled
from .tables import (
    DecisionFocusedRegressor as DecisionFocusedRegressor,
    decide as decide,
    load as load,
    train as train,
)
from .training import Callback as Callback, History as History, fit as fit, tune as tune
