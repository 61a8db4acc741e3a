"""Exact knapsacks: `FewRowBinary` against HiGHS and Gurobi on the same instances, and how far single ones are from the mean.

    python benchmarks/speed/knapsacks.py [--quick] [--repeats 9] [--json results/bench/knapsacks.json]

One thread, CPU time, from cold, no gap allowed. Costs are the true values, whole numbers with many ties, or E[y | x], real
numbers as a model predicts them. HiGHS and Gurobi solve the first INSTANCES; ours solves those for the ratio, and MANY for
the mean and the slowest.
"""

import statistics
import time
from typing import Any

import torch

import dflearn as dfl
from harness import Rows, columns, main, ratios

PROBLEMS = ("KP-100", "KP-200", "KP-400", "KP-500", "KP-100x3", "KP-100x4")
INSTANCES, MANY = 24, 500


def milliseconds(solver: dfl.Solver, y: torch.Tensor) -> float:
    """CPU time per instance."""
    begun = time.process_time()
    solver.solve(y)
    return 1e3 * (time.process_time() - begun) / len(y)


def against_general_solvers(options: Any) -> Rows:
    rows = []
    for name in PROBLEMS[:1] if options.quick else PROBLEMS:
        problem = dfl.problems.problem_named(name, seed=1)
        program, data = problem.program, problem.generate(MANY, dtype=torch.float64)
        ours, others = dfl.solvers.FewRowBinary(program), {"HiGHS": dfl.HiGHS(program), "Gurobi": dfl.Gurobi(program)}
        kinds = {"true": data.batch().require("costs"), "expected": problem.expected_costs(data.features)}
        for costs, y in kinds.items():
            few = y[:INSTANCES]
            best = ours.solve(few).check().objective  # compiles, too
            times = {way: milliseconds(solver, few) for way, solver in others.items()}
            assert all(torch.allclose(solver.solve(few[:2]).check().objective, best[:2]) for solver in others.values())
            times = {"ours": statistics.median(milliseconds(ours, few) for _ in range(options.repeats))} | times
            each = [milliseconds(ours, one[None]) for one in y]
            row = {"problem": name, "costs": costs} | columns(times, "ms") | ratios(times, "ours")
            row |= {f"mean of {MANY} ms": statistics.mean(each), "median ms": statistics.median(each)}
            rows.append(row | {"slowest ms": max(each)})
    return rows


if __name__ == "__main__":
    main("Exact knapsacks", __doc__, {"against general solvers": against_general_solvers})
