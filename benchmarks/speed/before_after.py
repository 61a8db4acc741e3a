"""The times of README's rows at two commits, in turns on one machine.

    python benchmarks/speed/before_after.py TREE [--rounds 2] [--out results/bench/before_after.md]

TREE is a checkout of the earlier commit. Each round starts one process for each tree. The least time of all rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch
from tabulate import tabulate

import dflearn as dfl
from dflearn.layers import DavisYin, Exact, Perturbed, Smoothed
from dflearn.losses import SCE, FenchelYoung, SPOPlus
from dflearn.problems import problem_named
from dflearn.program import Quadratic
from dflearn.solvers import FewRowBinary, FewRowLP, SmallLP

ROOT = Path(__file__).parents[2]


def least(function: Callable[[], Any], repeats: int = 7, seconds: float = 0.4) -> float:
    """The least milliseconds of a call: of so many calls at least, and of so many seconds."""
    function()
    times: list[float] = []
    while len(times) < repeats or sum(times) < seconds:
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return 1e3 * min(times)


def epoch(
    name: str, make: Callable[[Any, Any], Any], *, relax: bool = False, warm: bool = False, count: int = 320
) -> float:
    """Two epochs of `fit`, or three with warm starts, from a fresh linear model."""
    problem = problem_named(name)
    program = problem.program.relax() if relax else problem.program
    exact = dfl.HiGHS(problem.program.relax()) if problem.program.is_integer else problem.solver()
    data = dfl.label(problem.generate(count), exact)

    def run() -> None:
        model = dfl.models.Linear(data.features.shape[-1], program.p, seed=0)
        dfl.fit(model, make(problem, program), data, epochs=2 + warm, warm_start=warm, progress=False)

    return least(run, 4)


def step(layer: Any, costs: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        y = costs.clone().requires_grad_()
        layer(y).sum().backward()

    return run


def measure() -> dict[str, float]:
    torch.set_num_threads(1)
    found = {}
    for name in ("SP-10", "KP-100", "CFL-50", "SP-25"):
        program, costs = problem_named(name, seed=1).program, problem_named(name, seed=1).generate(32).costs
        layer = Smoothed(program, 1.0)
        start = layer.solve(costs, None, layer.no_start(32)).start
        for count in (32, 1):
            found[f"Smoothed, {name}, batch {count}"] = least(step(layer, costs[:count]), 15)
        found[f"Smoothed, {name}, warm"] = least(lambda: layer.solve(1.02 * costs, None, start), 15)  # noqa: B023
    for name in ("SP-5", "SP-15", "KP-100", "KP-500", "CFL-50"):
        for rule in ("unrolled", "jfb"):
            found[f"SCE^DYS {rule}, {name}"] = epoch(name, lambda _, one: SCE(DavisYin(one, gradient=rule)))  # noqa: B023
        for warm in (False, True):
            found[f"SCE^smoothed{' warm' * warm}, {name}"] = epoch(name, lambda _, one: SCE(Smoothed(one)), warm=warm)
    for name in ("SP-15", "SP-25"):
        found[f"SPO+, {name}"] = epoch(name, lambda problem, _: SPOPlus(Exact(problem.solver())), count=800)
        problem = problem_named(name)
        data = problem.generate(1000)
        found[f"1000 labels, {name}"] = least(lambda: dfl.label(data, problem.solver()))  # noqa: B023
    for name in ("KP-100", "KP-400"):
        found[f"SPO+, {name}, relaxed"] = epoch(
            name, lambda _, one: SPOPlus(Exact(FewRowLP(one))), relax=True, count=800
        )
        solver, costs = FewRowBinary(problem_named(name).program), problem_named(name).generate(100).costs
        found[f"100 exact knapsacks, {name}"] = least(lambda: solver.solve(costs))  # noqa: B023
    found["SPO+, 5×5 grid as an LP"] = epoch("SP-5", lambda _, one: SPOPlus(Exact(SmallLP(one))), count=800)
    found["PFY, 5×5 grid as an LP"] = epoch(
        "SP-5", lambda _, one: FenchelYoung(Perturbed(SmallLP(one), 1.0, samples=10))
    )
    for n in (50, 500):
        factor = sp.random_array((n // 10, n), density=1.0, rng=0, format="csr") / n**0.5
        program = dfl.Program(A=torch.ones(1, n).numpy(), b=[1.0], upper=1, Q=Quadratic(factor, [0.1] * n))
        costs = torch.randn(32, n, generator=torch.Generator().manual_seed(0))
        found[f"quadratic, {n} assets, batch 32"] = least(step(Smoothed(program, 0.1), costs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", help="a checkout of the earlier commit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a page of the table")
    options = parser.parse_args()
    if options.tree is None:  # in a process of one tree
        print(json.dumps(measure()))
        return
    trees = {"before": options.tree.resolve(), "after": ROOT}
    times: dict[str, dict[str, float]] = {name: {} for name in trees}
    for _ in range(options.rounds):
        for name, tree in trees.items():
            environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
            printed = subprocess.run(
                [sys.executable, __file__], env=environment, capture_output=True, text=True, check=True
            )
            for row, number in json.loads(printed.stdout).items():
                times[name][row] = min(number, times[name].get(row, number))
    rows = [[row, before, times["after"][row], before / times["after"][row]] for row, before in times["before"].items()]
    commits = [
        subprocess.run(
            ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        for tree in trees.values()
    ]
    head = ["what", f"ms at {commits[0]}", f"ms at {commits[1]}", "ratio"]
    page = "# Before and after\n\n`python benchmarks/speed/before_after.py TREE`: the times of README's rows at two commits, in turns on one machine, one\n"
    page += "thread, the least of two rounds. A ratio above one: the later commit is faster.\n\n"
    page += tabulate(rows, head, tablefmt="github", floatfmt=("", ".3g", ".3g", ".2f")) + "\n"
    print(page)
    if options.out is not None:
        options.out.write_text(page)


if __name__ == "__main__":
    main()
