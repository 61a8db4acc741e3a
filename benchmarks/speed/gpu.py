"""`Smoothed` on a GPU: forward and backward in float64 beside the CPU of the same machine and GPU peers; a training epoch.

    python benchmarks/speed/gpu.py [--parts layer training cpu peers captured] [--json results/gpu/gpu.json] [--small]
    python benchmarks/speed/gpu.py --page results/gpu/README.md --json results/gpu/gpu.json      # the tables of such a file

Times on the GPU are CUDA events around one call, the median of twelve, compilation apart; μ = 1; costs differ from instance to
instance. Errors are the largest differences from the CPU's decisions and gradients over 64 instances (16 of SP-50), relative
to the largest number there. CPU: the same call by the clock on the wall, on all cores. Peers solve the same instances: MPAX
(raPDHG, sparse, jitted and vmapped, float64, 1e-6, forward only) and qpax (1e-8, with gradient), where they are installed.
Training: one epoch of SCE through the layer on 800 instances in batches of 32, as `fit` counts it.
--small: two instances each of small problems, for compute-sanitizer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PROBLEMS = ("SP-25", "KP-500", "CFL-250", "SP-50", "SP-100")
BATCHES = (32, 256, 800, 4096)
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


def peer_rows() -> list[dict[str, Any]]:
    """Each in a process of its own, so that one that fails or fills the memory hurts nobody."""
    rows = []
    tries = [
        ("mpax", "SP-25", 32),
        ("mpax", "KP-500", 32),
        ("mpax", "CFL-250", 32),
        ("qpax", "KP-500", 32),
        ("qpax", "SP-25", 32),
        ("mpax", "SP-25", 800),
        ("mpax", "KP-500", 800),
    ]
    for peer, name, batch in tries:
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [sys.executable, __file__, "--peer", peer, name, str(batch)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
            said = done.stdout.strip().splitlines()
            row = json.loads(said[-1]) if done.returncode == 0 and said else {"failed": done.stderr.strip()[-300:]}
        except subprocess.TimeoutExpired:
            row = {"failed": "more than 60 s, compilation included"}
        rows.append({"peer": peer, "problem": name, "batch": batch, **row})
        print(rows[-1], flush=True)
    return rows


def one_peer(peer: str, name: str, batch: int) -> dict[str, Any]:
    """Milliseconds of a call by the clock, after one that compiles; how far its decisions and gradients are from ours."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dflearn.layers import Smoothed

    jax.config.update("jax_enable_x64", True)
    program, y = material(name, batch)
    layer = Smoothed(program, MU)
    c = layer.objective.vector(y)
    solution, _ = forward_and_back(layer, y)()
    A, G = program.A.toarray(), program.G.toarray()
    lower, upper = program.lower, program.upper
    if peer == "mpax":
        import scipy.sparse as sp
        from mpax import create_qp, raPDHG

        solver = raPDHG(eps_abs=1e-6, eps_rel=1e-6, verbose=False, jit=True)
        matrices = sp.csr_array(sp.eye_array(program.n) * MU), program.A, -program.G
        sides = [jnp.array(part) for part in (program.b, -program.h, lower, upper)]

        def one(cost: Any) -> Any:
            problem = create_qp(
                matrices[0], cost, matrices[1], sides[0], matrices[2], *sides[1:], use_sparse_matrix=True
            )
            return solver.optimize(problem).primal_solution

        run = jax.jit(jax.vmap(one))
    else:
        import qpax

        eye = np.eye(program.n)
        some_low, some_high = np.isfinite(lower), np.isfinite(upper)
        rows = jnp.array(np.vstack([G, eye[some_high], -eye[some_low]]))
        sides = jnp.array(np.concatenate([program.h, upper[some_high], -lower[some_low]]))
        kept = program.equality_form().kept

        def one(cost: Any) -> Any:
            return qpax.solve_qp_primal(
                jnp.array(eye * MU), cost, jnp.array(A[kept]), jnp.array(program.b[kept]), rows, sides, solver_tol=1e-8
            )

        incoming = jnp.linspace(-1, 1, program.n)
        run = jax.jit(jax.vmap(lambda cost: jax.vjp(one, cost)[1](incoming)[0] * 0 + one(cost)))
    costs = jnp.array(c.numpy())
    begun = time.perf_counter()
    found = np.asarray(run(costs).block_until_ready())
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    run(costs).block_until_ready()
    took = 1e3 * (time.perf_counter() - begun)
    return {
        "ms": took,
        "first_call_s": first,
        "decision_error": float(np.abs(found - solution.decision.detach().numpy()).max()),
    }


def small() -> None:
    from dflearn.layers import Smoothed

    for name in ("SP-10", "KP-100", "CFL-50"):
        program, y = material(name, 2)
        layer = Smoothed(program, MU)
        solution, _ = forward_and_back(layer, y.cuda())()
        start = layer.solve(y.cuda(), None, layer.no_start(2).cuda()).start
        forward_and_back(layer, 1.02 * y.cuda(), start)()
        print(name, "unfinished:", int((solution.status != 0).sum()))


PARTS = {
    "layer": layer_rows, "training": training_rows, "cpu": cpu_rows, "peers": peer_rows, "captured": captured_rows,
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


def page(found: dict[str, Any]) -> str:
    """The results as a document."""
    asked = {
        "SP-25": (2.5, 4, 8, 32),
        "KP-500": (0.4, 0.5, 1, 3),
        "CFL-250": (1.2, 3, 6, 26),
        "SP-50": (15, 30, 80, 400),
        "SP-100": (150,),
    }
    layer = {(row["problem"], row["batch"]): row for row in found["layer"]}
    cpu = {(row["problem"], row["batch"]): row["cpu_ms"] for row in found["cpu"]}
    replayed = {(row["problem"], row["batch"]): f"{row['ms']:.3g}" for row in found.get("captured", [])}
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    lines = [
        "# `Smoothed` on a GPU",
        "",
        f"Measured by `python benchmarks/speed/gpu.py`, which says how: {versions}.",
        "",
        "Forward and backward of a batch through the layer, float64, ms: on the GPU, called from Python; the same, captured as a CUDA graph; from multipliers of costs that differ by 2 % (warm), on all",
        "cores of the same machine's CPU, and the ratio of the latter to the first. Asked: the target that was set beforehand.",
        "",
        "| problem | batch | GPU | captured | asked | warm | CPU | ratio | decisions off by | gradients off by | peak MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (name, batch), row in layer.items():
        other = cpu.get((name, batch))
        wanted = asked[name][BATCHES.index(batch)]
        beside = ("–", "–") if other is None else (f"{other:.3g}", f"{other / row['ms']:.1f}")
        lines.append(
            f"| {name} | {batch} | {row['ms']:.3g} | {replayed.get((name, batch), '–')} | {wanted} | {row['warm_ms']:.3g} | {beside[0]} | {beside[1]} | "
            f"{row['decision_error']:.0e} | {row['gradient_error']:.0e} | {row['peak_mib']:.0f} |"
        )
    if "note" in found:
        lines += ["", found["note"]]
    lines += ["", "Where: " + "; ".join(f"{name}: {layer[name, 32]['where']}" for name in PROBLEMS) + ".", ""]
    lines += ["| peer | problem | batch | ms | ours | ratio | decisions off by |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in found["peers"]:
        ours = layer[row["problem"], row["batch"]]["ms"]
        told = (
            f"{row['ms']:.0f} | {ours:.3g} | {row['ms'] / ours:.0f} | {row['decision_error']:.0e}"
            if "ms" in row
            else f"{row['failed'].splitlines()[-1][:120]} | {ours:.3g} | | "
        )
        lines.append(f"| {row['peer']} | {row['problem']} | {row['batch']} | {told} |")
    lines += [
        "",
        "| an epoch of SCE, SP-25, 800 instances, batch 32 | warm starts | ms | first epoch |",
        "|---|---|---:|---:|",
    ]
    for row in found["training"]:
        lines.append(
            f"| {row['device']} | {'yes' if row['warm_start'] else 'no'} | {row['epoch_ms']:.0f} | {row['first_epoch_ms']:.0f} |"
        )
    lines += [
        "",
        "[gpu.json](gpu.json) holds all numbers, [tests.log](tests.log) the tests on that machine, with memory and race checks.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--peer", nargs=3, metavar=("NAME", "PROBLEM", "BATCH"), help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, help="write the tables of --json there, and measure nothing")
    options = parser.parse_args()
    if options.page:
        options.page.write_text(page(json.loads(options.json.read_text())))
        return
    if options.small:
        small()
        return
    if options.peer:
        print(json.dumps(one_peer(options.peer[0], options.peer[1], int(options.peer[2]))))
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
