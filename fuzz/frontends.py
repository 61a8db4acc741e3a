"""Front ends: the case is written in another tool's words, read back, and must still be the same program."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dflearn as dfl
from dflearn.errors import ProgramError
from fuzz.cases import Case
from fuzz.exact import exact_lp
from fuzz.references import truth_of
from fuzz.verdicts import Verdict

Reader = Callable[[dfl.Program, np.ndarray], tuple[dfl.Program, np.ndarray]]
LEAST, MOST = 1e-9, 1e15  # files are read by HiGHS, which refuses coefficients beyond these
GUROBI_LEAST = 1e-13  # gurobipy drops smaller coefficients when a model is built, before any reader sees them


def front_ends(case: Case) -> list[Verdict]:
    """One front end by turns. The first instance's optimum, by exact arithmetic on what was read, is the case's own."""
    if not case.count or case.dtype != "float64" or case.instance is not None:
        return []
    if case.Q is not None or case.predicts_rows or case.recourse is not None:
        return []
    name = list(READERS)[case.seed // 4 % len(READERS)]
    truth = truth_of(case, "relaxed", 0)
    if truth.status == "unknown":
        return []
    c = case.user_c(0)
    entries = np.abs(np.concatenate([case.program.A.data, case.program.G.data]))
    if name == "Gurobi" and entries.min(initial=1.0) < GUROBI_LEAST:
        return [Verdict("declared", "gurobipy drops coefficients of this model")]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            program, y = READERS[name](case.program, c)
        except ProgramError as error:
            if entries.min(initial=1.0) < LEAST or entries.max(initial=1.0) > MOST:
                return [Verdict("declared", f"{name}: {error}")]
            raise
    if told:
        return [Verdict("honest", f"{name}: {told[0].message}")]
    if int(program.integer.sum()) != int(case.integer.sum()):
        return [Verdict("silent wrong", f"{name}: {program.integer.sum()} integer variables, not {case.integer.sum()}")]
    costs = (y if program.S is None else program.S @ y) + program.d
    parts = (program.A.toarray(), program.b, program.G.toarray(), program.h, program.lower, program.upper)
    if case.integer.any():  # bounds of integers may be rounded: another relaxation
        return [Verdict("right")]
    answer = exact_lp(costs, *parts)
    if answer.status != truth.status:
        nearly = truth.status == "infeasible" or answer.status == "infeasible"
        text = f"{name}: read as {answer.status}, is {truth.status}"
        return [Verdict("unsure" if nearly and _rounded(case) else "silent wrong", text)]
    if answer.objective is not None:
        value = float(answer.objective) / case.cost
        if abs(value - truth.objective) > 1e-9 * truth.scale:
            return [Verdict("silent wrong", f"{name}: optimum {value:.12g}, is {truth.objective:.12g}")]
    return [Verdict("right")]


def _rounded(case: Case) -> bool:
    """Whether numbers may be rounded on the way, so that what is feasible exactly need not stay so."""
    return any((part * 2.0**20 != np.round(part * 2.0**20)).any() for part in (case.A, case.G, case.b, case.h))


def _linprog(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:
    G, A = p.G.toarray() if len(p.h) else None, p.A.toarray() if len(p.b) else None
    bounds = list(zip(p.lower, p.upper, strict=True))
    read = dfl.from_linprog(
        c, G, p.h if len(p.h) else None, A, p.b if len(p.b) else None, bounds, p.integer.astype(int)
    )
    return read, c


def _milp(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:
    from scipy.optimize import Bounds, LinearConstraint

    rows = []
    if len(p.b):
        rows.append(LinearConstraint(p.A.toarray(), p.b, p.b))
    if len(p.h):
        rows.append(LinearConstraint(p.G.toarray(), -np.inf, p.h))
    read = dfl.from_milp(c, integrality=p.integer.astype(int), bounds=Bounds(p.lower, p.upper), constraints=rows)
    return read, c


def _mps(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:
    rows, right = np.vstack([p.A.toarray(), p.G.toarray()]), np.concatenate([p.b, p.h])
    kinds = ["E"] * len(p.b) + ["L"] * len(p.h)
    lines = ["NAME model", "ROWS", " N cost", *(f" {kind} r{i}" for i, kind in enumerate(kinds)), "COLUMNS"]
    for j in range(p.n):
        if p.integer[j]:
            lines.append(f" M{j} 'MARKER' 'INTORG'")
        lines.append(f" x{j} cost {float(c[j])}")
        lines += [f" x{j} r{i} {float(rows[i, j])}" for i in np.flatnonzero(rows[:, j])]
        if p.integer[j]:
            lines.append(f" N{j} 'MARKER' 'INTEND'")
    lines += ["RHS", *(f" rhs r{i} {float(value)}" for i, value in enumerate(right)), "BOUNDS"]
    for j, (low, high) in enumerate(zip(p.lower, p.upper, strict=True)):
        lines.append(f" MI b x{j}" if np.isinf(low) else f" LO b x{j} {float(low)}")
        lines.append(f" PL b x{j}" if np.isinf(high) else f" UP b x{j} {float(high)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mps"
        path.write_text("\n".join([*lines, "ENDATA", ""]))
        return dfl.from_mps(path), c


def _lp(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:

    def terms(row: np.ndarray) -> str:
        return " ".join(f"{'-' if v < 0 else '+'} {float(abs(v))} x{j}" for j, v in enumerate(row) if v) or "0 x0"

    cost = " ".join(f"{'-' if v < 0 else '+'} {float(abs(v))} x{j}" for j, v in enumerate(c))
    lines = ["Minimize", f" cost: {cost}", "Subject To"]
    for sign, rows, right in (("=", p.A.toarray(), p.b), ("<=", p.G.toarray(), p.h)):
        lines += [f" r{sign.strip('<')}{i}: {terms(row)} {sign} {float(right[i])}" for i, row in enumerate(rows)]
    lines = [line.replace("r=", "e") for line in lines]
    lines.append("Bounds")
    for j, (low, high) in enumerate(zip(p.lower, p.upper, strict=True)):
        left, right_ = ("-inf" if np.isinf(low) else float(low)), ("inf" if np.isinf(high) else float(high))
        lines.append(f" {left} <= x{j} <= {right_}")
    if p.integer.any():
        lines += ["General", " " + " ".join(f"x{j}" for j in np.flatnonzero(p.integer))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.lp"
        path.write_text("\n".join([*lines, "End", ""]))
        read = dfl.from_lp(path)
    place = [int(name.removeprefix("x")) for name in read.cost_names or ()]
    return read, c[place]


def _cvxpy(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:
    import cvxpy

    whole, rest = np.flatnonzero(p.integer), np.flatnonzero(~p.integer)
    order = np.concatenate([rest, whole])
    parts = [cvxpy.Variable(len(rest))] if len(rest) else []
    parts += [cvxpy.Variable(len(whole), integer=True)] if len(whole) else []
    w, costs = cvxpy.hstack(parts), cvxpy.Parameter(p.n)
    rows = []
    if len(p.b):
        rows.append(p.A.toarray()[:, order] @ w == p.b)
    if len(p.h):
        rows.append(p.G.toarray()[:, order] @ w <= p.h)
    low, high = np.flatnonzero(np.isfinite(p.lower[order])), np.flatnonzero(np.isfinite(p.upper[order]))
    if len(low):
        rows.append(w[low] >= p.lower[order][low])
    if len(high):
        rows.append(w[high] <= p.upper[order][high])
    return dfl.from_cvxpy(cvxpy.Problem(cvxpy.Minimize(costs @ w), rows), costs).program, c[order]


def _pyomo(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    domain = lambda _, j: pyo.Integers if p.integer[j] else pyo.Reals  # noqa: E731
    ends = lambda _, j: tuple(float(b) if np.isfinite(b) else None for b in (p.lower[j], p.upper[j]))  # noqa: E731
    model.w = pyo.Var(range(p.n), domain=domain, bounds=ends)
    model.rows = pyo.ConstraintList()
    for rows, right, equal in ((p.A.toarray(), p.b, True), (p.G.toarray(), p.h, False)):
        for row, side in zip(rows, right, strict=True):
            left = sum(float(a) * model.w[j] for j, a in enumerate(row) if a)
            model.rows.add(left == float(side) if equal else left <= float(side))
    model.cost = pyo.Objective(expr=sum(float(a) * model.w[j] for j, a in enumerate(c)))
    read = dfl.from_pyomo(model)
    place = [int(name.split("[")[1].rstrip("]")) for name in read.cost_names or ()]
    return read, c[place]


def _gurobi(p: dfl.Program, c: np.ndarray) -> tuple[dfl.Program, np.ndarray]:
    import gurobipy

    environment = gurobipy.Env(params={"OutputFlag": 0})
    model = gurobipy.Model(env=environment)
    kinds = np.where(p.integer, "I", "C")
    w = model.addMVar(p.n, lb=p.lower, ub=p.upper, vtype=kinds, obj=c)
    if len(p.b):
        model.addConstr(p.A.toarray() @ w == p.b)
    if len(p.h):
        model.addConstr(p.G.toarray() @ w <= p.h)
    model.update()
    return dfl.from_gurobi(model), c


READERS: dict[str, Reader] = {"linprog": _linprog, "milp": _milp, "MPS": _mps, "LP": _lp, "CVXPY": _cvxpy}
READERS |= {"Pyomo": _pyomo, "Gurobi": _gurobi}
