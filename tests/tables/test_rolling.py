"""Rolling origins and weights in `train`: what is tested comes after what was trained on, and what weighs nothing tells nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dflearn as dfl
from dflearn.data.split import rolling_origins
from dflearn.errors import DataError, OptionError
from dflearn.tables import pipeline
from dflearn.tables.result import AVERAGE
from dflearn.tables.rolling import BASELINE, CHOSEN, RollingResult, train_rolling

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
        for one, other in zip(fold.parts, parts, strict=True):
            np.testing.assert_array_equal(one, other)
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


def test_what_is_printed(rolled: RollingResult) -> None:
    text = str(rolled)
    assert text.startswith("2 folds in order of time")
    for fold in rolled.folds:
        assert f"row {fold.parts.test[0]} … row {fold.parts.test[-1]}" in text
    assert f"{rolled.tested[CHOSEN].absolute_regret:.4g}" in text.split("together")[1]


def test_folds_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="for 20 folds: each needs 2"):
        train_rolling(program(), *tables(), folds=20, **QUICK)


def test_rows_without_weight_tell_nothing() -> None:
    x, y = tables()
    weights = np.where(np.arange(ROWS) % 5 == 0, 0.0, 2.0)
    other = y * np.where(weights > 0, 1, 100)[:, None]
    results = [
        dfl.train(program(), x.assign(w=weights), costs, ordered=True, weights="w", **QUICK) for costs in (y, other)
    ]
    one, two = (result.models["least squares"].predict(result.data.features.numpy()) for result in results)
    np.testing.assert_allclose(one, two, rtol=1e-8)
    assert results[0].encoding.names == ("u", "v", "shop")
    np.testing.assert_array_equal(results[0].data.weights, weights)
    plain = dfl.train(program(), x, y, ordered=True, **QUICK).models["least squares"]
    assert not np.allclose(one, plain.predict(results[0].data.features.numpy()))


def test_folds_are_in_order_of_the_named_column() -> None:
    x, y = tables()
    x["at"] = pd.date_range("2024-01-01", periods=ROWS)
    shuffled = np.random.default_rng(2).permutation(ROWS)
    mixed = (x.iloc[shuffled], y.iloc[shuffled])
    with pytest.raises(DataError, match=r"not in order of time by this column.*pass ordered='at'"):
        train_rolling(program(), *mixed, folds=1, **QUICK)
    sorted_by_hand = train_rolling(program(), x, y, folds=1, **QUICK)
    found = train_rolling(program(), *mixed, folds=1, ordered="at", **QUICK)
    np.testing.assert_array_equal(found.tested[CHOSEN].regrets, sorted_by_hand.tested[CHOSEN].regrets)
    assert len(found.notes) == len(sorted_by_hand.notes)  # they name rows as the tables have them


def test_finished_folds_are_not_trained_again(
    rolled: RollingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, fitted = tmp_path / "unfinished", []
    boost = pipeline.boosting_left_out

    def stop_at_second(*given: Any, **options: Any) -> Any:
        fitted.append(len(given[0]))
        if len(fitted) == 2:
            raise KeyboardInterrupt
        return boost(*given, **options)

    monkeypatch.setattr(pipeline, "boosting_left_out", stop_at_second)
    options: dict[str, Any] = {"folds": 2, "gap": 1, "groups": "shop", "checkpoint": folder, **QUICK}
    with pytest.raises(KeyboardInterrupt):
        train_rolling(program(), *tables(), **options)
    result = train_rolling(program(), *tables(), **options)
    assert len(fitted) == 3  # the second fold twice, the first once
    np.testing.assert_array_equal(result.tested[CHOSEN].regrets, rolled.tested[CHOSEN].regrets)
    assert not folder.exists()
