"""Tables as text, Markdown and LaTeX; seeds and deviations in words."""

from __future__ import annotations

import pytest

from dflearn.report.render import render, seed_list, with_deviation

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


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_no_rows(form: str) -> None:
    assert "regret" in render(HEADER, [], form)


def test_words() -> None:
    assert seed_list((5, 1, 2, 3)) == "1-3, 5"
    assert seed_list([7]) == "7"
    assert with_deviation(0.5, 0.1, 2) == "0.5000 ± 0.1000"
    assert with_deviation(0.5, 0.0, 1) == "0.5000"
