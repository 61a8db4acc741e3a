"""Labelling 1000 instances against PyEPO's data set; CFL-50 on two threads against one.

    python benchmarks/speed/labelling.py [--quick] [--repeats 5] [--subjects peers threads] [--json results/bench/labelling.json]

`label` solves cold with the problem's own exact solver and remembers nothing; PyEPO's `optDataset` goes on from the last
instance's basis. The subject `threads` is timed by the clock on the wall and needs a machine with nothing else to do; the
row of plain arithmetic says how much of a second core there was. With --subjects, the others keep what the JSON file has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from contest import Entry, contest
from dflearn.problems import problem_named
from harness import command_line, earlier, parser, report

COUNT, THREADED = 1000, 64
DFLEARN = Entry("run_dflearn.py")
PEERS = {"Gurobi": Entry("run_pyepo.py", ("Gurobi",)), "OR-Tools": Entry("run_pyepo.py", ("OR-Tools",), "ortools")}


def material(name: str, count: int) -> dict[str, Any]:
    problem = problem_named(name, seed=1)
    data = problem.generate(count)
    given = {"problem": name, "features": data.features.numpy(), "costs": data.batch().require("costs").numpy()}
    return given | ({"grid": (problem.rows, problem.columns)} if name.startswith("SP") else {})  # type: ignore[attr-defined]


def peers(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """One thread; decisions agree where the peer's is the same vertex."""
    rows = []
    for name in ("SP-15",) if quick else ("SP-15", "SP-25"):
        entries = {"dflearn": DFLEARN, "Gurobi": PEERS["Gurobi"]} if quick else {"dflearn": DFLEARN, **PEERS}
        results = contest(entries, "labels", material(name, COUNT), repeats)
        ours = results.pop("dflearn")
        row: dict[str, Any] = {"problem": name, "instances": COUNT, "dflearn s": ours.seconds}
        row |= {f"{who} s": result.seconds for who, result in results.items()}
        row |= {f"{who} ratio": result.seconds / ours.seconds for who, result in results.items()}
        for who, result in results.items():
            same = np.abs(result.found[-1]["decisions"] - ours.found[-1]["decisions"]).max(1) < 1e-6
            row[f"agree with {who}"] = f"{same.mean():.1%}"
        row |= {"first call s": ours.first, "MiB": ours.peak}
        rows.append(row | {f"MiB, {who}": result.peak for who, result in results.items()})
    return rows


def threads(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """The same labels by one worker and by two."""
    rows = []
    given = material("CFL-50", THREADED)
    for what, subject in (("CFL-50", "labels"), ("arithmetic alone", "arithmetic")):
        entries = {f"{count} s": Entry("run_dflearn.py", threads=count) for count in (1, 2)}
        one, two = contest(entries, subject, given, repeats, wall=True).values()
        assert all(np.array_equal(value, two.found[-1][key]) for key, value in one.found[-1].items())
        rows.append(
            {
                "problem": what,
                "one thread s": one.seconds,
                "two threads s": two.seconds,
                "threads ratio": one.seconds / two.seconds,
            }
        )
    return rows


def main() -> None:
    subjects = {"peers": peers, "threads": threads}
    arguments = parser(__doc__, repeats=5)
    arguments.add_argument("--subjects", nargs="+", choices=subjects)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    kept = earlier(options.json, options.subjects)
    rows = kept["subjects"] if kept else {}
    names = options.subjects or (["peers"] if options.quick else list(subjects))
    rows |= {name: subjects[name](2 if options.quick else options.repeats, options.quick) for name in names}
    report("Labelling", rows, options.json, command_line(kept))


if __name__ == "__main__":
    main()
