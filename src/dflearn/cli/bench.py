"""dfl bench: one of the benchmarks of a checkout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command, positive
from dflearn.errors import DataError, SolverError
from dflearn.files import check_writable

BENCHMARKS = {
    "epochs": "training, against PyEPO and against the published Davis-Yin layer",
    "layers": "the smoothed layer against cvxpylayers and qpth",
    "quadratic": "the exact quadratic layer against cvxpylayers, qpth and Moreau",
    "labelling": "labels against PyEPO's data set, and on two threads",
    "growth": "time and memory as problems grow",
    "training": "what `fit` and `import dflearn` cost",
    "knapsacks": "exact knapsacks against HiGHS and Gurobi",
    "facilities": "exact facility location against HiGHS and Gurobi",
    "small_lps": "small linear programs against HiGHS, and epochs against PyEPO with Gurobi",
    "solvers": "starts of HiGHS, oracles, the cost of Python",
    "smoothed": "the smoothed layer by itself",
    "davis_yin": "the Davis-Yin layer by itself",
    "as_published": "the authors' Davis-Yin iteration, by our kernel against their dense matrices",
}
FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "speed"


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "bench",
        bench,
        "time dflearn and its peers side by side (needs a checkout; `make peers` sets up the peers)",
        "  dfl bench epochs --quick\n  dfl bench layers --json layers.json\n\nbenchmarks:\n"
        + "\n".join(f"  {name:<14}{what}" for name, what in BENCHMARKS.items()),
        json_file=True,
    )
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="a part of the rows, the same as in the full run")
    parser.add_argument("--threads", type=positive, default=1, help="threads for everyone (default: 1)")
    parser.add_argument("--repeats", type=positive, help="how often each way is timed")


def bench(options: argparse.Namespace) -> Answer:
    import json
    import os
    import subprocess
    import sys
    from tempfile import TemporaryDirectory

    script = FOLDER / f"{options.name}.py"
    if not script.exists():
        raise DataError(
            "benchmarks are part of the repository, not of the installed package: clone it, and call `dfl bench` from an "
            "environment where the clone is installed with `pip install -e .`"
        )
    given = ["--threads", str(options.threads)] + ["--quick"] * options.quick
    if isinstance(options.json, Path):
        check_writable(options.json)
    if options.repeats is not None:
        given += ["--repeats", str(options.repeats)]
    # One thread here; contenders get the number of threads that was asked for. Waiting OpenMP threads would spin.
    own = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with TemporaryDirectory() as folder:
        rows = options.json if isinstance(options.json, Path) else Path(folder, "rows.json")
        given += ["--json", str(rows)] if options.json else []
        out = sys.stderr if options.json is True else None  # where its table goes, so that the document stands alone
        done = subprocess.run([sys.executable, str(script), *given], env={**os.environ, **own}, stdout=out)
        if done.returncode:
            raise SolverError(
                f"the benchmark {options.name} ended with exit status {done.returncode}; its last lines say why"
            )
        return Answer("", {"benchmark": options.name, "result": json.loads(rows.read_text()) if options.json else None})
