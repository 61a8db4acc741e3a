"""The times of README's rows at two commits, in turns on one machine.

    python benchmarks/speed/before_after.py TREE [--rounds 2] [--out results/bench/before_after.md]

TREE is a checkout of the earlier commit. Each round starts one process for each tree. The least time of all rounds counts.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch
from tabulate import tabulate

import dflearn as dfl
from dflearn.layers import DavisYin, Exact, Perturbed, Smoothed
from dflearn.losses import SCE, FenchelYoung, SPOPlus
from dflearn.solvers import FewRowBinary, FewRowLP, SmallLP
from harness import ROOT, least, step

HEAD = """# Before and after

`python benchmarks/speed/before_after.py TREE`: the times of README's rows at two commits, in turns on one machine, one
thread, the least of two rounds. A ratio above one: the later commit is faster.

"""


def epoch(
    name: str, make: Callable[[Any, Any], Any], *, relax: bool = False, warm: bool = False, count: int = 320
) -> Callable[[], Any]:
    """Two epochs of `fit`, or three with warm starts, from a fresh linear model."""
    problem = dfl.problems.problem_named(name)
    program = problem.program.relax() if relax else problem.program
    exact = dfl.HiGHS(problem.program.relax()) if problem.program.is_integer else problem.solver()
    data = dfl.label(problem.generate(count), exact)
    model = lambda: dfl.models.Linear(data.features.shape[-1], program.p, seed=0)  # noqa: E731
    loss = lambda: make(problem, program)  # noqa: E731
    return lambda: dfl.fit(model(), loss(), data, epochs=2 + warm, warm_start=warm, progress=False)


def measure() -> dict[str, float]:
    """What is timed → milliseconds."""
    torch.set_num_threads(1)
    ways: dict[str, Callable[[], Any]] = {}
    for name in ("SP-10", "KP-100", "CFL-50", "SP-25"):
        problem = dfl.problems.problem_named(name, seed=1)
        layer, costs = Smoothed(problem.program, 1.0), problem.generate(32).costs
        start = layer.solve(costs, None, layer.no_start(32)).start
        ways |= {f"Smoothed, {name}, batch {count}": step(layer, costs[:count]) for count in (32, 1)}
        ways[f"Smoothed, {name}, warm"] = partial(layer.solve, 1.02 * costs, None, start)
    for name in ("SP-5", "SP-15", "KP-100", "KP-500", "CFL-50"):
        for rule in ("unrolled", "jfb"):
            make = lambda _, one, rule=rule: SCE(DavisYin(one, gradient=rule))  # noqa: E731
            ways[f"SCE^DYS {rule}, {name}"] = epoch(name, make)
        for warm in (False, True):
            ways[f"SCE^smoothed{' warm' * warm}, {name}"] = epoch(name, lambda _, one: SCE(Smoothed(one)), warm=warm)
    for name in ("SP-15", "SP-25"):
        ways[f"SPO+, {name}"] = epoch(name, lambda problem, _: SPOPlus(Exact(problem.solver())), count=800)
        problem, data = dfl.problems.problem_named(name), dfl.problems.problem_named(name).generate(1000)
        ways[f"1000 labels, {name}"] = lambda problem=problem, data=data: dfl.label(data, problem.solver())
    for name in ("KP-100", "KP-400"):
        relaxed = lambda _, one: SPOPlus(Exact(FewRowLP(one)))  # noqa: E731
        ways[f"SPO+, {name}, relaxed"] = epoch(name, relaxed, relax=True, count=800)
        problem = dfl.problems.problem_named(name)
        ways[f"100 exact knapsacks, {name}"] = partial(FewRowBinary(problem.program).solve, problem.generate(100).costs)
    ways["SPO+, 5×5 grid as an LP"] = epoch("SP-5", lambda _, one: SPOPlus(Exact(SmallLP(one))), count=800)
    perturbed = lambda _, one: FenchelYoung(Perturbed(SmallLP(one), 1.0, samples=10))  # noqa: E731
    ways["PFY, 5×5 grid as an LP"] = epoch("SP-5", perturbed)
    for n in (50, 500):
        factor = sp.random_array((n // 10, n), density=1.0, rng=0, format="csr") / n**0.5
        program = dfl.Program(A=torch.ones(1, n).numpy(), b=[1.0], upper=1, Q=dfl.Quadratic(factor, [0.1] * n))
        costs = torch.randn(32, n, generator=torch.Generator().manual_seed(0))
        ways[f"quadratic, {n} assets, batch 32"] = step(Smoothed(program, 0.1), costs)
    return {name: least(way, 0.4) for name, way in ways.items()}


def of(tree: Path, *command: str) -> str:
    """What a command prints in a tree, with its package."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", help="a checkout of the earlier commit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a page of the table")
    options = parser.parse_args()
    if options.tree is None:  # in a process of one tree
        print(json.dumps(measure()))
        return
    trees = options.tree.resolve(), ROOT
    times: list[dict[str, float]] = [{}, {}]
    for _ in range(options.rounds):
        for tree, held in zip(trees, times, strict=True):
            found = json.loads(of(tree, sys.executable, str(Path(__file__).resolve())))
            held |= {row: min(number, held.get(row, number)) for row, number in found.items()}
    rows = [[row, before, times[1][row], before / times[1][row]] for row, before in times[0].items()]
    commits = [f"ms at {of(tree, 'git', 'rev-parse', '--short', 'HEAD')}" for tree in trees]
    shown = tabulate(rows, ["what", *commits, "ratio"], tablefmt="github", floatfmt=("", ".3g", ".3g", ".2f"))
    page = f"{HEAD}{shown}\n"
    print(page)
    if options.out is not None:
        options.out.write_text(page)


if __name__ == "__main__":
    main()
