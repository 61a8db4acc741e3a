"""The paper's tables: the published figures, ranks, agreement, costs, and how tables look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflearn.problems import PROBLEMS
from dflearn.studies.config import RunConfig, Settings, resolve
from dflearn.studies.driver import Costs, makespan
from dflearn.studies.methods import method_named
from dflearn.studies.paper.published import methods_of, problems_of, published_costs, published_rows
from dflearn.studies.paper.tables import SUMMARY_HEADER, agreement, rows_of, summary_cells
from dflearn.studies.record import Record
from support.study_records import made_up


def run(method: str, seed: int = 1, problem: str = "SP-5") -> RunConfig:
    return resolve(problem, method, seed)


def test_all_published_rows_are_there_and_each_has_a_method() -> None:
    rows = published_rows()
    assert len(rows) == 131
    assert {problem for problem, _ in rows} == set(PROBLEMS)
    assert rows["KP-200", "SPO+^ILP"].regret == 0.20
    assert rows["KP-200", "SPO+^ILP"].seconds == 4.98
    for problem in PROBLEMS:
        methods = methods_of(problem)
        assert len(set(methods)) == len(methods)
        assert {method for name, method in rows if name == problem} <= set(methods)
        for method in methods:
            assert resolve(problem, method_named(method).name, 1).problem == problem
    assert problems_of("kp") == ["KP-100", "KP-200", "KP-400", "KP-500"]


def test_printed_hyperparameters_get_a_row_where_they_differ() -> None:
    printed = {name: [m for m in methods_of(name) if m.endswith("printed")] for name in PROBLEMS}
    assert {name: methods for name, methods in printed.items() if methods} == {
        "SP-5": ["SPO+^DYS printed"],
        "SP-15": ["SCE^DYS printed"],
        "KP-100": ["SqDE^DYS printed", "SPO+^DYS printed"],
    }


def test_means_deviations_and_ranks() -> None:
    """Published on SP-5: MSE 0.45, SPO+^relax 0.32, PFY 0.32."""
    records = [
        made_up(run("MSE", 1), style=0.40, ratios=0.1),
        made_up(run("MSE", 2), style=0.44, ratios=0.3),
        made_up(run("SPO+^relax"), style=0.33),
        made_up(run("PFY"), style=0.31),
        made_up(run("SCE^smoothed"), style=0.20),
        made_up(run("MSE", problem="SP-10"), style=9.0),
    ]
    rows = rows_of("SP-5", ["MSE", "SPO+^relax", "PFY", "SCE^smoothed", "CaVE"], records)
    assert [row.summary.method for row in rows] == ["MSE", "SPO+^relax", "PFY", "SCE^smoothed"]
    mse, own = rows[0].summary, rows[3]
    assert (mse.seeds, mse.regret, mse.mean_of("mean_of_ratios")) == ((1, 2), pytest.approx(0.42), pytest.approx(0.2))
    assert mse.deviation == pytest.approx(0.04 / 2**0.5)
    assert rows[0].difference == pytest.approx(-0.03)
    assert [(row.rank, row.published_rank) for row in rows] == [(3, 3), (2, 1.5), (1, 1.5), (None, None)]
    assert own.published is None
    found = agreement(rows)
    assert (found.methods, found.ordered_alike, found.ordered, found.reversed_pairs) == (3, 2, 2, ())
    # Ranks (3, 2, 1) and (3, 1.5, 1.5): Spearman is √3/2, Kendall's τ-b is 2/√6.
    assert found.spearman == pytest.approx(3**0.5 / 2)
    assert found.kendall == pytest.approx(2 / 6**0.5)


def test_a_problem_in_a_line() -> None:
    records = [
        made_up(run("MSE", 1), style=0.44),
        made_up(run("MSE", 2), style=0.45),
        made_up(run("SPO+^relax"), style=0.35),
        made_up(run("PFY"), style=0.50),
        made_up(run("SCE^smoothed"), style=0.20),
    ]
    rows = rows_of("SP-5", methods_of("SP-5"), records)
    assert dict(zip(SUMMARY_HEADER, summary_cells("SP-5", rows, published=12), strict=True)) == {
        "problem": "SP-5",
        "published rows run": "3 of 12",
        "seeds": "1 to 2",
        "within 0.01": "1 of 3",
        "further apart": "SPO+^relax 0.350 (0.32), PFY 0.500 (0.32)",
        "pairs ordered alike": "1 of 2",
    }
    assert summary_cells("SP-5", rows[:1], published=12)[2] == "2"


def measured(method: str, problem: str, per_epoch: float) -> Record:
    """A run of 25 epochs that took so much training, and 0.5 s of solves for 2000 instances."""
    seconds = {"epoch": per_epoch, "prepare": 0.0, "train": 25 * per_epoch, "labels": 0.2, "evaluate": 0.3}
    return replace(made_up(run(method, problem=problem)), seconds=seconds)


def costs(records: list[Record]) -> Costs:
    return Costs(records, published_costs())


def test_costs_come_from_what_was_measured_or_published() -> None:
    wanted = run("PFY", 2)
    seconds = {problem: published_rows()[problem, "PFY"].seconds for problem in ("SP-5", "SP-10")}
    # 25 epochs of the published seconds, and 4000 solves of 0.1 ms.
    assert costs([]).estimate(wanted) == (pytest.approx(25 * seconds["SP-5"] + 0.4), "published seconds")
    # What was measured took a tenth of the published 0.26 s; solves on this problem are known too.
    another = costs([measured("MSE", "SP-5", 0.026)]).estimate(wanted)
    assert another == (pytest.approx(2.5 * seconds["SP-5"] + 0.5), "published seconds times 0.1")
    same = costs([measured("PFY", "SP-5", 0.3)]).estimate(wanted)
    assert same == (pytest.approx(25 * 0.3 + 0.5), "other seeds")
    longer = replace(wanted, settings=Settings(epochs=50))
    assert costs([measured("PFY", "SP-5", 0.3)])(longer) == pytest.approx(50 * 0.3 + 0.5)
    # Without a published row: the mean of the method on other problems.
    own = costs([measured("sSPO+", "SP-10", 1.8), measured("sSPO+", "KP-100", 1.0)])
    assert own.estimate(run("sSPO+")) == (pytest.approx(25 * 1.4 + 0.4), "other problems")
    assert Costs([]).estimate(run("sSPO+"))[1] == "a guess: the method was never measured"


def test_the_last_of_some_runs_ends_on_some_cores() -> None:
    assert makespan([3, 1, 1, 1], 1) == 6
    assert makespan([3, 1, 1, 1], 2) == 3
    assert makespan([5, 4, 3, 3], 2) == 8
    assert makespan([5, 4], 64) == 5
