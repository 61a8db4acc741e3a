"""CPU seconds of an epoch of every method of the paper's tables, all methods of a problem one after the other.

    python benchmarks/speed/paper_times.py [--problems SP-5 KP-100 …] [--quick] [--repeats 3] [--json results/bench/paper_times.json]

A run as `dfl paper table` makes it, seed 1, 800 training instances in batches of 32, one thread, of as many epochs as --repeats says
and one more before them, which does not count; validation apart, as everywhere. Integer programs are solved by the problem's own
solver. SCE^DYS is the authors' iteration by our kernel, dense by their matrices. Published: as printed, on the authors' machine,
validation included.
"""

import tempfile
from typing import Any

from dflearn.problems import PROBLEMS
from dflearn.studies.config import Settings, resolve
from dflearn.studies.paper.published import published_rows
from dflearn.studies.run import run
from harness import Row, Rows, by_case

TRAIN, VALIDATION, TEST = 800, 200, 10
# Beside published rows:
OWN = ("SPO+^relax cold", "SPO+^relax warm", "SCE^DYS dense", "SCE^DYS unrolled", "SCE^smoothed")
SHORT = (
    "MSE", "SPO+^relax cold", "SPO+^relax warm", "SPO+^relax", "SPO+^ILP", "PFY", "SCE^CVX", "SCE^DYS dense", "SCE^DYS",
    "SCE^DYS unrolled", "SCE^smoothed",
)  # fmt: skip


def measure(options: Any, problem: str) -> dict[str, Rows]:
    """Every method with a published row, and ours."""
    settings = Settings(points=TRAIN + VALIDATION + TEST, test=TEST, epochs=1 + options.repeats)
    published = {method: row.seconds for (name, method), row in published_rows().items() if name == problem}
    rows: Rows = []
    with tempfile.TemporaryDirectory() as labels:  # solved once for all methods
        for method in dict.fromkeys([*published, *OWN]):
            record = run(resolve(problem, method, 1, settings=settings), labels)
            row = {"problem": problem, "method": method, "s": record.seconds["epoch"], "solver": record.training_solver}
            rows.append(row | ({"published s": published[method]} if method in published else {}))
            print(*row.values(), sep="\t", flush=True)
    return {problem: rows}


def in_short(subjects: dict[str, Rows]) -> dict[str, Rows]:
    """First a row for each problem, the methods of SHORT in its columns, and the authors' iteration by our kernel."""
    whole = {problem: subjects[problem] for problem in PROBLEMS if problem in subjects}
    times = {problem: {row["method"]: row["s"] for row in rows} for problem, rows in whole.items()}
    short: list[Row] = [{"problem": name} | {m: own.get(m, "") for m in SHORT} for name, own in times.items()]
    both = {name: (own["SCE^DYS"], own["SCE^DYS dense"]) for name, own in times.items()}
    kernel = [{"problem": name, "sparse s": s, "dense s": d, "ratio": d / s} for name, (s, d) in both.items()]
    return {"in short": short, "SCE^DYS, sparse and dense": kernel} | whole


if __name__ == "__main__":
    cases, quick = [(name,) for name in PROBLEMS], [("SP-5",), ("KP-100",)]
    by_case("Seconds of an epoch", __doc__, measure, cases, quick, repeats=3, derive=in_short)
