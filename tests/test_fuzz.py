"""A short run of the fuzzer: programs of every family by fixed seeds, every subject by turns, no silent wrong answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import clarabel
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import dflearn as dfl
from dflearn.errors import SolverError
from dflearn.solvers.base import Status
from fuzz.__main__ import main
from fuzz.cases import Case
from fuzz.exact import exact_lp
from fuzz.families import FAMILIES, make
from fuzz.isolated import _by_subject, run_isolated
from fuzz.pipeline import one_loss
from fuzz.references import all_rows, by_clarabel, truth_of
from fuzz.run import Tally, Work, run, try_subject
from fuzz.shrink import as_test, failure, shrink
from fuzz.subjects import SUBJECTS, Subject, log_barrier
from fuzz.verdicts import BAD, Verdict, judge

NEW = (
    "loose",
    "blocks",
    "balances",
    "big_m",
    "wide_quadratic",
    "ties",
    "wide",
)  # these families have an optimum always


@pytest.mark.parametrize("family", FAMILIES)
def test_no_silent_wrong_answer(family: str) -> None:
    first = 1000 + 3 * list(FAMILIES).index(family)  # other seeds, so that each way of a subject has its turn
    tally = run(range(first, first + 3), [family])
    bad = [failure for failure in tally.failures if failure.verdict in BAD]
    assert not bad, "\n".join(map(str, bad))
    assert tally.counts.total() > 0


def test_each_way_of_a_subject_has_its_turn() -> None:
    asked = list[str]()
    subject = Subject(*(lambda case, name=name: asked.append(name) or [] for name in "abc"), every=2)
    for seed in range(12):  # every second one
        subject(block_case().changed(seed=seed))
    assert asked == list("abcabc")


def test_exact_arithmetic_agrees_with_floating_point() -> None:
    for seed in range(60):
        case = make("ordinary" if seed % 2 else "free_and_fixed", seed)
        c, (A, b, G, h, lower, upper) = case.c(0), (case.A, case.b, case.G, case.h, case.lower, case.upper)
        answer = exact_lp(c, A, b, G, h, lower, upper)
        found = linprog(c, G if len(G) else None, h if len(G) else None, A if len(A) else None, b if len(A) else None,
                        np.column_stack([lower, upper]))  # fmt: skip
        assert answer.status == {0: "optimal", 2: "infeasible", 3: "unbounded"}[found.status]
        if answer.objective is not None:
            assert float(answer.objective) == pytest.approx(found.fun, rel=1e-7, abs=1e-7)


def test_a_wrong_subject_is_found_and_shrunken() -> None:
    """A solver that ignores its rows: what is left of the program is one row, or a bound, that matters."""

    def careless(case: Case) -> list[Verdict]:
        p = case.program
        free = dfl.Program(lower=p.lower, upper=p.upper, S=p.S, d=p.d, n=p.n)
        return judge(case, "relaxed", dfl.HiGHS(free).solve(case.costs))

    seed = next(s for s in range(100) if failure(make("ordinary", s), careless, "silent wrong"))
    small = shrink(make("ordinary", seed), careless, "silent wrong")
    verdict = failure(small, careless, "silent wrong")
    assert verdict is not None
    assert small.count == 1
    assert small.n <= 2
    assert len(small.A) + len(small.G) == 1
    source = as_test(small, "HiGHS", verdict)
    names: dict[str, object] = {}
    exec(
        "from dflearn import *\nimport numpy as np, torch\nfrom dflearn.testing import check_optimal\n" + source, names
    )
    test = next(value for name, value in names.items() if name.startswith("test_highs_ordinary"))
    test()  # type: ignore[operator]  # HiGHS itself is right there


def test_units_are_carried_over_exactly() -> None:
    for seed in range(20):
        case = make("mixed_scales", seed)
        truth = truth_of(case, "relaxed", 0)
        if truth.status == "optimal":
            p, sides = case.program, case.user_sides(0)
            answer = exact_lp(case.user_c(0), p.A.toarray(), sides.b, p.G.toarray(), sides.h, sides.lower, sides.upper)
            assert float(answer.objective or 0) == pytest.approx(truth.objective * case.cost, rel=1e-12, abs=1e-300)


def told(case: Case, w: np.ndarray, status: Status = Status.OPTIMAL, **parts: object) -> dfl.Solution:
    """An answer to a case of one instance, w in base units."""
    decision = torch.tensor(w * case.column)[None]
    value = float(case.user_c(0) @ (w * case.column)) + case.cost * float(case.bent(w))
    told = {"objective": torch.tensor([value]), "bound": torch.tensor([-np.inf])} | parts
    return dfl.Solution(decision=decision, status=torch.tensor([int(status)], dtype=torch.int8), **told)  # type: ignore[arg-type]


def block_case() -> Case:
    """max w_0 + w_1 up to 2, and beside it max w_2 + w_3 up to 2, in units of 10^-8, costs too; w_0 = w_1, w_2 = w_3."""
    far = 2.0**-27
    A, G = np.array([[1.0, -1, 0, 0], [0, 0, 1, -1]]), np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    return Case(
        family="blocks", seed=0, A=A, b=np.zeros(2), G=G, h=np.full(2, 2.0), lower=np.zeros(4), upper=np.full(4, 10.0),
        y=np.array([[-1, -1, -far, -far]]), S=None, d=np.zeros(4), integer=np.zeros(4, bool), mu=1.0,
        column=np.array([1.0, 1, far, far]), row=np.array([1.0, far, 1.0, far]),
        block=np.array([0, 0, 1, 1]), factor=np.array([1.0, far]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("w", "wanted"),
    [
        ([1, 1, 1, 1], "right"),
        ([1, 1, 0, 0], "silent wrong"),  # a block is lost
        ([1, 1, 0.9999, 0.9999], "silent wrong"),  # and by 1e-4
        ([1, 1, 1.0001, 0.9999], "silent wrong"),  # an equation of the small block
        ([1, 1, 1.0001, 1.0001], "silent wrong"),  # its inequality
        ([1 + 1e-9, 1 - 1e-9, 1 - 1e-9, 1 + 1e-9], "right"),
        ([1, 1, np.nan, 1], "silent wrong"),
        ([-1e-3, -1e-3, 1, 1], "silent wrong"),
    ],
)
def test_blocks_are_judged_in_their_own_units(w: list[float], wanted: str) -> None:
    case = block_case()
    (verdict,) = judge(case, "none", told(case, np.array(w)))
    assert verdict.verdict == wanted, verdict.detail


def test_residues_of_zeros_are_no_violation() -> None:
    """A balance whose right-hand side is 0 and whose variables are all 1e-13 holds; one that is off by 1e-4 does not."""
    case = block_case().changed(y=np.array([[1.0, 1, 2.0**-27, 2.0**-27]]))
    right, wrong = np.array([1e-13, 3e-13, 2e-13, 0]), np.array([0, 0, 1e-4, 0])
    assert judge(case, "none", told(case, right))[0].verdict == "right"
    assert judge(case, "none", told(case, wrong))[0].verdict == "silent wrong"


def test_missing_answers_are_counted_as_missed_or_declared() -> None:
    case = block_case()
    w = np.full(4, 0.5)
    assert judge(case, "none", told(case, w, Status.FAILED))[0].verdict == "missed"
    assert judge(case, "none", told(case, w, Status.FEASIBLE))[0].verdict == "missed"
    assert judge(case, "none", told(case, w, Status.FEASIBLE), declared=(Status.FEASIBLE,))[0].verdict == "declared"
    assert judge(case, "none", told(case, w + np.eye(4)[3], Status.FEASIBLE))[0].verdict == "silent wrong"
    assert judge(case, "none", told(case, w, Status.INFEASIBLE))[0].verdict == "silent wrong"
    assert not judge(case, "none", told(case, np.ones(4), fallback=torch.tensor([True])))[0].first
    assert judge(case, "none", told(case, np.ones(4), bound=torch.tensor([-1.0])))[0].verdict == "silent wrong"

    def refusing(case: Case) -> list[Verdict]:
        raise SolverError("no")

    assert [v.verdict for v in try_subject(refusing, case)] == ["missed"]
    nothing = case.changed(h=np.array([-1.0, 2.0]))
    assert [v.verdict for v in try_subject(refusing, nothing)] == ["refused"]
    assert judge(nothing, "none", told(case, w, Status.FAILED))[0].verdict == "honest"
    assert judge(nothing, "none", told(case, w, Status.INFEASIBLE))[0].verdict == "right"


def test_parts_have_the_truth_of_the_whole() -> None:
    """Block by block, against one exact simplex on everything, in the library's units."""
    for seed in range(30):
        case = make("blocks", seed)
        p, truth = case.program, truth_of(case, "relaxed", 0)
        if case.Q is None:
            sides = case.user_sides(0)
            parts = (p.A.toarray(), sides.b, p.G.toarray(), sides.h, sides.lower, sides.upper)
            answer = exact_lp(case.user_c(0), *parts)
            assert answer.status == truth.status
            assert float(answer.objective or 0) == pytest.approx(truth.objective * case.cost, rel=1e-12)
        for part, own in case.parts:
            assert part.user_mu() == case.user_mu()
            np.testing.assert_array_equal(part.user_c(0), case.user_c(0)[own])
            np.testing.assert_array_equal(part.user_sides(0).h, case.user_sides(0).h[_rows_of(case, own)])


def _rows_of(case: Case, own: np.ndarray) -> np.ndarray:
    return np.flatnonzero(case.G[:, own].any(1))


def test_loose_limits_change_nothing() -> None:
    """The truth without rows and bounds that never bind is that of the whole program, by exact arithmetic."""
    for seed in range(30):
        case = make("loose", seed)
        if case.Q is None:
            answer = exact_lp(case.c(0), case.A, case.b, case.G, case.h, case.lower, case.upper)
            truth = truth_of(case, "relaxed", 0)
            assert answer.status == truth.status == "optimal"
            assert float(answer.objective or 0) == pytest.approx(truth.objective, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("family", NEW)
def test_references_are_sure_of_the_new_families(family: str) -> None:
    truths = [truth_of(make(family, seed), "none", 0) for seed in range(20)]
    assert {truth.status for truth in truths} == {"optimal"}


@pytest.mark.parametrize("family", ["mixed_scales", "balances", "quadratic"])
def test_exact_quadratic_references_agree_with_clarabel(family: str) -> None:
    for seed in range(10):
        case = make(family, seed)
        truth = truth_of(case, "squared", 0)
        if truth.status != "optimal" or truth.w is None:
            continue
        Q = np.diag(case.curvature) + (0 if case.Q is None else case.Q)
        lines = [case.line(name, 0) for name in ("b", "h", "lower", "upper")]
        matrix, right, equations = all_rows(case, *lines)
        cones = [clarabel.ZeroConeT(equations), clarabel.NonnegativeConeT(len(right) - equations)]
        found = by_clarabel(Q, case.c(0), matrix, right, cones)
        if str(found.status) == "Solved":
            assert truth.objective == pytest.approx(found.obj_val, rel=1e-6, abs=1e-6 * truth.scale)


def test_a_norm_is_judged_by_the_square_of_the_same_slope() -> None:
    """min −w_0 − w_1 + 0.5‖w‖ over w_0 + w_1 ≤ 2: (1, 1); by symmetry, and by a reference that knows no norms of parts."""
    case = block_case()
    case = case.changed(
        A=case.A[:0], b=np.zeros(0), G=case.G[:1], h=np.array([2.0]), row=np.ones(1), column=np.ones(4), factor=np.ones(2),
        y=np.array([[-1.0, -1, 1, 1]]), mu=0.5,
    )  # fmt: skip
    length = {"objective": torch.tensor([-2 + 0.5 * np.sqrt(2)])}
    for w, wanted in (([1, 1, 0, 0], "right"), ([1.5, 0.5, 0, 0], "silent wrong"), ([0.5, 0.5, 0, 0], "silent wrong")):
        assert judge(case, "norm", told(case, np.array(w, float), **length))[0].verdict == wanted


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, {"right"}), (2.0, {"right", "silent wrong"})])
def test_gradients_are_judged_by_differences_that_two_steps_agree_on(
    factor: float, wanted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs of one block are of size 1e-8: the first step, 1e-5, leads over its kinks."""
    monkeypatch.setattr("fuzz.families.TWO", 1.0)  # both instances of each program
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *given: [factor * part for part in grad(*given)])
    assert {verdict.verdict for verdict in one_loss(make("blocks", 910010), "norm", "regret")} == wanted


def test_a_barrier_does_not_begin_at_a_far_corner() -> None:
    """A corner of this program is at 1e15, and its optimum near one."""
    assert {verdict.verdict for verdict in log_barrier(make("wide_quadratic", 910016))} == {"right"}


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after a write, it ends with the counts of a run that was left alone, and the table is of both."""
    monkeypatch.setattr("fuzz.__main__.WRITTEN", 0.0)
    monkeypatch.setattr("fuzz.__main__.run_isolated", _in_this_process)
    command = ["--count", "6", "--families", "ordinary,knapsacks", "--subjects", "HiGHS", "--no-shrink", "--out"]
    monkeypatch.setattr("fuzz.report.commit_of_code", lambda: "abc")
    monkeypatch.setattr("fuzz.__main__.commit_of_code", lambda: "abc")
    main([*command, str(tmp_path / "whole")])
    with monkeypatch.context() as stopped:
        stopped.setattr("fuzz.__main__.table", lambda folder: None)
        stopped.setattr("fuzz.__main__.run_isolated", lambda *a: itertools.islice(_in_this_process(*a), 1))
        main([*command, str(tmp_path / "part")])
    part = tmp_path / "part" / "seeds-0-2.json"
    assert json.loads(part.read_text())["seeds_done"] == 1
    main([*command, str(tmp_path / "part")])
    whole, again = (json.loads((tmp_path / name / part.name).read_text()) for name in ("whole", "part"))
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in whole.items() if k != "seconds"}
    assert "commit abc: 6 programs" in (tmp_path / "part" / "README.md").read_text()


def test_a_death_is_that_of_the_subject_that_dies_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies leaves the other subjects' verdicts, and the programs after it, as they are."""
    deadly = {("knapsacks", 1, "SCIP")}

    def fake(target: object, work: list[list[Work]], seconds: float) -> Iterator[object]:
        for program in work:
            if deadly & set(program):
                yield "exit code -11"
                return
            yield [([Verdict("right")], 0.0) for _ in program]

    monkeypatch.setattr("fuzz.isolated.messages", fake)
    subjects, tally = ["HiGHS", "SCIP", "TopK"], Tally()
    assert list(run_isolated(range(3), ["ordinary", "knapsacks"], subjects, tally)) == [0, 1, 2]
    assert tally.programs == {"ordinary": 3, "knapsacks": 3}
    assert tally.verdicts() == {"right": 17, "crash": 1}
    assert [failure[:4] for failure in tally.failures] == [("knapsacks", 1, "SCIP", "crash")]
    deadly.clear()
    assert {verdict.verdict for verdicts, _ in _by_subject([("zeros", 0, "SCIP")], "once") for verdict in verdicts} == {
        "crash"
    }


def _in_this_process(seeds: list[int], families: list[str], subjects: list[str], tally: Tally) -> Iterator[int]:
    for seed in seeds:
        run([seed], families, {name: SUBJECTS[name] for name in subjects}, tally)
        yield seed
