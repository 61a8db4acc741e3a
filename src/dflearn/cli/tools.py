"""dfl demo, dfl bench, dfl completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from cyclopts import Parameter

from dflearn.cli.answers import Answer
from dflearn.cli.options import OUTPUT, Command, Positive
from dflearn.errors import DataError, MissingExtraError, SolverError
from dflearn.files import check_writable

BENCHMARKS = (
    *("epochs", "layers", "quadratic", "labelling", "growth", "training", "knapsacks", "facilities"),
    *("small_lps", "solvers", "smoothed", "davis_yin", "as_published"),
)
FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "speed"


class Demo(Command):
    """Train on a small shortest-path problem and show the gain."""

    epochs: Positive = 25
    """default: 25, as in the paper"""
    out: Path = Path("demo")
    """folder of the page (default: demo)"""

    def run(self) -> Answer:
        from dflearn.studies.demo import run_demo

        print("Compiling, training and judging four methods takes half a minute, the first time a minute or two.\n")
        done = run_demo(self.epochs)
        try:
            page = done.page().write(self.out / "index.html")
            last = f"The page with the plots: {page}"
        except MissingExtraError:
            page, last = None, "For a page with plots: pip install 'dflearn[plot]'"
        values = [{name: value for name, (value, _, _) in record.metrics.items()} for record in done.records]
        methods = {
            record.config.method: {**own, "seconds_per_epoch": record.seconds["epoch"]}
            for record, own in zip(done.records, values, strict=True)
        }
        document = {"epochs": self.epochs, "methods": methods, "page": page}
        return Answer(f"{done.text()}\n\n{last}", document)


class Bench(Command):
    """Time dflearn and its peers side by side (needs a checkout; `make peers` sets up the peers)."""

    name: Annotated[str, Parameter(choices=BENCHMARKS)] = field(kw_only=False)
    """what to time; docs/notes/performance.md shows the results"""
    quick: bool = False
    """a part of the rows, the same as in the full run"""
    threads: Positive = 1
    """threads for everyone (default: 1)"""
    repeats: Positive | None = None
    """how often each contender is timed"""
    json: Annotated[Path | bool, OUTPUT] = False  # type: ignore[assignment]
    """answer with one JSON document on stdout; with a FILE (after all else), print, and write the rows there too"""

    def run(self) -> Answer:
        script = FOLDER / f"{self.name}.py"
        if not script.exists():
            raise DataError(
                "benchmarks are in the repository only: clone it, and install the clone with pip install -e ."
            )
        given = ["--threads", str(self.threads)] + ["--quick"] * self.quick
        given += [] if self.repeats is None else ["--repeats", str(self.repeats)]
        if isinstance(self.json, Path):
            check_writable(self.json)
        # One thread here; contenders get the number of threads that was asked for. Waiting OpenMP threads would spin.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        with TemporaryDirectory() as folder:
            rows = self.json if isinstance(self.json, Path) else Path(folder, "rows.json")
            given += ["--json", str(rows)] if self.json else []
            out = sys.stderr if self.json is True else None  # its table, so that the document stands alone on stdout
            status = subprocess.run([sys.executable, str(script), *given], env=environment, stdout=out).returncode
            if status:
                raise SolverError(f"the benchmark {self.name} ended with exit status {status}; its last lines say why")
            return Answer("", {"benchmark": self.name, "result": json.loads(rows.read_text()) if self.json else None})


class Completion(Command):
    """Print a script that completes commands and options by the Tab key.

    bash: ~/.local/share/bash-completion/completions/dfl; fish: ~/.config/fish/completions/dfl.fish;
    zsh: ~/.zfunc/_dfl, with fpath+=~/.zfunc before compinit in ~/.zshrc.
    """

    shell: Literal["bash", "zsh", "fish"] = field(kw_only=False)
    """bash, zsh or fish"""

    def run(self) -> Answer:
        from dflearn.cli import application

        script = application().generate_completion(shell=self.shell)
        return Answer(script.rstrip("\n"), {"shell": self.shell, "script": script})
