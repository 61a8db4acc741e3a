"""Small linear programs of no known structure: `SmallLP` beside HiGHS, and epochs of training beside PyEPO with Gurobi.

    python benchmarks/speed/small_lps.py [--repeats 5] [--json results/bench/small_lps.json] [--quick]

Times are CPU times on one thread, in turns. The epochs have 1,000 instances of a 5×5 grid in batches of 32, whose shortest path is
solved as a linear program like any other; PyEPO's model is its own for Gurobi.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact, Perturbed
from dflearn.losses import FenchelYoung, SPOPlus
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers import HiGHS, SmallLP, Solver
from harness import Rows, main, medians

COUNT, BATCH, SAMPLES = 1000, 32, 10


def assignment(size: int) -> Program:
    rows = np.vstack([np.kron(np.eye(size), np.ones((1, size))), np.kron(np.ones((1, size)), np.eye(size))])
    return Program(A=rows, b=np.ones(2 * size), upper=1, name=f"assignment {size}×{size}")


def transport(sources: int, sinks: int) -> Program:
    demand = np.random.default_rng(0).integers(1, 9, sinks).astype(float)
    return Program(
        A=np.kron(np.ones((1, sources)), np.eye(sinks)),
        b=demand,
        G=np.kron(np.eye(sources), np.ones((1, sinks))),
        h=np.full(sources, np.ceil(1.3 * demand.sum() / sources)),
        name=f"transport {sources}×{sinks}",
    )


def sparse(n: int, equations: int, inequalities: int, density: float) -> Program:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(equations + inequalities, n)) * (rng.random((equations + inequalities, n)) < density)
    inside = rng.random(n)
    A, G = rows[:equations], rows[equations:]
    h = G @ inside + rng.random(inequalities)
    return Program(A=A, b=A @ inside, G=G, h=h, upper=2, name=f"sparse, {n} variables, {len(rows)} rows")


def programs() -> list[Program]:
    named = [problem_named(name, seed=1).relaxation for name in ("SP-5", "SP-10", "CFL-50")]
    return [
        *named, assignment(4), assignment(8), assignment(10), transport(4, 8), transport(12, 20),
        sparse(30, 5, 20, 0.2), sparse(60, 10, 30, 0.2), sparse(100, 10, 60, 0.2),
    ]  # fmt: skip


def solvers(options: Any) -> Rows:
    """Microseconds per instance, costs of one sign and of both."""
    rows = []
    for program in programs()[:: 4 if options.quick else 1]:
        for costs in ("positive", "any"):
            rng = np.random.default_rng(1)
            drawn = (
                rng.uniform(0.1, 1, (BATCH, program.p)) if costs == "positive" else rng.normal(size=(BATCH, program.p))
            )
            y, small, highs = torch.tensor(drawn), SmallLP(program), HiGHS(program)
            torch.testing.assert_close(small.solve(y).objective, highs.solve(y).objective)
            ways: dict[str, Callable[[], Any]] = {
                "SmallLP": lambda small=small, y=y: small.solve(y),
                "HiGHS": lambda highs=highs, y=y: highs.solve(y),
            }
            times = {name: 1e6 * seconds / BATCH for name, seconds in medians(ways, options.repeats).items()}
            rows.append(
                {
                    "program": program.name,
                    "costs": costs,
                    "tableau": "×".join(map(str, small._tableau.reference[0].shape)),
                    **{f"{name} µs": value for name, value in times.items()},
                    "gain": times["HiGHS"] / times["SmallLP"],
                }
            )
    return rows


def epoch(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, edges: int) -> Callable[[], Any]:
    """One epoch of a linear model from the same weights: loss(predicted, rows)."""

    def run() -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(x.shape[1], edges)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split(BATCH):
            optimizer.zero_grad()
            loss(model(x[rows]), rows).backward()
            optimizer.step()

    return run


def epochs(options: Any) -> Rows:
    """Seconds of an epoch."""
    import pyepo
    from pyepo.model.grb import shortestPathModel

    count = 100 if options.quick else COUNT
    program = problem_named("SP-5", seed=1).relaxation
    drawn = pyepo.data.shortestpath.genData(count, 5, (5, 5), deg=4, noise_width=0.5, seed=1)
    x, c = (torch.tensor(part, dtype=torch.float32) for part in drawn)
    with redirect_stdout(io.StringIO()):
        theirs = shortestPathModel((5, 5))
    theirs._model.Params.Threads = 1
    best = SmallLP(program).solve(c)
    w, z = best.decision, best.objective.float()[:, None]

    def ours(make: Callable[[Solver], Any], solver: Solver) -> Callable[[], Any]:
        loss = make(solver)
        return epoch(lambda p, rows: loss(p, Batch(x[rows], c[rows], w[rows])).mean(), x, program.n)

    spo, pfy = pyepo.func.SPOPlus(theirs), pyepo.func.perturbedFenchelYoung(theirs, n_samples=SAMPLES, sigma=1.0)
    rows = []
    makers: dict[str, Callable[[Solver], Any]] = {
        "SPO+": lambda solver: SPOPlus(Exact(solver)),
        f"PFY, {SAMPLES} samples": lambda solver: FenchelYoung(Perturbed(solver, 1.0, samples=SAMPLES, generator=135)),
    }
    others = (
        epoch(lambda p, rows: spo(p, c[rows], w[rows], z[rows]), x, program.n),
        epoch(lambda p, rows: pfy(p, w[rows]), x, program.n),
    )
    for (name, make), other in zip(makers.items(), others, strict=True):
        ways = {
            "SmallLP": ours(make, SmallLP(program)),
            "HiGHS": ours(make, HiGHS(program)),
            "PyEPO, Gurobi": other,
        }
        times = medians(ways, options.repeats)
        rows.append(
            {
                "loss": name,
                **{f"{way} s": value for way, value in times.items()},
                "Gurobi / SmallLP": times["PyEPO, Gurobi"] / times["SmallLP"],
                "Gurobi / HiGHS": times["PyEPO, Gurobi"] / times["HiGHS"],
            }
        )
    return rows


if __name__ == "__main__":
    main("Small linear programs", __doc__, {"solvers": solvers, "epochs": epochs}, 5)
