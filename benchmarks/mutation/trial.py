"""Does a test notice? A forked child imports the mutated tree and runs the tests that execute the mutated line."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mutants import SOURCES, Mutant

# Imported once, before any child: what the tests import beside dflearn, and takes long.
HEAVY = ("torch", "numba", "scipy.optimize", "scipy.stats", "scipy.sparse.csgraph", "highspy", "hypothesis", "cvxpy")
MORE_HEAVY = ("cvxpylayers.torch", "clarabel", "gurobipy", "pandas", "pyscipopt", "pyomo.environ", "matplotlib.pyplot")
COPIED = ("src", "tests", "fuzz", "benchmarks", "examples")
OPTIONS = (
    "-x",
    "-q",
    "--tb=no",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    *("-p", "no:cacheprovider", "-p", "no:anyio"),
)


class Verdict(NamedTuple):
    """What became of a mutant; `test` killed it, `seconds` are its tests' wall-clock time."""

    verdict: str  # killed, survived, uncovered, timeout; error, where pytest itself failed
    test: str = ""
    tests: int = 0
    seconds: float = 0.0


class Coverage:
    """Lines to tests, as `coverage_map.measure` wrote them."""

    def __init__(self, record: dict[str, Any]):
        self.seconds: dict[str, float] = {
            test: seconds for test, seconds in record["seconds"].items() if test not in set(record["failed"])
        }
        self.lines = {file: {int(line): names for line, names in of.items()} for file, of in record["lines"].items()}
        self._of_file: dict[str, list[str]] = defaultdict(list)
        for test in self.seconds:
            self._of_file[test.split("::")[0]].append(test)

    def tests(self, file: str, first: int, last: int) -> set[str]:
        """Tests that execute a line from first to last."""
        names = {name for line, held in self.lines[file].items() if first <= line <= last for name in held}
        return {test for name in names for test in (self._of_file[name] if "::" not in name else [name])} & {
            *self.seconds
        }

    def tests_of(self, mutant: Mutant) -> set[str]:
        """Tests that could notice: those of its statement, or, where an import executes it, of all that may use it."""
        path = _enclosing(ast.parse(Path(mutant.file).read_text()), mutant.line, mutant.column)
        statement, scopes = path[-1], path[:-1]
        inside = any(isinstance(scope, ast.FunctionDef) for scope in scopes)
        first = min([statement.lineno, *(part.lineno for part in getattr(statement, "decorator_list", ()))])
        body = getattr(statement, "body", None)
        is_definition = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        last = body[0].lineno - 1 if body and not is_definition else (statement.end_lineno or first)
        found = self.tests(mutant.file, first, max(first, last))
        if found or inside:
            return found
        if isinstance(statement, ast.Assign | ast.AnnAssign) and not scopes:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            found = {test for name in names for test in self._tests_of_name(name)}
        for scope in reversed(scopes):
            found = found or self.tests(mutant.file, scope.lineno, scope.end_lineno or scope.lineno)
        place = Path(mutant.file).relative_to(SOURCES)
        own = self._of_file.get(
            f"tests/{place.parent}/test_{place.stem}.py", []
        )  # it may look at no more than a constant
        return (found or self.tests(mutant.file, 1, sys.maxsize)) | {*own}

    def _tests_of_name(self, name: str) -> Iterator[str]:
        for file in self.lines:
            for line, text in enumerate(Path(file).read_text().splitlines(), 1):
                if re.search(rf"\b{name}\b", text):
                    yield from self.tests(file, line, line)

    def chosen(self, mutant: Mutant, most_seconds: float) -> dict[str, list[str]]:
        """Tests by file, the fastest as far as the seconds reach, one at least; files of the mutant's own folder first."""
        by_file, left = defaultdict(list), most_seconds
        for test in sorted(self.tests_of(mutant), key=lambda test: (self.seconds[test], test)):
            if (left := left - self.seconds[test]) < 0 and by_file:
                break
            by_file[test.split("::")[0]].append(test)
        own = f"tests/{Path(mutant.file).relative_to(SOURCES).parts[0]}/"

        def order(file: str) -> tuple[bool, float]:
            return not file.startswith(own), sum(self.seconds[test] for test in by_file[file])

        return {file: by_file[file] for file in sorted(by_file, key=order)}


def _enclosing(tree: ast.Module, line: int, column: int) -> list[ast.stmt]:
    """The statements around a place, outermost first: the last one is the innermost."""
    path: list[ast.stmt] = []
    for node in ast.walk(tree):  # in breadth, so outer ones come first
        if isinstance(node, ast.stmt):
            first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])
            if first <= line <= (node.end_lineno or line):
                path.append(node)
    return path


class Workshop:
    """A copy of the tree, compiled kernels with their times included, in which one file at a time is mutated."""

    def __init__(self, folder: Path, root: Path):
        self.folder, self.root = folder.resolve(), root.resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in COPIED:
            shutil.copytree(self.root / name, self.folder / name)
        shutil.copy2(self.root / "pyproject.toml", self.folder)
        for name in (*HEAVY, *MORE_HEAVY):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        assert "dflearn" not in sys.modules
        gc.collect()
        gc.freeze()  # what is here now is not searched for garbage by any child

    def compile(self, tests: list[str]) -> None:
        """Bytecode of all modules and test files, before any is mutated: children only read it."""
        child = os.fork()
        if not child:
            _enter(self.folder)
            sys.dont_write_bytecode = False
            pytest.main([*OPTIONS, "--collect-only", *tests])
            os._exit(0)
        os.waitpid(child, 0)

    def try_code(self, file: str, code: str, tests: dict[str, list[str]], limit: float) -> Verdict:
        """The verdict on `file` with `code`; `limit` is in seconds of the processor."""
        target, source = self.folder / file, self.root / file
        target.write_text(code)
        try:
            return self._forked(tests, limit)
        finally:
            shutil.copy2(source, target)

    def _forked(self, tests: dict[str, list[str]], limit: float) -> Verdict:
        begun, count = time.perf_counter(), sum(map(len, tests.values()))
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _child(self.folder, tests, writer, limit)
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], 8 * limit)
        if not ready:
            os.killpg(child, signal.SIGKILL)
        text = os.read(reader, 1 << 16).decode()
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what it started
        _, status = os.waitpid(child, 0)
        seconds = round(time.perf_counter() - begun, 2)
        crash = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        late = crash in (signal.SIGXCPU, signal.SIGKILL)
        silent = {"verdict": "timeout", "test": ""} if late else {"verdict": "killed", "test": f"signal {crash}"}
        answer = json.loads(text) if text else silent
        return Verdict(answer["verdict"], answer["test"], count, seconds)


class _FirstFailure:
    """A pytest plugin: runs the wanted tests, in their order, and remembers the first that fails."""

    def __init__(self, wanted: list[str]):
        self.wanted, self.failed = {name: k for k, name in enumerate(wanted)}, ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.wanted), key=lambda i: self.wanted[i.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"{report.nodeid} (import)"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def _child(folder: Path, tests: dict[str, list[str]], writer: int, limit: float) -> None:
    """Never returns. Silence on the pipe means that the limit was met."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
    _enter(folder)
    answer = {"verdict": "survived", "test": ""}
    try:
        for file, wanted in tests.items():
            plugin = _FirstFailure(wanted)
            code = pytest.main([*OPTIONS, file], plugins=[plugin])
            if plugin.failed or code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                answer = {"verdict": "killed", "test": plugin.failed or f"{file} (exit {int(code)})"}
                break
    except BaseException as error:  # of pytest itself: tests' own end in its reports
        answer = {"verdict": "error", "test": f"{file}: {error!r}"}
    os.write(writer, json.dumps(answer).encode())
    os._exit(0)


def _enter(folder: Path) -> None:
    """Works in the copy from now on, silently."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(folder / "src"), str(folder)]
    os.environ["PYTHONPATH"] = f"{folder / 'src'}:{folder}"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
