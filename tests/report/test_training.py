"""The page of a training: its numbers are those of the models, and a browser shows it whole."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dflearn as dfl
from dflearn.report import training_figures as figures
from dflearn.report.training import influence, training_page
from dflearn.tables import TrainResult
from dflearn.tables.result import savings
from support import browser
from support.html_reader import read

PRODUCTS, ROWS = ["bench", "chair", "desk"], 80
pytestmark = pytest.mark.xdist_group("training page")  # what they share is made once
MODEL = """\
Maximize
 profit: 1 bench + 1 chair + 1 desk - 2 overtime
Subject To
 saw: 3 bench + 2 chair + 4 desk - overtime <= 5
Binary
 bench chair desk overtime
End
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    folder = tmp_path_factory.mktemp("training")
    (folder / "shop.lp").write_text(MODEL)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    y = 8 + 3 * np.exp(x @ rng.normal(size=(3, 3)) / 2) + rng.normal(0, 0.5, (ROWS, 3))
    days = [str(np.datetime64("2024-01-01") + k) for k in range(ROWS)]
    season = np.where(x[:, 2] > 0, "wet", np.where(x[:, 2] > -0.7, "dry", "cold"))
    features = pd.DataFrame(x[:, :2], columns=["rain", "wind <now>"]).assign(day=days, season=season)
    costs = pd.DataFrame(y, columns=PRODUCTS).assign(day=days)
    program = dfl.from_lp(folder / "shop.lp", costs=PRODUCTS)
    return dfl.train(program, features, costs, id_column="day", losses=("spo+",), epochs=2, progress=False)


@pytest.mark.parametrize("two_stage", [True, False])
def test_the_numbers_are_those_of_the_models(two_stage: bool, result: TrainResult, tmp_path: Path) -> None:
    other = next(name for name in result.models if "spo+" in name)
    name = result.baseline if two_stage else other
    result = replace(result, chosen=name, compared=other)
    path = training_page(result, unit="EUR").write(tmp_path / "page.html")
    reader, text = read(path), path.read_text(encoding="utf-8")
    kept, base = result.tested[name], result.tested[result.baseline]
    saved = (base.regrets - result.tested[other].regrets).mean()
    assert f"{figures.short_number(saved)} [" in " | ".join(reader.cells)  # per row, in the first line of the table
    first = savings(result, 365.2425)[0]
    assert f"{figures.short_number(365.2425 * saved)} [" in " | ".join(reader.cells)
    assert first.in_all.value == pytest.approx(365.2425 * saved)
    assert f"{figures.short_number(kept.absolute_regret)} EUR per row" in text
    assert "A year has 365 rows." in text
    difference = base.regrets - result.tested[other].regrets
    best = result.row_names[kept.ids[int(difference.argmax())]]
    assert difference.max() <= 0 or best in reader.cells
    assert re.search(r"wind &lt;now&gt;", text), "names are escaped"
    assert ">season<" in text, "a category is one feature, however many columns it became"
    assert text.count("<svg ") == 4
    assert "://" not in re.sub(r"http://www.w3.org/(2000/svg|1999/xlink)", "", text)
    verb = "saves" if saved >= 0 else "costs"
    assert f"{result.verdict} On the test rows {other} {verb} {figures.short_number(abs(saved))} EUR per row" in text


def test_per_thousand_rows_without_dates_and_other_rows_of_a_year(result: TrainResult) -> None:
    nameless = replace(result, row_names=tuple(f"line {k + 2}" for k in range(ROWS)))
    text = training_page(nameless).html()
    assert "per 1,000 rows" in text
    assert "Amounts are in the unit of the objective." in text
    assert "A year has 52 rows." in training_page(nameless, per_year=52).html()


def test_the_commands_are_those_given(result: TrainResult) -> None:
    text = training_page(result, commands=[("Do this:", "dfl decide --features a<b.csv")]).html()
    assert "dfl decide --features a&lt;b.csv" in text
    assert "dflearn.decide" in training_page(result).html()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"), (-12.34, "−12.3"), (12345.6, "12,346"), (2.5e6, "2.5 M"), (7.1e9, "7.1 bn"), (0, "0"),
        (-0.0, "0"), (99.99, "100"), (1e15, "1e+15"), (float("nan"), "unknown"), (3, "3"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert figures.short_number(value) == text


def test_figures_show_what_they_are_given() -> None:
    saved = np.array([3.0, -1.0, 0.0, 2.0])
    bars = figures.gains_and_losses(saved, "EUR").axes[0].patches
    assert [bar.get_height() for bar in bars] == [3, 2, -1]
    above, below = figures.over_time(["a", "b", "c"], {"x": np.ones(3), "y": np.array([2.0, 3, 4])}, "").axes
    np.testing.assert_allclose(below.lines[0].get_ydata(), [1, 3, 6])  # y − x, summed up
    assert [text.get_text() for text in above.texts] == ["x", "y"]
    shown = figures.intervals({"x": (1.0, 0.5, 1.5), "y": (2.0, np.nan, np.nan)}, "y", "regret").axes[0]
    assert [line.get_xdata()[0] for line in shown.lines] == [0.5, 1.0, 2.0]
    cells = figures.heat_map(np.array([[1.0, 2.0]]), ["f"], ["a", "b"]).axes[0]
    assert [text.get_text() for text in cells.texts] == ["1", "2"]
    assert not figures.heat_map(np.ones((1, 40)), ["f"], [f"v{k}" for k in range(40)]).axes[0].texts


def test_influence_is_the_mean_change_when_a_feature_is_shuffled() -> None:
    """Two draws of one distribution lie E|x − x'| = 2 σ / √π apart, if it is normal."""
    rng = np.random.default_rng(1)
    x, matrix = rng.normal(3, [1, 10, 0.1, 2], (60, 4)), rng.normal(size=(4, 3))
    matrix[2] = 0
    found = influence(lambda z: z @ matrix + 5, x, [[0], [1], [2], [3]], seed=3)
    np.testing.assert_allclose(found, np.abs(matrix) * x.std(0)[:, None] * 2 / np.sqrt(np.pi), rtol=0.35, atol=1e-9)
    assert (influence(lambda z: z @ matrix, x, [[0, 1], [2]])[0] > found[1]).any()


CHROMIUM = browser.find()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium (.ci/run does it)")
def test_in_a_browser(result: TrainResult, tmp_path: Path) -> None:
    path = training_page(result, unit="EUR").write(tmp_path / "page.html")
    assert CHROMIUM is not None
    with browser.Browser(CHROMIUM) as tab:
        for width in (1200, 375):
            for dark in (False, True):
                tab.open(path, width=width, dark=dark)
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.open(path, width=1200)
        wide = "[...document.querySelectorAll('.wide')].filter(b => b.scrollWidth > b.clientWidth).length"
        assert tab.evaluate(wide) == 0, "on a screen every column is in sight"
        boxes = tab.evaluate("[...document.querySelectorAll('figure svg')].map(s => [s.clientWidth, s.clientHeight])")
        assert all(width > 200 and height > 80 for width, height in boxes)
        identifiers = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(identifiers) == len(set(identifiers))
        assert tab.complaints == []
        assert {address.partition("#")[0] for address in tab.requests} == {path.as_uri()}
