"""Has anything become slower? This tree beside another one, in turns: the least CPU time of each row in either.

    git worktree add ../3ecb6c8 3ecb6c8
    python benchmarks/speed/two_commits.py ../3ecb6c8 [--repeats 5] [--rows PATTERN] [--json results/bench/two_commits.json]

Both trees run in this environment, one process each with its own `src` in front, and take turns row by row. Rows: `Smoothed`
from cold and from the starts of nearby costs, `DavisYin`, HiGHS on the LP, and epochs of `fit`, on SP, KP and CFL.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROBLEMS = ("SP-10", "SP-25", "KP-100", "CFL-50")
BATCHES, MANY = (1, 32), 16
INSTANCES, EPOCHS = 800, 2  # of one call of `fit`: as many as the paper trains on
TURN = 0.25  # seconds at least of a row in one turn


def ways() -> Iterator[tuple[tuple[str, str], Callable[[], Any]]]:
    """Row by row, its problem and what is done; what both trees have by the same names."""
    import torch

    from dflearn.problems import problem_named

    torch.set_num_threads(1)
    for name in PROBLEMS:
        problem = problem_named(name, seed=1)
        for batch in BATCHES:
            for what, way in solves(problem, batch):
                yield (f"{name}, batch {batch}", what), way
        yield (f"{name}, {MANY} batches of 32", "Smoothed, warm"), warm_batches(problem)
        for what, way in epochs(problem):
            yield (f"{name}, {EPOCHS} epochs of {INSTANCES}", what), way


def solves(problem: Any, batch: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    from dflearn import HiGHS
    from dflearn.layers import DavisYin, Smoothed

    program = problem.program.relax()
    costs = problem.generate(batch, dtype=torch.float64).batch().require("costs")
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near = costs * (1 + 0.02 * noise)
    layer, solver, splitting = Smoothed(program, 1.0), HiGHS(program), DavisYin(program, 1.0)
    start = layer.solve(costs, None, layer.no_start(batch)).start
    yield "Smoothed, cold", lambda: layer.solve(near)
    yield "Smoothed, warm", lambda: layer.solve(near, None, start)
    yield "DavisYin", lambda: splitting.solve(near)
    yield "HiGHS on the LP", lambda: solver.solve(near)


def warm_batches(problem: Any) -> Callable[[], Any]:
    """From the starts of nearby costs, batch after batch: what one batch takes depends on its hardest instance."""
    import torch

    from dflearn.layers import Smoothed

    layer = Smoothed(problem.program.relax(), 1.0)
    costs = problem.generate(32 * MANY, dtype=torch.float64).batch().require("costs")
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = list((costs * (1 + 0.02 * noise)).split(32))
    starts = [layer.solve(part, None, layer.no_start(32)).start for part in costs.split(32)]

    def solve() -> None:
        for part, start in zip(parts, starts, strict=True):
            layer.solve(part, None, start)

    return solve


def epochs(problem: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    import dflearn
    from dflearn.layers import Exact, Smoothed
    from dflearn.losses import SCE, SPOPlus

    solver = problem.relaxed_solver()
    data = dflearn.label(problem.generate(INSTANCES), solver, progress=False)
    losses = {"fit, SCE of Smoothed": SCE(Smoothed(problem.program, 1.0)), "fit, SPO+": SPOPlus(Exact(solver))}
    for what, loss in losses.items():

        def fit(loss: Any = loss) -> None:
            torch.manual_seed(0)
            model = torch.nn.Linear(data.features.shape[1], problem.program.p)
            dflearn.fit(model, loss, data, epochs=EPOCHS, batch_size=32, progress=False)

        yield what, fit


def serve() -> None:
    """One tree: its rows; then for each number of a row that is read, the least CPU milliseconds of a call in this turn."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rows = list(ways())
    print(json.dumps([name for name, _ in rows]), file=answers, flush=True)
    for line in sys.stdin:
        way, least, begun = rows[int(line)][1], float("inf"), time.perf_counter()
        way()
        while least == float("inf") or time.perf_counter() - begun < TURN:
            started = time.process_time_ns()
            way()
            least = min(least, (time.process_time_ns() - started) / 1e6)
        print(json.dumps(least), file=answers, flush=True)


class Tree:
    """A process on the code of one tree."""

    def __init__(self, root: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(root.resolve() / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve"]
        self.process: Any = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.rows = [tuple(row) for row in json.loads(self.process.stdout.readline())]

    def turn(self, row: int) -> float:
        print(row, file=self.process.stdin, flush=True)
        return float(json.loads(self.process.stdout.readline()))


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    from harness import ROOT, command_line, earlier, parser, report

    arguments = parser(__doc__, repeats=5)
    arguments.add_argument("other", type=Path, help="the root of the other tree")
    arguments.add_argument("--rows", default="", help="a regular expression: only the rows that it is found in")
    options = arguments.parse_args()
    here, there = Tree(ROOT), Tree(options.other)
    assert here.rows == there.rows
    wanted = [row for row, name in enumerate(here.rows) if re.search(options.rows, ": ".join(name))]
    least = {row: [float("inf"), float("inf")] for row in wanted}
    for _ in range(options.repeats):
        for row in wanted:
            for side, tree in enumerate((there, here)):
                least[row][side] = min(least[row][side], tree.turn(row))
    git = ["git", "-C", str(options.other), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    kept = earlier(options.json, options.rows)
    rows = {(row["problem"], row["what"]): row for row in (kept["subjects"]["least CPU time"] if kept else [])}
    for row, (before, now) in least.items():
        problem, what = here.rows[row]
        rows[problem, what] = {
            "problem": problem,
            "what": what,
            f"ms at {commit}": before,
            "ms here": now,
            "times": now / before,
        }
    ordered = [rows[name] for name in here.rows if name in rows]
    command = command_line(kept).replace(str(options.other), f"../{commit}")
    report(f"Beside commit {commit}", {"least CPU time": ordered}, options.json, command)


if __name__ == "__main__":
    main()
