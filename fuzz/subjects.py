"""Subjects: what of the library answers to a case. Each gives a verdict per instance, or nothing where it does not apply.

A subject that can answer in several ways (from a start, with presolve) takes one of them for each program, by turns of the seed.
Solvers, layers and answers that several subjects need are made once per case (`Case.once`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.errors import DflearnError, ProgramError
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.structured import RelaxationFirst
from dflearn.solvers.task import best_solver
from fuzz.cases import Case
from fuzz.exact import exact_lp
from fuzz.frontends import front_ends
from fuzz.pipeline import NORM_OF_FAR, Regularizer, best, evaluation, highs, losses, smoothed_layer
from fuzz.recourse import after_recourse
from fuzz.references import truth_of
from fuzz.verdicts import Kind, Verdict, infeasible, judge, refusals

Check = Callable[[Case], list[Verdict]]
CVXPY = 20
NO_ANSWER = (dfl.Status.FEASIBLE, dfl.Status.NOT_FOUND, dfl.Status.FAILED)


class Way(NamedTuple):
    """One way to answer. call: how it is written in a test, if it is a solver or a layer."""

    check: Check
    call: str = ""


class Subject:
    """A row of the table of subjects. Each program meets one of its ways, by turns of the seed; kind: what they minimize. What is
    slow, or no solver and no layer, meets the programs of `every` so-manieth seed, from `first` on."""

    def __init__(self, *ways: Check | Way, kind: Kind = "none", every: int = 1, first: int = 0) -> None:
        self.ways = [way if isinstance(way, Way) else Way(way) for way in ways]
        self.kind, self.every, self.first = kind, every, first

    def way(self, case: Case) -> Way:
        return self.ways[case.seed // self.every % len(self.ways)]

    def __call__(self, case: Case) -> list[Verdict]:
        return self.way(case).check(case) if case.seed % self.every == self.first else []


def solver(
    make: Callable[[dfl.Program], dfl.Solver], *, relax: bool = False, general: bool = False, start: bool = False
) -> Check:
    """Cold or, if the solver takes one, from any start. general: solves every program but integer ones with a quadratic
    objective; others say what they are not made for."""
    kind: Kind = "relaxed" if relax else "none"

    def run(case: Case) -> list[Verdict]:
        program = case.relaxed if relax else case.program
        try:
            if make is best_solver:
                subject, key = best(case), (type(best(case)), True)
                case.once(("solver", *key), lambda: subject)  # its own row of the table takes it, too
            else:
                key = (make, program is case.program)
                subject = case.once(("solver", *key), lambda: make(program))
            begin = random_start(case, subject.start_width, subject.start_dtype) if start else None
            if begin is not None:
                return judge(case, kind, subject.solve(case.costs, case.instance, begin), begin)
            answer = case.once(("answer", *key), lambda: subject.solve(case.costs, case.instance))
        except ProgramError as error:
            declared = not general or (case.Q is not None and case.integer.any())
            return [] if declared else refusals(case, kind, error)
        except DflearnError as error:
            return refusals(case, kind, error)
        return list(case.once(("verdicts", *key), lambda: judge(case, kind, answer)))

    return run


def random_start(case: Case, width: int, dtype: torch.dtype) -> Tensor | None:
    """Codes of a basis, or multipliers of every size, NaN among them: one kind for each seed, by turns."""
    if not width or not case.count:
        return None
    rng, turn = np.random.default_rng(case.starts), case.starts % 3
    shape = (case.count, width)
    if dtype == torch.int8:
        one = np.full(shape, rng.integers(0, 4))
        return torch.tensor((rng.integers(-1, 4, shape), rng.integers(0, 4, shape), one)[turn], dtype=dtype)
    values = rng.normal(size=shape) * (10.0 ** rng.integers(-8, 9) if turn == 1 else 1.0)
    values[rng.random(shape) < (1.0, 0.0, 0.2)[turn]] = np.nan
    return torch.tensor(values, dtype=dtype)


def by_layer(
    case: Case,
    kind: Kind,
    make: Callable[[], Any],
    start: Callable[[Any], Tensor | None] = lambda layer: None,
    declared: tuple[dfl.Status, ...] = (),
) -> list[Verdict]:
    """Verdicts on what a layer answers, from what `start` gives for it."""
    try:
        layer = make()
    except DflearnError as error:
        return [Verdict("declared", str(error))]
    try:
        begin = start(layer)
        return judge(case, kind, layer.solve(case.costs, case.instance, begin), begin, declared)
    except DflearnError as error:
        return refusals(case, kind, error)


def smoothed(regularizer: Regularizer, start: Literal["none", "random", "another's"] = "none") -> Check:
    """Cold, from a random start, or from that of the cold answer to another instance."""

    def run(case: Case) -> list[Verdict]:
        if regularizer == "norm" and case.far and case.seed % NORM_OF_FAR:
            return []

        def begin(layer: dfl.Smoothed) -> Tensor | None:
            if start == "random":
                return random_start(case, layer.start_width, layer.start_dtype)
            nothing = layer.no_start(case.count) if start == "another's" else None
            told = None if nothing is None else layer.solve(case.costs, case.instance, nothing).start
            return None if told is None else told.roll(1, 0)

        return by_layer(case, regularizer, lambda: smoothed_layer(case, regularizer), begin)

    return run


def by_cvxpy(case: Case) -> list[Verdict]:
    """Through cvxpylayers, which compiles every program anew."""
    if case.Q is not None or case.count > 30:
        return []
    kind: Regularizer = "norm" if case.seed // CVXPY % 2 else "squared"
    make = partial(dfl.layers.CvxpySmoothed, case.program, case.user_mu(kind), regularizer=kind)
    return by_layer(case, kind, make)


def davis_yin(case: Case) -> list[Verdict]:
    """With a tolerance: cold, or from a start, by turns."""

    def start(layer: dfl.DavisYin) -> Tensor | None:
        values = np.random.default_rng(case.starts).normal(size=(case.count, layer.start_width))
        return torch.tensor(values).float() if case.seed % 2 else None

    make = partial(dfl.DavisYin, case.program, case.user_mu(), iterations=2000, tolerance=1e-9)
    return by_layer(case, "squared", make, start, NO_ANSWER)


def log_barrier(case: Case) -> list[Verdict]:
    """Feasible, and above the optimum by at most μ for each slack; without any slack there is no barrier."""
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
        truth, status = truth_of(case, "relaxed", i), dfl.Status(int(found.status[i]))
        slacks = len(case.G) + int(np.isfinite(case.line("lower", i)).sum() + np.isfinite(case.line("upper", i)).sum())
        if truth.status != "optimal" or status is not dfl.Status.OPTIMAL:
            wrong = status is dfl.Status.OPTIMAL and truth.status == "infeasible"
            wrong |= truth.status == "optimal" and status in (dfl.Status.INFEASIBLE, dfl.Status.UNBOUNDED)
            missed = truth.status == "optimal" and not wrong and slacks > 0 and not _falls_without_end(case, i)
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
    """The same answers as of the solver alone, on several instances."""
    if case.count < 2 or (case.Q is not None and case.integer.any()):
        return solver(dfl.HiGHS, general=True)(case)
    alone, one = highs(case)
    with dfl.Parallel(alone, workers=2) as many:
        other = many.solve(case.costs, case.instance)
    same = torch.equal(one.status, other.status) and torch.equal(one.decision.nan_to_num(), other.decision.nan_to_num())
    return judge(case, "none", other) if same else [Verdict("silent wrong", "other answers in parallel")]


def pooled(case: Case) -> list[Verdict]:
    """Decisions from the pool are feasible, and never called optimal unless they are."""
    if case.predicts_rows or case.instance is not None or (case.Q is not None and case.integer.any()):
        return solver(dfl.HiGHS, general=True)(case)
    subject = dfl.Pooled(highs(case)[0], ratio=0.5, generator=case.starts % 1000)
    try:
        answers = [subject.solve(case.costs, case.instance) for _ in range(2)]
    except DflearnError as error:
        return refusals(case, "none", error)
    return [v for answer in answers for v in judge(case, "none", answer, declared=(dfl.Status.FEASIBLE,))]


def cave(case: Case) -> list[Verdict]:
    """1 − cos(v, projection of v onto the normal cone at w*), against non-negative least squares on what binds."""
    from scipy.optimize import nnls

    linear = not case.predicts_rows and case.Q is None and case.dtype == "float64" and case.count
    if not linear or (case.column != case.column[0]).any():
        return []  # angles depend on the units of single decisions
    verdicts, truths = [], [truth_of(case, "relaxed", i) for i in range(case.count)]
    if any(truth.status != "optimal" for truth in truths):
        return []
    labels = np.stack([truth.w for truth in truths if truth.w is not None])
    batch = dfl.Batch(torch.zeros(case.count, 1), None, torch.tensor(labels * case.column), case.instance)
    predicted = torch.tensor(case.other.copy())
    value = dfl.losses.CaVE(case.program)(predicted, batch).numpy()
    for i, w in enumerate(labels):
        y = case.other[i]
        v = -((y if case.S is None else case.S @ y) + case.line("d", i))
        slack, low, high = case.line("h", i) - case.G @ w, case.line("lower", i), case.line("upper", i)
        unit = np.eye(case.n)
        normals = np.vstack([case.G[slack <= 1e-9], case.A, -case.A, -unit[w - low <= 1e-9], unit[high - w <= 1e-9]])
        normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
        length = float(np.linalg.norm(v))
        if not length or not np.isfinite(value[i]):
            verdicts.append(Verdict("unsure"))
            continue
        target = np.zeros(case.n)
        if len(normals):
            target = normals.T @ nnls(normals.T, v / length, maxiter=1000)[0]
        # By Moreau: what is left is a feasible direction, at a right angle. scipy's solvers do not always get there.
        left = v / length - target
        if not np.isfinite(target).all() or (normals @ left).max(initial=0.0) > 1e-7 or abs(left @ target) > 1e-7:
            verdicts.append(Verdict("unsure"))
            continue
        cosine = float(v @ target / length / np.linalg.norm(target)) if np.linalg.norm(target) > 1e-6 else 0.0
        wrong = abs(1 - cosine - value[i]) > 1e-6
        text = f"loss {value[i]:.9g}, by least squares {1 - cosine:.9g}"
        verdicts.append(Verdict("silent wrong", text, i) if wrong else Verdict("right", "", i))
    return verdicts


def turns(call: str, *checks: Check) -> list[Way]:
    return [Way(check, call) for check in checks]


def cold_and_warm(make: Callable[[dfl.Program], dfl.Solver], call: str, **options: bool) -> list[Way]:
    return turns(call, solver(make, **options), solver(make, start=True, **options))


PRESOLVED = solver(partial(dfl.HiGHS, presolve=True), general=True)
HIGHS = [
    *cold_and_warm(dfl.HiGHS, "HiGHS(program).solve(y{start})", general=True),
    Way(PRESOLVED, "HiGHS(program, presolve=True).solve(y)"),
]
SUBJECTS: dict[str, Subject] = {
    "default": Subject(*turns("best_solver(program).solve(y)", solver(best_solver, general=True))),
    "HiGHS": Subject(
        *HIGHS, *turns("Pooled(HiGHS(program), 0.5).solve(y)", pooled),
        *HIGHS, *turns("Parallel(HiGHS(program), 2).solve(y)", parallel),
    ),
    "Gurobi": Subject(*cold_and_warm(dfl.Gurobi, "Gurobi(program).solve(y{start})", general=True)),
    "SCIP": Subject(*turns("SCIP(program, time_limit=20).solve(y)", solver(partial(dfl.SCIP, time_limit=20)))),
    "FewRowLP": Subject(
        *cold_and_warm(dfl.solvers.FewRowLP, "FewRowLP(program.relax()).solve(y{start})", relax=True), kind="relaxed"
    ),
    "FewRowBinary": Subject(*turns("FewRowBinary(program).solve(y)", solver(dfl.solvers.FewRowBinary))),
    "SmallLP": Subject(
        *cold_and_warm(dfl.solvers.SmallLP, "SmallLP(program.relax()).solve(y{start})", relax=True), kind="relaxed"
    ),
    "RelaxationFirst": Subject(solver(RelaxationFirst)),
    "TopK": Subject(*turns("TopK(program).solve(y)", solver(TopK))),
    "DagShortestPath": Subject(*turns("DagShortestPath(program).solve(y)", solver(DagShortestPath))),
    "Smoothed squared": Subject(
        *turns(
            "Smoothed(program, {mu}).solve(y{start})",
            smoothed("squared"), smoothed("squared", "random"), smoothed("squared"), smoothed("squared", "another's"),
        ),
        kind="squared",
    ),
    "Smoothed norm": Subject(
        *turns(
            'Smoothed(program, {mu}, regularizer="norm").solve(y{start})',
            smoothed("norm"), smoothed("norm", "random"), smoothed("norm"), smoothed("norm", "another's"),
        ),
        kind="norm",
    ),
    "DavisYin": Subject(
        *turns("DavisYin(program, {mu}, iterations=2000, tolerance=1e-9).solve(y{start})", davis_yin), kind="squared"
    ),
    "CvxpySmoothed": Subject(*turns("CvxpySmoothed(program, {mu}).solve(y)", by_cvxpy), kind="squared", every=CVXPY),
    "LogBarrier": Subject(log_barrier, every=6),
    "losses": Subject(losses, every=4),
    "CaVE": Subject(cave, every=4, first=1),
    "labels and evaluation": Subject(evaluation, every=4, first=2),
    "front ends": Subject(front_ends, every=4, first=3),
    "after recourse": Subject(after_recourse),
}  # fmt: skip
