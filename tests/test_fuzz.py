"""A short run of the fuzzer: programs of every family by fixed seeds, every subject by turns, no silent wrong answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

import dflearn as dfl
from fuzz.cases import Case
from fuzz.durability import checkpoint_bits
from fuzz.exact import exact_lp
from fuzz.families import FAMILIES, make
from fuzz.references import truth_of
from fuzz.run import in_turn, run, try_check
from fuzz.shrink import as_test, failure, shrink
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import BAD, Verdict, judge

SEEDS = range(1000, 1009)
TURNS = 6  # a program meets every sixth subject


@pytest.mark.parametrize("family", FAMILIES)
def test_no_silent_wrong_answer(family: str) -> None:
    tally = run(SEEDS, [family], turns=TURNS)
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert sum(sum(counter.values()) for counter in tally.counts[family].values()) > 0


def test_every_subject_has_its_turn() -> None:
    turns = [in_turn(SUBJECTS, seed, 3) for seed in range(3)]
    assert sorted(name for turn in turns for name in turn) == sorted(SUBJECTS)
    assert in_turn(SUBJECTS, 3, 3) == turns[0]
    assert in_turn(SUBJECTS, 5, 1) == list(SUBJECTS)


def test_flipped_bits_in_a_checkpoint() -> None:
    assert not [verdict for verdict in try_check(checkpoint_bits, 1000) if verdict.verdict in BAD]


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
