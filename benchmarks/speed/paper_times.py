"""CPU seconds of an epoch of every method of the paper's tables, all methods of a problem one after the other.

    python benchmarks/speed/paper_times.py [--problems SP-5 KP-100 …] [--quick] [--repeats 3] [--json results/bench/paper_times.json]

A run as `dfl paper table` makes it, seed 1, 800 training instances in batches of 32, one thread, of as many epochs as --repeats says
and one more before them, which does not count; validation apart, as everywhere. Integer programs are solved by the problem's own
solver. SCE^DYS is the authors' iteration by our kernel, dense by their matrices. Published: as printed, on the authors' machine,
validation included. With --problems, the other problems keep what the JSON file has of them.
"""

from __future__ import annotations

import tempfile
from typing import Any

from dflearn.problems import PROBLEMS
from dflearn.studies.config import Settings, resolve
from dflearn.studies.paper.published import published_rows
from dflearn.studies.run import run
from harness import command_line, earlier, parser, provenance, report

TRAIN, VALIDATION, TEST = 800, 200, 10
QUICK = ("SP-5", "KP-100")
OWN = (
    "SPO+^relax cold",
    "SPO+^relax warm",
    "SCE^DYS dense",
    "SCE^DYS unrolled",
    "SCE^smoothed",
)  # beside published rows
SHORT = (
    "MSE", "SPO+^relax cold", "SPO+^relax warm", "SPO+^relax", "SPO+^ILP", "PFY", "SCE^CVX", "SCE^DYS dense", "SCE^DYS",
    "SCE^DYS unrolled", "SCE^smoothed",
)  # fmt: skip


def rows_of(problem: str, epochs: int) -> list[dict[str, Any]]:
    """Every method with a published row, and ours."""
    settings = Settings(points=TRAIN + VALIDATION + TEST, test=TEST, epochs=1 + epochs)
    published = {method: row.seconds for (name, method), row in published_rows().items() if name == problem}
    rows = []
    with tempfile.TemporaryDirectory() as labels:  # solved once for all methods
        for method in dict.fromkeys([*published, *OWN]):
            record = run(resolve(problem, method, 1, settings=settings), labels)
            row = {"problem": problem, "method": method, "s": record.seconds["epoch"], "solver": record.training_solver}
            rows.append(row | ({"published s": published[method]} if method in published else {}))
            print(*row.values(), sep="\t", flush=True)
    return rows


def in_short(subjects: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each problem, the methods of SHORT in its columns."""
    rows = []
    for problem in PROBLEMS:
        found = {row["method"]: row["s"] for row in subjects.get(problem, [])}
        if found:
            rows.append({"problem": problem} | {method: found.get(method, "") for method in SHORT})
    return rows


def main() -> None:
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--problems", nargs="+", choices=PROBLEMS, metavar="NAME", help="default: all twelve")
    options = arguments.parse_args()
    kept = earlier(options.json, options.problems)
    subjects: dict[str, list[dict[str, Any]]] = dict(kept["subjects"]) if kept else {}
    commits: dict[str, str] = kept["commits"] if kept else {}
    for problem in options.problems or (QUICK if options.quick else PROBLEMS):
        subjects[problem] = rows_of(problem, options.repeats)
        commits[problem] = provenance()["commit"]
        ordered = {"in short": in_short(subjects)} | {name: subjects[name] for name in PROBLEMS if name in subjects}
        report("Seconds of an epoch", ordered, options.json, command_line(kept), quiet=True, commits=commits)


if __name__ == "__main__":
    main()
