"""Problems of CVXPY, whose parameters say what is predicted and what differs from instance to instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError, ShapeError, optional
from dflearn.frontends.costs import Coefficients
from dflearn.frontends.linear_model import CONSTANT, REFORMULATE, LinearModel, Rows
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides

Shapes = Mapping[str, tuple[tuple[int, ...], np.ndarray]]  # by name: the shape, and the place of each entry, in C order

# Attributes by which CVXPY stores fewer numbers than the shape says, or none that are real.
UNSUPPORTED = ("symmetric", "diag", "PSD", "NSD", "hermitian", "complex", "imag", "sparsity")


@dataclass(frozen=True, eq=False)
class CvxpyProgram:
    """The program that `from_cvxpy` makes, with CVXPY's names and shapes for its costs, instances and variables.

    Attributes:
        program: the `Program`. Its variables are CVXPY's, flattened, and those that CVXPY adds for `abs`, `max` and
            the like.

    Examples:
        >>> import cvxpy
        >>> w, y = cvxpy.Variable(3, nonneg=True), cvxpy.Parameter(3)
        >>> model = dfl.from_cvxpy(cvxpy.Problem(cvxpy.Minimize(y @ w), [cvxpy.sum(w) == 1]), costs=y)
        >>> dfl.HiGHS(model.program).solve(torch.tensor([3.0, 1.0, 2.0])).decision
        tensor([0., 1., 0.])
    """

    program: Program
    _maps: _Maps
    _predicted: Shapes
    _given: Shapes
    _variables: Shapes

    def __repr__(self) -> str:
        return f"CvxpyProgram({self.program!r}, costs={list(self._predicted)}, instance={list(self._given)})"

    def costs(self, **values: Any) -> Tensor:
        """y `(*batch, p)` from values `(*batch, *shape)` of the predicted parameters."""
        if set(values) != set(self._predicted):
            raise ShapeError(f"costs takes a value for each of {list(self._predicted)}; got {list(values)}")
        arrays, batch = _batched(values, self._predicted)
        y = np.concatenate([arrays[name].reshape(*batch, -1) for name in self._predicted], axis=-1)
        return torch.as_tensor(y)

    def instance(self, **values: Any) -> Instance:
        """The `Instance` in which the other parameters have these values `(*batch, *shape)`.

        A parameter that is left out keeps the value it had when the program was made.
        """
        unknown = [name for name in values if name not in self._given]
        if unknown:
            why = "is predicted" if unknown[0] in self._predicted else "is no parameter of the problem"
            raise ShapeError(f"{unknown[0]!r} {why}; an instance may set {list(self._given) or 'nothing'}")
        if not values:
            return Instance()
        arrays, batch = _batched(values, self._given)
        vector = np.broadcast_to(self._maps.typical, (*batch, self._maps.typical.size)).copy()
        for name, array in arrays.items():
            vector[..., self._given[name][1]] = array.reshape(*batch, -1)
        parts = vars(self._maps.sides(vector)) | {"d": self._maps.d(vector)}
        return Instance(**{name: torch.as_tensor(part) for name, part in parts.items() if self._maps.changing[name]})

    def variables(self, decision: Tensor) -> dict[str, Tensor]:
        """The values `(*batch, *shape)` of CVXPY's variables, by name, in a decision `(*batch, n)`."""
        if decision.shape[-1:] != (self.program.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.program.n}); got {tuple(decision.shape)}")
        batch = decision.shape[:-1]
        return {
            name: decision[..., torch.as_tensor(place, device=decision.device)].reshape(*batch, *shape)
            for name, (shape, place) in self._variables.items()
        }


def from_cvxpy(problem: Any, costs: Any, *, keep_offset: bool = False, name: str = "cvxpy") -> CvxpyProgram:
    """The program of a `cvxpy.Problem` whose objective is linear, or linear and convex quadratic, and holds the `Parameter` to
    predict.

    Args:
        problem: a linear, quadratic or mixed-integer problem that follows CVXPY's rules for parameters (DPP). Piecewise-linear
            functions are fine: CVXPY writes them with further variables.
        costs: the predicted `Parameter`, or several. The objective may hold any affine map of it: this becomes S, and
            the rest d. A parameter of more than one dimension is flattened in C order, as numpy and torch do. Where
            CVXPY relied on its sign (`nonneg=True`, times an `abs`), predictions must have that sign.
        keep_offset: keep the constant of the objective, by a variable fixed to 1. Regret is the same either way.
        name: of the program.

    The other parameters may stand in right-hand sides and in the known part of the objective; `CvxpyProgram.instance`
    turns their values into an `Instance`. They need a value now, which the program itself takes.

    Examples:
        >>> import cvxpy
        >>> w, y = cvxpy.Variable(3, nonneg=True), cvxpy.Parameter(3)
        >>> model = dfl.from_cvxpy(cvxpy.Problem(cvxpy.Minimize(y @ w), [cvxpy.sum(w) == 1]), costs=y)
        >>> model.program.p
        3
    """
    cvxpy = optional("cvxpy", "cvxpy", "from_cvxpy")
    if not isinstance(problem, cvxpy.Problem):
        raise OptionError(f"from_cvxpy reads a cvxpy.Problem; got a {type(problem).__name__}")
    predicted = list(costs) if isinstance(costs, list | tuple) else [costs]
    _check_parameters(problem, predicted)
    stuffed = _stuffed(problem)
    chosen = _shapes(predicted, stuffed.param_id_to_col)
    given = [p for p in problem.parameters() if all(p is not cost for cost in predicted)]
    known = _shapes(given, stuffed.param_id_to_col)
    variables = _shapes(problem.variables(), stuffed.var_id_to_col)

    typical = np.zeros(stuffed.total_param_size + 1)
    typical[-1] = 1.0
    for parameter in given:
        typical[known[parameter.name()][1]] = np.ravel(parameter.value)
    maps = _Maps(stuffed, np.concatenate([place for _, place in chosen.values()]), typical, keep_offset)
    maximize = isinstance(problem.objective, cvxpy.Maximize)
    sign = -1.0 if maximize else 1.0  # CVXPY has turned the objective already
    program = LinearModel(
        rows=maps.rows,
        coefficients=Coefficients(sign * maps.S, sign * maps.d(typical), _entry_names(chosen)),
        sides=maps.sides(typical),
        integer=maps.integer,
        sense="maximize" if maximize else "minimize",
        name=name,
        variable_names=_column_names(variables, len(maps.integer), stuffed.x.size),
        Q=_quadratic(stuffed, len(maps.integer), sign),
    ).program()
    return CvxpyProgram(program, maps, chosen, known, variables)


class _Maps:
    """The program's parts as affine maps of all parameters.

    `vector` `(*batch, parameters + 1)` holds the parameters, predicted ones (in `columns`) as 0, and a last entry of 1;
    `typical` is that of the program. The rows are M w + right·vector = 0 or ≥ 0, and d = objective·vector.
    """

    def __init__(self, stuffed: Any, columns: np.ndarray, typical: np.ndarray, keep_offset: bool) -> None:
        n, m, size = stuffed.x.size, stuffed.constr_size, typical.size
        self.typical = typical
        # Entry (i + m j, k) of CVXPY's tensor: what parameter k adds to entry (i, j) of [M, right-hand side].
        tensor = sp.coo_array(stuffed.A)
        tensor.eliminate_zeros()
        place, k = tensor.coords
        i, j = place % max(m, 1), place // max(m, 1)
        _check_only_right_sides(stuffed, j[k < size - 1], k[k < size - 1], columns)
        inside = j < n
        matrix = sp.csr_array((tensor.data[inside], (i[inside], j[inside])), shape=(m, n))
        self.right = sp.csr_array((tensor.data[~inside], (i[~inside], k[~inside])), shape=(m, size))
        self.equal = np.arange(m) < stuffed.cone_dims.zero

        self.lower, self.upper, self.integer = _bounds(stuffed)
        self.objective = sp.csr_array(stuffed.q)  # its last row is the constant
        if keep_offset and self.objective[[n]].nnz:
            matrix = sp.hstack([matrix, sp.csr_array((m, 1))])
            self.lower, self.upper = np.append(self.lower, 1.0), np.append(self.upper, 1.0)
            self.integer = np.append(self.integer, False)
        else:
            self.objective = self.objective[:n]
        self.S = self.objective[:, columns]
        self.rows = Rows(matrix, *self._limits(typical), self.integer, equal=self.equal)

        moving = np.diff(self.right[:, :-1].indptr) > 0
        self.changing = {
            "b": moving[self.rows.equal].any(),
            "h": moving[np.concatenate([self.rows.above, self.rows.below])].any(),
            **dict.fromkeys(("lower", "upper"), moving[self.rows.single].any()),
            "d": self.objective[:, np.setdiff1d(np.arange(size - 1), columns)].nnz > 0,
        }

    def _limits(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low = 0.0 - vector @ self.right.T
        return low, np.where(self.equal, low, np.inf)

    def sides(self, vector: np.ndarray) -> Sides:
        return self.rows.sides(*self._limits(vector), self.lower, self.upper)

    def d(self, vector: np.ndarray) -> np.ndarray:
        return vector @ self.objective.T + 0.0


def _check_parameters(problem: Any, predicted: Sequence[Any]) -> None:
    """Each parameter is named once, has its full shape, and is predicted or has a value."""
    parameters = problem.parameters()
    if not predicted:
        raise OptionError(f"costs holds no parameter, so there is nothing to predict: the problem has {parameters}")
    for parameter in predicted:
        if all(parameter is not other for other in parameters):
            raise OptionError(f"costs holds {parameter!r}, which is no parameter of the problem: it has {parameters}")
    for leaf in [*parameters, *problem.variables()]:
        if declared := [attribute for attribute in UNSUPPORTED if leaf.attributes.get(attribute)]:
            raise ProgramError(f"{leaf.name()} is declared {declared[0]}, which is not read here: declare it plain")
    for leaves, what in ((parameters, "parameters"), (problem.variables(), "variables")):
        names = [leaf.name() for leaf in leaves]
        for name in names:
            if names.count(name) > 1:
                raise ProgramError(f"two {what} are called {name!r}: give each its own name, as in name={name + '2'!r}")
    for parameter in parameters:
        if parameter.value is None and all(parameter is not cost for cost in predicted):
            name = parameter.name()
            remedy = f"set {name}.value to a typical one"
            raise ProgramError(f"parameter {name} is neither predicted nor has a value: {remedy}")


def _stuffed(problem: Any) -> Any:
    """CVXPY's matrix form: min q(θ)ᵀx s.t. A(θ) x + b(θ) ∈ {0}ᵐ or ≥ 0, everything affine in the parameters θ."""
    import cvxpy

    if not problem.is_dcp():
        raise ProgramError("the problem is not convex by CVXPY's rules (DCP); a Program is linear in the decision")
    if not problem.is_dpp():
        raise ProgramError(
            "the problem is not affine in its parameters by CVXPY's rules (DPP): do not multiply parameters, nor declare "
            "bounds by them; use constants for what is known, and constraints for bounds"
        )
    empty = [parameter for parameter in problem.parameters() if parameter.value is None]
    try:
        for parameter in empty:  # CVXPY wants each to have a value
            parameter.value = parameter.project(np.zeros(parameter.shape))
        stuffed = problem.get_problem_data(cvxpy.HIGHS)[0]["param_prob"]
    except cvxpy.error.SolverError as error:
        stuffed = _integer_quadratic(problem)
        if stuffed is None:
            more = "more than linear constraints (a norm, a logarithm, a matrix cone, …)"
            raise ProgramError(f"the problem needs {more}; {REFORMULATE}") from error
    finally:
        for parameter in empty:
            parameter.value = None
    if stuffed.lb_tensor is not None or stuffed.ub_tensor is not None:
        raise ProgramError("a variable is declared with bounds that are parameters: write them as constraints")
    return stuffed


def _integer_quadratic(problem: Any) -> Any:
    """The matrix form of a quadratic problem with integers, which CVXPY makes for Gurobi and not for HiGHS; or `None`."""
    import cvxpy

    if not problem.is_mixed_integer() or not problem.objective.expr.is_quadratic():
        return None
    try:
        stuffed = problem.get_problem_data(cvxpy.GUROBI)[0]["param_prob"]
    except cvxpy.error.SolverError:
        return None
    return None if stuffed.cone_dims.soc or stuffed.cone_dims.exp or stuffed.cone_dims.psd else stuffed


def _quadratic(stuffed: Any, size: int, sign: float) -> sp.csr_array | None:
    """Q in the sense of the problem, over `size` columns; `None` where the objective is linear."""
    if stuffed.P is None or not stuffed.P.nnz:
        return None
    n = stuffed.x.size
    tensor = sp.csc_array(stuffed.P)
    if tensor[:, :-1].count_nonzero():
        raise ProgramError("a parameter stands in the quadratic part; all instances share Q, so it must be a constant")
    entries = sp.coo_array(tensor[:, [-1]])
    place = entries.coords[0]
    return sign * sp.csr_array((entries.data, (place % n, place // n)), shape=(size, size))


def _check_only_right_sides(stuffed: Any, j: np.ndarray, k: np.ndarray, columns: np.ndarray) -> None:
    """Parameters stand in right-hand sides only, predicted ones nowhere in the constraints."""

    def name_of(column: int) -> str:
        first, size = stuffed.param_id_to_col, stuffed.param_id_to_size
        return next(p.name() for p in stuffed.parameters if 0 <= column - first[p.id] < size[p.id])

    predicted, inside = k[np.isin(k, columns)], k[j < stuffed.x.size]
    if predicted.size:
        where = "in a constraint, or in the objective inside a function such as abs or max"
        remedy = "predict coefficients of a linear objective"
        raise ProgramError(f"the predicted parameter {name_of(predicted[0])} stands {where}: {remedy}")
    if inside.size:
        why = "all instances share their matrices, so it must be a constant there"
        remedy = "right-hand sides, bounds and the objective may differ"
        raise ProgramError(f"parameter {name_of(inside[0])} multiplies a variable in a constraint; {why}: {remedy}")


def _bounds(stuffed: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """lower, upper and the integer mask of CVXPY's variables."""
    n = stuffed.x.size
    lower = np.full(n, -np.inf) if stuffed.lower_bounds is None else np.array(stuffed.lower_bounds, np.float64)
    upper = np.full(n, np.inf) if stuffed.upper_bounds is None else np.array(stuffed.upper_bounds, np.float64)
    integer = np.zeros(n, dtype=bool)
    for index in stuffed.x.integer_idx:
        integer[index] = True
    for index in stuffed.x.boolean_idx:
        integer[index], lower[index], upper[index] = True, max(lower[index], 0.0), min(upper[index], 1.0)
    return lower, upper, integer


def _shapes(leaves: Sequence[Any], first: Mapping[int, int]) -> dict[str, tuple[tuple[int, ...], np.ndarray]]:
    """By name: the shape, and where each entry in C order stands; CVXPY flattens in Fortran order, from `first` on."""
    return {
        leaf.name(): (leaf.shape, first[leaf.id] + np.arange(leaf.size).reshape(leaf.shape, order="F").ravel())
        for leaf in leaves
    }


def _entry_names(shapes: Shapes) -> tuple[str, ...]:
    """x, or x[0,1] and so on, entry by entry in C order."""
    return tuple(
        name + (f"[{','.join(map(str, index))}]" if shape else "")
        for name, (shape, _) in shapes.items()
        for index in np.ndindex(*shape)
    )


def _column_names(variables: Shapes, size: int, n: int) -> list[str]:
    """The names of all columns: CVXPY's n, those it added itself included, and what was added here."""
    names = [f"auxiliary[{column}]" for column in range(n)] + [CONSTANT] * (size - n)
    order = np.concatenate([place for _, place in variables.values()])
    for column, name in zip(order, _entry_names(variables), strict=True):
        names[column] = name
    return names


def _batched(values: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """The values as float64 arrays `(*batch, *shape)`, and the batch shape that all of them share."""
    arrays, batches = {}, {}
    for name, value in values.items():
        shape = shapes[name][0]
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        arrays[name] = array.astype(np.float64)
        batches[name] = array.shape[: array.ndim - len(shape)]
        if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
            raise ShapeError(f"{name} must have shape (*batch{''.join(f', {k}' for k in shape)}); got {array.shape}")
    if len(set(batches.values())) != 1:
        raise ShapeError(f"the values must share their batch shape; got {batches}")
    return arrays, next(iter(batches.values()))
