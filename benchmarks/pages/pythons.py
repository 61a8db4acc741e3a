"""One row of results/pythons: dflearn from its wheel, in the environment of the Python that runs this.

    .venv-3.12/bin/python benchmarks/pages/pythons.py NAME [TESTS…]

The wheel (`make wheel`) is installed there beforehand, and no checkout is on the path. The row is written to
results/pythons/NAME.json, and the table of all rows to README.md beside it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "pythons"
PACKAGES = ("torch", "numpy", "scipy", "highspy", "clarabel", "numba", "scikit-learn", "pandas")
GRADIENT = """
import time, torch, dflearn as dfl
from dflearn.engine import ahead
problem = dfl.problems.ShortestPath(5, 5, seed=1)
data = dfl.label(problem.generate(32), dfl.HiGHS(problem.program), progress=False)
predicted = data.costs.flip(0).requires_grad_()
begun = time.process_time()
dfl.losses.SCE(dfl.Smoothed(problem.program, mu=1.0))(predicted, data.batch()).sum().backward()
print(dfl.__version__, dfl.__file__, time.process_time() - begun)
"""
DEMO = r"^(MSE|SCE\^smoothed) +SP-5 +1 +(\S+)"
INTRODUCTION = """# Pythons

dflearn from its wheel, in one environment per row. `python benchmarks/pages/pythons.py NAME TESTS` in that environment writes a row. x86-64 Linux, torch on the CPU: its CPU build on
3.11, its CUDA builds elsewhere. In the oldest environment, empty libraries stand for those of CUDA. The wheels carry compiled kernels, but for that of
3.11-oldest. The row 3.11 is the newest, when there were four tests less.
*First gradient* is the CPU time of one batch of SCE through `Smoothed`, forward and backward, in a new process with an empty cache of kernels. Carried
kernels are used with the numba of constraints.txt; otherwise the first call compiles.
*Demo* is the mean regret ratio of squared error and of SCE that `dfl demo` prints. Tests are the folders and files below the table. In the oldest and the newest environment they ran
by hand with the same arguments, after what was missing at first had been installed.
"""


def run(*command: str, cwd: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False)


def measured(tests: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        gradient = run(sys.executable, "-c", GRADIENT, cwd=folder, NUMBA_CACHE_DIR=folder)
        demo = run(str(Path(sys.executable).parent / "dfl"), "demo", "--out", "demo", cwd=folder)
        tested = run(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
            *tests,
            cwd=str(ROOT),
        )
    version, file, seconds = gradient.stdout.split() if not gradient.returncode else ("", "", "nan")
    assert not Path(file).is_relative_to(ROOT), f"{file} is the checkout, not the wheel"
    errors = [part.stderr[-1500:] for part in (gradient, demo) if part.returncode]
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "dflearn": version,
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "first_gradient": float(seconds),
        "demo": " → ".join(regret for name, regret in sorted(re.findall(DEMO, demo.stdout, re.MULTILINE))) or "fails",
        "tests": tests,
        "tested": re.sub(r" in \d.*", "", (tested.stdout.strip().splitlines() or [""])[-1]),
        "failed": re.findall(r"^(?:FAILED|ERROR) (\S+)", tested.stdout, re.MULTILINE),
        "errors": errors,
    }


def page() -> str:
    rows = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    head = ["environment", "Python", *PACKAGES, "first gradient, CPU s", "demo", "tests"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in rows.items():
        told = [
            name,
            row["python"],
            *row["versions"].values(),
            f"{row['first_gradient']:.1f}",
            row["demo"],
            row["tested"],
        ]
        lines.append("| " + " | ".join(told) + " |")
    failed = [f"- {name}: {test}" for name, row in rows.items() for test in row["failed"]]
    folders = sorted({test for row in rows.values() for test in row["tests"]})
    parts = [INTRODUCTION, "\n".join(lines), f"Tests: {', '.join(f'`{folder}`' for folder in folders)}."]
    return (
        "\n\n".join([*(part.strip() for part in parts), *(["Failed:\n\n" + "\n".join(failed)] if failed else [])])
        + "\n"
    )


if __name__ == "__main__":
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{sys.argv[1]}.json").write_text(json.dumps(measured(sys.argv[2:]), indent=1) + "\n")
    (RESULTS / "README.md").write_text(page())
