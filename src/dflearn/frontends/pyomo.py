"""Models of Pyomo."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError, optional
from dflearn.frontends.costs import Coefficients, by_variables
from dflearn.frontends.linear_model import REFORMULATE, LinearModel
from dflearn.program import Program


def from_pyomo(model: Any, costs: Any = "all", *, keep_offset: bool = False) -> Program:
    """The program of a Pyomo `ConcreteModel`. The model is read, not changed.

    Args:
        model: a linear or mixed-integer linear model with one active objective, which may be convex and quadratic in the variables.
            What is deactivated is left out; fixed variables are constants; parameters enter with their present values.
        costs: what is predicted. A mutable `Param`, indexed or not, or a list of them: wherever it enters the objective,
            times known data or in a sum, becomes S, and the rest of the objective d. Or variables: a `Var`, a list of
            them, or names as in `from_mps`; their coefficients are replaced by the prediction, and the others are d.
            `Program.cost_names` tells the order, which is that of the index set.
        keep_offset: keep the constant of the objective, by a variable fixed to 1. Regret is the same either way.

    A model that maximizes keeps its sense: costs are values, and S and d are negated.

    Examples:
        >>> import pyomo.environ as pyo
        >>> model = pyo.ConcreteModel()
        >>> model.x = pyo.Var(range(3), bounds=(0, 1))
        >>> model.price = pyo.Param(range(3), initialize=1.0, mutable=True)
        >>> model.cost = pyo.Objective(expr=sum(model.price[i] * model.x[i] for i in range(3)))
        >>> dfl.from_pyomo(model, costs=model.price).cost_names
        ('price[0]', 'price[1]', 'price[2]')
    """
    pyomo = optional("pyomo.environ", "pyomo", "from_pyomo")
    if not isinstance(model, pyomo.ConcreteModel):
        raise OptionError(f"from_pyomo reads a ConcreteModel; got a {type(model).__name__}: create an instance first")
    _check_components(model)
    objectives = list(model.component_data_objects(pyomo.Objective, active=True))
    if len(objectives) != 1:
        raise ProgramError(f"the model has {len(objectives)} active objectives; a Program has one: deactivate others")
    columns = _Columns(model)
    parameters = _parameters(costs)
    predicted = {id(parameter) for parameter in parameters}
    entries, limits, row_names = _rows(model, columns, predicted)
    objective = _Objective(objectives[0], columns, parameters)
    n = len(columns.variables)  # after rows and objective, which may add variables of other blocks
    S, d = objective.S(n), objective.d(n)
    names = [variable.name for variable in columns.variables]
    if parameters:
        coefficients = Coefficients(S, d, tuple(parameter.name for parameter in parameters))
    else:
        coefficients = by_variables(costs, _variables, columns.index, names, d)
    return LinearModel.of(
        _summed(entries, (len(row_names), n)),
        limits,
        columns.bounds(predicted),
        np.array([not variable.is_continuous() for variable in columns.variables]),
        row_names,
        coefficients=coefficients,
        sense="maximize" if objectives[0].sense == pyomo.maximize else "minimize",
        name="pyomo" if model.name == "unknown" else model.name,
        variable_names=names,
        offset=objective.offset,
        offset_costs=objective.offset_costs if parameters else None,
        Q=objective.Q(n),
    ).program(keep_offset)


class _Columns:
    """The variables of a model that are not fixed, in the order of their declaration."""

    def __init__(self, model: Any) -> None:
        from pyomo.environ import Var

        self.place: dict[int, int] = {}
        self.variables: list[Any] = []
        for variable in model.component_data_objects(Var, active=True, descend_into=True):
            if not variable.fixed:
                self.index(variable)

    def index(self, variable: Any) -> int:
        """The column of a variable; one of a block that is deactivated gets its column when it is met."""
        if variable.fixed:
            raise OptionError(f"costs holds {variable.name}, which is fixed and therefore a constant: unfix it")
        if id(variable) not in self.place:
            if not (variable.is_continuous() or variable.is_integer()):  # binary is integer too
                raise ProgramError(f"variable {variable.name} has the domain {variable.domain}: {REFORMULATE}")
            self.place[id(variable)] = len(self.variables)
            self.variables.append(variable)
        return self.place[id(variable)]

    def bounds(self, predicted: set[int]) -> tuple[np.ndarray, np.ndarray]:
        for variable in self.variables:
            for side in (variable.lower, variable.upper):
                _check_free_of(side, predicted, "a bound of variable", variable)
        low, high = np.array([variable.bounds for variable in self.variables], dtype=np.float64).reshape(-1, 2).T
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _rows(model: Any, columns: _Columns, predicted: set[int]) -> tuple[list[tuple[int, int, float]], Any, list[str]]:
    """The active constraints: entries (row, column, value), (lower, upper) limits, and names."""
    from pyomo.environ import Constraint, value
    from pyomo.repn import generate_standard_repn

    entries: list[tuple[int, int, float]] = []
    lower, upper, names = [], [], list[str]()
    for row in model.component_data_objects(Constraint, active=True, descend_into=True):
        _check_free_of(row.expr, predicted, "constraint", row)
        body = generate_standard_repn(row.body, compute_values=True)
        if not body.is_linear():
            raise ProgramError(f"constraint {row.name} is not linear in the variables; {REFORMULATE}")
        terms = zip(body.linear_vars, body.linear_coefs, strict=True)
        entries.extend((len(names), columns.index(variable), coefficient) for variable, coefficient in terms)
        low, up = value(row.lower), value(row.upper)
        lower.append(-np.inf if low is None else low - body.constant)
        upper.append(np.inf if up is None else up - body.constant)
        names.append(row.name)
    return entries, (lower, upper), names


class _Objective:
    """Σ S_ik y_k w_i + Σ d_i w_i + ½ Σ Q_ij w_i w_j + Σ s_k y_k + offset.

    A variable stands for each predicted parameter, which makes the objective quadratic; products with it are S.
    """

    def __init__(self, objective: Any, columns: _Columns, parameters: list[Any]) -> None:
        from pyomo.core.expr.visitor import replace_expressions
        from pyomo.environ import VarList
        from pyomo.repn import generate_standard_repn

        stand_ins = VarList()
        stand_ins.construct()
        which = {id(stand_ins.add()): k for k in range(len(parameters))}
        replacement = {id(parameter): stand_ins[k + 1] for k, parameter in enumerate(parameters)}
        expression = replace_expressions(objective.expr, replacement) if parameters else objective.expr
        repn = generate_standard_repn(expression, compute_values=True, quadratic=True)
        if repn.nonlinear_expr is not None:
            of = "variables or the predicted parameters" if parameters else "variables"
            raise ProgramError(f"the objective {objective.name} is not linear in the {of}; {REFORMULATE}")
        self.offset, self.offset_costs = float(repn.constant), np.zeros(len(parameters))
        self.known: list[tuple[int, float]] = []
        self.predicted: list[tuple[int, int, float]] = []
        self.quadratic: list[tuple[int, int, float]] = []
        for variable, value in zip(repn.linear_vars, repn.linear_coefs, strict=True):
            if id(variable) in which:
                self.offset_costs[which[id(variable)]] += value
            else:
                self.known.append((columns.index(variable), value))
        for (one, other), value in zip(repn.quadratic_vars, repn.quadratic_coefs, strict=True):
            pair = [which.get(id(one)), which.get(id(other))]
            if pair == [None, None]:
                self.quadratic.append((columns.index(one), columns.index(other), value))
                continue
            if None not in pair:
                what = "quadratic in the predicted parameters"
                raise ProgramError(f"the objective {objective.name} is {what}; {REFORMULATE}")
            k, variable = (pair[1], one) if pair[0] is None else (pair[0], other)
            assert k is not None
            self.predicted.append((columns.index(variable), k, value))
        if parameters and not self.predicted:
            raise ProgramError(f"the predicted parameters do not enter the objective {objective.name}")

    def S(self, n: int) -> sp.csr_array:
        return _summed(self.predicted, (n, len(self.offset_costs)))

    def Q(self, n: int) -> sp.csr_array | None:
        if not self.quadratic:
            return None
        P = _summed(self.quadratic, (n, n))
        return sp.csr_array(P + P.T)

    def d(self, n: int) -> np.ndarray:
        return _summed([(i, 0, value) for i, value in self.known], (n, 1)).toarray()[:, 0]


def _summed(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> sp.csr_array:
    """The matrix with these entries (row, column, value), added up where several stand in one place."""
    i, j, value = zip(*entries, strict=True) if entries else ((), (), ())
    return sp.csr_array((np.array(value, np.float64), (i, j)), shape=shape)


def _parameters(costs: Any) -> list[Any]:
    """The entries of the mutable parameters that `costs` names; empty where it names none."""
    from pyomo.core.base.param import Param, ParamData

    if isinstance(costs, Param):
        if not costs.mutable:
            raise OptionError(f"parameter {costs.name} is a constant of the model: declare it Param(…, mutable=True)")
        return [costs[key] for key in costs.index_set()] if costs.is_indexed() else [costs]
    if isinstance(costs, ParamData):
        return [costs]
    if isinstance(costs, list | tuple):
        parts = [_parameters(part) for part in costs]
        if any(parts) and not all(parts):
            raise OptionError("costs mixes parameters with variables or names: say all of it in one way")
        return [parameter for part in parts for parameter in part]
    return []


def _variables(part: Any) -> list[Any] | None:
    from pyomo.core.base.var import Var, VarData

    if isinstance(part, Var):
        return list(part.values())
    return [part] if isinstance(part, VarData) else None


def _check_free_of(expression: Any, predicted: set[int], what: str, component: Any) -> None:
    """Only the objective is predicted: an error where the expression holds a parameter of one of these ids."""
    from pyomo.core.expr.visitor import identify_mutable_parameters

    if not predicted or expression is None or isinstance(expression, int | float):
        return
    for parameter in identify_mutable_parameters(expression):
        if id(parameter) in predicted:
            why = f"depends on the predicted parameter {parameter.name}; only objective coefficients can be predicted"
            raise ProgramError(f"{what} {component.name} {why}")


def _check_components(model: Any) -> None:
    """Nothing active that is neither a row nor the objective nor plain data."""
    known = {"Block", "Constraint", "Objective", "Var", "Param", "Set", "RangeSet", "SetOf", "Expression", "Suffix"}
    known |= {"BuildAction", "BuildCheck", "ExternalFunction", "Port", "BooleanVar"}
    for kind in model.collect_ctypes(active=True, descend_into=True):
        if kind.__name__ not in known and list(model.component_data_objects(kind, active=True, descend_into=True)):
            raise ProgramError(f"the model has an active {kind.__name__}; {REFORMULATE}")
