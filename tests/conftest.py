"""What every test may rely on: one thread, no display, the same examples each time, and no test skipped unseen."""

from __future__ import annotations

import os
from collections.abc import Generator

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("dflearn", derandomize=True, deadline=None)
hypothesis.settings.load_profile("dflearn")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip is a failure: the `test` extra brings all that the tests need."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report
