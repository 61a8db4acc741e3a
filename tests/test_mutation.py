"""The driver of `make mutate`: what rules leave out, which tests a mutant meets, and what the committed page says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy.stats import binomtest

from mutants import Mutant
from trial import Coverage
from verdicts import judged, page, wilson

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "mutation"

SOURCE = """\
LIMIT = 3
Size = Left | Right


@final
class Box:
    def width(self, μ: int | None, low: float = 2) -> int | None:
        if low > 1:
            raise ValueError(f"too low by {low - 1}")
        return LIMIT + low

    def __repr__(self) -> str:
        return "Box" * 2


def unused(x):
    return x + 1
"""


@pytest.fixture
def coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coverage:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "src/dflearn/box/box.py"
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    lines = {"8": ["a.py::quick", "a.py::slow", "b.py"], "9": ["a.py::slow"], "10": ["b.py", "c.py::broken"]}
    seconds = {"a.py::quick": 0.1, "a.py::slow": 100.0, "b.py::one": 0.2, "b.py::two": 0.3}
    return Coverage({"seconds": seconds, "lines": {"src/dflearn/box/box.py": lines}})


B = ["b.py::one", "b.py::two"]


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        (8, 12, ["a.py::quick", *B]),  # what is fast; a fixture's, all its file's
        (9, 20, ["a.py::slow"]),  # one test at least
        (10, 21, B),  # none that fails without a mutant
        (1, 8, B),  # a constant: tests of the lines that name it
        (7, 50, ["a.py::quick", *B]),  # a default: tests of the function
        (17, 13, []),  # no test executes it
    ],
)
def test_a_mutant_meets_the_tests_of_its_line(coverage: Coverage, line: int, column: int, expected: list[str]) -> None:
    assert coverage.chosen(Mutant("src/dflearn/box/box.py", line, column, "NumberReplacer", 0), 15.0) == expected


@pytest.mark.parametrize(("hits", "count"), [(0, 7), (340, 400), (400, 400)])
def test_interval_is_wilsons(hits: int, count: int) -> None:
    expected = binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert wilson(hits, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_judgements_never_touch_what_a_test_killed() -> None:
    verdicts = {"a": "killed", "b": "survived", "c": "timeout", "d": "timeout", "e": "uncovered", "f": "error"}
    judgements = {name: {"as": "equivalent", "reason": "."} for name in "ab"} | {"c": {"as": "loops", "reason": "."}}
    rows = judged([{"name": name, "verdict": verdict} for name, verdict in verdicts.items()], judgements)
    assert [row["verdict"] for row in rows] == ["killed", "equivalent", "killed", "survived", "survived", "survived"]


def test_committed_page_is_made_from_the_committed_verdicts() -> None:
    head = json.loads((RESULTS / "mutants.json").read_text())
    rows = head.pop("mutants_drawn")
    assert len({row["name"] for row in rows}) == head["count"]
    assert head["failing_without_mutant"] == ""
    assert all(row["reason"] for row in rows if row["verdict"] == "equivalent")
    assert (RESULTS / "README.md").read_text() == page(rows, head)
