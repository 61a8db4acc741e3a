"""The notebooks run, and the committed .ipynb files are those of their sources."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
MAKER = runpy.run_path(str(ROOT / "benchmarks" / "pages" / "notebooks.py"))
SOURCES = MAKER["SOURCES"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own; each shows one picture at most."""
    shown: list[list[int]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.get_fignums()))
    module = ModuleType("notebook")  # a real module, so that classes of a notebook can be copied
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    plt.close("all")
    assert len(shown) <= 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_notebooks_are_those_of_their_sources(path: Path) -> None:
    assert path.with_suffix(".ipynb").read_text() == MAKER["notebook"](path.read_text()), "run: make notebooks"


def test_there_are_no_other_notebooks() -> None:
    assert sorted(ROOT.glob("docs/**/*.ipynb")) == [path.with_suffix(".ipynb") for path in SOURCES]
    assert len(SOURCES) == 8
