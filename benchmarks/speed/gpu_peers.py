"""GPU peers on the instances of `gpu.py`: MPAX, qpax, qpth, and an interior-point method with dense Cholesky factors in torch.

    python benchmarks/speed/gpu_peers.py dense SP-25 material.pickle < /dev/null      # one of them, a line of JSON for each try

mpax: raPDHG, sparse, jitted and vmapped, float64, forward only. qpax (its explicit backend), qpth, dense: with gradient. dense is
Mehrotra's method, one batched Cholesky factor of M Θ Mᵀ a step, until decisions are exact to about 1e-7. Each has a process of its own, which
compiles (JAX ahead of time) and then waits for its turn: times are the median of five calls by the clock, or fewer where they take
long, without compilation and without copies to the host. Tolerances: 1e-6, and the peer's default (mpax 1e-4, qpax 1e-5,
qpth 1e-12 in at most 20 steps); of qpax 1e-8 too.

decision_error: the largest difference from our decisions, beside the largest of these; row_error: by how much the worst row or bound is
broken, beside 1 + the largest right-hand side; objective_error: beside 1 + |objective|.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

MU = 1.0
PROBLEMS = ("SP-25", "KP-500", "CFL-250")
Try = tuple[int, float | None]  # instances, tolerance or None: the default
SMALL: tuple[Try, ...] = ((32, 1e-6), (32, None))
LARGE: tuple[Try, ...] = (*SMALL, (800, 1e-6))
TRIES: dict[tuple[str, str], tuple[Try, ...]] = {  # in this order, until there is no time left
    **{("dense", name): ((32, 1e-6), (800, 1e-6)) for name in PROBLEMS},
    **{("mpax", name): LARGE for name in PROBLEMS},
    **{("qpax", name): (*(LARGE if name == "KP-500" else SMALL), (32, 1e-8)) for name in PROBLEMS},
    **{("qpth", name): SMALL if name == "KP-500" else SMALL[:1] for name in ("KP-500", "SP-25", "CFL-250")},
}
LIMIT, COMPILING, WHOLE = (
    30.0,
    100.0,
    190.0,
)  # seconds for one peer on one problem; to compile, all at once; for all of them
LONG = 2.0  # seconds of a call that is made once


def described(layer: Any, y: Any, device: str) -> dict[str, Any]:
    """A program, costs and our decisions, for processes that know nothing else."""
    program, form = layer.program, layer.program.equality_form()
    return {
        "A": program.A[form.kept], "b": program.b[form.kept], "G": program.G, "h": program.h, "lower": program.lower,
        "upper": program.upper, "c": layer.objective.vector(y).numpy(), "w": layer.solve(y.to(device)).decision.cpu().numpy(),
        "M": form.matrix, "r": form.right_hand_side(program.own_sides).reshape(-1),
        "ends": [np.array(part).reshape(-1) for part in form.bounds(program.own_sides)],
    }  # fmt: skip


def saved_material(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    from dflearn.layers import Smoothed
    from gpu import material

    paths = {}
    for name in names:
        program, y = material(name, 800)
        paths[name] = folder / f"{name}.pickle"
        paths[name].write_bytes(pickle.dumps(described(Smoothed(program, MU), y, "cuda")))
    return paths


class Waiting:
    """A peer that compiles, and runs when it is told."""

    def __init__(self, peer: str, name: str, path: Path) -> None:
        self.peer, self.name, self.log = peer, name, path.with_suffix(f".{peer}.log")
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, peer, name, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=environment,
            )  # fmt: skip
        self.ready, self.said = threading.Event(), list[dict[str, Any]]()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "ready":
                self.ready.set()
            elif line.startswith("{"):
                self.said.append(json.loads(line))
        self.ready.set()

    def _last_words(self) -> str:
        return (self.log.read_text().strip().splitlines() or ["it said nothing"])[-1][-300:]

    def rows(self, limit: float) -> list[dict[str, Any]]:
        assert self.process.stdin is not None
        why = f"more than {limit:.0f} s" if self.ready.is_set() else f"not compiled within {COMPILING:.0f} s"
        if self.ready.is_set() and limit > 0:
            try:
                self.process.stdin.write("go\n")
                self.process.stdin.flush()
                self.process.wait(limit)
                self.reader.join()
                why = self._last_words()
            except subprocess.TimeoutExpired:
                pass
            except BrokenPipeError:
                why = self._last_words()
        elif limit <= 0:
            why = "no time was left in this run"
        self.process.kill()
        self.reader.join()
        tries = TRIES[self.peer, self.name]
        rows = [{"peer": self.peer, "problem": self.name, **row} for row in self.said]
        for batch, tolerance in tries[len(rows) : len(rows) + 1]:
            rows.append(
                {"peer": self.peer, "problem": self.name, "batch": batch, "tolerance": tolerance, "failed": why}
            )
        return rows


def peer_rows(names: tuple[str, ...] = PROBLEMS, whole: float = WHOLE) -> list[dict[str, Any]]:
    """All peers, one after the other; those of JAX compile at the same time before."""
    rows, begun = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        paths = saved_material(Path(folder), names)
        for kind in (("dense",), ("mpax", "qpax"), ("qpth",)):
            waiting = [Waiting(peer, name, paths[name]) for peer, name in TRIES if name in names and peer in kind]
            try:
                until = min(time.monotonic() + COMPILING, begun + whole)
                for one in waiting:
                    one.ready.wait(max(0.1, until - time.monotonic()))
                print(f"{kind} ready after {time.monotonic() - begun:.0f} s", flush=True)
                for one in waiting:
                    for row in one.rows(min(LIMIT, begun + whole - time.monotonic())):
                        rows.append(row)
                        print(row, flush=True)
            finally:
                for one in waiting:
                    one.process.kill()
    return rows


# -- one of them --------------------------------------------------------------------------------------------------------

Run = Callable[[], Any]  # → decisions, on the device, which is through with them


def answer(peer: str, name: str, path: Path) -> Iterator[dict[str, Any]]:
    given = pickle.loads(path.read_bytes())
    tries = TRIES[peer, name]
    make = {"mpax": mpax, "qpax": qpax, "qpth": qpth, "dense": dense}[peer]
    begun = time.perf_counter()
    if peer in ("mpax", "qpax"):
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.devices()  # found once, and not by every thread
    with ThreadPoolExecutor(len(tries)) as pool:
        runs = list(pool.map(lambda one: make(given, given["c"][: one[0]], one[1]), tries))
    took = time.perf_counter() - begun
    print("ready", flush=True)
    sys.stdin.readline()
    for (batch, tolerance), run in zip(tries, runs, strict=True):
        row: dict[str, Any] = {"batch": batch, "tolerance": tolerance, "compile_s": took}
        try:
            times = []
            while len(times) < 6 and sum(times) < 1e3 * LONG:
                begun = time.perf_counter()
                found = run()
                times.append(1e3 * (time.perf_counter() - begun))
            row["ms"] = statistics.median(times[1:] or times)
            row.update(errors(given, np.asarray(found.cpu() if hasattr(found, "cpu") else found), batch))
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        yield row


def errors(given: dict[str, Any], found: np.ndarray, batch: int) -> dict[str, float]:
    w, c = given["w"][:batch], given["c"][:batch]
    rows = [found @ given["A"].T - given["b"], np.maximum(found @ given["G"].T - given["h"], 0)]
    ends = [np.maximum(given["lower"] - found, 0), np.maximum(found - given["upper"], 0)]
    sizes = 1 + max(np.abs(part).max(initial=0) for part in (given["b"], given["h"]))
    values = [(c * point + 0.5 * MU * point**2).sum(1) for point in (found, w)]
    return {
        "decision_error": float(np.abs(found - w).max() / np.abs(w).max()),
        "row_error": float(max(np.abs(part).max(initial=0) for part in (*rows, *ends)) / sizes),
        "objective_error": float((np.abs(values[0] - values[1]) / (1 + np.abs(values[1]))).max()),
    }


def mpax(given: dict[str, Any], c: np.ndarray, tolerance: float | None) -> Run:
    import jax
    import jax.numpy as jnp
    import scipy.sparse as sp
    from mpax import create_qp, raPDHG

    limits = {} if tolerance is None else {"eps_abs": tolerance, "eps_rel": tolerance}
    solver = raPDHG(**limits, verbose=False, jit=True)
    Q, A, G = sp.csr_array(sp.eye_array(c.shape[1]) * MU), given["A"], -given["G"]
    b, h, lower, upper = (jnp.array(part) for part in (given["b"], -given["h"], given["lower"], given["upper"]))

    def one(cost: Any) -> Any:
        return solver.optimize(create_qp(Q, cost, A, b, G, h, lower, upper, use_sparse_matrix=True)).primal_solution

    costs = jnp.array(c)
    run = jax.jit(jax.vmap(one)).lower(costs).compile()
    return lambda: run(costs).block_until_ready()


def inequalities(given: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """Dense A, b of independent rows, and inequalities with finite bounds among them."""
    n, low, high = len(given["lower"]), np.isfinite(given["lower"]), np.isfinite(given["upper"])
    G = np.vstack([given["G"].toarray(), np.eye(n)[high], -np.eye(n)[low]])
    h = np.concatenate([given["h"], given["upper"][high], -given["lower"][low]])
    return given["A"].toarray(), given["b"], G, h


def qpax(given: dict[str, Any], c: np.ndarray, tolerance: float | None) -> Run:
    import jax
    import jax.numpy as jnp
    import qpax as package

    A, b, G, h = (jnp.array(part) for part in inequalities(given))
    n, costs = c.shape[1], jnp.array(c)
    Q, incoming = jnp.eye(n) * MU, jnp.linspace(-1, 1, n)
    limits = {} if tolerance is None else {"solver_tol": tolerance}

    def one(cost: Any, A: Any, b: Any, G: Any, h: Any, Q: Any) -> Any:
        found, back = jax.vjp(lambda cost: package.solve_qp_primal(Q, cost, A, b, G, h, **limits), cost)
        return found, back(incoming)[0]

    run = jax.jit(jax.vmap(one, (0, *(None,) * 5))).lower(costs, A, b, G, h, Q).compile()

    def both() -> Any:
        found, slope = run(costs, A, b, G, h, Q)
        slope.block_until_ready()
        return found.block_until_ready()

    return both


def qpth(given: dict[str, Any], c: np.ndarray, tolerance: float | None) -> Run:
    sys.modules.setdefault("cvxpy", types.ModuleType("cvxpy"))  # imported there, and not used for batches
    import torch
    from qpth.qp import QPFunction

    A, b, G, h = (torch.from_numpy(part).cuda() for part in inequalities(given))
    if not len(b):
        A = b = torch.empty(0, dtype=torch.float64).cuda()  # how it is told that there are none
    n, costs = c.shape[1], torch.from_numpy(c).cuda().requires_grad_()
    Q = torch.eye(n, dtype=torch.float64).cuda() * MU
    incoming = torch.linspace(-1, 1, n, dtype=torch.float64).cuda().expand(len(c), -1)
    limits = {} if tolerance is None else {"eps": tolerance, "maxIter": 40}

    def run() -> torch.Tensor:
        found: torch.Tensor = QPFunction(verbose=-1, check_Q_spd=False, **limits)(Q, costs, G, h, A, b)
        torch.autograd.grad(found, costs, incoming)
        torch.cuda.synchronize()
        return found.detach()

    return run


def dense(given: dict[str, Any], c: np.ndarray, tolerance: float | None) -> Run:
    from gpu_dense import solver

    return solver(given, c)


if __name__ == "__main__":
    for line in answer(sys.argv[1], sys.argv[2], Path(sys.argv[3])):
        print(json.dumps(line), flush=True)
