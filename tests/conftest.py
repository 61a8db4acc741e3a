"""What every test may rely on: one thread, no display, a cache of its own, the same random numbers each time, no skips."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("dflearn", derandomize=True, deadline=None)
hypothesis.settings.load_profile("dflearn")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Solves are remembered in a folder of this run, never in the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DFLEARN_CACHE"] = str(folder)
    return folder


def reseed(name: str, module: Any) -> None:
    """torch's generator, and those of the module, start from a seed made of the name."""
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    for value in vars(module).values() if module else ():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = type(value.bit_generator)(seed).state
        elif isinstance(value, np.random.RandomState):
            value.seed(seed)
        elif isinstance(value, torch.Generator):
            value.manual_seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> None:
    """A fixture draws the same numbers whichever test needs it first."""
    reseed(fixturedef.argname, getattr(request, "module", None))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """A test draws the same numbers whatever ran before it."""
    reseed(item.name, getattr(item, "module", None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip is a failure: the `test` extra brings all that the tests need, but for a browser and a compiler, which CI has."""
    report = yield
    missing = ("Chromium is not installed", "no C++ compiler")
    excused = any(reason in str(report.longrepr) for reason in missing) and "CI" not in os.environ
    if report.skipped and not hasattr(report, "wasxfail") and not excused:
        report.outcome = "failed"
    return report
