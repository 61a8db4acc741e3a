"""Labelling 1000 instances against PyEPO's data set; CFL-50 on two threads against one.

    python benchmarks/speed/labelling.py [--quick] [--repeats 5] [--subjects peers threads] [--json results/bench/labelling.json]

`label` solves cold with the problem's own exact solver and remembers nothing; PyEPO's `optDataset` goes on from the last
instance's basis. The subject `threads` is timed by the clock on the wall and needs a machine with nothing else to do; the
row of plain arithmetic says how much of a second core there was. With --subjects, the others keep what the JSON file has.
"""

from typing import Any

import numpy as np

from contest import Entry, contest, on_two_threads
from dflearn.problems import problem_named
from harness import Row, Rows, columns, main, ratios

COUNT, THREADED = 1000, 64
PEERS = {"Gurobi": Entry("run_pyepo.py", ("Gurobi",)), "OR-Tools": Entry("run_pyepo.py", ("OR-Tools",), "ortools")}


def material(name: str, count: int) -> dict[str, Any]:
    problem = problem_named(name, seed=1)
    data = problem.generate(count)
    given = {"problem": name, "features": data.features.numpy(), "costs": data.batch().require("costs").numpy()}
    return given | ({"grid": (problem.rows, problem.columns)} if name.startswith("SP") else {})  # type: ignore[attr-defined]


def peers(options: Any) -> Rows:
    """One thread; decisions agree where the peer's is the same vertex."""
    rows, others = [], {"Gurobi": PEERS["Gurobi"]} if options.quick else PEERS
    for name in ("SP-15",) if options.quick else ("SP-15", "SP-25"):
        entries = {"dflearn": Entry("run_dflearn.py"), **others}
        results = contest(entries, "labels", material(name, COUNT), 2 if options.quick else options.repeats)
        times, ours = {who: result.seconds for who, result in results.items()}, results["dflearn"]
        row: Row = {"problem": name, "instances": COUNT} | columns(times, "s") | ratios(times, "dflearn")
        for who in others:
            same = np.abs(results[who].found[-1]["decisions"] - ours.found[-1]["decisions"]).max(1) < 1e-6
            row[f"agree with {who}"] = f"{same.mean():.1%}"
        row |= {"first call s": ours.first, "MiB": ours.peak}
        rows.append(row | {f"MiB, {who}": results[who].peak for who in others})
    return rows


def threads(options: Any) -> Rows:
    """The same labels by one worker and by two."""
    given, subjects = material("CFL-50", THREADED), {"CFL-50": "labels", "arithmetic alone": "arithmetic"}
    return [{"problem": what} | on_two_threads(each, given, options.repeats) for what, each in subjects.items()]


if __name__ == "__main__":
    main("Labelling", __doc__, {"peers": peers, "threads": threads}, 5, quick=["peers"])
