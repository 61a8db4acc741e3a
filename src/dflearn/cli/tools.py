"""dfl demo, dfl compile, dfl bench, dfl completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from cyclopts import Parameter

import dflearn as dfl
from dflearn.cli.answers import Answer
from dflearn.cli.options import OUTPUT, Command, Positive
from dflearn.errors import DataError, MissingExtraError, SolverError, StorageError
from dflearn.files import check_writable
from dflearn.report.render import render

BENCHMARKS = (
    *("epochs", "layers", "quadratic", "labelling", "growth", "training", "knapsacks", "facilities"),
    *("small_lps", "solvers", "paper_times"),
)
METRIC = "mean_of_ratios"
FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "speed"


class Demo(Command):
    """Train four methods on a small shortest-path problem and compare their regret."""

    epochs: Positive = 25
    """training epochs (default: 25, as in the paper)"""
    out: Path = Path("demo")
    """folder for the page (default: demo)"""

    def run(self) -> Answer:
        from dflearn.studies.config import Settings, Study
        from dflearn.studies.report import legend, results_table, study_page
        from dflearn.studies.run import run
        from dflearn.studies.summary import rankings, summarize

        print("Training four methods takes half a minute; the first time, compiling takes a minute or two more.\n")
        methods = ("MSE", "SPO+^relax", "SCE^DYS unrolled", "SCE^smoothed")
        records = [run(one) for one in Study(("SP-5",), methods, (1,), settings=Settings(epochs=self.epochs)).runs()]
        try:
            page = study_page(records, "Small errors or good decisions?").write(self.out / "index.html")
            last = f"The page with plots: {page}"
        except MissingExtraError:
            page, last = None, "For a page with plots: pip install 'dflearn[plot]'"
        about = "SP-5: paths through a grid. A linear model of 10 features predicts the costs of the edges."
        table = render(*results_table(rankings(summarize(records, METRIC)), METRIC))
        found = {
            one.config.method: {**{n: one.metric(n) for n in one.metrics}, "seconds_per_epoch": one.seconds["epoch"]}
            for one in records
        }
        text = f"{about}\n\n{table}\n\n{legend(METRIC)}\n\n{last}"
        return Answer(text, {"epochs": self.epochs, "methods": found, "page": page})


class Compile(Command):
    """Compile the numerical kernels now (one to two minutes), so that no first call waits."""

    all: bool = False
    """compile for every x86-64 level of this processor, for use on older machines too (default: the best level)"""

    def run(self) -> Answer:
        from dflearn.engine import ahead

        begun, levels = time.perf_counter(), ahead.levels() if self.all else ahead.levels()[:1]
        where = f"{ahead.FOLDER}, for {' and '.join(levels)}" if levels else "numba's cache, for this processor"
        if not levels:
            exercise()
        else:
            try:
                if ahead.FOLDER.exists():
                    shutil.rmtree(ahead.FOLDER)
                ahead.FOLDER.mkdir()
            except OSError as error:
                raise StorageError(
                    f"compiled kernels are written to {ahead.FOLDER}, which failed ({error.strerror}): run dfl compile as the "
                    "user who installed dflearn; or without it: the first call compiles, into the folder NUMBA_CACHE_DIR"
                ) from error
        for level in levels:
            script = "from dflearn.cli.tools import exercise; exercise()"
            environment = os.environ | ahead.recording(level) | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(ahead.FOLDER, ignore_errors=True)  # no incomplete folder stays
                raise SolverError(f"the kernels could not be compiled for {level}: {done.stderr.strip()[-2000:]}")
        seconds = time.perf_counter() - begun
        return Answer(f"Compiled in {seconds:.0f} s, into {where}", {"levels": list(levels), "seconds": seconds})


def exercise() -> None:
    """Call the kernels of the common solvers and layers once."""
    for name in ("SP-3", "KP-10"):
        problem = dfl.problems.problem_named(name, seed=1)
        data = dfl.label(problem.generate(4), problem)
        for solver in (problem.solver(), dfl.HiGHS(problem.program), dfl.solvers.SmallLP(problem.relaxation)):
            solver.solve(data.batch().require("costs"))
    for layer in (dfl.Smoothed, dfl.DavisYin, partial(dfl.DavisYin, gradient="unrolled")):
        exercise_layer(layer)


def exercise_layer(layer: Callable[[dfl.Program], dfl.Layer]) -> None:
    """Forward and backward pass of a layer, with batches of one and of 32, and from a warm start."""
    import torch

    program = dfl.problems.problem_named("KP-10", seed=1).program.relax()
    for batch in (1, 32):
        y = torch.ones(batch, program.p, requires_grad=True)
        own = layer(program)
        own(y).sum().backward()
        own.solve(y, None, own.no_start(batch)).decision.sum().backward()


class Bench(Command):
    """Measure the times of dflearn and other libraries (in a clone of the repository; first run `make peers`)."""

    name: Annotated[str, Parameter(choices=BENCHMARKS)] = field(kw_only=False)
    """the benchmark; docs/notes/performance.md shows the results"""
    quick: bool = False
    """measure only some rows of the table"""
    threads: Positive = 1
    """threads of each library (default: 1)"""
    repeats: Positive | None = None
    """measurements of each row"""
    json: Annotated[Path | bool, OUTPUT] = False  # type: ignore[assignment]
    """print one JSON document; as the last option with a FILE: print text, and write the rows to FILE"""

    def run(self) -> Answer:
        script = FOLDER / f"{self.name}.py"
        if not script.exists():
            raise DataError("benchmarks need a clone of the repository: clone it, and run pip install -e . there")
        given = ["--threads", str(self.threads), *["--quick"] * self.quick]
        given += ["--repeats", str(self.repeats)] if self.repeats else []
        if isinstance(self.json, Path):
            check_writable(self.json)
        # One thread here; contenders get the number of threads that was asked for. Waiting OpenMP threads would spin.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        with TemporaryDirectory() as folder:
            rows = self.json if isinstance(self.json, Path) else Path(folder, "rows.json")
            given += ["--json", str(rows)] if self.json else []
            out = sys.stderr if self.json is True else None  # its table, so that the document stands alone on stdout
            if status := subprocess.run([sys.executable, str(script), *given], env=environment, stdout=out).returncode:
                raise SolverError(f"the benchmark {self.name} ended with exit status {status}; its last lines say why")
            return Answer("", {"benchmark": self.name, "result": json.loads(rows.read_text()) if self.json else None})


class Completion(Command):
    """Print a script that completes commands and options with the Tab key.

    Write it to the file that your shell reads:
      dfl completion bash > ~/.local/share/bash-completion/completions/dfl
      dfl completion fish > ~/.config/fish/completions/dfl.fish
      dfl completion zsh > ~/.zfunc/_dfl      (with fpath+=~/.zfunc before compinit in ~/.zshrc)
    """

    shell: Literal["bash", "zsh", "fish"] = field(kw_only=False)
    """your shell"""

    def run(self) -> Answer:
        from dflearn.cli import application

        script = application().generate_completion(shell=self.shell)
        return Answer(script.rstrip("\n"), {"shell": self.shell, "script": script})
