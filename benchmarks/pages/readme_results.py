"""The figures of README.md, written from the files in results/, so that the two cannot differ.

    python benchmarks/pages/readme_results.py            # rewrites the block between the markers in README.md

Nothing is measured here. A test compares README.md with what this would write.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # where a test runs this file, its folder is not on the path

from dflearn.paper.tables import Row, rows_of, seed_counts  # noqa: E402
from dflearn.problems import PROBLEMS  # noqa: E402
from dflearn.report.render import render  # noqa: E402
from dflearn.studies.store import read_lines  # noqa: E402
from harness import table  # noqa: E402
from targets import two_digits, verdicts  # noqa: E402

BLOCK = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", re.DOTALL)
PAPER = ("MSE", "SPO+^relax", "SPO+^p=5%", "PFY", "CaVE", "SCE^DYS", "SCE^smoothed", "SCE^smoothed scaled")
SEEDS = 5  # a problem of the comparison is shown once all its seeds are done


def measured(name: str, subject: str) -> list[dict[str, Any]]:
    """The rows of one subject of a benchmark; none where it was not measured."""
    path = ROOT / "results" / "bench" / f"{name}.json"
    return json.loads(path.read_text())["subjects"].get(subject, []) if path.exists() else []


def ratios(title: str, file: str, subject: str, columns: dict[str, str], *places: str) -> str:
    """A table of ratios to two digits, one line per row of the benchmark, losing ones included."""
    rows = measured(file, subject)
    if not rows:
        return f"{title}: not measured."
    names = {place: place for place in places} | {key: name for key, name in columns.items() if key in rows[0]}
    lines = [f"| {' | '.join(show(row.get(key, '')) for key in names)} |" for row in rows]
    head = [f"{title} ([all columns](results/bench/{file}.md)):", "", f"| {' | '.join(names.values())} |"]
    return "\n".join([*head, "|---" * len(names) + "|", *lines])


def show(value: Any) -> str:
    return two_digits(value) + "×" if isinstance(value, float) else str(value)


def speed() -> str:
    """What was asked for and what was reached; then every ratio behind it."""
    labels = ratios(
        "Labels of 1000 instances against PyEPO's data set",
        "labelling", "peers", {"Gurobi ratio": "Gurobi", "OR-Tools ratio": "OR-Tools"}, "problem",
    )  # fmt: skip
    oracles = ratios(
        "Exact solvers against HiGHS at its best", "solvers", "oracles", {"gain": "times as fast"}, "problem", "oracle"
    )
    knapsacks = ratios(
        "Exact knapsacks, `FewRowBinary` against general solvers; costs are true or expected values",
        "knapsacks", "against general solvers", {"HiGHS ratio": "HiGHS", "Gurobi ratio": "Gurobi"}, "problem", "costs",
    )  # fmt: skip
    every = folded("Every ratio with one thread", *training(), layers(), labels, oracles, knapsacks)
    return "\n\n".join([table(verdicts()), every])


def training(threads: str = "") -> list[str]:
    """Ratios of seconds per epoch, on one thread or as the suffix of the file's name says."""
    pyepo = {"cold ratio": "cold", "warm ratio": "warm", "OR-Tools ratio": "OR-Tools, cold"}
    dys = {"unrolled ratio": "unrolled", "jfb ratio": "Jacobian-free"}
    smoothed = {"cold ratio": "cold", "warm ratio": "warm"}
    ways = {f"{way} ratio": way for way in ("SCE^DYS", "SCE^DYS jfb", "SCE^smoothed cold", "SCE^smoothed warm")}
    subjects: dict[str, tuple[str, dict[str, str]]] = {
        "SPO+ on shortest paths against PyEPO + Gurobi": ("SPO+ on shortest paths", pyepo),
        "SPO+ on relaxed knapsacks against PyEPO + Gurobi": ("SPO+ on relaxed knapsacks", pyepo),
        "PFY on relaxed knapsacks against PyEPO + Gurobi": ("PFY on relaxed knapsacks", pyepo),
        "SCE^DYS unrolled against the published layer, Jacobian-free against the dense one": (
            "SCE^DYS against the published layer",
            dys,
        ),
        "SCE^smoothed against SCE^DYS as published": ("SCE^smoothed against the published layer", smoothed),
        "SCE against SPO+ of PyEPO + Gurobi": ("SCE against PyEPO's SPO+", ways),
    }
    return [
        ratios(title, f"epochs{threads}", subject, columns, "problem") for title, (subject, columns) in subjects.items()
    ]


def layers(threads: str = "") -> str:
    columns = {
        f"{peer} {start} ratio": f"{peer}, {start}" for peer in ("cvxpylayers", "qpth") for start in ("cold", "warm")
    }
    title = "The smoothed layer, forward and backward"
    return ratios(title, f"layers{threads}", "forward and backward", columns, "problem", "batch")


def regret() -> str:
    """Mean of ratios by method, and the paired difference from SPO+ with its 95 % interval."""
    sections = re.split(r"^## ", (ROOT / "results" / "comparison" / "table.md").read_text(), flags=re.MULTILINE)[1:]
    columns: dict[str, dict[str, str]] = {}
    for section in sections:
        name, *lines = section.splitlines()
        header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
        found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
        if all(int(row["seeds"]) == SEEDS for row in found.values()):
            columns[name] = {
                method: row["mean of ratios"].split()[0] + (f" ({row['less SPO+']})" if row["less SPO+"] else "")
                for method, row in found.items()
            }
    methods = dict.fromkeys(method for column in columns.values() for method in column)
    lines = [
        f"| {method} | {' | '.join(column.get(method, '') for column in columns.values())} |" for method in methods
    ]
    return "\n".join([f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *lines])


def paper() -> str:
    """The methods of the paper's final comparison on every problem: our figure, in brackets the published one."""
    records = read_lines(ROOT / "results" / "paper" / "runs.jsonl")
    lines = []
    for problem in PROBLEMS:
        rows = {row.summary.method: row for row in rows_of(problem, PAPER, records)}
        if rows:
            lines.append([problem, seed_counts(list(rows.values())), *(beside(rows.get(method)) for method in PAPER)])
    return render(["", "seeds", *PAPER], lines, "markdown")


def beside(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.summary.regret:.3f}" + (f" ({row.published.regret:.2f})" if row.published else "")


def folded(title: str, *parts: str) -> str:
    """What a reader opens who wants every row."""
    return "\n\n".join(["<details>", f"<summary>{title}</summary>", *parts, "</details>"])


def block() -> str:
    two_threads = folded("Every ratio with two threads", *training("_2_threads"), layers("_2_threads"))
    return f"""
### The paper, reproduced

Every loss, layer and table of the paper that this library grew from, made anew by `dfl paper` and compared with what was
published: [claim by claim](docs/reproduction.md), [every row](results/paper/README.md), [what moves the simplest of them](results/mse_baseline/README.md).
Test regret in the published style, means over the seeds; in brackets as published. The last two columns are ours, untuned:
SCE through the exactly smoothed program, first with the paper's model, then with the model's output
[in units of the costs](docs/choosing.md#let-the-model-work-in-units-of-the-costs), which helps other losses too.

{paper()}

### Methods tuned alike

Test regret, mean of regret / optimum over {SEEDS} seeds; in brackets the paired difference from SPO+ with its 95 % interval
over test instances (training runs vary beyond that). PFY, SCE^DYS, SCE^smoothed and sSPO+ have a parameter, and so train
five times and keep the value of least validation regret; the others train once. The runs were made at several commits,
which the record names ([comparison](results/comparison/table.md), `python benchmarks/studies/comparison.py`).

{regret()}

PFY is `FenchelYoung` through `Perturbed`; SCE^DYS and SCE^smoothed are `SCE` through `DavisYin` and `Smoothed`; sSPO+ is
`SmoothedSPOPlus`.

### Performance

Training is timed in seconds per epoch of 800 instances: the same data, linear model, start, order, batches of 32 and Adam
for everyone, each in a process of its own, in turns, on one thread, in CPU time; medians, warm-up apart. Ratios are the
peer's time over ours, to two digits; below 1 the peer is faster. Cold: no start. Warm: each instance starts where its last
solve ended. [What the tables mean](docs/performance.md); the pages linked from them hold times, memory, accuracy, versions,
the machine, the commit and the command that made them. `make bench OUT=results/bench` makes all of them anew.

{speed()}

**With two threads for everyone**, by the clock on the wall (`make bench THREADS=2 OUT=results/bench`; these rows:
`python benchmarks/speed/epochs.py --threads 2 --problems …`, `python benchmarks/speed/layers.py --threads 2 --batches 1 32`). Where problems are
small, PyEPO's loop is slower with two threads than with one, so that the tables above are the ones to go by.

{two_threads}

![Test regret against seconds of training](results/bench/epochs.svg)

"""


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(BLOCK.sub(lambda _: block(), readme.read_text()))


if __name__ == "__main__":
    main()
