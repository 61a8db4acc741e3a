"""Does a test notice? The tests that execute the mutated line run in a copy of the tree, in a process of their own."""

import ast
import contextlib
import importlib
import os
import pkgutil
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mutants import SOURCES, Mutant

COPIED = ("src", "tests", "fuzz", "benchmarks", "examples", "pyproject.toml")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider")


class Verdict(NamedTuple):
    """What became of a mutant; `test` killed it, `seconds` are its tests' wall-clock time."""

    verdict: str  # killed, survived, uncovered, timeout
    test: str = ""
    tests: int = 0
    seconds: float = 0.0


class Coverage:
    """Lines to tests, as `coverage_map.measure` found them."""

    def __init__(self, record: dict[str, Any]):
        self.seconds: dict[str, float] = record["seconds"]
        self.lines = {file: {int(line): names for line, names in of.items()} for file, of in record["lines"].items()}
        self._of_file: dict[str, list[str]] = defaultdict(list)
        for test in self.seconds:
            self._of_file[test.split("::")[0]].append(test)

    def tests(self, file: str, first: int, last: float) -> set[str]:
        """Tests that execute a line from first to last."""
        names = {name for line, held in self.lines[file].items() if first <= line <= last for name in held}
        return {test for name in names for test in self._of_file.get(name, [name]) if test in self.seconds}

    def tests_of(self, mutant: Mutant) -> set[str]:
        """Tests that could notice: those of its statement, or, where an import executes it, of all that may use it."""
        *scopes, statement = _enclosing(ast.parse(Path(mutant.file).read_text()), mutant.line)
        last, body = statement.end_lineno or statement.lineno, getattr(statement, "body", None)
        if body and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            last = max(statement.lineno, body[0].lineno - 1)
        found = self.tests(mutant.file, _first_line(statement), last)
        if found or any(isinstance(scope, ast.FunctionDef) for scope in scopes):
            return found
        if isinstance(statement, ast.Assign | ast.AnnAssign) and not scopes:
            names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
            found = {t for name in names if isinstance(name.ctx, ast.Store) for t in self._tests_of_name(name.id)}
        for scope in reversed(scopes):
            found = found or self.tests(mutant.file, scope.lineno, scope.end_lineno or scope.lineno)
        place = Path(mutant.file).relative_to(SOURCES)
        own = self._of_file.get(f"tests/{place.parent}/test_{place.stem}.py", [])  # may look at a constant alone
        return (found or self.tests(mutant.file, 1, float("inf"))) | {*own}

    def _tests_of_name(self, name: str) -> Iterator[str]:
        for file in self.lines:
            for line, text in enumerate(Path(file).read_text().splitlines(), 1):
                if re.search(rf"\b{name}\b", text):
                    yield from self.tests(file, line, line)

    def chosen(self, mutant: Mutant, most_seconds: float) -> list[str]:
        """Tests, the fastest as far as the seconds reach, one at least; those of the mutant's own folder first."""
        chosen, left = [], most_seconds
        for test in sorted(self.tests_of(mutant), key=lambda test: (self.seconds[test], test)):
            if (left := left - self.seconds[test]) < 0 and chosen:
                break
            chosen.append(test)
        own = f"tests/{Path(mutant.file).relative_to(SOURCES).parts[0]}/"
        return sorted(chosen, key=lambda test: not test.startswith(own))


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(part.lineno for part in getattr(statement, "decorator_list", ()))])


def _enclosing(tree: ast.Module, line: int) -> list[ast.stmt]:
    """The statements around a line, outermost first: the last one is the innermost."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))  # in breadth, so outer ones come first
    return [node for node in statements if _first_line(node) <= line <= (node.end_lineno or line)]


class Workshop:
    """A copy of the tree, compiled kernels with their times included, in which one file at a time is mutated."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        subprocess.run(["cp", "-a", *COPIED, str(self.folder)], check=True)

    def try_code(self, file: str, code: str, tests: list[str], limit: float) -> Verdict:
        """The verdict on `file` with `code`; `limit` is in seconds of the processor."""
        target = self.folder / file
        target.write_text(code)
        try:
            return self.run(tests, limit)
        finally:
            shutil.copy2(file, target)

    def run(self, tests: Iterable[str], limit: float) -> Verdict:
        begun, tests = time.perf_counter(), list(tests)
        path = os.pathsep.join([str(self.folder / "src"), str(self.folder)])
        with subprocess.Popen(
            [*PYTEST, *tests], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2)),
        ) as process:  # fmt: skip
            out = ""
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, _ = process.communicate(timeout=8 * limit)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
        code, failed = process.returncode, re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", out, re.MULTILINE)
        late = code in (-signal.SIGXCPU, -signal.SIGKILL)
        verdict = "timeout" if late else "killed" if code not in (0, 5) else "survived"  # 5: no test was collected
        test = "" if verdict != "killed" else failed[1] if failed else f"exit {code}"
        return Verdict(verdict, test, len(tests), round(time.perf_counter() - begun, 2))


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
