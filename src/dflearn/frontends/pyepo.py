"""Models of PyEPO as programs, and programs and solvers as models of PyEPO."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.errors import OptionError, ProgramError, ShapeError, optional
from dflearn.frontends.gurobi import from_gurobi
from dflearn.frontends.linear_model import to_minimize
from dflearn.frontends.pyomo import from_pyomo
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solver
from dflearn.solvers.highs import HiGHS


def from_pyepo(optmodel: Any) -> Program:
    """The program of `optmodel`, a PyEPO `optModel` on Gurobi or Pyomo: y are the costs that its `setObj` takes, in that order.

    The variables are those of the underlying model, so that a decision may have more entries than PyEPO's solution. A model that
    maximizes keeps its sense: costs are values, S is −I. The model itself is left as it was.

    Refused: models with quadratic constraints (PyEPO's portfolio), with constraints from a callback (its DFJ tours), and
    other back ends, whose own `solve` may serve through `from_callable`.

    Examples:
        >>> from pyepo.model.grb.knapsack import knapsackModel
        >>> dfl.from_pyepo(knapsackModel(weights=[[3, 4, 5]], capacity=[7])).n
        3
    """
    optional("pyepo.model.opt", "bench", "from_pyepo")
    from pyepo.model.grb.grbmodel import optGrbModel
    from pyepo.model.omo.omomodel import optOmoModel

    if isinstance(optmodel, optGrbModel):
        return _from_gurobi(optmodel)
    if isinstance(optmodel, optOmoModel):
        return _from_pyomo(optmodel)
    raise OptionError(
        f"from_pyepo reads models on Gurobi or Pyomo; got {optmodel!r}. Build it on one of these, or solve it as it is: "
        "from_callable(lambda c: (optmodel.setObj(c), optmodel.solve())[1][0], n=optmodel.num_cost), with −c to maximize"
    )


def _from_gurobi(optmodel: Any) -> Program:
    """c as a function of y is found by trying: d is c at y = 0, and column k of S is c − d at the k-th unit vector."""
    program = from_gurobi(optmodel._model)
    variables = optmodel._model.getVars()
    before = optmodel._model.getAttr("Obj", variables)

    def coefficients(y: torch.Tensor) -> np.ndarray:
        optmodel.setObj(y)
        optmodel._model.update()
        return np.array(optmodel._model.getAttr("Obj", variables))

    try:
        d = coefficients(torch.zeros(optmodel.num_cost, dtype=torch.float64))
        columns = [sp.csc_array((coefficients(unit) - d)[:, None]) for unit in torch.eye(optmodel.num_cost).double()]
    finally:
        optmodel._model.setAttr("Obj", variables, before)
        optmodel._model.update()
    return _with_costs(program, sp.hstack(columns, format="csr"), d)


def _from_pyomo(optmodel: Any) -> Program:
    """PyEPO's Pyomo models hold their costs in a parameter; those of its modelling language hold all coefficients."""
    parameter = optmodel._model.component("cost")
    if parameter is not None:
        return from_pyomo(optmodel._model, parameter)
    program = from_pyomo(optmodel._model, optmodel._model.coef)
    d = optmodel._fullCost(np.zeros(optmodel.num_cost))
    S = sp.csr_array((optmodel._fullCost(np.eye(optmodel.num_cost)) - d).T)
    return _with_costs(program, S, d)


def _with_costs(program: Program, S: sp.csr_array, d: np.ndarray) -> Program:
    """The program with costs y, where S y + d are the coefficients of its variables in its own sense."""
    names = tuple(f"cost[{k}]" for k in range(S.shape[1]))
    return replace(program, cost_names=names, replaced=None, **to_minimize(S, d, program.sense))


def to_pyepo(problem: Program | Solver) -> Any:
    """A program (solved by HiGHS), or any solver as `problem`, as a PyEPO `optModel`, so that PyEPO's losses and metrics run on it.

    PyEPO then speaks of decisions w `(n,)` and of predicted costs y `(p,)`.

    Examples:
        >>> model = dfl.to_pyepo(program)
        >>> model.setObj(np.ones(12))
        >>> _, value = model.solve()
        >>> value
        4.0
    """
    import highspy  # noqa: F401  (before PyEPO, which brings other solvers along)

    with suppress(ImportError):
        import pyomo.environ  # noqa: F401  (PyEPO looks whether it is there)
    optional("pyepo.model.opt", "bench", "to_pyepo")
    solver = HiGHS(problem) if isinstance(problem, Program) else problem
    if solver.objective.Q is not None or (solver.program is not None and solver.program.predicts_rows):
        raise OptionError(f"PyEPO's losses are for linear objectives and known constraints; {solver!r} has others")
    return _model_class()(solver)


@cache
def _model_class() -> Any:
    from pyepo import EPO
    from pyepo.model.opt import optModel

    class SolverModel(optModel):
        """A dflearn solver as PyEPO sees it; `full` coefficients are ±(S y + d), in the sense of the program."""

        def __init__(self, solver: Solver) -> None:
            self.solver, self.objective = solver, solver.objective
            maximize = self.objective.sense == "maximize"
            self.modelSense = EPO.MAXIMIZE if maximize else EPO.MINIMIZE
            self.sign = -1.0 if maximize else 1.0
            self.full = np.zeros(self.objective.n)
            super().__init__()

        def _getModel(self) -> tuple[Solver, range]:
            return self.solver, range(self.objective.p)

        @property
        def c_pred_index(self) -> np.ndarray | None:
            """The variables whose coefficients are predicted; `None` where each has a cost of its own."""
            S = self.objective.S
            predicted = np.arange(self.objective.n) if S is None else np.flatnonzero(np.diff(S.indptr))
            return None if predicted.size == self.objective.n == self.objective.p else predicted

        def _fullCost(self, pred_cost: Any) -> Any:
            if isinstance(pred_cost, torch.Tensor):
                return self.sign * self.objective.vector(pred_cost)
            return self._fullCost(torch.as_tensor(np.asarray(pred_cost, np.float64))).numpy()

        def _setFullObj(self, c: Any) -> None:
            self.full = np.asarray(c.detach().cpu() if isinstance(c, torch.Tensor) else c, np.float64)
            if self.full.shape != (self.objective.n,):
                raise ShapeError(f"the objective has {self.objective.n} coefficients; got shape {self.full.shape}")

        def setObj(self, c: Any) -> None:
            self._setFullObj(self._fullCost(c))

        def solve(self) -> tuple[np.ndarray, float]:
            # d alone carries the coefficients, which need not be S y + d for any y.
            y, d = torch.zeros(self.objective.p, dtype=torch.float64), torch.as_tensor(self.sign * self.full)
            w = self.solver.solve(y, Instance(d=d)).check().decision.numpy()
            return w, float(self.full @ w)

        def relax(self) -> Any:
            if self.solver.program is None:
                raise ProgramError(f"{self.solver!r} knows no program that could be relaxed")
            return SolverModel(HiGHS(self.solver.program.relax()))

    return SolverModel
