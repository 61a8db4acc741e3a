"""Pages in a real browser: they render, sort, pick rows, fit a phone, turn dark, and neither complain nor load anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dflearn.studies.report import study_page
from support import browser
from support.study_records import study

CHROMIUM = browser.find()
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium (.ci/run does it)"
    ),
    pytest.mark.xdist_group("page"),  # one browser for all of them
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = study(problems=("SP-5", "SP-10", "KP-100"), seeds=(1, 2))
    return study_page(records, "A study").write(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Browser]:
    assert CHROMIUM is not None
    with browser.Browser(CHROMIUM) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _nothing_to_complain_about(tab: browser.Browser, page: Path) -> Iterator[None]:
    tab.complaints.clear()
    tab.requests.clear()
    yield
    assert tab.complaints == []
    assert {address.partition("#")[0] for address in tab.requests} == {page.as_uri()}


RESULTS = "document.querySelectorAll('table')[1]"


def column(tab: browser.Browser, number: int) -> list[str]:
    """The visible cells of a column of the table of results."""
    rows = f"[...{RESULTS}.tBodies[0].rows].filter(row => row.offsetHeight > 0)"
    return tab.evaluate(f"{rows}.map(row => row.cells[{number}].textContent)")


@pytest.mark.parametrize("width", [1200, 375])
def test_renders(tab: browser.Browser, page: Path, width: int) -> None:
    tab.open(page, width=width)
    assert tab.evaluate("document.title") == "A study"
    # Nothing sticks out: what is wider than the page scrolls inside its own box.
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    clipped = tab.evaluate("[...document.querySelectorAll('.wide')].filter(b => b.scrollWidth > b.clientWidth).length")
    assert clipped == 0 or width < 600, "on a screen every column is in sight"
    boxes = tab.evaluate("[...document.querySelectorAll('figure svg')].map(s => [s.clientWidth, s.clientHeight])")
    assert len(boxes) == 9  # three kinds for each of three problems
    assert all(min(300, width - 60) < w <= width and h > 80 for w, h in boxes)
    letters = tab.evaluate("[...document.querySelectorAll('figure svg text')].map(t => t.textContent)")
    assert "SCE^DYS" in letters
    assert "training seconds per epoch" in letters
    identifiers = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(identifiers) == len(set(identifiers))


def test_sorts_by_a_click_on_a_head(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    heads = tab.evaluate(f"[...{RESULTS}.querySelectorAll('th')].map(h => h.textContent)")
    seconds, problem = heads.index("s/epoch"), heads.index("problem")
    before = [float(cell) for cell in column(tab, seconds)]
    assert before != sorted(before)
    head = f"{RESULTS}.querySelectorAll('th button')[{seconds}]"
    tab.click(head)
    assert [float(cell) for cell in column(tab, seconds)] == sorted(before)
    assert tab.evaluate(f"{head}.parentElement.getAttribute('aria-sort')") == "ascending"
    tab.click(head)
    assert [float(cell) for cell in column(tab, seconds)] == sorted(before, reverse=True)
    tab.click(f"{RESULTS}.querySelectorAll('th button')[{problem}]")
    assert list(dict.fromkeys(column(tab, problem))) == ["KP-100", "SP-5", "SP-10"]  # words, with numbers as numbers
    assert tab.evaluate("document.querySelectorAll('[aria-sort]').length") == 1


def test_buttons_pick_the_rows_of_a_problem(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    everything = len(column(tab, 1))
    tab.click("[...document.querySelectorAll('.choice button')].find(b => b.value === 'SP-10')")
    assert set(column(tab, 1)) == {"SP-10"}
    tab.click("document.querySelector('.choice button')")
    assert len(column(tab, 1)) == everything
