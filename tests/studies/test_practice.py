"""The practice benchmark: its tables fit its programs, a tiny run makes a record, the page tests as SciPy does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import practice
from practice_markets import Case


@pytest.mark.parametrize("name", practice.PROBLEMS)
def test_tables_fit_the_program(name: str) -> None:
    case = practice.PROBLEMS[name](1)
    assert list(case.costs) == list(case.program.cost_names or ())
    lengths = {len(column) for table in (case.features, case.costs, case.instances or {}) for column in table.values()}
    assert len(lengths) == 1
    assert all(np.isfinite(column).all() for column in case.costs.values())
    assert case.digest == practice.PROBLEMS[name](1).digest != practice.PROBLEMS[name](2).digest
    if case.instances is not None:
        case.program.instance({name: column[:3] for name, column in case.instances.items()})


def test_a_run_makes_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(seed: int) -> Case:
        whole = practice.bakery(seed)
        cut = {
            name: {key: column[:60] for key, column in getattr(whole, name).items()}
            for name in ("features", "costs", "instances")
        }
        return replace(whole, **cut)

    monkeypatch.setitem(practice.PROBLEMS, "bakery", small)
    record = practice.run("bakery", 0)
    assert set(record["validation"]) == {"least squares", "ridge", "boosting", "quantile boosting"}
    assert {*record["validation"], f"dflearn {record['chosen']}", f"dflearn {record['baseline']}"} <= set(
        record["regrets"]
    )
    assert {len(values) for values in record["regrets"].values()} == {15}
    path = tmp_path / "runs.ndjson.xz"
    practice.keep(path, [record])
    assert practice.read(path) == [record]
    assert "| bakery, € a day | 0 |" in practice.page([record])


def record(seed: int, regrets: dict[str, float]) -> dict[str, Any]:
    about = {"problem": "feed", "seed": seed, "chosen": "own", "baseline": "blend", "money": "€", "optimum": 1.0}
    return about | {
        "regrets": {name: [value, value] for name, value in regrets.items()},
        "validation": {name: value for name, value in regrets.items() if not name.startswith("dflearn")},
        "seconds": {"train": 1.0, "ordinary": 1.0},
        "machine": {"commit": "0123456789"},
    }


def test_the_page_tests_differences_over_seeds() -> None:
    rng = np.random.RandomState(0)
    mine, other = rng.uniform(1, 2, 5), rng.uniform(2, 3, 5)
    records = [
        record(seed, {"ridge": b, "boosting": 9.0, "dflearn own": a, "dflearn blend": a})
        for seed, (a, b) in enumerate(zip(mine, other, strict=True))
    ]
    value, half, p = practice.paired(mine - other)
    test = stats.ttest_rel(mine, other)
    np.testing.assert_allclose([value, p], [np.mean(mine - other), test.pvalue])
    np.testing.assert_allclose([value - half, value + half], test.confidence_interval(0.95))
    page = practice.page(records)
    assert "Worse beyond chance on 0 of 1, better on 1; the mean is lower on 1." in page
    assert "Worse beyond chance on 0 of 1, better on 0; the mean is lower on 0." in page, "its own baseline is the same"
    np.testing.assert_allclose(practice.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
