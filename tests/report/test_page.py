"""Pages are whole HTML documents that load nothing; figures show what they were given."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dflearn.report.page import Page, inline_svg
from dflearn.studies import figures
from support.html_reader import read


def test_a_page_is_self_contained_and_escapes_what_it_shows(tmp_path: Path) -> None:
    page = Page("Title <1>", "A lead.", contents=True)
    page.section("Numbers & more")
    page.table(["method", "regret"], [["a<b", "0.5"], ["c", "0.25"]], choose=0)
    page.text("Small print.", faint=True)
    page.items([("word", "line < other")])
    page.figure(figures.learning_curves({"a": [3, 2, 1], "b": [2, 2, 2]}, "regret", floor=0.5), "Curves", "Title")
    page.gallery([(figures.learning_curves({"a": [3, 2, 1]}, "regret"), "first")])
    page.folded("more", "a < b")
    path = page.write(tmp_path / "new" / "index.html")
    reader = read(path)
    assert reader.cells == ["a<b", "0.5", "c", "0.25"]
    assert reader.sources == ["#numbers-more"]
    text = path.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, "names of languages, not links"
    assert "line &lt; other" in text
    assert list(path.parent.iterdir()) == [path]


def test_inline_figures_have_identifiers_and_letters_of_their_own() -> None:
    svg = inline_svg(figures.learning_curves({"MSE": [3, 2, 1]}, "regret"), "f7", "a caption")
    identifiers = re.findall(r'\bid="([^"]+)"', svg)
    assert identifiers
    assert all(identifier.startswith("f7-") for identifier in identifiers)
    used = re.findall(r'(?:url\(#|href="#)([^")]+)', svg)
    assert set(used) <= set(identifiers)
    assert ">epoch</text>" in svg


def test_curves_that_stand_still_or_diverge() -> None:
    for curve in ([0.5, 0.5], [0.0, 0.0], [0.5, float("nan")], [float("nan")] * 2):
        axes = figures.learning_curves({"a": curve}, "regret").axes[0]
        low, high = axes.get_ylim()
        assert low < high
        assert [text.get_text() for text in axes.texts] == (["a"] if curve[-1] == curve[-1] else [])


def test_figures_hold_one_artist_per_method() -> None:
    curves = figures.learning_curves({"a": [1.0, 0.5], "b": [1.0, 0.7]}, "regret", floor=0.2)
    assert [line.get_label() for line in curves.axes[0].lines] == ["a", "b", "deciding with E[y | x]"]
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    paths = {"optimal": (np.array([1, 0, 1, 0]), 2.0), "other": (np.array([0, 1, 0, 1]), 3.0)}
    grid = figures.grid_paths(edges, (2, 2), np.array([1.0, 2, 1, 1]), paths)
    assert [axes.get_title() for axes in grid.axes] == ["optimal: 2.00", "other: 3.00"]
    assert all(len(axes.lines) == 6 for axes in grid.axes), "four edges and two on the path"
