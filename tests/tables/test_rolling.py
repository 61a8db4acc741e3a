"""Rolling origins and weights in `train`: what is tested comes after what was trained on, and what weighs nothing tells nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dflearn as dfl
from dflearn.data.split import rolling_origins
from dflearn.tables.result import AVERAGE, BASELINE, CHOSEN, RollingResult
from dflearn.tables.workflow import train_rolling

ROWS = 48
QUICK: dict[str, Any] = {"losses": ("spo+",), "epochs": 1, "progress": False}


def program() -> dfl.Program:
    return dfl.Program(G=[[2, 3, 4]], h=[5], upper=1, S=-np.eye(3), sense="maximize", cost_names=["a", "b", "c"])


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(ROWS, 2)), columns=["u", "v"])
    x["shop"] = np.arange(ROWS) // 3
    y = 5 + x[["u", "v"]].to_numpy() @ rng.normal(size=(2, 3)) + rng.normal(0, 0.3, (ROWS, 3))
    return x, pd.DataFrame(y, columns=["a", "b", "c"])


@pytest.fixture(scope="module")
def rolled() -> RollingResult:
    return train_rolling(program(), *tables(), folds=2, gap=1, groups="shop", **QUICK)


def test_each_fold_is_tested_on_what_comes_next(rolled: RollingResult) -> None:
    expected = rolling_origins(ROWS, 2, gap=1, groups=tables()[0]["shop"].tolist())
    for fold, parts in zip(rolled.folds, expected, strict=True):
        np.testing.assert_array_equal(fold.parts.test, parts.test)
        assert fold.parts.train.max() + 1 < parts.test.min()
        assert len(fold.data) == parts.test[-1] + 1  # later rows are not even there
        assert fold.encoding.inputs == ("u", "v")
    together = np.concatenate([parts.test for parts in expected])
    for said, name in ((AVERAGE, lambda fold: AVERAGE), (BASELINE, lambda f: f.baseline), (CHOSEN, lambda f: f.chosen)):
        judged = rolled.tested[said]
        np.testing.assert_array_equal(judged.ids, together)
        regrets = np.concatenate([fold.tested[name(fold)].regrets for fold in rolled.folds])
        np.testing.assert_array_equal(judged.regrets, regrets)
    gap = rolled.tested[CHOSEN].absolute_regret - rolled.tested[BASELINE].absolute_regret
    assert rolled.difference.absolute_regret.value == pytest.approx(gap, abs=1e-12)
    assert rolled.model is rolled.folds[1].model


def test_rows_without_weight_tell_nothing() -> None:
    x, y = tables()
    weights = np.where(np.arange(ROWS) % 5 == 0, 0.0, 2.0)
    other = y * np.where(weights > 0, 1, 100)[:, None]
    results = [
        dfl.train(program(), x.assign(w=weights), costs, ordered=True, weights="w", **QUICK) for costs in (y, other)
    ]
    one, two = (result.models["ridge"].predict(result.data.features.numpy()) for result in results)
    np.testing.assert_allclose(one, two, rtol=1e-8)
    assert results[0].encoding.names == ("u", "v", "shop")
    np.testing.assert_array_equal(results[0].data.weights, weights)
    plain = dfl.train(program(), x, y, ordered=True, **QUICK).models["ridge"]
    assert not np.allclose(one, plain.predict(results[0].data.features.numpy()))
