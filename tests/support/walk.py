"""The walk through both flows, as a trace of a run shows it: docs/explanation/architecture.md holds what this prints.

python tests/support/walk.py            # print the walk
python tests/support/walk.py --write    # put it into docs/explanation/architecture.md
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import dflearn
from dflearn.engine.ahead import Stage
from dflearn.training.run import Run

SOURCE = Path(dflearn.__file__).parent
DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- walk: python tests/support/walk.py --write -->\n", "<!-- end of walk -->"


@contextmanager
def traced(passed: dict[CodeType, str]) -> Iterator[None]:
    """Adds each function of dflearn that is called, in order, with its file."""

    def see(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
            passed.setdefault(code, code.co_filename.removeprefix(f"{SOURCE}/").removesuffix(".py"))

    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


def compiled(thing: Any) -> Any:
    """The Python function behind a kernel, or `None`."""
    return thing.compiled._pyfunc if isinstance(thing, Stage) else getattr(thing, "py_func", None)


def kernels_called(functions: dict[CodeType, str]) -> list[str]:
    """The files of the kernels that these functions name, and of those that these kernels call."""
    found: dict[str, None] = {}
    seen: set[CodeType] = set()
    todo = [(code, f"dflearn.{file.replace('/', '.')}") for code, file in functions.items()]
    while todo:
        code, module = todo.pop(0)
        if code in seen:
            continue
        seen.add(code)
        for name in code.co_names:
            function = compiled(getattr(importlib.import_module(module), name, None))
            if function is not None and function.__module__.startswith("dflearn."):
                found[function.__module__.removeprefix("dflearn.").replace(".", "/")] = None
                todo.append((function.__code__, function.__module__))
    return list(found)


def step() -> tuple[list[str], list[str]]:
    """Python files and kernel files of one epoch of `fit` with SCE(Smoothed(program)), after the first."""
    problem = dflearn.problems.ShortestPath(3, 3, seed=1)
    data = dflearn.label(problem.generate(64), problem.solver())
    model, loss = dflearn.models.Linear(10, problem.program.p), dflearn.losses.SCE(dflearn.Smoothed(problem.program))
    passed: dict[CodeType, str] = {}
    epoch = Run.train_epoch

    def train_epoch(self: Run, tick: Callable[[], Any]) -> dict[str, Any]:
        if not self.epoch:
            return epoch(self, tick)
        with traced(passed):
            return epoch(self, tick)

    Run.train_epoch = train_epoch
    try:
        dflearn.fit(model, loss, data, epochs=2, progress=False)
    finally:
        Run.train_epoch = epoch
    kernels = kernels_called(passed)
    return [file for file in dict.fromkeys(passed.values()) if file not in kernels], kernels


def experiment() -> dict[str, list[str]]:
    """For each stage of an experiment, the files that no earlier stage passed."""
    stages: dict[str, list[str]] = {}
    seen: set[str] = set()

    def stage(name: str, function: Callable[[], Any]) -> Any:
        passed: dict[CodeType, str] = {}
        with traced(passed):
            result = function()
        stages[name] = [file for file in dict.fromkeys(passed.values()) if file not in seen]
        seen.update(passed.values())
        return result

    problem = stage("problem", lambda: dflearn.problems.ShortestPath(3, 3, seed=1))
    data = stage("generate", lambda: problem.generate(64))
    data = stage("label", lambda: dflearn.label(data, problem.solver()))
    train, validation, test = stage("split", lambda: data.split(test=20, seed=1))
    model, loss = dflearn.models.Linear(10, problem.program.p), dflearn.losses.SPOPlus(dflearn.Exact(problem.solver()))
    stage("fit", lambda: dflearn.fit(model, loss, train, validation=validation, epochs=1, progress=False))
    stage("evaluate", lambda: dflearn.evaluate(model, problem, test))
    return stages


def walk() -> str:
    torch.set_num_threads(1)
    files, kernels = step()

    def listed(names: list[str]) -> str:
        return ", ".join(f"`{name}`" for name in names)

    lines = [
        f"**A.** One epoch of `fit` with `SCE(Smoothed(program))` calls functions in {len(files)} Python files, in this order:",
        f"{listed(files)}. Its kernels are in {len(kernels)} files: {listed(kernels)}.",
        "",
        "**B.** An experiment with `SPOPlus(Exact(solver))` calls these files, each listed at its first stage:",
        "",
        *(f"- {name}: {listed(names)}" for name, names in experiment().items() if names),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    text = walk()
    if "--write" in sys.argv:
        document = DOCUMENT.read_text()
        DOCUMENT.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: BEGIN + text + END, document, flags=re.DOTALL))
    else:
        print(text)


if __name__ == "__main__":
    main()
