"""`Smoothed` on a GPU: forward and backward in float64 beside the CPU of the same machine; a training epoch.

    python benchmarks/speed/gpu.py --json results/gpu/gpu.json                  # all of it, in one run (about six minutes)
    python benchmarks/speed/gpu.py --quick --json quick.json                    # a little of everything
    python benchmarks/speed/gpu.py --small                                      # two instances each, for compute-sanitizer
    python benchmarks/speed/gpu.py --json results/gpu/gpu.json --pages          # documents of what was measured

Times on the GPU are CUDA events around one call, the median of twelve, compilation apart; μ = 1; costs differ from instance to
instance. Errors are the largest differences from the CPU's decisions and gradients over 64 instances (16 of SP-50), relative
to the largest number there. The CPU comes first, in a process of its own, before anything else has threads. Training: one epoch of SCE through the layer on 800 instances in batches of 32, as `fit`
counts it.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dflearn
import dflearn as dfl
from dflearn.studies.record import installed
from gpu_page import documented, figure, page
from harness import ROOT, Row, Rows

MOST = {"SP-100": 32}  # instances, where more would take too long
COMPARED = {"SP-50": 16, "SP-100": 4}
CLEAN = {
    "CUDA_VISIBLE_DEVICES": "", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
MU = 1.0


@dataclass(frozen=True)
class Extent:
    """How much is measured: problems and batches, small batches, those of `DavisYin`; seconds for the CPU."""

    problems: tuple[str, ...] = ("SP-25", "KP-500", "CFL-250", "SP-50", "SP-100")
    batches: tuple[int, ...] = (32, 256, 800, 4096)
    small: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    splitting: tuple[str, ...] = ("SP-25", "KP-500", "CFL-250", "SP-50", "SP-5", "CFL-50")
    splitting_batches: tuple[int, ...] = (32, 800)
    cores_s: float = 140.0

    def of(self, name: str) -> list[int]:
        return [size for size in self.batches if size <= MOST.get(name, size)]


WHOLE = Extent()
QUICK = Extent(("SP-25", "KP-500"), (32, 800), (1, 32), ("SP-25", "KP-500"))


def milliseconds(way: Callable[[], Any], device: str = "cuda") -> float:
    """The median time of a call: of twelve by CUDA events on the GPU, of five by the clock on the CPU."""
    times: list[float] = []
    if device == "cuda":
        for _ in range(3):
            way()
        torch.cuda.synchronize()
        for _ in range(12):
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            way()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last))
    else:
        way()
        while len(times) < 5 and sum(times) < 4000:
            begun = time.perf_counter()
            way()
            times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times)


def told(row: Row) -> Row:
    print(row, flush=True)
    return row


def material(name: str, count: int) -> tuple[Any, Tensor]:
    """The program and costs: those of the generator, then the same with noise of 10 %."""
    problem = dfl.problems.problem_named(name, seed=1)
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


def layer_rows(extent: Extent) -> Rows:
    rows = []
    for name in extent.problems:
        program, costs = material(name, COMPARED.get(name, 64))
        begun = time.perf_counter()
        layer, plain = dfl.Smoothed(program, MU), dfl.Smoothed(program, MU)
        solution, slope = forward_and_back(layer, costs.cuda())()
        torch.cuda.synchronize()
        first = time.perf_counter() - begun
        wanted, wanted_slope = forward_and_back(plain, costs)()
        known = {
            "decision_error": relative(solution.decision, wanted.decision), "gradient_error": relative(slope, wanted_slope),
            "residual": float(solution.residual.max()), "first_call_s": first,
        }  # fmt: skip
        for batch in extent.of(name):
            y = material(name, batch)[1].cuda()
            torch.cuda.reset_peak_memory_stats()
            run = forward_and_back(layer, y)
            unfinished = int((run()[0].status != 0).sum())
            row = {"problem": name, "batch": batch, "ms": milliseconds(run), **known, "unfinished": unfinished}
            row |= {"peak_mib": torch.cuda.max_memory_allocated() / 2**20, "where": str(layer.blocks(y.device))}
            start = layer.solve(y, None, layer.no_start(batch).cuda()).start
            noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype).cuda()
            row["warm_ms"] = milliseconds(forward_and_back(layer, y * (1 + 0.02 * noise), start))
            rows.append(told(row | {"captured_ms": captured(run)}))
        torch.cuda.empty_cache()
    return rows


def layer_rows_of_cores(extent: Extent) -> Rows:
    rows = []
    for name, batch in ((problem, size) for problem in extent.problems for size in extent.of(problem)):
        program, y = material(name, batch)
        ms = milliseconds(forward_and_back(dfl.Smoothed(program, MU), y), "cpu")
        rows.append(told({"problem": name, "batch": batch, "ms": ms, "threads": torch.get_num_threads()}))
    return rows


def captured(run: Callable[[], Any]) -> float:
    """The same call as a CUDA graph: without what Python takes to launch it."""
    graph = torch.cuda.CUDAGraph()
    run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        run()
    return milliseconds(graph.replay)


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().cpu() - wanted.detach()).abs().max() / wanted.detach().abs().max())


def training_rows(_: Extent, device: str = "cuda") -> Rows:
    rows, problem = [], dfl.problems.problem_named("SP-25", seed=1)
    data = dflearn.label(problem.generate(800), problem, progress=False)
    for warm in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(data.features.shape[-1], problem.program.p)
        loss, epochs = dfl.losses.SCE(dfl.Smoothed(problem.program, MU)), 6 if device == "cuda" else 4
        history = dfl.fit(model, loss, data, epochs=epochs, device=device, warm_start=warm, progress=False)
        seconds = [row["seconds"] for row in history.rows]
        times = {"epoch_ms": 1e3 * statistics.median(seconds[1:]), "first_epoch_ms": 1e3 * seconds[0]}
        after = {"loss": history.rows[-1]["loss"], "after": epochs}
        rows.append(told({"problem": "SP-25", "device": device, "warm_start": warm} | times | after))
    return rows


def small() -> None:
    for name in ("SP-10", "KP-100", "CFL-50"):
        program, y = material(name, 2)
        layer = dfl.Smoothed(program, MU)
        solution, _ = forward_and_back(layer, y.cuda())()
        start = layer.solve(y.cuda(), None, layer.no_start(2).cuda()).start
        forward_and_back(layer, 1.02 * y.cuda(), start)()
        print(name, "unfinished:", int((solution.status != 0).sum()))
        for gradient in ("jfb", "unrolled"):
            splitting = dfl.DavisYin(program, MU, iterations=10, gradient=gradient)
            for dtype in (torch.float32, torch.float64):
                forward_and_back(splitting, y.to("cuda", dtype))()
        dfl.DavisYin(program, MU, iterations=10, tolerance=1e-3).solve(y.cuda())


def davis_yin_rows(extent: Extent, device: str = "cuda") -> Rows:
    """A hundred iterations of `DavisYin`, forward and backward (jfb), in float32 and float64."""
    rows = []
    for name in extent.splitting:
        program, errors = material(name, 1)[0], {}
        layer = dfl.DavisYin(program, MU)
        for batch, dtype in itertools.product(extent.splitting_batches, (torch.float32, torch.float64)):
            y = material(name, batch)[1].to(dtype)
            run = forward_and_back(layer, y.to(device))
            row = {"problem": name, "batch": batch, "dtype": str(dtype).removeprefix("torch.")}
            row["ms"] = milliseconds(run, device)
            if device == "cuda":
                if batch == extent.splitting_batches[0]:
                    errors[dtype] = relative(run()[0].decision, dfl.DavisYin(program, MU).solve(y).decision)
                row |= {"captured_ms": captured(run), "decision_error": errors[dtype], "way": way_of(layer, y)}
            rows.append(told(row))
        if device == "cuda":
            torch.cuda.empty_cache()
    return rows


def way_of(layer: Any, y: Tensor) -> str:
    from dflearn.engine.cuda.splitting import SplittingBlocks

    blocks = SplittingBlocks.fitting(layer.rows, y.dtype, torch.device("cuda", 0), len(y))
    return "products in torch" if blocks is None else f"blocks of {blocks.threads} threads"


def crossover_rows(extent: Extent, device: str = "cuda") -> Rows:
    """Small batches, forward and backward: on the GPU, or on one core and on all."""
    rows, threads = [], torch.get_num_threads()
    columns = {"ms": threads} if device == "cuda" else {"one_core_ms": 1, "all_cores_ms": threads}
    for name in extent.problems[:4]:
        layer = dfl.Smoothed(material(name, 1)[0], MU)
        for batch in extent.small:
            row: Row = {"problem": name, "batch": batch}
            for label, count in columns.items():
                torch.set_num_threads(count)
                row[label] = milliseconds(forward_and_back(layer, material(name, batch)[1].to(device)), device)
            rows.append(told(row))
    return rows


def cores_rows(extent: Extent) -> dict[str, Any]:
    """What the CPU takes, in a process that nothing else has threads in."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cores.json"
        environment = {**os.environ, **CLEAN, "OMP_NUM_THREADS": str(cores())}
        command = [sys.executable, __file__, "--cores", str(path), *(["--quick"] if extent is QUICK else [])]
        try:
            failed: Any = subprocess.run(command, env=environment, check=False, timeout=extent.cores_s).returncode
        except subprocess.TimeoutExpired:
            failed = f"more than {extent.cores_s} s"
        return {**(json.loads(path.read_text()) if path.is_file() else {}), "failed": failed}


def on_cores(extent: Extent, path: Path) -> None:
    """The CPU's part: our kernels on all cores and on one, `DavisYin`, an epoch of training. Kernels share tiles among as many
    threads as `torch.get_num_threads()` says. Threads that torch waits with in between must not spin (OMP_WAIT_POLICY), since
    they would take those cores."""
    torch.set_num_threads(cores())
    found: dict[str, Any] = {"threads": cores(), "layer": layer_rows_of_cores(extent)}
    for name, rows in (("crossover", crossover_rows), ("training", training_rows), ("davis_yin", davis_yin_rows)):
        path.write_text(json.dumps(found))
        torch.set_num_threads(cores())
        found[name] = rows(extent, "cpu")
    path.write_text(json.dumps(found))


def cores() -> int:
    return len(os.sched_getaffinity(0))


PARTS: dict[str, Callable[[Extent], Any]] = {
    "cores": cores_rows, "layer": layer_rows, "davis_yin": davis_yin_rows, "training": training_rows, "crossover": crossover_rows,
}  # fmt: skip


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    found["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return found | installed(("torch", "numpy", "scipy", "numba")) | {"cores": str(cores())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--pages", action="store_true", help="write the documents and the figure of --json, and measure nothing"
    )
    parser.add_argument("--cores", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pages:
        found, document = json.loads(options.json.read_text()), ROOT / "docs" / "notes" / "gpu.md"
        (ROOT / "results" / "gpu" / "README.md").write_text(page(found))
        document.write_text(documented(document.read_text(), found))
        figure(found, ROOT / "docs" / "images" / "gpu-crossover.svg")
        return
    extent = QUICK if options.quick else WHOLE
    if options.small:
        small()
    elif options.cores:
        on_cores(extent, options.cores)
    else:
        measure(options, extent)


def measure(options: argparse.Namespace, extent: Extent) -> None:
    found: dict[str, Any] = {}
    for part in PARTS:  # the CPU first
        begun = time.perf_counter()
        try:
            found[part] = PARTS[part](extent)
        except Exception as error:  # what was measured is kept
            found[part] = {} if part == "cores" else []
            found.setdefault("failed", {})[part] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        found.setdefault("seconds", {})[part] = round(time.perf_counter() - begun, 1)
        print(part, found["seconds"][part], "s", flush=True)
        if part != "cores":
            found["versions"] = versions()
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
