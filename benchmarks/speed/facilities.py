"""Exact facility location: `RelaxationFirst` against HiGHS and Gurobi on the same instances, and what each part of it brings.

    python benchmarks/speed/facilities.py [--quick] [--json results/bench/facilities.json]

One thread, CPU time, from cold, no gap allowed; in turns of a few instances, each of them once. Costs are the true ones, or
predictions of a linear model that was trained for a while. All optima are compared: the largest difference is relative to
the optimum. Gurobi solves up to 2,000 variables by its free licence. In the published sizes all facilities must open; in the others
capacities exceed demand.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from dflearn.problems import problem_named
from dflearn.problems.base import Problem
from dflearn.solvers import Gurobi, HiGHS, RelaxationFirst, Solver
from dflearn.solvers.relaxation_first import NODES
from dflearn.solvers.strengthening import Strength
from harness import command_line, parser, report

PUBLISHED, LOOSE = ("CFL-50", "CFL-100", "CFL-200", "CFL-250"), ("CFL-20x10", "CFL-50x15", "CFL-100x20", "CFL-30x30")
INSTANCES, FEW, TURN = 250, 10, 10  # of the published sizes, of the others, in a turn
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


def against_general_solvers(quick: bool) -> list[dict[str, Any]]:
    rows = []
    for name in PUBLISHED[:1] if quick else PUBLISHED + LOOSE:
        problem = problem_named(name, seed=1)
        program = problem.program
        count = TURN if quick else INSTANCES if name in PUBLISHED else FEW
        ours = RelaxationFirst(program)
        begun = time.process_time()
        fixed = ours.strength.fixes_all(program)
        once = 1e3 * (time.process_time() - begun)
        solvers: dict[str, Solver] = {"ours": ours, "HiGHS": HiGHS(program)}
        if program.n <= FREE:
            solvers["Gurobi"] = Gurobi(program)
        for kind, y in costs(problem, count).items():
            spent = dict.fromkeys(solvers, 0.0)
            worst = dict.fromkeys(solvers, 0.0)
            other = 0
            for solver in solvers.values():
                solver.solve(y[:1])
            for part in y.split(TURN):
                answers = {}
                for way, solver in solvers.items():
                    begun = time.process_time()
                    answers[way] = solver.solve(part).check()
                    spent[way] += time.process_time() - begun
                best = answers["ours"].objective
                for way, answer in answers.items():
                    assert answer.counts() == {"OPTIMAL": len(part)}, (name, way, answer.counts())
                    worst[way] = max(worst[way], float(((answer.objective - best) / best).abs().max()))
                apart = (answers["ours"].decision - answers["HiGHS"].decision).abs().max(1).values
                other += int((apart > 1e-6).sum())
            milliseconds = {way: 1e3 * seconds / count for way, seconds in spent.items()}
            rows.append(
                {
                    "problem": name,
                    "costs": kind,
                    "instances": count,
                    "all fixed": fixed,
                    "once ms": once,
                    **{f"{way} ms": value for way, value in milliseconds.items()},
                    **{
                        f"{way} ratio": value / milliseconds["ours"]
                        for way, value in milliseconds.items()
                        if way != "ours"
                    },
                    **{f"from {way}": value for way, value in worst.items() if way != "ours"},
                    "other decisions": other,
                }
            )
    return rows


def parts(quick: bool) -> list[dict[str, Any]]:
    """Milliseconds per instance with a part of the strengthening."""
    rows = []
    for name in ("CFL-50",) if quick else ("CFL-50", "CFL-200", "CFL-20x10", "CFL-50x15", "CFL-100x20"):
        problem = problem_named(name, seed=1)
        program, y = problem.program, costs(problem, FEW)["true"]
        plain, whole = Strength.none(program), Strength.of(program)
        bounds = plain._replace(lower=whole.lower, upper=whole.upper)
        ways = {
            "relaxation, then HiGHS": (plain, 1),
            "tree": (plain, NODES),
            "bounds": (bounds, NODES),
            "bounds, sum": (bounds._replace(fewest=whole.fewest, most=whole.most), NODES),
            "bounds, links": (bounds._replace(links=whole.links), NODES),
            "all": (whole, NODES),
        }
        row: dict[str, Any] = {"problem": name}
        for way, (strength, nodes) in ways.items():
            solver = RelaxationFirst(program, nodes=nodes)
            solver.strength = strength
            solver.solve(y[:1])
            begun = time.process_time()
            solver.solve(y).check()
            row[way] = 1e3 * (time.process_time() - begun) / len(y)
        rows.append(row)
    return rows


def main() -> None:
    options = parser(__doc__).parse_args()
    torch.set_num_threads(1)
    rows = {"against general solvers": against_general_solvers(options.quick), "parts": parts(options.quick)}
    report("Exact facility location", rows, options.json, command_line())


if __name__ == "__main__":
    main()
