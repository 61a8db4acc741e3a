"""Exact facility location: `RelaxationFirst` against HiGHS and Gurobi on the same instances.

    python benchmarks/speed/facilities.py [--quick] [--json results/bench/facilities.json]

One thread, CPU time, from cold, no gap allowed; in turns of a few instances, each of them once. Costs are the true ones, or
predictions of a linear model that was trained for a while. All optima are compared: the largest difference is relative to
the optimum. Gurobi solves up to 2,000 variables by its free licence. In the published sizes all facilities must open.
"""

import time
from typing import Any

import torch
from torch import Tensor

import dflearn as dfl
from dflearn.problems.base import Problem
from harness import Rows, columns, main, ratios

PUBLISHED = ("CFL-50", "CFL-100", "CFL-200", "CFL-250")
INSTANCES, TURN = 250, 10  # and of a turn
TRAINING, STEPS = 100, 30
FREE = 2000  # variables and rows that Gurobi's free licence takes


def costs(problem: Problem, count: int) -> dict[str, Tensor]:
    """The true costs of so many instances, and what a linear model predicts for them after some steps on others."""
    data = problem.generate(count + TRAINING, dtype=torch.float64)
    x, y = data.features, data.batch().require("costs")
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(x.shape[1] + 1, y.shape[1], generator=generator, dtype=torch.float64).requires_grad_()
    inputs = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).double()
    optimizer = torch.optim.Adam([weights], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (inputs[count:] @ weights - y[count:]).square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {"true": y[:count], "predicted": (inputs[:count] @ weights).detach()}


def against_general_solvers(options: Any) -> Rows:
    rows, count = [], TURN if options.quick else INSTANCES
    for name in PUBLISHED[:1] if options.quick else PUBLISHED:
        problem = dfl.problems.problem_named(name, seed=1)
        program = problem.program
        ours = dfl.solvers.RelaxationFirst(program)
        begun = time.process_time()
        assert ours.linear is not None, "all facilities must open"
        once = 1e3 * (time.process_time() - begun)
        solvers: dict[str, dfl.Solver] = {"ours": ours, "HiGHS": dfl.HiGHS(program)}
        if program.n <= FREE:
            solvers["Gurobi"] = dfl.Gurobi(program)
        for kind, y in costs(problem, count).items():
            spent, worst, other = dict.fromkeys(solvers, 0.0), dict.fromkeys(solvers, 0.0), 0
            for solver in solvers.values():
                solver.solve(y[:1])
            for part in y.split(TURN):
                answers = {}
                for way, solver in solvers.items():
                    begun = time.process_time()
                    answers[way] = solver.solve(part).check()
                    spent[way] += 1e3 * (time.process_time() - begun) / count
                best = answers["ours"].objective
                for way, answer in answers.items():
                    assert answer.counts() == {"OPTIMAL": len(part)}, (name, way, answer.counts())
                    worst[way] = max(worst[way], float(((answer.objective - best) / best).abs().max()))
                apart = (answers["ours"].decision - answers["HiGHS"].decision).abs().max(1).values
                other += int((apart > 1e-6).sum())
            row = {"problem": name, "costs": kind, "instances": count, "once ms": once} | columns(spent, "ms")
            row |= ratios(spent, "ours") | {f"from {way}": worst[way] for way in solvers if way != "ours"}
            rows.append(row | {"other decisions": other})
    return rows


if __name__ == "__main__":
    main("Exact facility location", __doc__, {"against general solvers": against_general_solvers})
