"""Kernels compiled ahead: found where nothing changed, not found otherwise, and made for what users call."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dflearn.cli import main, tools as command
from dflearn.engine import ahead
from dflearn.layers import Smoothed
from dflearn.problems import problem_named
from dflearn.program import Instance

LEVEL = "x86-64-v3"
SOURCE = "def twice(x):\n    return 2 * x\n"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Makes the same small kernel anew, as the next process would; the folder has been filled with it."""
    monkeypatch.setattr(ahead, "FOLDER", tmp_path / "compiled")
    monkeypatch.setattr(ahead, "levels", lambda: (LEVEL,))
    file = tmp_path / "module.py"
    file.write_text(SOURCE)

    def made() -> Any:
        spec = importlib.util.spec_from_file_location("module", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return ahead.jit(nogil=True)(module.twice)

    with monkeypatch.context() as recording:
        recording.setenv(ahead.RECORDING, LEVEL)
        assert made()(3) == 6
    assert len(list(ahead.FOLDER.glob("*.nbc"))) == 1
    assert not list(tmp_path.rglob("__pycache__/*.nbc"))
    return made


def found(kernel: Any) -> bool:
    """Whether the kernel, which does its work, was found rather than compiled."""
    assert kernel(3) == 6
    return bool(kernel.stats.cache_hits)


def test_what_is_in_the_folder_is_found(make: Callable[[], Any]) -> None:
    kernel = make()
    assert found(kernel)
    assert kernel(0.5) == 1.0  # of another type, and compiled now
    assert sum(kernel.stats.cache_misses.values()) == 1


@pytest.mark.parametrize("what", ["other kernels", "the module", "the processor"])
def test_what_changed_is_compiled_anew(
    what: str, make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "the module":
        (tmp_path / "module.py").write_text(SOURCE + "\n# a word\n")
    elif what == "other kernels":
        monkeypatch.setattr(ahead, "_sources", lambda: b"another kernel, which this one may call, has changed")
    else:
        monkeypatch.setattr(ahead, "levels", lambda: ())
    assert not found(make())
    assert found(make())  # in numba's own cache now


@pytest.mark.parametrize(
    ("lacking", "levels"),
    [((), ("x86-64-v4", "x86-64-v3")), (("avx512vl",), ("x86-64-v3",)), (("fma",), ())],
)
def test_levels(lacking: tuple[str, ...], levels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    features = {name: name not in lacking for needed in ahead.LEVELS.values() for name in needed}
    monkeypatch.setattr(ahead.binding, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(ahead.binding, "get_default_triple", lambda: "x86_64-unknown-linux-gnu")
    assert ahead.levels.__wrapped__() == levels
    monkeypatch.setattr(ahead.binding, "get_default_triple", lambda: "aarch64-unknown-linux-gnu")
    assert ahead.levels.__wrapped__() == ()


STAGES = """
from dflearn.engine.ahead import Stage

def _twice(x):
    return 2 * x

twice = Stage(_twice, "int64(int64)", {})

def _thrice(x):
    return x + twice(x)

thrice = Stage(_thrice, "int64(int64)", {})
"""


def test_a_stage_is_called_by_others_and_found_by_the_next_process(tmp_path: Path) -> None:
    (tmp_path / "stages.py").write_text(STAGES)
    code = "import stages; print(stages.thrice.run(5), stages.thrice.compiled.cache_hits)"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    run = [sys.executable, "-c", code]
    said = [subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True) for _ in range(2)]
    assert [one.stdout.split() for one in said] == [["15", "0"], ["15", "1"]], said[0].stderr


def test_what_is_called_ahead_is_what_users_call() -> None:
    from dflearn.engine.smoothed.tiles import project_tiles, solve_tiles

    command.exercise_layer(Smoothed)
    kinds = [set(kernel.signatures) for kernel in (solve_tiles, project_tiles)]
    program = problem_named("SP-3", seed=1).program.relax()
    for dtype in (torch.float32, torch.float64):
        for batch in (1, 5):
            layer, y = Smoothed(program), torch.ones(batch, program.p, dtype=dtype, requires_grad=True)
            upper = torch.tensor(program.upper, dtype=dtype).expand(batch, -1)
            for instance in (None, Instance(upper=upper)):
                layer.solve(y, instance, layer.no_start(batch)).decision.sum().backward()
    assert kinds == [set(kernel.signatures) for kernel in (solve_tiles, project_tiles)]


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ahead, "FOLDER", tmp_path / "compiled")
    monkeypatch.setattr(ahead, "levels", lambda: (LEVEL,))
    failed = subprocess.CompletedProcess([], 1, "", "no room")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    assert main(["compile"]) == 1
    assert f"could not be compiled for {LEVEL}: no room" in capsys.readouterr().err
    assert not ahead.FOLDER.exists()


def test_kernels_are_not_compiled_into_a_package_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "compiled").write_text("in the way")
    monkeypatch.setattr(ahead, "FOLDER", tmp_path / "compiled")
    monkeypatch.setattr(ahead, "levels", lambda: ("x86-64-v3",))
    assert main(["compile"]) == 1
    assert str(ahead.FOLDER) in (message := capsys.readouterr().err)
    assert "NUMBA_CACHE_DIR" in message
