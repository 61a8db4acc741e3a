"""GPU peers on the instances of `gpu.py`: MPAX, qpax, qpth, and an interior-point method with dense Cholesky factors in torch.

    python benchmarks/speed/gpu_peers.py mpax SP-25 32      # one of them, as JSON

mpax: raPDHG, sparse, jitted and vmapped, float64, 1e-6, forward only; mpax-default: at its default of 1e-4. qpax: 1e-8, with
gradient. qpth: with gradient. dense: Mehrotra's method, one batched Cholesky factor of M Θ Mᵀ a step, to a gap of 1e-13, with gradient.
Times are by the clock, after one call that compiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu import MU, forward_and_back, material

TRIES = (
    ("mpax", "SP-25", 32), ("dense", "SP-25", 32), ("dense", "KP-500", 32), ("mpax", "KP-500", 32), ("dense", "CFL-250", 32),
    ("mpax", "CFL-250", 32), ("qpax", "KP-500", 32), ("dense", "SP-25", 800), ("dense", "KP-500", 800), ("mpax-default", "SP-25", 32),
    ("qpth", "KP-500", 32), ("qpax", "SP-25", 32), ("mpax", "SP-25", 800), ("mpax", "KP-500", 800), ("qpth", "SP-25", 32),
    ("mpax-default", "KP-500", 32), ("mpax-default", "CFL-250", 32),
)  # fmt: skip
LIMIT = 60  # seconds for each


def peer_rows() -> list[dict[str, Any]]:
    """Each in a process of its own, so that one that fails or fills the memory hurts nobody."""
    rows = []
    for peer, name, batch in TRIES:
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [sys.executable, __file__, peer, name, str(batch)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT, check=False)
            said = done.stdout.strip().splitlines()
            row = json.loads(said[-1]) if done.returncode == 0 and said else {"failed": done.stderr.strip()[-300:]}
        except subprocess.TimeoutExpired:
            row = {"failed": f"more than {LIMIT} s, compilation included"}
        rows.append({"peer": peer, "problem": name, "batch": batch, **row})
        print(rows[-1], flush=True)
    return rows


def one_peer(peer: str, name: str, batch: int) -> dict[str, Any]:
    """Milliseconds of a call, after one that compiles; how far its decisions are from ours."""
    from dflearn.layers import Smoothed

    program, y = material(name, batch)
    layer = Smoothed(program, MU)
    c = layer.objective.vector(y)
    solution, _ = forward_and_back(layer, y)()
    make = {"mpax": mpax, "mpax-default": lambda *given: mpax(*given, 1e-4), "qpax": qpax, "qpth": qpth, "dense": dense}
    run = make[peer](program, c)
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        found = run()
        times.append(time.perf_counter() - begun)
    error = float(np.abs(found - solution.decision.detach().numpy()).max())
    return {"ms": 1e3 * times[1], "first_call_s": times[0], "decision_error": error}


def mpax(program: Any, c: Tensor, tolerance: float = 1e-6) -> Callable[[], np.ndarray]:
    import jax
    import jax.numpy as jnp
    import scipy.sparse as sp
    from mpax import create_qp, raPDHG

    jax.config.update("jax_enable_x64", True)
    solver = raPDHG(eps_abs=tolerance, eps_rel=tolerance, verbose=False, jit=True)
    Q, A, G = sp.csr_array(sp.eye_array(program.n) * MU), program.A, -program.G
    b, h, lower, upper = (jnp.array(part) for part in (program.b, -program.h, program.lower, program.upper))

    def one(cost: Any) -> Any:
        return solver.optimize(create_qp(Q, cost, A, b, G, h, lower, upper, use_sparse_matrix=True)).primal_solution

    run, costs = jax.jit(jax.vmap(one)), jnp.array(c.numpy())
    return lambda: np.asarray(run(costs).block_until_ready())


def rows_of(program: Any) -> tuple[np.ndarray, ...]:
    """Dense A, b of independent rows, and inequalities with finite bounds among them."""
    eye, low, high = np.eye(program.n), np.isfinite(program.lower), np.isfinite(program.upper)
    kept = program.equality_form().kept
    G = np.vstack([program.G.toarray(), eye[high], -eye[low]])
    h = np.concatenate([program.h, program.upper[high], -program.lower[low]])
    return program.A.toarray()[kept], program.b[kept], G, h


def qpax(program: Any, c: Tensor) -> Callable[[], np.ndarray]:
    import jax
    import jax.numpy as jnp
    import qpax as package

    jax.config.update("jax_enable_x64", True)
    A, b, G, h = (jnp.array(part) for part in rows_of(program))
    Q, incoming, costs = jnp.eye(program.n) * MU, jnp.linspace(-1, 1, program.n), jnp.array(c.numpy())

    def one(cost: Any) -> Any:
        return package.solve_qp_primal(Q, cost, A, b, G, h, solver_tol=1e-8)

    run = jax.jit(jax.vmap(lambda cost: jax.vjp(one, cost)[1](incoming)[0] * 0 + one(cost)))
    return lambda: np.asarray(run(costs).block_until_ready())


def qpth(program: Any, c: Tensor) -> Callable[[], np.ndarray]:
    sys.modules.setdefault("cvxpy", types.ModuleType("cvxpy"))  # imported there, and not used for batches
    from qpth.qp import QPFunction

    A, b, G, h = (torch.as_tensor(part).cuda() for part in rows_of(program))
    Q, costs = torch.eye(program.n, dtype=torch.float64).cuda() * MU, c.detach().cuda().requires_grad_()
    incoming = torch.linspace(-1, 1, program.n, dtype=torch.float64).cuda().expand(len(c), -1)

    def run() -> np.ndarray:
        found = QPFunction(verbose=-1, eps=1e-8, maxIter=40, check_Q_spd=False)(Q, costs, G, h, A, b)
        torch.autograd.grad(found, costs, incoming)
        return found.detach().cpu().numpy()

    return run


def dense(program: Any, c: Tensor) -> Callable[[], np.ndarray]:
    """min cᵀw + (μ/2)‖w‖² over M (w, s) = r and bounds, forward, and back on the face that its last point shows."""
    form = program.equality_form()
    M = torch.from_numpy(form.matrix.toarray()).cuda()
    r = torch.from_numpy(form.right_hand_side(program.own_sides).reshape(-1)).cuda()
    low, high = (torch.as_tensor(np.array(part).reshape(-1)).cuda() for part in form.bounds(program.own_sides))
    n, N = program.n, M.shape[1]
    costs = torch.nn.functional.pad(c.detach(), (0, N - n)).cuda()
    mu = torch.nn.functional.pad(torch.full((n,), MU, dtype=torch.float64), (0, N - n)).cuda()
    some_low, some_high = torch.isfinite(low), torch.isfinite(high)
    low0, high0 = torch.where(some_low, low, 0.0), torch.where(some_high, high, 0.0)
    incoming = torch.nn.functional.pad(torch.linspace(-1, 1, n, dtype=torch.float64), (0, N - n)).cuda()

    def factor(theta: Tensor) -> Tensor:
        system = (M * theta[:, None, :]) @ M.T
        system.diagonal(dim1=-2, dim2=-1).add_(1e-13)
        return torch.linalg.cholesky_ex(system)[0]

    def solved(L: Tensor, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right[..., None], L)[..., 0]

    def direction(tl: Tensor, tu: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        theta, L, slope, missing, gl, gu, zl, zu = state
        right = theta * (tl / gl * some_low - tu / gu * some_high - slope)
        dy = solved(L, right @ M.T - missing)
        dw = right - theta * (dy @ M)
        return dw, dy, (tl - zl * dw) / gl * some_low, (tu + zu * dw) / gu * some_high

    def longest(step: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> Tensor:
        (dw, dzl, dzu), (gl, gu, zl, zu) = step, state[4:]
        shares = (
            -dw / gl * some_low, dw / gu * some_high, -dzl / zl.clamp(min=1e-300) * some_low, -dzu / zu.clamp(min=1e-300) * some_high,
        )  # fmt: skip
        return 1 / torch.stack([part.amax(1) for part in shares]).amax(0).clamp(min=1.0)

    def run() -> np.ndarray:
        count = len(costs)
        middle = torch.where(
            some_low & some_high,
            (low0 + high0) / 2,
            torch.where(some_low, low0 + 1, torch.where(some_high, high0 - 1, 0.0)),
        )
        w, y = middle.expand(count, N).clone(), costs.new_zeros(count, len(r))
        zl, zu = some_low.double().expand(count, N).clone(), some_high.double().expand(count, N).clone()
        pairs = float(some_low.sum() + some_high.sum())
        for _ in range(60):
            gl, gu = torch.where(some_low, w - low0, 1.0), torch.where(some_high, high0 - w, 1.0)
            slope, missing = costs + mu * w + y @ M - zl + zu, r - w @ M.T
            gap = ((gl * zl * some_low).sum(1) + (gu * zu * some_high).sum(1)) / pairs
            size, off = 1 + costs.abs().amax(1), torch.maximum(slope.abs().amax(1), missing.abs().amax(1))
            going = ((gap > 1e-13 * size) | (off > 1e-8 * size))[:, None]
            if not bool(going.any()):
                break
            theta = 1 / (mu + zl / gl + zu / gu)
            state = (theta, factor(theta), slope, missing, gl, gu, zl, zu)
            dw, dy, dzl, dzu = direction(-gl * zl, -gu * zu, state)
            a = longest((dw, dzl, dzu), state)[:, None]
            after = (
                ((gl + a * dw) * (zl + a * dzl) * some_low).sum(1) + ((gu - a * dw) * (zu + a * dzu) * some_high).sum(1)
            ) / pairs
            aim = (gap * (after / gap.clamp(min=1e-300)).clamp(0, 1) ** 3)[:, None]
            dw, dy, dzl, dzu = direction(aim - gl * zl - dw * dzl, aim - gu * zu + dw * dzu, state)
            a = 0.9995 * longest((dw, dzl, dzu), state)[:, None]
            old, new = (w, y, zl, zu), (w + a * dw, y + a * dy, zl + a * dzl, zu + a * dzu)
            w, y, zl, zu = (torch.where(going, after, before) for before, after in zip(old, new, strict=True))
        inside = (gl > zl) & (gu > zu)
        theta = torch.where(inside, 1 / mu.clamp(min=1e-10), 0.0)  # slacks are free
        v = theta * incoming
        _ = v - theta * (solved(factor(theta), v @ M.T) @ M)
        torch.cuda.synchronize()
        return w[:, :n].cpu().numpy()

    return run


if __name__ == "__main__":
    print(json.dumps(one_peer(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
