"""Layers of others for one program, all adapters in one place; each runs in the environment that has it.

    run_peers.py layer DATA WAY          forward and backward, one of LAYERS

    min over w of (S y + d)ᵀw + ½ wᵀQ w   s.t.   A w = b + B y,   G w ≤ h,   l ≤ w ≤ u

`given` says that Q is given as a matrix; else it is RᵀR + diag(δ), and cvxpylayers and Moreau have z = R w as further variables, which
is faster for them. Peers are asked for TOLERANCE, qpth for its default. Solvers are set up once, where their interface can; then only
costs change.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from turns import Turns, run, threads

TOLERANCE = 1e-8

Way = Callable[[Tensor], Tensor]


def by_dflearn(data: dict[str, Any], by_factor: bool = False) -> Way:
    import dflearn as dfl

    sparse = {name: sp.csr_array(data[name]) for name in ("A", "G", "S", "B")}
    Q = data["Q"] if data["given"] and not by_factor else dfl.Quadratic(data["R"], data["delta"])
    sides = {name: data[name] for name in ("b", "h", "lower", "upper", "d")}
    layer = dfl.Smoothed(dfl.Program(**sparse, **sides, Q=Q), mu=0.0)
    return lambda y: layer.solve(y).check().decision


def by_cvxpylayers(data: dict[str, Any]) -> Way:
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    n, k = len(data["d"]), 0 if data["given"] else len(data["R"])
    w, y = cp.Variable(n), cp.Parameter(data["S"].shape[1])
    A, G, S, B = (sp.csr_array(data[name]) for name in ("A", "G", "S", "B"))
    rows = []
    if data["given"]:
        curved = cp.quad_form(w, cp.psd_wrap(sp.csc_matrix(data["Q"]))) / 2
    else:
        curved = cp.sum_squares(cp.multiply(np.sqrt(data["delta"]), w)) / 2
        if k:
            z = cp.Variable(k)
            rows, curved = [z == data["R"] @ w], curved + cp.sum_squares(z) / 2
    if len(data["b"]):
        rows.append(A @ w == (data["b"] + B @ y if B.nnz else data["b"]))
    if len(data["h"]):
        rows.append(G @ w <= data["h"])
    for side, sign in (("lower", -1), ("upper", 1)):
        where = np.flatnonzero(np.isfinite(data[side]))
        if len(where):
            rows.append(sign * w[where] <= sign * data[side][where])
    cost = data["d"] @ w + (y @ (S.T @ w) if S.nnz else 0)
    layer = CvxpyLayer(cp.Problem(cp.Minimize(cost + curved), rows), [y], [w])
    arguments = {"solve_method": "Clarabel", "n_jobs_forward": 1, "n_jobs_backward": 1}
    arguments |= dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE)
    return lambda y: layer(y, solver_args=arguments)[0]


def by_qpth(data: dict[str, Any]) -> Way:
    from qpth.qp import QPFunction

    tensor = {name: torch.tensor(value) for name, value in data.items() if value.dtype.kind == "f"}
    eye = torch.eye(len(data["d"]), dtype=torch.float64)
    low, high = (torch.tensor(np.isfinite(data[side])) for side in ("lower", "upper"))
    rows = torch.cat([tensor["G"], eye[high], -eye[low]])
    sides = torch.cat([tensor["h"], tensor["upper"][high], -tensor["lower"][low]])
    solve = QPFunction(verbose=-1, check_Q_spd=False)
    none = torch.empty(0, dtype=torch.float64)

    def way(y: Tensor) -> Tensor:
        right = (tensor["A"], tensor["b"] + y @ tensor["B"].T) if len(data["b"]) else (none, none)
        return solve(tensor["Q"], y @ tensor["S"].T + tensor["d"], rows, sides, *right)

    return way


def by_moreau(data: dict[str, Any], method: str = "auto") -> Way:
    os.environ["RAYON_NUM_THREADS"] = "1"
    import moreau
    from moreau.torch import Solver

    n, k = len(data["d"]), 0 if data["given"] else len(data["R"])
    P = sp.csr_array(data["Q"] if data["given"] else np.diag(np.concatenate([data["delta"], np.ones(k)])))
    low, high = (np.flatnonzero(np.isfinite(data[side])) for side in ("lower", "upper"))
    eye = sp.csr_array(np.eye(n))
    wide = data["A"]
    if k:
        wide = sp.block_array([[sp.csr_array(wide), None], [sp.csr_array(data["R"]), -sp.eye_array(k)]])
    more = lambda part: sp.hstack([part, sp.csr_array((part.shape[0], k))])  # noqa: E731
    whole = sp.csr_array(sp.vstack([wide, more(sp.vstack([sp.csr_array(data["G"]), eye[high], -eye[low]]))]))
    right = np.concatenate([data["b"], np.zeros(k), data["h"], data["upper"][high], -data["lower"][low]])
    equalities = len(data["b"]) + k
    cones = moreau.Cones(num_zero_cones=equalities, num_nonneg_cones=len(right) - equalities)
    batch = len(data["y"])
    inner = moreau.IPMSettings(tol_gap_abs=TOLERANCE, tol_gap_rel=TOLERANCE, tol_feas=TOLERANCE)
    settings = moreau.Settings(device="cpu", batch_size=batch, enable_grad=True, ipm_settings=inner, solver=method)
    pattern = [torch.tensor(part.astype(np.int64)) for m in (P, whole) for part in (m.indptr, m.indices)]
    solver = Solver(n + k, len(right), *pattern, cones=cones, settings=settings)
    values = torch.tensor(P.data), torch.tensor(whole.data)
    S, B = np.zeros((n + k, data["y"].shape[1])), np.zeros((len(right), data["y"].shape[1]))
    S[:n], B[: len(data["b"])] = data["S"], data["B"]
    d = torch.tensor(np.concatenate([data["d"], np.zeros(k)]))
    S_, B_, right_ = torch.tensor(S.T), torch.tensor(B.T), torch.tensor(right)

    def way(y: Tensor) -> Tensor:
        return solver.solve(*values, y @ S_ + d, y @ B_ + right_).x.reshape(batch, n + k)[:, :n]

    return way


LAYERS: dict[str, Callable[[dict[str, Any]], Way]] = {
    "dflearn": by_dflearn,
    "dflearn, factor given": lambda data: by_dflearn(data, by_factor=True),
    "cvxpylayers": by_cvxpylayers,
    "qpth": by_qpth,
    "Moreau": by_moreau,
    "Moreau, interior points": lambda data: by_moreau(data, "ipm"),
}


def layer(data: dict[str, Any], turns: Turns, who: str) -> None:
    torch.set_num_threads(threads())
    incoming, costs, way = torch.tensor(data["incoming"]), torch.tensor(data["y"]), LAYERS[who](data)

    def call() -> dict[str, np.ndarray]:
        y = costs.clone().requires_grad_()
        decision = way(y)
        (decision * incoming).sum().backward()
        assert y.grad is not None
        return {"decision": decision.detach().numpy(), "gradient": y.grad.numpy()}

    turns.serve(call)


if __name__ == "__main__":
    run({"layer": layer})
