"""Small linear programs of no known structure: `SmallLP` beside HiGHS, and epochs of training beside PyEPO with Gurobi.

    python benchmarks/speed/small_lps.py [--repeats 5] [--json results/bench/small_lps.json] [--quick]

Times are CPU times on one thread, in turns. The epochs have 1,000 instances of a 5×5 grid in batches of 32, whose shortest path is
solved as a linear program like any other; PyEPO's model is its own for Gurobi.
"""

import io
import itertools
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import numpy as np
import torch

import dflearn as dfl
from harness import Rows, columns, main, medians

COUNT, BATCH, SAMPLES = 1000, 32, 10


def assignment(size: int) -> dfl.Program:
    rows = np.vstack([np.kron(np.eye(size), np.ones((1, size))), np.kron(np.ones((1, size)), np.eye(size))])
    return dfl.Program(A=rows, b=np.ones(2 * size), upper=1, name=f"assignment {size}×{size}")


def transport(sources: int, sinks: int) -> dfl.Program:
    demand = np.random.default_rng(0).integers(1, 9, sinks).astype(float)
    A, G = np.kron(np.ones((1, sources)), np.eye(sinks)), np.kron(np.eye(sources), np.ones((1, sinks)))
    h = np.full(sources, np.ceil(1.3 * demand.sum() / sources))
    return dfl.Program(A=A, b=demand, G=G, h=h, name=f"transport {sources}×{sinks}")


def sparse(n: int, equations: int, inequalities: int, density: float) -> dfl.Program:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(equations + inequalities, n)) * (rng.random((equations + inequalities, n)) < density)
    inside = rng.random(n)
    A, G = rows[:equations], rows[equations:]
    h = G @ inside + rng.random(inequalities)
    return dfl.Program(A=A, b=A @ inside, G=G, h=h, upper=2, name=f"sparse, {n} variables, {len(rows)} rows")


def programs() -> list[dfl.Program]:
    named = [dfl.problems.problem_named(name, seed=1).relaxation for name in ("SP-5", "SP-10", "CFL-50")]
    return [
        *named, assignment(4), assignment(8), assignment(10), transport(4, 8), transport(12, 20),
        sparse(30, 5, 20, 0.2), sparse(60, 10, 30, 0.2), sparse(100, 10, 60, 0.2),
    ]  # fmt: skip


def solvers(options: Any) -> Rows:
    """Microseconds per instance, costs of one sign and of both."""
    rows = []
    for program, sign in itertools.product(programs()[:: 4 if options.quick else 1], ("positive", "any")):
        rng, shape = np.random.default_rng(1), (BATCH, program.p)
        y = torch.tensor(rng.uniform(0.1, 1, shape) if sign == "positive" else rng.normal(size=shape))
        small, highs = dfl.solvers.SmallLP(program), dfl.HiGHS(program)
        torch.testing.assert_close(small.solve(y).objective, highs.solve(y).objective)
        times = medians({"SmallLP": partial(small.solve, y), "HiGHS": partial(highs.solve, y)}, options.repeats)
        tableau = "×".join(map(str, small._tableau.reference[0].shape))
        row = {"program": program.name, "costs": sign, "tableau": tableau} | columns(times, "µs", 1e6 / BATCH)
        rows.append(row | {"gain": times["HiGHS"] / times["SmallLP"]})
    return rows


def epochs(options: Any) -> Rows:
    """Seconds of an epoch of a linear model, from the same weights."""
    import pyepo
    from pyepo.model.grb import shortestPathModel

    count = 100 if options.quick else COUNT
    program = dfl.problems.problem_named("SP-5", seed=1).relaxation
    drawn = pyepo.data.shortestpath.genData(count, 5, (5, 5), deg=4, noise_width=0.5, seed=1)
    x, c = (torch.tensor(part, dtype=torch.float32) for part in drawn)
    with redirect_stdout(io.StringIO()):
        theirs = shortestPathModel((5, 5))
    theirs._model.Params.Threads = 1
    best = dfl.solvers.SmallLP(program).solve(c)
    w, z = best.decision, best.objective.float()[:, None]

    def epoch(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(x.shape[1], program.n)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split(BATCH):
            optimizer.zero_grad()
            loss(model(x[rows]), rows).backward()
            optimizer.step()

    def ours(loss: Any) -> Callable[[], None]:
        return partial(epoch, lambda p, rows: loss(p, dfl.Batch(x[rows], c[rows], w[rows])).mean())

    def perturbed(solver: dfl.Solver) -> dfl.losses.FenchelYoung:
        return dfl.losses.FenchelYoung(dfl.Perturbed(solver, 1.0, samples=SAMPLES, generator=135))

    spo, pfy = pyepo.func.SPOPlus(theirs), pyepo.func.perturbedFenchelYoung(theirs, n_samples=SAMPLES, sigma=1.0)
    rows = []
    for name, make, other in (
        (
            "SPO+",
            lambda solver: dfl.losses.SPOPlus(dfl.Exact(solver)),
            lambda p, rows: spo(p, c[rows], w[rows], z[rows]),
        ),
        (f"PFY, {SAMPLES} samples", perturbed, lambda p, rows: pfy(p, w[rows])),
    ):
        ways = {kind.__name__: ours(make(kind(program))) for kind in (dfl.solvers.SmallLP, dfl.HiGHS)}
        times = medians(ways | {"PyEPO, Gurobi": partial(epoch, other)}, options.repeats)
        gains = {f"Gurobi / {way}": times["PyEPO, Gurobi"] / times[way] for way in ways}
        rows.append({"loss": name} | columns(times, "s") | gains)
    return rows


if __name__ == "__main__":
    main("Small linear programs", __doc__, {"solvers": solvers, "epochs": epochs}, 5)
