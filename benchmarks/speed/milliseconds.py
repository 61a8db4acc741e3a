"""The last milliseconds of `Smoothed`: a batch of one, large grids, warm starts, a training step, the first call, and QP solvers.

    python benchmarks/speed/milliseconds.py [--repeats 3] [--subjects one grids …] [--json results/bench/milliseconds.json]

One thread, CPU time, the least of all calls. Forward and backward in float32, μ = 1, as in `layers.py`. Nothing: a layer
that solves nothing. Warm: from the multipliers of costs that differ by 2 %. The QP solvers solve the same instances one by one,
forward only, through their own interfaces, at tolerances 1e-8; they live in `.venv-piqp` and `.venv-moreau` (`make peers`). The first call is timed in
a copy of the source in which nothing was compiled, there again after `dfl compile`, whose CPU time is told too, and from a wheel made then.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contest import Entry, contest
from dflearn import fit, label
from dflearn.layers import CvxpySmoothed, Smoothed
from dflearn.losses import SCE
from dflearn.models import Linear
from dflearn.problems import problem_named
from dflearn.solvers import HiGHS
from harness import ROOT, Rows, costs_of, least, main, moved, step

MU, SMALL = 1.0, ("SP-10", "KP-100", "CFL-50")
GRIDS = (("SP-25", 1), ("SP-25", 32), ("SP-25", 8), ("SP-50", 8), ("SP-100", 8))
QP = {name: Entry("run_peers.py", (name,), "piqp") for name in ("Clarabel", "PIQP", "ProxQP", "HiGHS")}
QP["Moreau"] = Entry("run_peers.py", ("Moreau",), "moreau")
# The first SCE through Smoothed, forward and backward: CPU seconds.
FIRST = """import time, torch, dflearn as dfl
torch.set_num_threads(1)
problem = dfl.problems.problem_named("SP-5", seed=1)
batch = dfl.label(problem.generate(32), problem).batch()
loss, y = dfl.losses.SCE(dfl.Smoothed(problem.program, 1.0)), torch.ones_like(batch.require("costs")).requires_grad_()
begun = time.process_time()
loss(y, batch).mean().backward()
print(time.process_time() - begun)
"""


def material(name: str, batch: int) -> tuple[Any, Any, Any, Any]:
    """The layer, costs, costs that differ by 2 %, and a start of the latter from the former."""
    layer, costs = Smoothed(problem_named(name, seed=1).program.relax(), MU), costs_of(name, batch)
    start = layer.solve(costs.float(), None, layer.no_start(batch)).start
    return layer, costs.float(), moved(costs).float(), start


class Nothing(torch.autograd.Function):
    """In place of a layer: the decision is known, and so is the gradient."""

    @staticmethod
    def forward(ctx: Any, y: Any, decision: Any, zero: Any) -> Any:
        ctx.zero = zero
        return decision.view_as(decision)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return ctx.zero, None, None


def one(options: Any) -> Rows:
    """A batch of one: ours, cvxpylayers, and a layer that solves nothing."""
    rows = []
    for name in SMALL:
        layer, _, near, start = material(name, 1)
        decision, zero, incoming = (
            layer(near),
            torch.zeros_like(near),
            torch.linspace(-1, 1, layer.program.n).expand(1, -1),
        )

        def nothing(near: Any = near, decision: Any = decision, zero: Any = zero, incoming: Any = incoming) -> None:
            Nothing.apply(near.detach().requires_grad_(), decision, zero).backward(incoming)  # type: ignore[no-untyped-call]

        ways = {"cold": step(layer, near), "warm": step(layer, near, start), "nothing": nothing}
        ways["cvxpylayers"] = step(CvxpySmoothed(layer.program, MU), near)
        times = {f"{way} ms": least(call, 0.3 * options.repeats) for way, call in ways.items()}
        ratio = {"cvxpylayers cold ratio": times["cvxpylayers ms"] / times["cold ms"]}
        rows.append(
            {"problem": name, "batch": 1}
            | times
            | ratio
            | {"beyond nothing ms": times["cold ms"] - times["nothing ms"]}
        )
    return rows


def grids(options: Any) -> Rows:
    """Batches of 1, 8 and 32 on grids, ms per instance, cold and warm."""
    rows = []
    for name, batch in GRIDS:
        layer, _, near, start = material(name, batch)
        cold, warm = (least(step(layer, near, own), 0.3 * options.repeats) / batch for own in (None, start))
        row = {"cold ms per instance": cold, "warm ms per instance": warm, "cold / warm": cold / warm}
        rows.append({"problem": name, "batch": batch} | row)
    return rows


def training(options: Any) -> Rows:
    """A step of SCE^smoothed on KP-100 in `fit`, cold, batch 32; the kernels in it; the same loop in bare torch with no layer."""
    program = problem_named("KP-100", seed=1).program.relax()
    data = label(problem_named("KP-100", seed=1).generate(800), HiGHS(program))
    costs, decisions, epochs = data.batch().require("costs"), data.batch().require("decisions"), 4
    layer, (count, width) = Smoothed(program, MU), costs.shape
    model = lambda: Linear(data.features.shape[-1], width)  # noqa: E731

    def bare() -> None:
        own = model()
        optimizer = torch.optim.Adam(own.parameters(), lr=0.005)
        for _ in range(epochs):
            for rows in torch.randperm(count).split(32):
                loss = ((own(data.features[rows]) - costs[rows]) * decisions[rows]).sum(-1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def fitted(number: int) -> Callable[[], Any]:
        return lambda: fit(model(), SCE(layer), data, epochs=number, batch_size=32, progress=False, warm_start=False)

    c = np.ascontiguousarray(program.objective.vector(costs[:32].double()).numpy())

    def kernels() -> None:
        answer = layer.rows.solve(layer.rows.data(c, np.array([MU]), program.own_sides), None, layer.tolerance)
        layer.rows.project(answer.inside, answer.in_force, answer.w, np.array([-1.0]))

    steps, seconds = -(-count // 32), 0.3 * options.repeats
    per_epoch = (
        least(fitted(1 + epochs), seconds) - least(fitted(1), seconds)
    ) / epochs  # what a run does once does not count
    row = {"fit ms per step": per_epoch / steps, "kernels ms": least(kernels, seconds)}
    row |= {"bare loop ms": least(bare, seconds) / epochs / steps}
    return [
        {"problem": "KP-100", "batch": 32} | row | {"beyond kernels ms": row["fit ms per step"] - row["kernels ms"]}
    ]


def first(options: Any) -> Rows:
    """The first call in a copy of the source, where nothing was compiled; after `dfl compile`; and from a wheel made then."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "compiled", "*.egg-info"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)
        row = {"problem": "SP-5", "batch": 32, "s": first_call(copy)}
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(folder, copy, "-m", "dflearn", "compile")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        row |= {"after dfl compile s": first_call(copy)}
        row |= {"dfl compile s": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime}
        python(folder, copy, "-m", "build", "--no-isolation", "--wheel")
        (wheel,), installed = Path(folder, "dist").glob("*.whl"), Path(folder) / "installed"
        python(folder, copy, "-m", "pip", "install", "--no-deps", "--no-index", "--target", installed, wheel)
        return [row | {"from a wheel s": first_call(installed)}]


def first_call(source: Path) -> float:
    with tempfile.TemporaryDirectory() as cache:
        return float(python(cache, source, "-c", FIRST, NUMBA_CACHE_DIR=cache).splitlines()[-1])


def python(folder: str, source: Path, *arguments: str | Path, **variables: str) -> str:
    """What a command of this Python's prints, in a folder, with the package of `source`."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def one_by_one(layer: Smoothed, y: torch.Tensor) -> None:
    for one in y:
        layer(one[None])


def solvers(options: Any) -> Rows:
    """Ours, forward only, one instance at a time and 8 at once, beside QP solvers on the same instances."""
    rows = []
    for name in SMALL:
        layer, _, near, _ = material(name, 8)
        program, exact = layer.program, near.double()
        with torch.no_grad():
            ways = {"one by one": partial(one_by_one, layer, exact), "at once": partial(layer, exact)}
            row: dict[str, Any] = {"problem": name} | {f"ours, {way}": least(call) / 8 for way, call in ways.items()}
            answer = layer(exact).numpy()
        data = {"A": program.A.toarray(), "G": program.G.toarray(), "Q": MU * np.eye(program.n), "y": exact.numpy()}
        data |= {part: getattr(program, part) for part in ("b", "h", "lower", "upper", "d")}
        data["S"] = np.eye(program.n) if program.S is None else program.S.toarray()
        for peer, result in contest(QP, "forward", data, options.repeats).items():
            row |= {f"{peer} ms": 1e3 * min(result.turns[1:]) / 8}
            row |= {f"{peer} differs": float(np.abs(result.found[-1]["decision"] - answer).max())}
        rows.append(row)
    return rows


SUBJECTS = {"one": one, "grids": grids, "training": training, "first": first, "solvers": solvers}

if __name__ == "__main__":
    main("The last milliseconds of the smoothed layer", __doc__, SUBJECTS, 3)
