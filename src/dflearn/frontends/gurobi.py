"""Models of gurobipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError, optional
from dflearn.frontends.costs import by_variables, unique
from dflearn.frontends.linear_model import REFORMULATE, SEMI_CONTINUOUS, LinearModel, as_infinite
from dflearn.program import Program

# Parts that a Program cannot hold: the attribute that counts them, and their name.
REFUSED = {
    "NumQConstrs": "quadratic constraints",
    "NumSOS": "special ordered sets",
    "NumGenConstrs": "general constraints (max, abs, indicator, …)",
    "NumPWLObjVars": "piecewise-linear objectives",
    "NumScenarios": "several scenarios",
}


def from_gurobi(model: Any, costs: Any = "all", *, keep_offset: bool = False) -> Program:
    """The program of a `gurobipy.Model`. The model is read, not changed.

    Args:
        model: a linear or mixed-integer linear model, or one with a convex quadratic objective, which becomes Q.
        costs: which objective coefficients are predicted: the variables themselves (a `Var`, an `MVar`, a `tupledict`
            as of `addVars`, or a list of these), or names as in `from_mps`. The model's coefficients of these variables
            are replaced by the prediction; the others are the known part d. `Program.cost_names` tells the order.
        keep_offset: keep the constant of the objective, by a variable fixed to 1. Regret is the same either way.

    A model that maximizes keeps its sense: costs are values, S is −I. `addRange` has added a variable of Gurobi's own to
    the model, which is one of "all". Models with constraints from a callback are refused.

    Examples:
        >>> import gurobipy
        >>> model = gurobipy.Model()
        >>> x = model.addVars(3, obj=1.0, name="x")
        >>> _ = model.addConstr(x.sum() == 1)
        >>> dfl.from_gurobi(model, costs=x).cost_names
        ('x[0]', 'x[1]', 'x[2]')
    """
    gurobipy = optional("gurobipy", "gurobi", "from_gurobi")
    if not isinstance(model, gurobipy.Model):
        raise OptionError(f"from_gurobi reads a gurobipy.Model; got a {type(model).__name__}")
    model.update()
    for attribute, what in REFUSED.items():
        if getattr(model, attribute):
            raise ProgramError(f"the model has {what}; {REFORMULATE}")
    if model.NumObj > 1:
        raise ProgramError(f"the model has {model.NumObj} objectives; a Program has one: keep the one to predict")
    if model.Params.LazyConstraints:
        raise ProgramError("lazy constraints of a callback cannot be read: do without, or use from_callable")
    variables, rows = model.getVars(), model.getConstrs()
    names = model.getAttr("VarName", variables)
    sense, rhs = np.array(model.getAttr("Sense", rows)), as_infinite(model.getAttr("RHS", rows))
    lower, upper = (as_infinite(model.getAttr(side, variables)) for side in ("LB", "UB"))
    kinds = np.array(model.getAttr("VType", variables))
    if np.isin(kinds, ("S", "N")).any():
        which = names[int(np.flatnonzero(np.isin(kinds, ("S", "N")))[0])]
        raise ProgramError(f"variable {which!r} is {SEMI_CONTINUOUS}")

    P = sp.csr_array(model.getQ()) if model.NumQNZs else None  # of wᵀP w, in one triangle

    def column(variable: Any) -> int:
        if not 0 <= variable.index < len(variables) or not variables[variable.index].sameAs(variable):
            raise OptionError(f"costs holds {variable}, which is not a variable of this model")
        return int(variable.index)

    return LinearModel.of(
        model.getA(),
        (np.where(sense == "<", -np.inf, rhs), np.where(sense == ">", np.inf, rhs)),
        (np.where(kinds == "B", np.maximum(lower, 0), lower), np.where(kinds == "B", np.minimum(upper, 1), upper)),
        np.isin(kinds, ("B", "I")),
        model.getAttr("ConstrName", rows),
        coefficients=by_variables(costs, _variables, column, names, np.array(model.getAttr("Obj", variables))),
        sense="maximize" if model.ModelSense == gurobipy.GRB.MAXIMIZE else "minimize",
        name=model.ModelName or "gurobi",
        variable_names=unique(names),
        offset=model.ObjCon,
        Q=None if P is None else sp.csr_array(P + P.T),
    ).program(keep_offset)


def _variables(part: Any) -> list[Any] | None:
    import gurobipy

    if isinstance(part, gurobipy.Var):
        return [part]
    if isinstance(part, gurobipy.MVar):
        return part.reshape(-1).tolist()
    return list(part.values()) if isinstance(part, gurobipy.tupledict) else None
