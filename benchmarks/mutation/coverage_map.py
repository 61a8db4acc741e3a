"""Which tests execute which line, and for how long: one run of the tests under coverage, a context for each test."""

from __future__ import annotations

import importlib
import json
import pkgutil
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


class Contexts:
    """A pytest plugin: coverage's context is the test that runs.

    What a fixture of a module does, and what a test file does while it is collected, belongs to all tests of that file: its
    context is the file's path.
    """

    def __init__(self, coverage: Any):
        self.coverage, self.test, self.seconds, self.failed = coverage, "", defaultdict[str, float](float), set[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        self.coverage.switch_context(collector.nodeid.split("::")[0])
        report = yield
        self.coverage.switch_context("")
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.test = item.nodeid
        self.coverage.switch_context(self.test)
        begun = time.process_time()
        result = yield
        self.seconds[self.test] += time.process_time() - begun
        self.coverage.switch_context("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        shared = fixturedef.scope != "function"
        if shared:
            self.coverage.switch_context(self.test.split("::")[0])
        result = yield
        if shared:
            self.coverage.switch_context(self.test)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def measure(sources: list[Path], tests: list[str], file: Path) -> None:
    """Writes {"seconds": {test: s}, "failed": [test], "lines": {source: {line: [test or test file]}}} as JSON."""
    import coverage

    import dflearn

    for module in pkgutil.walk_packages(dflearn.__path__, "dflearn."):  # what an import executes belongs to no test
        if module.name.split(".")[1] in {source.parent.name for source in sources}:
            importlib.import_module(module.name)
    recorder = coverage.Coverage(
        data_file=None, include=[str(source.resolve()) for source in sources], config_file=False
    )
    plugin = Contexts(recorder)
    recorder.start()
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", *tests], plugins=[plugin])
    recorder.stop()
    data = recorder.get_data()
    lines = {}
    for source in sources:
        found = data.contexts_by_lineno(str(source.resolve()))
        lines[str(source)] = {line: sorted(filter(None, names)) for line, names in sorted(found.items()) if any(names)}
    record = {"seconds": dict(plugin.seconds), "failed": sorted(plugin.failed), "lines": lines}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record))
