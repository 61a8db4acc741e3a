"""A random model in Gurobi: tested as such, and the independent writer and solver of the files that HiGHS reads."""

from __future__ import annotations

from typing import Any

import gurobipy
import numpy as np

from support.random_models import RandomModel


def build(model: RandomModel, environment: Any, *, ranges: bool = False) -> Any:
    """The model in gurobipy, variables called like the model's. A range row is two rows, or Gurobi's own if `ranges`."""
    made = gurobipy.Model("random", env=environment)
    kinds = ["I" if integer else "C" for integer in model.integer]
    bounds = {"lb": model.lower, "ub": model.upper, "vtype": kinds, "name": model.names}
    w = made.addVars(model.n, **{key: list(value) for key, value in bounds.items()})
    for r, (row, low, high) in enumerate(zip(model.M, model.row_lower, model.row_upper, strict=True)):
        body = gurobipy.quicksum(value * w[i] for i, value in enumerate(row) if value)
        if low == high:
            made.addConstr(body == low, f"r{r}")
        elif ranges and np.isfinite(low) and np.isfinite(high):
            made.addRange(body, low, high, f"r{r}")
        else:
            if np.isfinite(low):
                made.addConstr(body >= low, f"low{r}")
            if np.isfinite(high):
                made.addConstr(body <= high, f"high{r}")
    value = gurobipy.quicksum(c * w[i] for i, c in enumerate(model.c)) + model.offset
    made.setObjective(value, gurobipy.GRB.MAXIMIZE if model.maximize else gurobipy.GRB.MINIMIZE)
    made.update()
    return made


def optimum(made: Any) -> float:
    made.Params.MIPGap = 0
    made.optimize()
    assert made.Status == gurobipy.GRB.OPTIMAL
    return made.ObjVal
