"""Exact solvers: starts of HiGHS, oracles against HiGHS, HiGHS against Gurobi.

    python benchmarks/speed/solvers.py [--repeats 9] [--json results/bench/solvers.json] [--subjects starts oracles …]

One thread. Times are per instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers import DagShortestPath, FewRowLP, Gurobi, HiGHS, Solver
from harness import Rows, costs_of, main, medians, moved

BATCH = 32
CALLS = 40  # how many times as often a fast solver is timed


def per_instance(ways: dict[str, Callable[[], Any]], repeats: int, count: int = BATCH) -> dict[str, float]:
    """Median microseconds per instance of each way, which solves `count` instances."""
    return {name: 1e6 * seconds / count for name, seconds in medians(ways, repeats).items()}


def highs_ways(program: Program, y: Tensor) -> dict[str, Callable[[], Any]]:
    """From cold with and without presolve, from the basis of the same instance before its costs moved, from another's."""
    plain, presolved = HiGHS(program, presolve=False), HiGHS(program, presolve=True)
    basis = plain.solve(y, None, plain.no_start(len(y))).check().start
    assert basis is not None
    new, other = moved(y), basis.roll(1, 0)
    return {
        "cold": lambda: plain.solve(new),
        "cold, presolve": lambda: presolved.solve(new),
        "own basis": lambda: plain.solve(new, None, basis),
        "another's basis": lambda: plain.solve(new, None, other),
    }


def starts(options: Any) -> Rows:
    """HiGHS on linear programs, after costs moved by 2 %."""
    rows = []
    for name in ("SP-15", "SP-25", "KP-400", "CFL-50", "CFL-100"):
        program = problem_named(name, seed=1).relaxation
        times = per_instance(highs_ways(program, costs_of(name, BATCH)), options.repeats)
        best = min(value for way, value in times.items() if way != "own basis")
        rows.append(
            {"problem": name, **{f"{way} µs": value for way, value in times.items()}, "gain": best / times["own basis"]}
        )
    return rows


def oracles(options: Any) -> Rows:
    """Special-purpose solvers, in batches of 32, against the fastest way of HiGHS."""
    rows = []
    makers: dict[str, Callable[[Program], Solver]] = {"SP": DagShortestPath.of, "KP": FewRowLP}
    for name in ("SP-5", "SP-15", "SP-25", "KP-100", "KP-400", "KP-500"):
        problem = problem_named(name, seed=1)
        program, y = problem.relaxation, costs_of(name, BATCH)
        oracle, new = makers[name[:2]](program), moved(y)
        single = new.float()
        start = oracle.no_start(BATCH)
        basis = None if start is None else oracle.solve(y, None, start).start
        fast: dict[str, Callable[[], Any]] = {
            "oracle": lambda oracle=oracle, new=new: oracle.solve(new),
            "oracle, float32": lambda oracle=oracle, new=single: oracle.solve(new),
        }
        if basis is not None:
            fast["oracle, own basis"] = lambda oracle=oracle, new=new, basis=basis: oracle.solve(new, None, basis)
        # Many short measurements of what is short: few of them are disturbed.
        times = per_instance(highs_ways(program, y), options.repeats) | per_instance(fast, CALLS * options.repeats)
        assert torch.allclose(oracle.solve(new).objective, HiGHS(program).solve(new).objective)
        best = min((value, way) for way, value in times.items() if not way.startswith("oracle"))
        row = {"problem": name, "oracle": type(oracle).__name__, "best of HiGHS": best[1], "HiGHS µs": best[0]}
        row |= {f"{way} µs": value for way, value in times.items() if way.startswith("oracle")}
        rows.append({**row, "gain": best[0] / times["oracle"]})
    return rows


def back_ends(options: Any) -> Rows:
    """HiGHS and Gurobi, from cold."""
    rows = []
    for name, integer in (("SP-15", False), ("KP-400", False), ("CFL-50", False), ("CFL-50", True), ("KP-100", True)):
        problem = problem_named(name, seed=1)
        program, y = problem.program if integer else problem.relaxation, costs_of(name, 8)
        solvers = {"HiGHS": HiGHS(program), "Gurobi": Gurobi(program)}
        ways = {way: lambda solver=solver, y=y: solver.solve(y) for way, solver in solvers.items()}
        times = per_instance(ways, options.repeats, len(y))
        rows.append(
            {"problem": name + ("" if integer else ", relaxed"), **{f"{w} ms": t / 1e3 for w, t in times.items()}}
        )
    return rows


SUBJECTS = {"starts": starts, "oracles": oracles, "back ends": back_ends}

if __name__ == "__main__":
    main("Exact solvers", __doc__, SUBJECTS)
