"""Solvers and layers of others for one program, all adapters in one place; each runs in the environment that has it.

    run_peers.py layer DATA WAY          forward and backward, one of LAYERS
    run_peers.py forward DATA WAY        one instance after the other through a solver's own interface, one of SOLVERS

    min over w of (S y + d)ᵀw + ½ wᵀQ w   s.t.   A w = b + B y,   G w ≤ h,   l ≤ w ≤ u

`given` says that Q is given as a matrix; else it is RᵀR + diag(δ), and cvxpylayers and Moreau have z = R w as further variables, which
is faster for them. Peers are asked for TOLERANCE, qpth for its default. Solvers are set up once, where their interface can; then only
costs change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from turns import Turns, threads

TOLERANCE = 1e-8

Way = Callable[[Tensor], Tensor]
Solve = Callable[[np.ndarray], np.ndarray]  # costs → decision


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
    arguments = {
        "solve_method": "Clarabel",
        **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE),
        **dict.fromkeys(("n_jobs_forward", "n_jobs_backward"), 1),
    }
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
    wide = (
        sp.block_array([[sp.csr_array(data["A"]), None], [sp.csr_array(data["R"]), -sp.eye_array(k)]])
        if k
        else data["A"]
    )
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


def stacked(data: dict[str, Any]) -> tuple[sp.csc_matrix, np.ndarray]:
    """A, then all that is ≤, finite bounds included, with the right-hand sides."""
    eye = sp.eye_array(len(data["d"]))
    whole = sp.csr_array(sp.vstack([data["A"], data["G"], eye, -eye]))
    sides = np.concatenate([data["b"], data["h"], data["upper"], -data["lower"]])
    finite = np.isfinite(sides)
    return sp.csc_matrix(whole[finite]), sides[finite]


def solve_clarabel(data: dict[str, Any]) -> Solve:
    import clarabel

    P, (rows, sides), equalities = sp.csc_matrix(data["Q"]), stacked(data), len(data["b"])
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(sides) - equalities)]
    return lambda c: np.array(clarabel.DefaultSolver(P, c, rows, sides, cones, settings).solve().x)


def solve_moreau(data: dict[str, Any]) -> Solve:
    os.environ["RAYON_NUM_THREADS"] = "1"
    import moreau

    (rows, sides), equalities = stacked(data), len(data["b"])
    inner = moreau.IPMSettings(tol_gap_abs=TOLERANCE, tol_gap_rel=TOLERANCE, tol_feas=TOLERANCE)
    settings = moreau.Settings(device="cpu", ipm_settings=inner, solver="ipm")
    cones = moreau.Cones(num_zero_cones=equalities, num_nonneg_cones=len(sides) - equalities)
    whole, P = sp.csr_array(rows), sp.csr_array(data["Q"])
    pattern = (P.indptr, P.indices, whole.indptr, whole.indices)
    solver = moreau.CompiledSolver(len(data["d"]), len(sides), *pattern, cones=cones, settings=settings)
    solver.setup(P.data, whole.data)
    return lambda c: np.array(solver.solve(c[None], sides[None]).x)[0]


def solve_piqp(data: dict[str, Any]) -> Solve:
    import piqp

    n, (P, A, G) = len(data["d"]), (sp.csc_matrix(data[name]) for name in ("Q", "A", "G"))
    inner = piqp.SparseSolver()
    inner.settings.eps_abs, inner.settings.eps_rel = TOLERANCE, TOLERANCE
    none = np.full(len(data["h"]), -np.inf)
    inner.setup(P, np.zeros(n), A, data["b"], G, none, data["h"], data["lower"], data["upper"])

    def solve(c: np.ndarray) -> np.ndarray:
        inner.update(c=c)
        inner.solve()
        return np.array(inner.result.x)

    return solve


def solve_proxqp(data: dict[str, Any]) -> Solve:
    import proxsuite

    n, h = len(data["d"]), data["h"]
    box = sp.csc_matrix(sp.vstack([data["G"], sp.eye_array(n)]))
    low, high = np.concatenate([np.full(len(h), -1e20), data["lower"]]), np.concatenate([h, data["upper"]])
    proximal = proxsuite.proxqp.sparse.QP(n, len(data["b"]), box.shape[0])
    proximal.settings.eps_abs, proximal.settings.eps_rel = TOLERANCE, 0.0
    proximal.settings.initial_guess = proxsuite.proxqp.InitialGuess.NO_INITIAL_GUESS
    proximal.init(sp.csc_matrix(data["Q"]), np.zeros(n), sp.csc_matrix(data["A"]), data["b"], box, low, high)

    def solve(c: np.ndarray) -> np.ndarray:
        proximal.update(g=c)
        proximal.solve()
        return np.array(proximal.results.x)

    return solve


def solve_highs(data: dict[str, Any]) -> Solve:
    """Q is diagonal."""
    import highspy

    n, (b, h) = len(data["d"]), (data[name] for name in "bh")
    model = highspy.HighsLp()
    both = sp.csc_matrix(np.vstack([data["A"], data["G"]]))
    model.num_col_, model.num_row_ = n, both.shape[0]
    model.col_lower_, model.col_upper_, model.col_cost_ = data["lower"], data["upper"], np.zeros(n)
    model.row_lower_, model.row_upper_ = np.concatenate([b, np.full(len(h), -np.inf)]), np.concatenate([b, h])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = both.indptr, both.indices, both.data
    columns, curve = np.arange(n, dtype=np.int32), np.diag(data["Q"]).copy()

    def solve(c: np.ndarray) -> np.ndarray:
        highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("time_limit", 2.0)  # its quadratic solver may cycle; what it has then is compared
        highs.setOptionValue("threads", 1)
        highs.passModel(model)
        highs.changeColsCost(n, columns, c)
        format_ = int(highspy.HessianFormat.kTriangular)
        highs.passHessian(n, n, format_, np.arange(n + 1, dtype=np.int32), columns, curve)
        highs.run()
        return np.array(highs.getSolution().col_value)

    return solve


LAYERS: dict[str, Callable[[dict[str, Any]], Way]] = {
    "dflearn": by_dflearn,
    "dflearn, factor given": lambda data: by_dflearn(data, by_factor=True),
    "cvxpylayers": by_cvxpylayers,
    "qpth": by_qpth,
    "Moreau": by_moreau,
    "Moreau, interior points": lambda data: by_moreau(data, "ipm"),
}
SOLVERS: dict[str, Callable[[dict[str, Any]], Solve]] = {
    "Clarabel": solve_clarabel,
    "PIQP": solve_piqp,
    "ProxQP": solve_proxqp,
    "HiGHS": solve_highs,
    "Moreau": solve_moreau,
}


def layer(data: dict[str, Any], who: str) -> Callable[[], dict[str, np.ndarray]]:
    incoming, costs, way = torch.tensor(data["incoming"]), torch.tensor(data["y"]), LAYERS[who](data)

    def call() -> dict[str, np.ndarray]:
        y = costs.clone().requires_grad_()
        decision = way(y)
        (decision * incoming).sum().backward()
        assert y.grad is not None
        return {"decision": decision.detach().numpy(), "gradient": y.grad.numpy()}

    return call


def forward(data: dict[str, Any], who: str) -> Callable[[], dict[str, np.ndarray]]:
    solve, costs = SOLVERS[who](data), data["y"] @ data["S"].T + data["d"]
    return lambda: {"decision": np.array([solve(c) for c in costs])}


def main() -> None:
    torch.set_num_threads(threads())
    subject, path, who = sys.argv[1:]
    with np.load(path) as file:
        data = dict(file)
    turns = Turns()
    turns.serve({"layer": layer, "forward": forward}[subject](data, who))


if __name__ == "__main__":
    main()
