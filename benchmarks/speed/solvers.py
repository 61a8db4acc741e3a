"""Exact solvers: starts of HiGHS, oracles against HiGHS, HiGHS against Gurobi.

    python benchmarks/speed/solvers.py [--repeats 9] [--json results/bench/solvers.json] [--subjects starts oracles …]

One thread. Times are per instance.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers import DagShortestPath, FewRowLP, Gurobi, HiGHS, Solver
from harness import Rows, Ways, columns, costs_of, main, medians, moved

BATCH = 32
CALLS = 40  # how many times as often a fast solver is timed


def per_instance(ways: Ways, repeats: int, count: int = BATCH) -> dict[str, float]:
    """Median microseconds per instance of each way, which solves `count` instances."""
    return {name: 1e6 * seconds / count for name, seconds in medians(ways, repeats).items()}


def highs_ways(program: Program, y: Tensor) -> Ways:
    """From cold with and without presolve, from the basis of the same instance before its costs moved, from another's."""
    plain, presolved = HiGHS(program, presolve=False), HiGHS(program, presolve=True)
    basis = plain.solve(y, None, plain.no_start(len(y))).check().start
    assert basis is not None
    new = moved(y)
    starts = {"own basis": basis, "another's basis": basis.roll(1, 0)}
    cold = {"cold": partial(plain.solve, new), "cold, presolve": partial(presolved.solve, new)}
    return cold | {name: partial(plain.solve, new, None, start) for name, start in starts.items()}


def starts(options: Any) -> Rows:
    """HiGHS on linear programs, after costs moved by 2 %."""
    rows = []
    for name in ("SP-15", "SP-25", "KP-400", "CFL-50", "CFL-100"):
        program = problem_named(name, seed=1).relaxation
        times = per_instance(highs_ways(program, costs_of(name, BATCH)), options.repeats)
        best = min(value for way, value in times.items() if way != "own basis")
        rows.append({"problem": name} | columns(times, "µs") | {"gain": best / times["own basis"]})
    return rows


def oracles(options: Any) -> Rows:
    """Special-purpose solvers, in batches of 32, against the fastest way of HiGHS."""
    rows = []
    makers: dict[str, Callable[[Program], Solver]] = {"SP": DagShortestPath, "KP": FewRowLP}
    for name in ("SP-5", "SP-15", "SP-25", "KP-100", "KP-400", "KP-500"):
        program, y = problem_named(name, seed=1).relaxation, costs_of(name, BATCH)
        oracle, new = makers[name[:2]](program), moved(y)
        start = oracle.no_start(BATCH)
        fast = {"oracle": partial(oracle.solve, new), "oracle, float32": partial(oracle.solve, new.float())}
        if start is not None:
            fast["oracle, own basis"] = partial(oracle.solve, new, None, oracle.solve(y, None, start).start)
        # Many short measurements of what is short: few of them are disturbed.
        slow, times = (
            per_instance(highs_ways(program, y), options.repeats), per_instance(fast, CALLS * options.repeats)
        )  # fmt: skip
        assert torch.allclose(oracle.solve(new).objective, HiGHS(program).solve(new).objective)
        best = min(slow, key=slow.__getitem__)
        row = {"problem": name, "oracle": type(oracle).__name__, "best of HiGHS": best, "HiGHS µs": slow[best]}
        rows.append(row | columns(times, "µs") | {"gain": slow[best] / times["oracle"]})
    return rows


def back_ends(options: Any) -> Rows:
    """HiGHS and Gurobi, from cold."""
    rows = []
    for name, integer in (("SP-15", False), ("KP-400", False), ("CFL-50", False), ("CFL-50", True), ("KP-100", True)):
        problem = problem_named(name, seed=1)
        program, y = problem.program if integer else problem.relaxation, costs_of(name, 8)
        ways = {kind.__name__: partial(kind(program).solve, y) for kind in (HiGHS, Gurobi)}
        times = columns(per_instance(ways, options.repeats, len(y)), "ms", 1e-3)
        rows.append({"problem": name + ("" if integer else ", relaxed")} | times)
    return rows


if __name__ == "__main__":
    main("Exact solvers", __doc__, {"starts": starts, "oracles": oracles, "back ends": back_ends})
