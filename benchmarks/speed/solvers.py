"""Exact solvers: starts of HiGHS, oracles against HiGHS, the cost of Python, instances side by side.

    python benchmarks/speed/solvers.py [--repeats 9] [--json results/bench/solvers.json] [--subjects starts oracles overhead parallel]

One thread unless said. Times are per instance.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers import DagShortestPath, FewRowLP, Gurobi, HiGHS, Parallel, Solver, from_callable
from harness import medians, parser, report

BATCH = 32
MOVE = 0.02  # how far costs move between two epochs of training, relative
CALLS = 40  # how many times as often a fast solver is timed


def costs_of(name: str, count: int = BATCH) -> Tensor:
    return problem_named(name, seed=1).generate(count, dtype=torch.float64).batch().require("costs")


def moved(y: Tensor) -> Tensor:
    return y * (1 + MOVE * torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=y.dtype))


def per_instance(
    ways: dict[str, Callable[[], Any]], repeats: int, count: int = BATCH, **options: bool
) -> dict[str, float]:
    """Median microseconds per instance of each way, which solves `count` instances."""
    return {name: 1e6 * seconds / count for name, seconds in medians(ways, repeats, **options).items()}


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


def starts(repeats: int) -> list[dict[str, Any]]:
    """HiGHS on linear programs, after costs moved by 2 %."""
    rows = []
    for name in ("SP-15", "SP-25", "KP-400", "CFL-50", "CFL-100"):
        program = problem_named(name, seed=1).relaxation
        times = per_instance(highs_ways(program, costs_of(name)), repeats)
        best = min(value for way, value in times.items() if way != "own basis")
        rows.append(
            {"problem": name, **{f"{way} µs": value for way, value in times.items()}, "gain": best / times["own basis"]}
        )
    return rows


def oracles(repeats: int) -> list[dict[str, Any]]:
    """Special-purpose solvers, in batches of 32, against the fastest way of HiGHS."""
    rows = []
    makers: dict[str, Callable[[Program], Solver]] = {"SP": DagShortestPath.of, "KP": FewRowLP}
    for name in ("SP-5", "SP-15", "SP-25", "KP-100", "KP-400", "KP-500"):
        problem = problem_named(name, seed=1)
        program, y = problem.relaxation, costs_of(name)
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
        times = per_instance(highs_ways(program, y), repeats) | per_instance(fast, CALLS * repeats)
        assert torch.allclose(oracle.solve(new).objective, HiGHS(program).solve(new).objective)
        best = min((value, way) for way, value in times.items() if not way.startswith("oracle"))
        row = {"problem": name, "oracle": type(oracle).__name__, "best of HiGHS": best[1], "HiGHS µs": best[0]}
        row |= {f"{way} µs": value for way, value in times.items() if way.startswith("oracle")}
        rows.append({**row, "gain": best[0] / times["oracle"]})
    return rows


class Timed:
    """HiGHS's object, with the CPU time that its `run` takes."""

    def __init__(self, highs: Any) -> None:
        self.highs, self.seconds = highs, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.highs, name)

    def run(self) -> Any:
        begun = time.process_time()
        status = self.highs.run()
        self.seconds += time.process_time() - begun
        return status


def overhead(repeats: int) -> list[dict[str, Any]]:
    """What all around HiGHS adds to the time that its `run` takes."""
    rows = []
    for name, integer in (("KP-400", False), ("KP-100", False), ("SP-25", False), ("CFL-50", False), ("CFL-50", True)):
        problem = problem_named(name, seed=1)
        solver, y = HiGHS(problem.program if integer else problem.relaxation), costs_of(name, 8 if integer else BATCH)
        model: Any = solver._model()
        model.highs = timed = Timed(model.highs)
        whole, inside = [], []
        for _ in range(repeats + 1):
            timed.seconds, begun = 0.0, time.process_time()
            solver.solve(y)
            whole.append((time.process_time() - begun) / len(y))
            inside.append(timed.seconds / len(y))
        share = np.median([(all_ - own) / own for all_, own in zip(whole[1:], inside[1:], strict=True)])
        rows.append(
            {
                "problem": name + ("" if integer else ", relaxed"),
                "run µs": 1e6 * float(np.median(inside[1:])),
                "solve µs": 1e6 * float(np.median(whole[1:])),
                "overhead %": 100 * float(share),
            }
        )
    return rows


class Elsewhere:
    """HiGHS as a plain function, which `Parallel` runs in processes."""

    def __init__(self, program: Program) -> None:
        self.solver = HiGHS(program)

    def __call__(self, c: np.ndarray) -> np.ndarray:
        return self.solver._solve(c, self.solver.program.sides(None, len(c)), None).decision


def parallel(repeats: int) -> list[dict[str, Any]]:
    """One worker, two threads and two processes on integer programs; by the clock on the wall."""
    rows = []
    for name, count in (("CFL-50", 16), ("KP-100", 8)):
        program, y = problem_named(name, seed=1).program, costs_of(name, count)
        function = from_callable(Elsewhere(program), program.n, S=program.S, d=program.d, batched=True, name="HiGHS")
        alone = HiGHS(program)
        with Parallel(alone, 2) as threads, Parallel(function, 2) as processes:
            ways = {
                "one": lambda alone=alone, y=y: alone.solve(y),
                "two threads": lambda threads=threads, y=y: threads.solve(y),
                "two processes": lambda processes=processes, y=y: processes.solve(y),
            }
            times = per_instance(ways, repeats, count, wall=True)
            assert torch.equal(threads.solve(y).decision, alone.solve(y).decision)
        rows.append(
            {
                "problem": name,
                **{f"{way} ms": value / 1e3 for way, value in times.items()},
                "gain, threads": times["one"] / times["two threads"],
                "gain, processes": times["one"] / times["two processes"],
            }
        )
    return rows


def back_ends(repeats: int) -> list[dict[str, Any]]:
    """HiGHS and Gurobi, from cold."""
    rows = []
    for name, integer in (("SP-15", False), ("KP-400", False), ("CFL-50", False), ("CFL-50", True), ("KP-100", True)):
        problem = problem_named(name, seed=1)
        program, y = problem.program if integer else problem.relaxation, costs_of(name, 8)
        solvers = {"HiGHS": HiGHS(program), "Gurobi": Gurobi(program)}
        ways = {way: lambda solver=solver, y=y: solver.solve(y) for way, solver in solvers.items()}
        times = per_instance(ways, repeats, len(y))
        rows.append(
            {"problem": name + ("" if integer else ", relaxed"), **{f"{w} ms": t / 1e3 for w, t in times.items()}}
        )
    return rows


SUBJECTS = {
    "starts": starts,
    "oracles": oracles,
    "overhead": overhead,
    "parallel": parallel,
    "back ends": back_ends,
}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--subjects", nargs="*", default=list(SUBJECTS), choices=SUBJECTS, metavar="SUBJECT")
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    subjects = {name: SUBJECTS[name](chosen.repeats) for name in chosen.subjects}
    report("Exact solvers", subjects, chosen.json, " ".join(["python", *sys.argv]))


if __name__ == "__main__":
    main()
