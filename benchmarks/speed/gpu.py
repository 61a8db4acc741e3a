"""`Smoothed` on a GPU: forward and backward in float64 beside the CPU of the same machine and GPU peers; a training epoch.

    python benchmarks/speed/gpu.py [--parts layer training captured cpu davis_yin crossover images peers] [--json results/gpu/gpu.json]
    python benchmarks/speed/gpu.py --small                                                        # for compute-sanitizer
    python benchmarks/speed/gpu.py --page results/gpu/README.md --json results/gpu/gpu.json --figure docs/images/gpu-crossover.svg

Times on the GPU are CUDA events around one call, the median of twelve, compilation apart; μ = 1; costs differ from instance to
instance. Errors are the largest differences from the CPU's decisions and gradients over 64 instances (16 of SP-50), relative
to the largest number there. CPU: the same call by the clock on the wall, on all cores. Peers (`gpu_peers.py`) solve the same
instances. Training: one epoch of SCE through the layer on 800 instances in batches of 32, as `fit` counts it; a step of a
convolutional net on images. --small: two instances each of small problems. Give `cpu` and `crossover` a process of their own:
threads that torch's other work started would take the cores from the kernels'.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PROBLEMS = ("SP-25", "KP-500", "CFL-250", "SP-50", "SP-100")
BATCHES = (32, 256, 800, 4096)
SMALL = (1, 2, 4, 8, 16, 32, 64)
MOST = {"SP-100": 32}  # instances, where more would take too long
COMPARED = {"SP-50": 16, "SP-100": 4}
MU = 1.0


def milliseconds(way: Callable[[], Any], repeats: int = 12) -> float:
    """The median time of a call on the GPU."""
    for _ in range(3):
        way()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        way()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


def material(name: str, count: int) -> tuple[Any, Tensor]:
    """The program and costs: those of the generator, then the same with noise of 10 %."""
    from dflearn.problems import problem_named

    problem = problem_named(name, seed=1)
    known = problem.generate(COMPARED.get(name, 64), dtype=torch.float64).batch().require("costs")
    costs = known[torch.arange(count) % len(known)].clone()
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    costs[len(known) :] *= 1 + 0.1 * noise[len(known) :]
    return problem.program.relax(), costs


def forward_and_back(layer: Any, y: Tensor, start: Tensor | None = None) -> Callable[[], tuple[Any, Tensor]]:
    incoming = torch.linspace(-1, 1, layer.program.n, dtype=torch.float64, device=y.device).expand(len(y), -1)

    def run() -> tuple[Any, Tensor]:
        costs = y.detach().requires_grad_()
        solution = layer.solve(costs, None, start)
        solution.decision.backward(incoming)
        assert costs.grad is not None
        return solution, costs.grad

    return run


def layer_rows() -> list[dict[str, Any]]:
    from dflearn.layers import Smoothed

    rows = []
    for name in PROBLEMS:
        program, costs = material(name, COMPARED.get(name, 64))
        begun = time.perf_counter()
        layer, plain = Smoothed(program, MU), Smoothed(program, MU)
        solution, slope = forward_and_back(layer, costs.cuda())()
        torch.cuda.synchronize()
        first = time.perf_counter() - begun
        wanted, wanted_slope = forward_and_back(plain, costs)()
        errors = {
            "decision_error": relative(solution.decision, wanted.decision),
            "gradient_error": relative(slope, wanted_slope),
            "residual": float(solution.residual.max()),
        }
        for batch in (size for size in BATCHES if size <= MOST.get(name, size)):
            y = material(name, batch)[1].cuda()
            torch.cuda.reset_peak_memory_stats()
            solution, _ = forward_and_back(layer, y)()
            both = milliseconds(forward_and_back(layer, y))
            start = layer.solve(y, None, layer.no_start(batch).cuda()).start
            near = y * (
                1 + 0.02 * torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype).cuda()
            )
            warm = milliseconds(forward_and_back(layer, near, start))
            rows.append(
                {
                    "problem": name, "batch": batch, "ms": both, "warm_ms": warm, **errors,
                    "unfinished": int((solution.status != 0).sum()), "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
                    "first_call_s": first, "where": str(layer.blocks(y.device)),
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
        torch.cuda.empty_cache()
    return rows


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().cpu() - wanted.detach()).abs().max() / wanted.detach().abs().max())


def cpu_rows() -> list[dict[str, Any]]:
    from dflearn.layers import Smoothed

    rows = []
    for name in PROBLEMS:
        for batch in (size for size in BATCHES[:3] if size <= MOST.get(name, size)):
            program, y = material(name, batch)
            run = forward_and_back(Smoothed(program, MU), y)
            run()
            times = []
            for _ in range(3):
                begun = time.perf_counter()
                run()
                times.append(1e3 * (time.perf_counter() - begun))
            rows.append(
                {
                    "problem": name,
                    "batch": batch,
                    "cpu_ms": statistics.median(times),
                    "threads": torch.get_num_threads(),
                }
            )
            print(rows[-1], flush=True)
    return rows


def captured_rows() -> list[dict[str, Any]]:
    """The same calls captured as CUDA graphs: without what Python takes to launch them."""
    from dflearn.layers import Smoothed

    rows = []
    for name in PROBLEMS:
        layer = Smoothed(material(name, 1)[0], MU)
        for batch in (size for size in BATCHES if size <= MOST.get(name, size)):
            run, graph = forward_and_back(layer, material(name, batch)[1].cuda()), torch.cuda.CUDAGraph()
            run()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                run()
            rows.append({"problem": name, "batch": batch, "ms": milliseconds(graph.replay)})
            print(rows[-1], flush=True)
        torch.cuda.empty_cache()
    return rows


def training_rows() -> list[dict[str, Any]]:
    import dflearn
    from dflearn.layers import Smoothed
    from dflearn.losses import SCE
    from dflearn.problems import problem_named
    from dflearn.training import fit

    rows = []
    problem = problem_named("SP-25", seed=1)
    data = dflearn.label(problem.generate(800), problem, progress=False)
    for device in ("cuda", "cpu"):
        for warm in (False, True):
            torch.manual_seed(0)
            model = torch.nn.Linear(data.features.shape[-1], problem.program.p)
            loss = SCE(Smoothed(problem.program, MU))
            epochs = 6 if device == "cuda" else 2
            history = fit(model, loss, data, epochs=epochs, device=device, warm_start=warm, progress=False)
            seconds = [row["seconds"] for row in history.rows]
            rows.append(
                {
                    "problem": "SP-25", "device": device, "warm_start": warm, "epoch_ms": 1e3 * statistics.median(seconds[1:]),
                    "first_epoch_ms": 1e3 * seconds[0], "loss": history.rows[-1]["loss"], "after": epochs,
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def small() -> None:
    from dflearn.layers import Smoothed

    for name in ("SP-10", "KP-100", "CFL-50"):
        program, y = material(name, 2)
        layer = Smoothed(program, MU)
        solution, _ = forward_and_back(layer, y.cuda())()
        start = layer.solve(y.cuda(), None, layer.no_start(2).cuda()).start
        forward_and_back(layer, 1.02 * y.cuda(), start)()
        print(name, "unfinished:", int((solution.status != 0).sum()))


def davis_yin_rows() -> list[dict[str, Any]]:
    """A hundred iterations of `DavisYin` forward and back (jfb), in float32 and float64, beside the CPU's kernels."""
    from dflearn.layers import DavisYin

    rows = []
    for name in PROBLEMS[:4]:
        program = material(name, 1)[0]
        for batch in BATCHES[:3]:
            for dtype in (torch.float32, torch.float64):
                y = material(name, batch)[1].to(dtype)
                layer = DavisYin(program, MU)
                there, here = forward_and_back(layer, y.cuda()), forward_and_back(layer, y)
                error = relative(there()[0].decision, here()[0].decision)
                begun = time.perf_counter()
                here()
                took = 1e3 * (time.perf_counter() - begun)
                rows.append(
                    {
                        "problem": name, "batch": batch, "dtype": str(dtype).removeprefix("torch."), "ms": milliseconds(there),
                        "cpu_ms": took, "decision_error": error,
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
        torch.cuda.empty_cache()
    return rows


def crossover_rows() -> list[dict[str, Any]]:
    """Small batches, forward and back: the GPU beside one core and all cores."""
    from dflearn.layers import Smoothed

    rows, cores = [], torch.get_num_threads()
    for name in PROBLEMS[:4]:
        program = material(name, 1)[0]
        layer, plain = Smoothed(program, MU), Smoothed(program, MU)
        for batch in SMALL:
            y = material(name, batch)[1]
            row = {"problem": name, "batch": batch, "ms": milliseconds(forward_and_back(layer, y.cuda()))}
            run = forward_and_back(plain, y)
            for threads, label in ((1, "one_core_ms"), (cores, "all_cores_ms")):
                torch.set_num_threads(threads)
                run()
                times = []
                for _ in range(5):
                    begun = time.perf_counter()
                    run()
                    times.append(1e3 * (time.perf_counter() - begun))
                row[label] = statistics.median(times)
            rows.append(row)
            print(rows[-1], flush=True)
    return rows


class Pictures(torch.nn.Module):
    """Images `(*, 3, 100, 100)` → costs of the arcs of a 25 × 25 grid: the beginning of a residual network, as is usual there."""

    def __init__(self, arcs: int) -> None:
        super().__init__()
        nn = torch.nn
        block = [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), *block,
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 2, 1), nn.Softplus(),
        )  # fmt: skip
        self.arcs = arcs

    def forward(self, images: Tensor) -> Tensor:
        return 0.1 + self.body(images).flatten(1)[:, : self.arcs]


def image_rows() -> list[dict[str, Any]]:
    """A training step (SCE, Adam) of a small convolutional net on images, batch 32, and the share of the layer in it."""
    from dflearn.data import Batch
    from dflearn.layers import Smoothed
    from dflearn.losses import SCE
    from dflearn.problems import problem_named

    problem, batch = problem_named("SP-25", seed=1), 32
    data = problem.generate(batch).batch()
    torch.manual_seed(0)
    images, costs = torch.randn(batch, 3, 100, 100).cuda(), data.require("costs").cuda()
    layer = Smoothed(problem.program, MU)
    decisions, net = Smoothed(problem.program, 1e-2)(costs), Pictures(problem.program.p).cuda()
    loss, optimizer = SCE(layer), torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def step(through: Callable[[Tensor], Tensor]) -> None:
        optimizer.zero_grad()
        through(net(images)).mean().backward()
        optimizer.step()

    with_layer = milliseconds(lambda: step(lambda y: loss(y, Batch(images, costs, decisions))))
    without = milliseconds(lambda: step(lambda y: ((y - costs) * decisions).sum(-1)))
    alone = milliseconds(forward_and_back(layer, net(images).detach()))
    row = {
        "problem": "SP-25", "batch": batch, "step_ms": with_layer, "step_without_layer_ms": without, "layer_ms": alone,
        "share": 1 - without / with_layer, "parameters": sum(part.numel() for part in net.parameters()),
    }  # fmt: skip
    print(row, flush=True)
    return [row]


def peer_rows() -> list[dict[str, Any]]:
    from gpu_peers import peer_rows as found

    return found()


PARTS = {
    "layer": layer_rows, "training": training_rows, "captured": captured_rows, "cpu": cpu_rows, "davis_yin": davis_yin_rows,
    "crossover": crossover_rows, "images": image_rows, "peers": peer_rows,
}  # fmt: skip


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    found["driver"] = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    for package in ("torch", "numpy", "scipy", "numba", "jax", "mpax", "qpax"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {"cores": str(os.cpu_count())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--page", type=Path, help="write the tables of --json there, and measure nothing")
    parser.add_argument("--figure", type=Path, help="with --page: draw the crossover there")
    options = parser.parse_args()
    if options.page:
        from gpu_page import figure, page

        found = json.loads(options.json.read_text())
        options.page.write_text(page(found))
        if options.figure:
            figure(found, options.figure)
        return
    if options.small:
        small()
        return
    found: dict[str, Any] = {"versions": versions()}
    print(found["versions"], flush=True)
    for part in options.parts:
        found[part] = PARTS[part]()
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
