"""QP solvers through their own interfaces: min cᵀw + (μ/2)‖w‖² over rows and bounds, one instance after the other.

    python run_qp.py qp.npz           # prints ms per instance and the largest difference from the answer given
    python run_qp.py qp.npz Moreau    # the same of Moreau, which has an environment of its own

Where an interface can, the program is set up once and only costs change. Tolerances 1e-8, one thread.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

TOLERANCE = 1e-8


Way = Callable[[np.ndarray], np.ndarray]


def by_clarabel(P: sp.csc_matrix, rows: sp.csc_matrix, sides: np.ndarray, equalities: int) -> Way:
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(sides) - equalities)]
    return lambda c: np.array(clarabel.DefaultSolver(P, c, rows, sides, cones, settings).solve().x)


def by_moreau(P: sp.csc_matrix, rows: sp.csc_matrix, sides: np.ndarray, equalities: int) -> Way:
    os.environ["RAYON_NUM_THREADS"] = "1"
    import moreau

    inner = moreau.IPMSettings(tol_gap_abs=TOLERANCE, tol_gap_rel=TOLERANCE, tol_feas=TOLERANCE)
    settings = moreau.Settings(device="cpu", ipm_settings=inner, solver="ipm")
    cones = moreau.Cones(num_zero_cones=equalities, num_nonneg_cones=len(sides) - equalities)
    whole, quadratic = sp.csr_array(rows), sp.csr_array(P)
    pattern = (quadratic.indptr, quadratic.indices, whole.indptr, whole.indices)
    solver = moreau.CompiledSolver(P.shape[0], len(sides), *pattern, cones=cones, settings=settings)
    solver.setup(quadratic.data, whole.data)
    return lambda c: np.array(solver.solve(c[None], sides[None]).x)[0]


def by_piqp(
    P: sp.csc_matrix,
    A: sp.csc_matrix,
    b: np.ndarray,
    G: sp.csc_matrix,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> Way:
    import piqp

    n = len(lower)
    inner = piqp.SparseSolver()
    inner.settings.eps_abs, inner.settings.eps_rel = TOLERANCE, TOLERANCE
    inner.setup(P, np.zeros(n), A, b, G, np.full(len(h), -np.inf), h, lower, upper)

    def solve(c: np.ndarray) -> np.ndarray:
        inner.update(c=c)
        inner.solve()
        return np.array(inner.result.x)

    return solve


def by_proxqp(
    P: sp.csc_matrix,
    A: sp.csc_matrix,
    b: np.ndarray,
    G: sp.csc_matrix,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> Way:
    import proxsuite

    n = len(lower)
    box = sp.csc_matrix(sp.vstack([G, sp.eye_array(n)]))
    low, high = np.concatenate([np.full(len(h), -1e20), lower]), np.concatenate([h, upper])
    proximal = proxsuite.proxqp.sparse.QP(n, len(b), box.shape[0])
    proximal.settings.eps_abs, proximal.settings.eps_rel = TOLERANCE, 0.0
    proximal.settings.initial_guess = proxsuite.proxqp.InitialGuess.NO_INITIAL_GUESS
    proximal.init(P, np.zeros(n), A, b, box, low, high)

    def solve(c: np.ndarray) -> np.ndarray:
        proximal.update(g=c)
        proximal.solve()
        return np.array(proximal.results.x)

    return solve


def by_highs(
    mu: float, A: sp.csc_matrix, b: np.ndarray, G: sp.csc_matrix, h: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> Way:
    import highspy

    n = len(lower)
    model = highspy.HighsLp()
    both = sp.csc_matrix(sp.vstack([A, G]))
    model.num_col_, model.num_row_ = n, both.shape[0]
    model.col_lower_, model.col_upper_, model.col_cost_ = lower, upper, np.zeros(n)
    model.row_lower_, model.row_upper_ = np.concatenate([b, np.full(len(h), -np.inf)]), np.concatenate([b, h])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = both.indptr, both.indices, both.data
    columns = np.arange(n, dtype=np.int32)

    def solve(c: np.ndarray) -> np.ndarray:
        highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("time_limit", 2.0)  # its quadratic solver may cycle; what it has then is compared
        highs.setOptionValue("threads", 1)
        highs.passModel(model)
        highs.changeColsCost(n, columns, c)
        format_ = int(highspy.HessianFormat.kTriangular)
        highs.passHessian(n, n, format_, np.arange(n + 1, dtype=np.int32), columns, np.full(n, mu))
        highs.run()
        return np.array(highs.getSolution().col_value)

    return solve


def main() -> None:
    given = np.load(sys.argv[1])
    A, G = (
        sp.csc_matrix((given[f"{k}_data"], (given[f"{k}_row"], given[f"{k}_col"])), shape=given[f"{k}_shape"])
        for k in "AG"
    )
    b, h, lower, upper, mu = given["b"], given["h"], given["lower"], given["upper"], float(given["mu"])
    n = len(lower)
    P = sp.csc_matrix(mu * sp.eye_array(n))
    rows = sp.csc_matrix(sp.vstack([A, G, sp.eye_array(n), -sp.eye_array(n)]))
    sides = np.concatenate([b, h, upper, -lower])
    finite = np.isfinite(sides)
    kept, kept_sides = sp.csc_matrix(rows[finite]), sides[finite]
    if sys.argv[2:] == ["Moreau"]:
        ways = {"Moreau": by_moreau(P, kept, kept_sides, len(b))}
    else:
        ways = {
            "Clarabel": by_clarabel(P, kept, kept_sides, len(b)),
            "PIQP": by_piqp(P, A, b, G, h, lower, upper),
            "ProxQP": by_proxqp(P, A, b, G, h, lower, upper),
            "HiGHS": by_highs(mu, A, b, G, h, lower, upper),
        }

    found: dict[str, float] = {}
    for name, way in ways.items():
        answers = [way(c) for c in given["c"]]
        best = float("inf")
        for _ in range(3):
            begun = time.process_time_ns()
            for c in given["c"]:
                way(c)
            best = min(best, time.process_time_ns() - begun)
        found[f"{name} ms"] = best / 1e6 / len(given["c"])
        found[f"{name} differs"] = float(np.abs(np.array(answers) - given["answer"]).max())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
