"""What every test may rely on: one thread, no display, a cache of its own, the same examples each time, no skips."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip is a failure: the `test` extra brings all that the tests need, but for a browser and a compiler, which CI has."""
    report = yield
    missing = ("Chromium is not installed", "no C++ compiler")
    excused = any(reason in str(report.longrepr) for reason in missing) and "CI" not in os.environ
    if report.skipped and not hasattr(report, "wasxfail") and not excused:
        report.outcome = "failed"
    return report
