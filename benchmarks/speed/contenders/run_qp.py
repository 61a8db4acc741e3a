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
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

TOLERANCE = 1e-8

Way = Callable[[np.ndarray], np.ndarray]  # costs → decision


class Given(NamedTuple):
    """min cᵀw + (μ/2)‖w‖² over A w = b, G w ≤ h, lower ≤ w ≤ upper."""

    A: sp.csc_matrix
    G: sp.csc_matrix
    b: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    mu: float

    @property
    def P(self) -> sp.csc_matrix:
        return sp.csc_matrix(self.mu * sp.eye_array(len(self.lower)))

    @property
    def rows(self) -> tuple[sp.csc_matrix, np.ndarray]:
        """A, then all that is ≤, bounds included, with the right-hand sides."""
        eye = sp.eye_array(len(self.lower))
        whole = sp.csc_matrix(sp.vstack([self.A, self.G, eye, -eye]))
        sides = np.concatenate([self.b, self.h, self.upper, -self.lower])
        finite = np.isfinite(sides)
        return sp.csc_matrix(whole[finite]), sides[finite]


def by_clarabel(given: Given) -> Way:
    import clarabel

    P, (rows, sides), equalities = given.P, given.rows, len(given.b)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(sides) - equalities)]
    return lambda c: np.array(clarabel.DefaultSolver(P, c, rows, sides, cones, settings).solve().x)


def by_moreau(given: Given) -> Way:
    os.environ["RAYON_NUM_THREADS"] = "1"
    import moreau

    (rows, sides), equalities = given.rows, len(given.b)
    inner = moreau.IPMSettings(tol_gap_abs=TOLERANCE, tol_gap_rel=TOLERANCE, tol_feas=TOLERANCE)
    settings = moreau.Settings(device="cpu", ipm_settings=inner, solver="ipm")
    cones = moreau.Cones(num_zero_cones=equalities, num_nonneg_cones=len(sides) - equalities)
    whole, quadratic = sp.csr_array(rows), sp.csr_array(given.P)
    pattern = (quadratic.indptr, quadratic.indices, whole.indptr, whole.indices)
    solver = moreau.CompiledSolver(len(given.lower), len(sides), *pattern, cones=cones, settings=settings)
    solver.setup(quadratic.data, whole.data)
    return lambda c: np.array(solver.solve(c[None], sides[None]).x)[0]


def by_piqp(given: Given) -> Way:
    import piqp

    A, G, b, h, lower, upper, _ = given
    n = len(lower)
    inner = piqp.SparseSolver()
    inner.settings.eps_abs, inner.settings.eps_rel = TOLERANCE, TOLERANCE
    inner.setup(given.P, np.zeros(n), A, b, G, np.full(len(h), -np.inf), h, lower, upper)

    def solve(c: np.ndarray) -> np.ndarray:
        inner.update(c=c)
        inner.solve()
        return np.array(inner.result.x)

    return solve


def by_proxqp(given: Given) -> Way:
    import proxsuite

    A, G, b, h, lower, upper, _ = given
    n = len(lower)
    box = sp.csc_matrix(sp.vstack([G, sp.eye_array(n)]))
    low, high = np.concatenate([np.full(len(h), -1e20), lower]), np.concatenate([h, upper])
    proximal = proxsuite.proxqp.sparse.QP(n, len(b), box.shape[0])
    proximal.settings.eps_abs, proximal.settings.eps_rel = TOLERANCE, 0.0
    proximal.settings.initial_guess = proxsuite.proxqp.InitialGuess.NO_INITIAL_GUESS
    proximal.init(given.P, np.zeros(n), A, b, box, low, high)

    def solve(c: np.ndarray) -> np.ndarray:
        proximal.update(g=c)
        proximal.solve()
        return np.array(proximal.results.x)

    return solve


def by_highs(given: Given) -> Way:
    import highspy

    A, G, b, h, lower, upper, mu = given
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


WAYS = {"Clarabel": by_clarabel, "PIQP": by_piqp, "ProxQP": by_proxqp, "HiGHS": by_highs}


def main() -> None:
    file = np.load(sys.argv[1])
    A, G = (
        sp.csc_matrix((file[f"{k}_data"], (file[f"{k}_row"], file[f"{k}_col"])), shape=file[f"{k}_shape"]) for k in "AG"
    )
    given = Given(A, G, *(file[name] for name in ("b", "h", "lower", "upper")), mu=float(file["mu"]))
    ways = {name: make(given) for name, make in ({"Moreau": by_moreau} if "Moreau" in sys.argv else WAYS).items()}
    found: dict[str, float] = {}
    for name, way in ways.items():
        answers = [way(c) for c in file["c"]]
        best = float("inf")
        for _ in range(3):
            begun = time.process_time_ns()
            for c in file["c"]:
                way(c)
            best = min(best, time.process_time_ns() - begun)
        found[f"{name} ms"] = best / 1e6 / len(file["c"])
        found[f"{name} differs"] = float(np.abs(np.array(answers) - file["answer"]).max())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
