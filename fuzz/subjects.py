"""Subjects: what of the library answers to a case. Each gives a verdict per instance, or nothing where it does not apply.

Solvers, layers and answers that several subjects need are made once per case (`Case.once`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.engine.linear_algebra import curved
from dflearn.errors import DflearnError, ProgramError
from dflearn.losses import CaVE
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.recognition import best_solver
from dflearn.solvers.structured import RelaxationFirst
from dflearn.solvers.wrappers import Parallel, Pooled
from fuzz.cases import Case
from fuzz.exact import exact_lp
from fuzz.frontends import front_ends
from fuzz.pipeline import Regularizer, best, evaluation, highs, losses, smoothed_layer
from fuzz.recourse import after_recourse
from fuzz.references import truth_of
from fuzz.verdicts import Kind, Verdict, infeasible, judge, refusals

Check = Callable[[Case], list[Verdict]]
CVXPY, NORM_OF_BLOCKS = 20, 5
NO_ANSWER = (Status.FEASIBLE, Status.NOT_FOUND, Status.FAILED)


@dataclass(frozen=True)
class Subject:
    """A row of the table of subjects.

    Attributes:
        check: verdicts on a case.
        call: how it is called in a test, where it is a solver or a layer.
        kind: what it minimizes there.
        every: it meets the programs of every so-manieth seed: it is slow, and differs from another subject in little.
    """

    check: Check
    call: str = ""
    kind: Kind = "none"
    every: int = 1

    def __call__(self, case: Case) -> list[Verdict]:
        return self.check(case) if case.seed % self.every == 0 else []


def solver(
    make: Callable[[dfl.Program], Solver],
    *,
    relax: bool = False,
    general: bool = False,
    starts: bool = True,
    variant: str = "",
) -> Check:
    """Cold and, where the solver takes one, from any start.

    general: solves every program but integer ones with a quadratic objective; others say what they are not made for.
    """
    kind: Kind = "relaxed" if relax else "none"

    def run(case: Case) -> list[Verdict]:
        program = case.relaxed if relax else case.program
        try:
            if make is best_solver:
                subject, key = best(case), (type(best(case)), "", True)
                case.once(("solver", *key), lambda: subject)  # its own row of the table takes it, too
            else:
                key = (make, variant, program is case.program)
                subject = case.once(("solver", *key), lambda: make(program))
            answer = case.once(("answer", *key), lambda: subject.solve(case.costs, case.instance))
        except ProgramError as error:
            declared = not general or (case.Q is not None and case.integer.any())
            return [] if declared else refusals(case, kind, error)
        except DflearnError as error:
            return refusals(case, kind, error)
        verdicts = list(case.once(("verdicts", *key), lambda: judge(case, kind, answer)))
        for start in random_starts(case, subject.start_width, subject.start_dtype) if starts else ():
            verdicts += judge(case, kind, subject.solve(case.costs, case.instance, start), start)
        return verdicts

    return run


def random_starts(case: Case, width: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """Codes of a basis, or multipliers of every size, NaN among them: one kind for each seed, by turns."""
    if not width or not case.count:
        return
    rng, turn = np.random.default_rng(case.starts), case.seed % 3
    shape = (case.count, width)
    if dtype == torch.int8:
        one = np.full(shape, rng.integers(0, 4))
        yield torch.tensor((rng.integers(-1, 4, shape), rng.integers(0, 4, shape), one)[turn], dtype=dtype)
        return
    values = rng.normal(size=shape) * (10.0 ** rng.integers(-8, 9) if turn == 1 else 1.0)
    values[rng.random(shape) < (1.0, 0.0, 0.2)[turn]] = np.nan
    yield torch.tensor(values, dtype=dtype)


def smoothed(regularizer: Regularizer, *, warm: bool) -> Check:
    def run(case: Case) -> list[Verdict]:
        if regularizer == "norm" and case.block is not None and case.seed % NORM_OF_BLOCKS:
            return []  # ‖w‖₂ is no sum over blocks: it is that of the one in the largest unit, and takes long
        try:
            layer = smoothed_layer(case, regularizer)
        except DflearnError as error:
            return [Verdict("declared", str(error))]

        nothing = layer.no_start(case.count)
        # By turns, the start is random, or that of the cold answer of another instance.
        own = nothing is not None and not (case.seed % 2 and case.count)

        def cold() -> dfl.Solution:
            return layer.solve(case.costs, case.instance, nothing if own else None)

        try:
            answer = case.once(("cold", regularizer), cold) if own or not warm else None
            if not warm:
                return judge(case, regularizer, answer)
            if nothing is None:
                return []  # without rows there is nothing to start from
            start = answer.start.flip(0) if own else next(random_starts(case, layer.start_width, layer.start_dtype))
            return judge(case, regularizer, layer.solve(case.costs, case.instance, start), start)
        except DflearnError as error:
            return refusals(case, regularizer, error)

    return run


def by_pattern(case: Case) -> list[Verdict]:
    """Small programs are solved by normal equations; here by the pattern of Q, as large and sparse ones are."""
    if case.Q is None:
        return []
    with mock.patch.object(curved, "LEAST", 0.0), mock.patch.object(curved, "GAIN", np.inf):
        try:
            layer = dfl.Smoothed(case.program, case.user_mu())
        except DflearnError as error:
            return [Verdict("declared", str(error))]
        try:
            return judge(case, "squared", layer.solve(case.costs, case.instance))
        except DflearnError as error:
            return refusals(case, "squared", error)


def by_cvxpy(case: Case) -> list[Verdict]:
    """Through cvxpylayers, which compiles every program anew."""
    if case.Q is not None or case.count > 30:
        return []
    regularizer: Kind = "norm" if case.seed // CVXPY % 2 else "squared"
    layer = dfl.layers.CvxpySmoothed(case.program, case.user_mu(regularizer), regularizer=regularizer)
    try:
        return judge(case, regularizer, layer.solve(case.costs, case.instance))
    except DflearnError as error:
        return refusals(case, regularizer, error)


def davis_yin(case: Case) -> list[Verdict]:
    """With a tolerance: cold, or from a start, by turns."""
    try:
        layer = dfl.DavisYin(case.program, case.user_mu(), iterations=2000, tolerance=1e-9)
    except DflearnError as error:
        return [Verdict("declared", str(error))]
    start = None
    if case.seed % 2:
        start = torch.tensor(np.random.default_rng(case.starts).normal(size=(case.count, layer.start_width))).float()
    try:
        return judge(case, "squared", layer.solve(case.costs, case.instance, start), start, NO_ANSWER)
    except DflearnError as error:
        return refusals(case, "squared", error)


def log_barrier(case: Case) -> list[Verdict]:
    """Feasible, and above the optimum by at most μ for each slack."""
    units = (case.column != 1).any() or (case.row != 1).any() or case.cost != 1
    if units or case.dtype != "float64" or not 0 < case.count < 30:
        return []  # the point inside is looked for in the units of rows
    mu = 2.0**-10
    try:
        found = dfl.layers.LogBarrier(case.program, mu).solve(case.costs, case.instance)
    except ProgramError as error:
        return [Verdict("declared", str(error))]  # no point inside
    verdicts = []
    for i in range(case.count):
        truth, status = truth_of(case, "relaxed", i), Status(int(found.status[i]))
        slacks = len(case.G) + int(np.isfinite(case.line("lower", i)).sum() + np.isfinite(case.line("upper", i)).sum())
        if truth.status != "optimal" or status is not Status.OPTIMAL:
            wrong = status is Status.OPTIMAL and truth.status == "infeasible"
            wrong |= truth.status == "optimal" and status in (Status.INFEASIBLE, Status.UNBOUNDED)
            missed = truth.status == "optimal" and not wrong and not _falls_without_end(case, i)
            text = f"called {status.name}, is {truth.status}"
            verdicts.append(Verdict("silent wrong" if wrong else "missed" if missed else "honest", text, i))
            continue
        w = found.decision[i].detach().double().numpy()
        excess = float(case.c(i) @ w + case.bent(w)) - truth.objective
        text = infeasible(case, "relaxed", i, w)
        if not text and not -1e-6 * truth.scale <= excess <= mu * slacks + 1e-6 * truth.scale:
            text = f"objective {excess:.6g} above the optimum, with {slacks} slacks at μ = {mu}"
        verdicts.append(Verdict("silent wrong" if text else "right", text, i))
    return verdicts


def _falls_without_end(case: Case, i: int) -> bool:
    """Whether slacks grow without end where costs do not rise, so that a barrier has no least value: by exact arithmetic."""
    if case.Q is not None:
        return False
    low, high = np.isfinite(case.line("lower", i)), np.isfinite(case.line("upper", i))
    rows, growth = np.vstack([case.G, case.c(i)]), case.G.sum(0) - low + high
    ends = np.where(low, 0.0, -1.0), np.where(high, 0.0, 1.0)
    way = exact_lp(growth, case.A, np.zeros(len(case.A)), rows, np.zeros(len(rows)), *ends)
    return way.objective is not None and way.objective < 0


def parallel(case: Case) -> list[Verdict]:
    """The same answers as of the solver alone."""
    if case.count < 2 or (case.Q is not None and case.integer.any()):
        return []
    alone, one = highs(case)
    with Parallel(alone, workers=2) as many:
        other = many.solve(case.costs, case.instance)
    same = torch.equal(one.status, other.status) and torch.equal(one.decision.nan_to_num(), other.decision.nan_to_num())
    return judge(case, "none", other) if same else [Verdict("silent wrong", "other answers in parallel")]


def pooled(case: Case) -> list[Verdict]:
    """Decisions from the pool are feasible, and never called optimal unless they are."""
    if case.predicts_rows or (case.Q is not None and case.integer.any()):
        return []
    subject = Pooled(highs(case)[0], ratio=0.5, generator=case.starts % 1000)
    try:
        answers = [subject.solve(case.costs, case.instance) for _ in range(2)]
    except DflearnError as error:
        return [] if case.instance is not None else refusals(case, "none", error)  # sides of their own are refused
    return [v for answer in answers for v in judge(case, "none", answer, declared=(Status.FEASIBLE,))]


def cave(case: Case) -> list[Verdict]:
    """1 − cos(v, projection of v onto the normal cone at w*), against non-negative least squares on what binds."""
    from scipy.optimize import nnls

    if (
        case.predicts_rows
        or case.Q is not None
        or case.dtype != "float64"
        or not case.count
        or (case.column != case.column[0]).any()
    ):
        return []  # angles depend on the units of single decisions
    verdicts, truths = [], [truth_of(case, "relaxed", i) for i in range(case.count)]
    if any(truth.status != "optimal" for truth in truths):
        return []
    labels = np.stack([truth.w for truth in truths if truth.w is not None])
    batch = dfl.Batch(torch.zeros(case.count, 1), None, torch.tensor(labels * case.column), case.instance)
    predicted = torch.tensor(case.y[::-1].copy())
    value = CaVE(case.program)(predicted, batch).numpy()
    for i, w in enumerate(labels):
        y = case.y[case.count - 1 - i]
        v = -((y if case.S is None else case.S @ y) + case.line("d", i))
        slack, low, high = case.line("h", i) - case.G @ w, case.line("lower", i), case.line("upper", i)
        unit = np.eye(case.n)
        normals = np.vstack([case.G[slack <= 1e-9], case.A, -case.A, -unit[w - low <= 1e-9], unit[high - w <= 1e-9]])
        length = float(np.linalg.norm(v))
        if not length or not np.isfinite(value[i]):
            verdicts.append(Verdict("unsure"))
            continue
        target = np.zeros(case.n)
        if len(normals):
            target = normals.T @ nnls(normals.T, v / length, maxiter=1000)[0]
        # By Moreau: what is left is a feasible direction, at a right angle. scipy's solvers do not always get there.
        left = v / length - target
        if (
            not np.isfinite(target).all()
            or (normals @ left).max(initial=0.0) > 1e-7 * np.abs(normals).max(initial=1.0)
            or abs(left @ target) > 1e-7
        ):
            verdicts.append(Verdict("unsure"))
            continue
        cosine = float(v @ target / length / np.linalg.norm(target)) if np.linalg.norm(target) > 1e-6 else 0.0
        wrong = abs(1 - cosine - value[i]) > 1e-6
        text = f"loss {value[i]:.9g}, by least squares {1 - cosine:.9g}"
        verdicts.append(Verdict("silent wrong", text, i) if wrong else Verdict("right", "", i))
    return verdicts


SUBJECTS: dict[str, Subject] = {
    "default": Subject(solver(best_solver, general=True, starts=False), "best_solver(program).solve(y)"),
    "HiGHS": Subject(solver(dfl.HiGHS, general=True), "HiGHS(program).solve(y{start})"),
    "HiGHS, presolve": Subject(
        solver(lambda program: dfl.HiGHS(program, presolve=True), general=True, starts=False, variant="presolve"),
        "HiGHS(program, presolve=True).solve(y{start})",
    ),
    "Gurobi": Subject(solver(lambda program: dfl.Gurobi(program), general=True), "Gurobi(program).solve(y{start})"),
    "SCIP": Subject(solver(lambda program: dfl.SCIP(program)), "SCIP(program).solve(y)"),
    "FewRowLP": Subject(
        solver(dfl.solvers.FewRowLP, relax=True), "FewRowLP(program.relax()).solve(y{start})", "relaxed"
    ),
    "FewRowBinary": Subject(solver(dfl.solvers.FewRowBinary), "FewRowBinary(program).solve(y)"),
    "SmallLP": Subject(solver(dfl.solvers.SmallLP, relax=True), "SmallLP(program.relax()).solve(y)", "relaxed"),
    "RelaxationFirst": Subject(solver(RelaxationFirst)),
    "TopK": Subject(solver(TopK.of), "TopK.of(program).solve(y)"),
    "DagShortestPath": Subject(solver(DagShortestPath.of), "DagShortestPath.of(program).solve(y)"),
    "Parallel": Subject(parallel, "Parallel(HiGHS(program), 2).solve(y)", every=8),
    "Pooled": Subject(pooled, "Pooled(HiGHS(program), 0.5).solve(y)"),
    "Smoothed squared, cold": Subject(smoothed("squared", warm=False), "Smoothed(program, {mu}).solve(y)", "squared"),
    "Smoothed squared, warm": Subject(
        smoothed("squared", warm=True), "Smoothed(program, {mu}).solve(y, start=start)", "squared"
    ),
    "Smoothed norm, cold": Subject(
        smoothed("norm", warm=False), 'Smoothed(program, {mu}, regularizer="norm").solve(y)', "norm"
    ),
    "Smoothed norm, warm": Subject(
        smoothed("norm", warm=True), 'Smoothed(program, {mu}, regularizer="norm").solve(y, start=start)', "norm"
    ),
    "Smoothed by the pattern of Q": Subject(by_pattern, "Smoothed(program, {mu}).solve(y)", "squared"),
    "CvxpySmoothed": Subject(by_cvxpy, "CvxpySmoothed(program, {mu}).solve(y)", "squared", CVXPY),
    "DavisYin": Subject(
        davis_yin, "DavisYin(program, {mu}, iterations=2000, tolerance=1e-9).solve(y{start})", "squared"
    ),
    "LogBarrier": Subject(log_barrier, every=4),
    "CaVE": Subject(cave),
    "losses": Subject(losses),
    "labels and evaluation": Subject(evaluation),
    "front ends": Subject(front_ends),
    "after recourse": Subject(after_recourse),
}
