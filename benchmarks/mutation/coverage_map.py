"""Which tests execute which line, and for how long: one run of the tests under coverage, a context for each test."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest


class Contexts:
    """A pytest plugin: coverage's context is the test that runs. Fixtures and imports belong to all tests of its file."""

    def __init__(self, coverage: Any):
        self.coverage, self.seconds, self.failed = coverage, defaultdict[str, float](float), set[str]()

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        self.coverage.switch_context(collector.nodeid.split("::")[0])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.coverage.switch_context(item.nodeid.split("::")[0])

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)


def measure(sources: list[Path], tests: list[str]) -> dict[str, Any]:
    """{"seconds": {test: s}, "lines": {source: {line: [test or test file]}}}, of tests that pass."""
    import coverage

    import dflearn

    for module in pkgutil.walk_packages(dflearn.__path__, "dflearn."):  # what an import executes belongs to no test
        if module.name.split(".")[1] in {source.parent.name for source in sources}:
            importlib.import_module(module.name)
    recorder = coverage.Coverage(data_file=None, include=[str(path.resolve()) for path in sources], config_file=False)
    plugin = Contexts(recorder)
    recorder.start()
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", *tests], plugins=[plugin])
    recorder.stop()
    lines = {}
    for source in sources:
        contexts = recorder.get_data().contexts_by_lineno(str(source.resolve()))
        lines[str(source)] = {line: sorted(filter(None, names)) for line, names in contexts.items() if any(names)}
    return {"seconds": {test: s for test, s in plugin.seconds.items() if test not in plugin.failed}, "lines": lines}
