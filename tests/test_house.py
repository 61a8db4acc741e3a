"""The house stays small: line budgets per wing, and the walk through both flows as a trace shows it (docs/explanation/architecture.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()


def lines(folders: list[str]) -> int:
    """Lines of Python in files and folders below the root."""
    places = [ROOT / folder for folder in folders]
    files = [file for place in places for file in ([place] if place.suffix else sorted(place.rglob("*.py")))]
    assert files, folders
    return sum(file.read_text().count("\n") for file in files)


def budgets() -> dict[str, tuple[list[str], int]]:
    """By wing, its folders and the lines that they may have."""
    table = re.search(r"<!-- budgets -->\n(.*?)<!-- end of budgets -->", ARCHITECTURE, re.DOTALL)
    assert table is not None
    rows = re.findall(r"^\| (`.+?) \| ([\d,]+) \| [\d,]+ \|$", table[1], re.MULTILINE)
    return {name: (re.findall(r"`([\w/.]+)`", name), int(number.replace(",", ""))) for name, number in rows}


@pytest.mark.parametrize("wing", budgets())
def test_each_wing_keeps_its_budget(wing: str) -> None:
    folders, most = budgets()[wing]
    count = lines(folders)
    assert count <= most, (
        f"{wing} has {count} lines, {most} are its budget: what can go? See docs/explanation/architecture.md"
    )


def test_every_folder_has_a_budget() -> None:
    counted = {folder for folders, _ in budgets().values() for folder in folders}
    rooms = {f"src/dflearn/{room.name}" for room in (ROOT / "src" / "dflearn").iterdir() if any(room.glob("*.py"))}
    files = {f"src/dflearn/{file.name}" for file in (ROOT / "src" / "dflearn").glob("*.py")}
    assert rooms | files | {"src/dflearn"} <= counted | {
        f"src/dflearn/{file}" for file in ("__init__.py", "__main__.py", "_version.py")
    }


def test_the_walk_in_the_documents_is_what_a_trace_shows() -> None:
    done = subprocess.run(
        [sys.executable, "tests/support/walk.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.strip()
    assert shown in ARCHITECTURE, (
        f"python tests/support/walk.py --write puts this into docs/explanation/architecture.md:\n{shown}"
    )
