"""Pages are whole HTML documents that load nothing; figures show what they were given, in one look; tables in three formats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dflearn.errors import OptionError
from dflearn.report import style
from dflearn.report.page import Page, inline_svg
from dflearn.report.render import render
from dflearn.studies import figures
from support.html_reader import read


def test_a_page_is_self_contained_and_escapes_what_it_shows(tmp_path: Path) -> None:
    page = Page("Title <1>", "A lead.", contents=True)
    page.section("Numbers & more")
    page.table(["method", "regret"], [["a<b", "0.5"], ["c", "0.25"]], choose=0)
    page.text("Small print.", faint=True)
    page.items([("word", "line < other")])
    page.figure(figures.learning_curves({"a": [3, 2, 1], "b": [2, 2, 2]}, "regret"), "Curves", "Title")
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


def test_files(tmp_path: Path) -> None:
    figure = figures.learning_curves({"a": [3, 2, 1]}, "regret")
    written = style.write_figure(figure, tmp_path / "new", "curve", ["pdf", "svg", "png"])
    assert [path.name for path in written] == ["curve.pdf", "curve.svg", "curve.png"]
    assert [path.read_bytes()[:4] for path in written] == [b"%PDF", b"<?xm", b"\x89PNG"]
    with pytest.raises(OptionError, match="written as pdf, svg, png, got gif"):
        style.write_figure(figure, tmp_path, "curve", ["gif"])


HEADER, ROWS = ["method", "regret"], [["SPO+^p=5% x", "1 ± 2"], ["a|b", "0.10"]]


def test_text_aligns_columns() -> None:
    head, line, first, second = render(HEADER, ROWS).splitlines()
    assert set(line) == {"-", " "}
    assert len(head) == len(line) == len(first) == len(second)
    assert head.split() == HEADER
    assert second.split() == ["a|b", "0.10"], "numbers are shown as they were given"


def test_markdown() -> None:
    lines = render(HEADER, ROWS, "markdown").splitlines()
    cells = [[cell.strip() for cell in line.replace(r"\|", "¦").split("|")[1:-1]] for line in lines]
    assert cells[0] == HEADER
    assert cells[1][0].startswith(":-")
    assert cells[1][1].endswith("-:")
    assert cells[2:] == [["SPO+^p=5% x", "1 ± 2"], ["a¦b", "0.10"]]


def test_latex() -> None:
    lines = [" ".join(line.split()) for line in render(HEADER, ROWS, "latex").splitlines()]
    assert lines[0] == r"\begin{tabular}{lr}"
    assert lines[1::2][:2] == [r"\toprule", r"\midrule"]
    assert lines[4] == r"SPO+\textsuperscript{p=5\%} x & 1 $\pm$ 2 \\"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert all("regret" in render(HEADER, [], form) for form in ("text", "markdown", "latex"))
