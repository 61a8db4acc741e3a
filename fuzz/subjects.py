"""Subjects: what of the library answers to a case. Each gives a verdict per instance, or nothing where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.errors import ProgramError
from dflearn.kernels import curved
from dflearn.losses import CaVE
from dflearn.solvers.base import Solver
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.relaxation_first import RelaxationFirst
from dflearn.solvers.wrappers import Parallel, Pooled
from fuzz.cases import Case
from fuzz.frontends import front_ends
from fuzz.pipeline import evaluation, losses
from fuzz.recourse import after_recourse
from fuzz.verdicts import Verdict, judge

Subject = Callable[[Case], list[Verdict]]


def solver(make: Callable[[dfl.Program], Solver], *, relax: bool = False) -> Subject:
    """Cold and, where the solver takes one, from any start."""

    def run(case: Case) -> list[Verdict]:
        program = case.program.relax() if relax else case.program
        try:
            subject = make(program)
            answer = subject.solve(case.costs, case.instance)
        except ProgramError:
            return []  # not made for it, and says so
        kind = "relaxed" if relax else "none"
        verdicts = judge(case, kind, answer)
        for start in random_starts(case, subject.start_width, subject.start_dtype):
            verdicts += judge(case, kind, subject.solve(case.costs, case.instance, start), start)
        return verdicts

    return run


def random_starts(case: Case, width: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """Codes of a basis, or multipliers of every size, NaN among them."""
    if not width or not case.count:
        return
    rng = np.random.default_rng(case.starts)
    shape = (case.count, width)
    if dtype == torch.int8:
        yield torch.tensor(rng.integers(-1, 4, shape), dtype=dtype)
        yield torch.tensor(rng.integers(0, 4, shape), dtype=dtype)
        yield torch.full(shape, int(rng.integers(0, 4)), dtype=dtype)
        return
    yield torch.full(shape, torch.nan, dtype=dtype)
    yield torch.tensor(rng.normal(size=shape) * 10.0 ** rng.integers(-8, 9), dtype=dtype)
    mixed = rng.normal(size=shape)
    mixed[rng.random(shape) < 0.2] = np.nan
    yield torch.tensor(mixed, dtype=dtype)


def smoothed(regularizer: str, *, warm: bool) -> Subject:
    def run(case: Case) -> list[Verdict]:
        key = ("layer", regularizer)
        if key not in case.remembered:
            case.remembered[key] = dfl.Smoothed(case.program, case.user_mu(regularizer), regularizer=regularizer)
        layer = case.remembered[key]
        if not warm:
            return judge(case, regularizer, layer.solve(case.costs, case.instance))
        start = layer.no_start(case.count)
        if start is None:
            return []  # without rows there is nothing to start from
        own = layer.solve(case.costs, case.instance, start).start
        assert own is not None
        verdicts = []
        for given in (own, own.flip(0), *random_starts(case, layer.start_width, layer.start_dtype)):
            verdicts += judge(case, regularizer, layer.solve(case.costs, case.instance, given), given)
        return verdicts

    return run


def by_pattern(case: Case) -> list[Verdict]:
    """Small programs are solved by normal equations; here by the pattern of Q, as large and sparse ones are."""
    if case.Q is None:
        return []
    with mock.patch.object(curved, "LEAST", 0.0), mock.patch.object(curved, "GAIN", np.inf):
        return judge(case, "squared", dfl.Smoothed(case.program, case.user_mu()).solve(case.costs, case.instance))


def davis_yin(case: Case) -> list[Verdict]:
    """With a tolerance: cold, and from a start."""
    layer = dfl.DavisYin(case.program, case.user_mu(), iterations=3000, tolerance=1e-9)
    verdicts = judge(case, "squared", layer.solve(case.costs, case.instance))
    start = torch.tensor(np.random.default_rng(case.starts).normal(size=(case.count, layer.start_width))).float()
    return verdicts + judge(case, "squared", layer.solve(case.costs, case.instance, start), start)


def parallel(case: Case) -> list[Verdict]:
    """The same answers as of the solver alone."""
    with Parallel(dfl.HiGHS(case.program), workers=2) as many:
        one, other = dfl.HiGHS(case.program).solve(case.costs, case.instance), many.solve(case.costs, case.instance)
    same = torch.equal(one.status, other.status) and torch.equal(one.decision.nan_to_num(), other.decision.nan_to_num())
    return judge(case, "none", other) if same else [Verdict("silent wrong", "other answers in parallel")]


def pooled(case: Case) -> list[Verdict]:
    """Decisions from the pool are feasible, and never called optimal unless they are."""
    subject = Pooled(dfl.HiGHS(case.program), ratio=0.5, generator=case.starts % 1000)
    try:
        answers = [subject.solve(case.costs, case.instance) for _ in range(2)]
    except ProgramError:
        return []  # instances with sides of their own
    return [verdict for answer in answers for verdict in judge(case, "none", answer)]


def cave(case: Case) -> list[Verdict]:
    """1 − cos(v, projection of v onto the normal cone at w*), against bounded least squares on what binds."""
    from scipy.optimize import lsq_linear

    from fuzz.references import truth_of

    if case.Q is not None or case.dtype != "float64" or not case.count or (case.column != case.column[0]).any():
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
            target = normals.T @ lsq_linear(normals.T, v / length, (0, np.inf), "bvls", 1e-15, max_iter=1000).x
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


def gurobi(program: dfl.Program) -> Solver:
    return dfl.Gurobi(program)


SUBJECTS: dict[str, Subject] = {
    "Smoothed squared, cold": smoothed("squared", warm=False),
    "Smoothed squared, warm": smoothed("squared", warm=True),
    "Smoothed norm, cold": smoothed("norm", warm=False),
    "Smoothed norm, warm": smoothed("norm", warm=True),
    "Smoothed by the pattern of Q": by_pattern,
    "DavisYin": davis_yin,
    "HiGHS": solver(dfl.HiGHS),
    "HiGHS, presolve": solver(lambda program: dfl.HiGHS(program, presolve=True)),
    "Gurobi": solver(gurobi),
    "FewRowLP": solver(dfl.FewRowLP, relax=True),
    "FewRowBinary": solver(dfl.FewRowBinary),
    "SmallLP": solver(dfl.SmallLP, relax=True),
    "RelaxationFirst": solver(RelaxationFirst),
    "TopK": solver(TopK.of),
    "DagShortestPath": solver(DagShortestPath.of),
    "Parallel": parallel,
    "Pooled": pooled,
    "CaVE": cave,
    "losses": losses,
    "labels and evaluation": evaluation,
    "front ends": front_ends,
    "after recourse": after_recourse,
}
