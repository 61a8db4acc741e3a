"""The field study's statistics against tables and formulas of others, and the whole of it on a small part."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import field as study
import field_default
import field_fresh
import field_levels
from dflearn.evaluation import evaluate
from dflearn.solvers.highs import HiGHS
from field_fresh_problems import FRESH
from field_levels_page import SHOWN
from field_new_problems import NEW
from field_page import ranked
from field_statistics import ranking


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(methods: int, quantile: float) -> None:
    """Demšar (2006), table 5(a)."""
    table = np.random.default_rng(0).normal(size=(6, methods))
    found = ranking([str(i) for i in range(methods)], table)
    assert found.distance == pytest.approx(quantile * math.sqrt(methods * (methods + 1) / 36), rel=1e-3)


def test_ranks_by_hand() -> None:
    found = ranking(["a", "b", "c"], np.array([[1.0, 2.0, 3.0], [2.0, 2.0, math.nan], [0.5, 0.1, 0.2]]))
    assert found.ranks.tolist() == [[1, 2, 3], [1.5, 1.5, 3], [3, 1, 2]]
    assert found.mean == {"b": 1.5, "a": pytest.approx(5.5 / 3), "c": pytest.approx(8 / 3)}


def test_a_small_part_runs_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:  # fmt: skip
    small = study.Task("SP-3", train=24, validation=10, test=25, epochs=2)
    monkeypatch.setattr(study, "TASKS", (small,))
    arguments = [
        "field.py",
        "--out",
        str(tmp_path),
        "--methods",
        "MSE",
        "SPO+",
        "--seeds",
        "1",
        "2",
        "--problems",
        "SP-3",
    ]
    monkeypatch.setattr("sys.argv", arguments)
    study.main()
    records = study.read(tmp_path / study.RECORDS)
    assert len(records) == 2 * (5 + 2)
    chosen = study.best_trial(records, "SP-3", "SPO+")
    tried = [one for one in records if one["method"] == "SPO+" and one["seed"] == 0]
    assert chosen == min(tried, key=lambda one: one["validation"])["trial"]
    tested = [one for one in records if one["seed"] > 0]
    assert {one["trial"] for one in tested if one["method"] == "SPO+"} == {chosen}
    for one in tested:
        assert one["regret"] == pytest.approx(np.mean(one["regrets"]), rel=1e-2)
        assert len(one["path"]) <= study.CHECKS
        assert one["validation"] == pytest.approx(min(regret for _, regret in one["path"]), rel=1e-3)
    assert "mean rank" in capsys.readouterr().out
    monkeypatch.setattr(study, "run", None)  # nothing is run twice
    study.main()
    assert study.read(tmp_path / study.RECORDS) == records


def test_the_level_of_the_comparison_has_its_data_and_sizes_take_as_many_steps() -> None:
    level = next(task for task in field_levels.levels() if (task.name, task.level) == ("SP-5", "degree 6, noise 0.5"))
    compared = next(task for task in study.TASKS if task.name == "SP-5")
    assert level.problem(3) == compared.problem(3)
    assert level.as_dict() == compared.as_dict()
    for task in field_levels.sizes():
        assert abs(task.epochs * math.ceil(task.train / task.batch) - field_levels.STEPS) <= 0.03 * field_levels.STEPS


def test_the_floor_is_that_of_evaluate() -> None:
    task = study.Task("KP-30", train=6, validation=4, test=20, options=(("degree", 4), ("noise", 1.0)), level="x")
    rows = study.rows_of(task, 2)
    judged = evaluate(rows.test.costs, rows.problem, rows.test, progress=False)
    floor = field_levels.floor(task, 2)
    assert floor == pytest.approx(judged.floor_regrets.sum() / abs(judged.optima).sum(), rel=1e-6)
    assert floor > 0
    known = [{"problem": task.name, "level": task.level, "seed": 2, "method": "MSE"}]
    with pytest.MonkeyPatch().context() as patch:
        patch.setattr(field_levels, "levels", lambda: [task])
        patch.setattr(field_levels, "sizes", list)
        records = field_levels.with_floors(known, [2])
        assert [one["method"] for one in records] == ["MSE", field_levels.FLOOR]
        assert field_levels.with_floors(records, [2]) == records


def test_a_small_part_of_the_levels_makes_a_page(tmp_path: Path) -> None:
    from field_levels_page import write

    tasks = [*field_levels.levels(), *field_levels.sizes()]
    same = {"trial": 1.0, "seconds": 1.0, "machine": {"commit": "abc"}}
    records: list[Any] = []
    for task, method, seed in itertools.product(tasks, SHOWN, (1, 2, 3)):
        regrets = np.random.default_rng(seed).uniform(0.05, 0.2, 30) * (0.5 if method == "SCE" else 1.0)
        found = {"regret": float(regrets.mean()), "regrets": regrets.tolist()}
        records.append({"problem": task.name, "level": task.level, "method": method, "seed": seed} | found | same)
    write(records, tmp_path)
    text = (tmp_path / "levels.md").read_text()
    assert "mean rank over 30" in text
    row = next(line for line in text.splitlines() if line.startswith("| SCE "))
    assert "30 / 0" in row  # half the regret on every level, beyond chance
    assert row.count("0.50") == 8
    assert {path.name for path in tmp_path.iterdir()} == {"levels.md", "levels.svg", "rows.svg"}


@pytest.mark.parametrize("name", NEW | FRESH)
def test_solvers_of_the_new_problems_are_as_good_as_highs(name: str) -> None:
    """On their own costs, and on such as predictions may be: of either sign."""
    problem = (NEW | FRESH)[name](seed=1)
    drawn = problem.generate(6).costs.double()
    costs = torch.cat(
        [drawn, -drawn[:2], torch.randn(4, problem.program.p, generator=torch.Generator().manual_seed(0))]
    )
    objective = problem.program.objective
    for ours, program in ((problem.solver(), problem.program), (problem.relaxed_solver(), problem.relaxation)):
        found, wanted = ours.solve(costs).check().decision, HiGHS(program).solve(costs).check().decision
        torch.testing.assert_close(objective(costs, found), objective(costs, wanted), rtol=1e-6, atol=1e-6)
        assert program.violation(found).max() < 1e-6


def _part(method: str, lost: list[float], regret: float) -> dict[str, Any]:
    same = {"problem": "SP-5", "seed": 1, "seconds": 1.0, "set_up": 0.5, "total": 2.0, "trial": 1.0}
    return {**same, "method": method, "regret": regret, "validation": float(np.mean(lost)), "validation_regrets": lost}


def test_a_selection_takes_the_least_validation_regret_and_is_ranked_by_crossed_halves() -> None:
    steady, lucky = _part("SCE with MSE", [3.0, 3.0, 3.0, 3.0], 0.3), _part("SPO+ kNN", [0.0, 6.0, 0.0, 5.0], 0.1)
    # even rows choose the lucky one, which loses 6 and 5 on the odd ones; odd rows choose the steady one: 3 and 3
    assert field_default.crossed([steady, lucky]) == pytest.approx((6 + 5 + 3 + 3) / 4)
    *kept, picked = field_default.with_picks([steady, lucky])
    assert kept == [steady, lucky]
    assert (picked["method"], picked["picked"], picked["regret"]) == ("best of 2", "SPO+ kNN", 0.1)
    assert (picked["seconds"], picked["set_up"]) == (2.0, 1.0)


def test_the_interval_over_problems() -> None:
    assert field_default.interval(np.full(7, 4.0)) == (4.0, 4.0)
    low, high = field_default.interval(np.arange(100.0))
    assert (low, high) == pytest.approx((49.5 - 1.96 * 2.89, 49.5 + 1.96 * 2.89), abs=0.3)


def test_the_default_is_what_the_rule_says_of_the_records() -> None:
    """By validation regret on the problems known then; no test regret enters."""
    records = [one for one in study.read(study.OUT / study.RECORDS) if one["problem"] in field_default.KNOWN]
    for one in records:
        one.pop("regret", None)
    field, _ = ranked(field_default.with_picks(records))
    assert next(iter(field_default.choice(field))) == field_default.CHOSEN


def _fresh(regrets: dict[str, float]) -> list[dict[str, Any]]:
    """Runs on the fresh problems with these regrets, of all else 0.5 and worse; validation rows tell the truth."""
    return [
        _part(method, [regret] * 4, regret) | {"problem": problem, "seed": seed}
        for problem in field_fresh.FRESH
        for seed in (1, 2)
        for i, method in enumerate(field_fresh.METHODS)
        for regret in [regrets.get(method, 0.5 + 0.01 * i)]
    ]


def test_the_verdict_on_the_hypothesis() -> None:
    """The best part is as good as the selection, which then shares the first rank: refuted, as all selections take that part."""
    assert tuple(FRESH) == field_fresh.FRESH
    text = field_fresh.verdict(_fresh({"MSE": 0.1}))
    assert "2.00, place" in text  # with best of 5 and MSE: (1 + 2 + 3) / 3
    assert "**Refuted.** It took MSE 12 times" in text
    means = {"best of 3": 2.0, "best of 2": 2.5, "SCE": 3.0}
    assert field_fresh.outcome(means, "SCE", -0.1) == "confirmed"
    assert field_fresh.outcome(means, "SCE", 0.1) == "not confirmed, first within chance of SCE"
    assert field_fresh.outcome(means | {"best of 2": 2.0}, "SCE", -0.1) == "refuted"


def test_a_fresh_problem_counts_where_all_methods_have_a_seed_in_common() -> None:
    records = _fresh({})
    cut = [one for one in records if (one["problem"], one["method"], one["seed"]) != ("tree", "SCE", 1)]
    assert "tree: 2," in field_fresh.verdict(cut)
    cut = [one for one in cut if (one["problem"], one["method"]) != ("tree", "SCE")]
    assert "tree" not in field_fresh.verdict(cut)


def test_the_page_has_the_verdict_of_the_records() -> None:
    text = field_fresh.verdict(study.read(study.OUT / study.RECORDS))
    assert text in (study.OUT / "README.md").read_text(encoding="utf-8")
    assert "**Refuted.**" in text  # as docs/field.md says
