"""The last milliseconds of `Smoothed`: a batch of one, large grids, warm starts, a training step, the first call, and QP solvers.

    python benchmarks/speed/milliseconds.py [--repeats 3] [--before SRC] [--parts one grids …] [--json results/bench/milliseconds.json]

One thread, CPU time, the least of all rounds; every round is a process of its own, in turns with one that runs on the source
tree SRC (of an older commit), where that is named. Forward and backward in float32, μ = 1, as in `layers.py`. Nothing: a layer
that solves nothing. Warm: from the multipliers of costs that differ by 2 %. The QP solvers solve the same instances one by one,
forward only, through their own interfaces, at tolerances 1e-8; they live in `.venv-piqp` and `.venv-moreau` (`make peers`). The first call is timed in
a copy of the source in which nothing was compiled, there again after `dfl compile`, whose CPU time is told too, and from a wheel made then.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MU, SMALL, GRIDS = 1.0, ("SP-10", "KP-100", "CFL-50"), ("SP-25", "SP-50", "SP-100")
PARTS = ("one", "grids", "training", "first", "solvers")
QP, MOREAU = (ROOT / f".venv-{name}" / "bin" / "python" for name in ("piqp", "moreau"))


def least(way: Callable[[], Any], seconds: float = 0.3) -> float:
    """The least CPU time of a call, in ms: as many calls as fit into so many seconds, three at least, after two for nothing."""
    way()
    way()
    best, begun, calls = float("inf"), time.process_time(), 0
    while calls < 3 or time.process_time() - begun < seconds:
        start = time.process_time_ns()
        way()
        best, calls = min(best, time.process_time_ns() - start), calls + 1
    return best / 1e6


def material(name: str, batch: int) -> tuple[Any, Any, Any]:
    """The relaxed program, costs, and costs that differ by 2 %."""
    import torch

    from dflearn.problems import problem_named

    problem = problem_named(name, seed=1)
    costs = problem.generate(batch, dtype=torch.float64).batch().require("costs")
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return problem.program.relax(), costs.float(), (costs * (1 + 0.02 * noise)).float()


def step(layer: Any, y: Any, start: Any = None) -> Callable[[], None]:
    """Forward and backward, with the same incoming gradient for everyone."""
    import torch

    incoming = torch.linspace(-1, 1, layer.program.n).expand(len(y), -1)

    def run() -> None:
        layer.solve(y.detach().requires_grad_(), None, start).decision.backward(incoming)

    return run


def one() -> dict[str, float]:
    """A batch of one: ours, cvxpylayers, and a layer that solves nothing."""
    import torch

    from dflearn.layers import CvxpySmoothed, Smoothed

    found = {}
    for name in SMALL:
        program, costs, near = material(name, 1)
        layer = Smoothed(program, MU)
        decision, incoming = layer(near), torch.linspace(-1, 1, program.n).expand(1, -1)
        zero = torch.zeros_like(near)

        class Nothing(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, y: Any, decision: Any = decision) -> Any:
                return decision.view_as(decision)

            @staticmethod
            def backward(ctx: Any, gradient: Any, zero: Any = zero) -> Any:
                return zero

        def nothing(near: Any = near, incoming: Any = incoming, apply: Any = Nothing.apply) -> None:
            apply(near.detach().requires_grad_()).backward(incoming)

        found[f"{name} nothing"] = least(nothing)
        found[f"{name} cold"] = least(step(layer, near))
        start = layer.solve(costs, None, layer.no_start(1)).start
        found[f"{name} warm"] = least(step(layer, near, start))
        found[f"{name} cvxpylayers"] = least(step(CvxpySmoothed(program, MU), near))
    return found


def grids() -> dict[str, float]:
    """Batches of 1, 8 and 32 on grids, ms per instance, cold and warm."""
    from dflearn.layers import Smoothed

    found = {}
    for name, batch in (("SP-25", 1), ("SP-25", 32), *((name, 8) for name in GRIDS)):
        program, costs, near = material(name, batch)
        layer = Smoothed(program, MU)
        start = layer.solve(costs, None, layer.no_start(batch)).start
        found[f"{name} {batch} cold"] = least(step(layer, near)) / batch
        found[f"{name} {batch} warm"] = least(step(layer, near, start)) / batch
    return found


def training() -> dict[str, float]:
    """A step of SCE^smoothed on KP-100 in `fit`, cold, batch 32; the kernels in it; the same loop in bare torch with no layer."""
    import numpy as np
    import torch

    from dflearn import fit, label
    from dflearn.layers import Smoothed
    from dflearn.losses import SCE
    from dflearn.models import Linear
    from dflearn.problems import problem_named
    from dflearn.solvers import HiGHS

    program = problem_named("KP-100", seed=1).program.relax()
    data = label(problem_named("KP-100", seed=1).generate(800), HiGHS(program))
    assert data.costs is not None
    layer, (count, width), epochs = Smoothed(program, MU), data.costs.shape, 4
    costs, decisions = data.costs, data.decisions
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

    steps = -(-count // 32)
    per_epoch = (least(fitted(1 + epochs)) - least(fitted(1))) / epochs  # what a run does once does not count
    return {"fit": per_epoch / steps, "kernels": least(kernels), "bare": least(bare) / epochs / steps}


def first() -> dict[str, float]:
    """CPU seconds of the first SCE through Smoothed, forward and backward, nothing compiled before."""
    import torch

    from dflearn import label
    from dflearn.layers import Smoothed
    from dflearn.losses import SCE
    from dflearn.problems import problem_named

    problem = problem_named("SP-5", seed=1)
    batch = label(problem.generate(32), problem).batch()
    loss, y = SCE(Smoothed(problem.program, MU)), torch.ones_like(batch.require("costs")).requires_grad_()
    begun = time.process_time()
    loss(y, batch).mean().backward()
    return {"first": time.process_time() - begun}


def solvers() -> dict[str, float]:
    """Ours, forward only, one instance at a time and 32 at once; what the QP solvers are to solve goes to a file."""
    import numpy as np
    import torch

    from dflearn.layers import Smoothed

    found = {}
    for name in SMALL:
        program, _, near = material(name, 8)
        layer, exact = Smoothed(program, MU), near.double()
        with torch.no_grad():
            found[f"{name} ours, one by one"] = least(lambda: [layer(exact[i : i + 1]) for i in range(8)]) / 8  # noqa: B023
            found[f"{name} ours, at once"] = least(lambda: layer(exact)) / 8  # noqa: B023
            answer = layer(exact).numpy()
        c = program.objective.vector(exact).numpy()
        sides = {"b": program.b, "h": program.h, "lower": program.lower, "upper": program.upper}
        A, G = program.A.tocoo(), program.G.tocoo()
        parts = {
            f"{k}_{part}": getattr(m, part) for k, m in (("A", A), ("G", G)) for part in ("row", "col", "data", "shape")
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "qp.npz"
            np.savez(file, c=c, mu=MU, answer=answer, **sides, **parts)
            script = Path(__file__).with_name("contenders") / "run_qp.py"
            for command in ([str(QP), str(script), str(file)], [str(MOREAU), str(script), str(file), "Moreau"]):
                told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                found |= {f"{name} {key}": value for key, value in json.loads(told.splitlines()[-1]).items()}
    return found


def measured(part: str, source: Path, rounds: int) -> dict[str, float]:
    """The least of every figure over some rounds, each in a process of its own."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, value in in_process(part, source).items():
            best[name] = min(value, best.get(name, float("inf")))
    return best


def in_process(part: str, source: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        path = os.pathsep.join(map(str, (source, Path(__file__).parent)))
        own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | ({"NUMBA_CACHE_DIR": cache} if part == "first" else {})
        command = [sys.executable, __file__, "--part", part]
        told = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def first_calls(source: Path, ahead: bool) -> dict[str, float]:
    """The first call in a copy of the source, where nothing was compiled; after `dfl compile`; and from a wheel made then."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "compiled", "*.egg-info"))
        found = in_process("first", copy)
        if ahead:
            for name in ("pyproject.toml", "README.md", "LICENSE"):
                shutil.copy(source.parent / name, folder)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            python(folder, "-m", "dflearn", "compile")
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            found["compile"] = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            found["ahead"] = in_process("first", copy)["first"]
            python(folder, "-m", "build", "--no-isolation", "--wheel")
            (wheel,), installed = Path(folder, "dist").glob("*.whl"), Path(folder) / "installed"
            python(folder, "-m", "pip", "install", "--no-deps", "--no-index", "--target", installed, wheel)
            found["wheel"] = in_process("first", installed)["first"]
    return found


def python(folder: str, *arguments: str | Path) -> None:
    """A command of this Python's in a folder, with the package in its folder src."""
    environment = os.environ | {"PYTHONPATH": str(Path(folder) / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=True)


def rows_of(part: str, now: dict[str, float], before: dict[str, float]) -> list[dict[str, Any]]:
    """What a part found as rows of a table; figures of the older tree under "before"."""
    rows: list[dict[str, Any]] = []
    if part == "one":
        for name in SMALL:
            row: dict[str, Any] = {"problem": name, "batch": 1}
            for tag, found in (("", now), ("before: ", before)):
                if found:
                    cold, nothing = found[f"{name} cold"], found[f"{name} nothing"]
                    row |= {
                        f"{tag}cold ms": cold,
                        f"{tag}warm ms": found[f"{name} warm"],
                        f"{tag}nothing ms": nothing,
                        f"{tag}cvxpylayers ms": found[f"{name} cvxpylayers"],
                        f"{tag}cvxpylayers cold ratio": found[f"{name} cvxpylayers"] / cold,
                        f"{tag}beyond nothing ms": cold - nothing,
                    }
            rows.append(row)
    elif part == "grids":
        for name, batch in (("SP-25", 1), ("SP-25", 32), *((name, 8) for name in GRIDS)):
            row = {"problem": name, "batch": batch}
            for tag, found in (("", now), ("before: ", before)):
                if found:
                    cold, warm = found[f"{name} {batch} cold"], found[f"{name} {batch} warm"]
                    row |= {
                        f"{tag}cold ms per instance": cold,
                        f"{tag}warm ms per instance": warm,
                        f"{tag}cold / warm": cold / warm,
                    }
            rows.append(row)
    elif part == "training":
        row = {"problem": "KP-100", "batch": 32}
        for tag, found in (("", now), ("before: ", before)):
            if found:
                row |= {
                    f"{tag}fit ms per step": found["fit"],
                    f"{tag}kernels ms": found["kernels"],
                    f"{tag}bare loop ms": found["bare"],
                    f"{tag}beyond kernels ms": found["fit"] - found["kernels"],
                }
        if before:
            row["share of before"] = row["beyond kernels ms"] / row["before: beyond kernels ms"]
        rows.append(row)
    elif part == "first":
        row = {"problem": "SP-5", "batch": 32, "s": now["first"], "after dfl compile s": now["ahead"]}
        row |= {"dfl compile s": now["compile"], "from a wheel s": now["wheel"]}
        rows.append(row | ({"before: s": before["first"]} if before else {}))
    else:
        for name in SMALL:
            rows.append(
                {"problem": name}
                | {key[len(name) + 1 :]: value for key, value in now.items() if key.startswith(f"{name} ")}
            )
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--part"]:  # a process of its own, maybe on an older tree
        import torch

        torch.set_num_threads(1)
        print(json.dumps(globals()[sys.argv[2]]()))
        return
    from harness import command_line, earlier, parser, report

    arguments = parser(__doc__, repeats=3)
    arguments.add_argument(
        "--before", type=Path, help="the folder src of an older commit, timed in turns with this one"
    )
    arguments.add_argument(
        "--parts", nargs="+", choices=PARTS, help="only these; the others keep what the JSON file has"
    )
    options = arguments.parse_args()
    kept = earlier(options.json, options.parts)
    subjects = dict(kept["subjects"]) if kept else {}
    for part in options.parts or PARTS:
        rounds = 1 if part == "first" else options.repeats
        now: dict[str, float] = {}
        before: dict[str, float] = {}
        for _ in range(rounds):
            for found, source in ((now, ROOT / "src"), (before, options.before)):
                if source is not None and (part != "solvers" or found is now):
                    once = first_calls(source, found is now) if part == "first" else measured(part, source, 1)
                    for key, value in once.items():
                        found[key] = min(value, found.get(key, float("inf")))
        subjects[part] = rows_of(part, now, before)
        report("The last milliseconds of the smoothed layer", subjects, options.json, command_line(kept), quiet=True)
    report("The last milliseconds of the smoothed layer", subjects, options.json, command_line(kept))


if __name__ == "__main__":
    main()
