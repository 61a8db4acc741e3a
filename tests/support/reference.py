"""Independent references for layers: random programs of every awkward kind, Clarabel on their smoothed forms, and the
Jacobian by dense linear algebra on the face of the solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import clarabel
import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.program import Instance, Program
from dflearn.program.sides import Sides

Regularizer = Literal["squared", "norm"]
Numbers = Callable[..., np.ndarray]  # shape → random numbers
COUNT = 3  # instances of each random program


@dataclass(frozen=True)
class RandomCase:
    """A program with costs `(COUNT, p)`, instances that differ (or `None`) and a smoothing μ."""

    seed: int
    program: Program
    y: Tensor
    instance: Instance | None
    mu: float

    def rows(self) -> list[tuple[np.ndarray, Sides]]:
        """For each instance its c and its b, h, lower, upper."""
        c = self.program.objective.vector(self.y, self.instance).numpy()
        sides = self.program.sides(self.instance, len(c))
        return [(c[i], sides.row(i)) for i in range(len(c))]


def random_case(seed: int) -> RandomCase:
    """Boxes, free, fixed and one-sided variables; equalities and inequalities, some repeated, scaled or implied by others;
    integral data, so that vertices are degenerate and multipliers vanish; S and d; everything per instance or shared.

    Each instance is built around a point that it allows, some of whose entries lie at bounds and some of whose rows hold
    with equality.
    """
    rng = np.random.RandomState(seed)
    n = rng.randint(1, 11)
    integral = rng.rand() < 0.4

    def numbers(*shape: int) -> np.ndarray:
        return rng.randint(-2, 3, shape).astype(float) if integral else rng.normal(size=shape)

    lower, upper, points = _bounds_and_points(rng, n, numbers)
    A = _rows(rng, n, rng.randint(0, max(1, n // 2) + 1), numbers)
    G = _rows(rng, n, rng.randint(0, n + 2), numbers)
    if len(A) and rng.rand() < 0.4:  # equalities that follow from others, and an inequality that follows from one
        A = np.vstack([A, 2 * A[:1], A.sum(0, keepdims=True)])
        A = A[np.abs(A).sum(1) > 0]
        G = np.vstack([G, A[:1]])
    if len(G) and rng.rand() < 0.4:
        G = np.vstack([G, 3 * G[-1:], G[-1:]])
    slack = np.where(rng.rand(COUNT, len(G)) < 0.4, 0, np.abs(numbers(COUNT, len(G))))
    b, h = points @ A.T, points @ G.T + slack
    p, S = n, None
    if (kind := rng.randint(4)) == 1:
        S = -np.eye(n)
    elif kind == 2:
        p = rng.randint(1, 6)
        S = numbers(n, p)
    elif kind == 3:
        p = rng.randint(1, n + 1)
        S = np.zeros((n, p))
        S[np.arange(n), rng.randint(p, size=n)] = numbers(n)
    per_instance = bool(rng.rand() < 0.5)
    program = Program(
        A=A if len(A) else None,
        b=b[0] if len(A) else None,
        G=G if len(G) else None,
        h=h[0] if len(G) else None,
        lower=lower[0],
        upper=upper[0],
        S=S,
        d=numbers(n) if rng.rand() < 0.5 else None,
        n=n,
        name=f"random-{seed}",
    )
    instance = None
    if per_instance:
        fields = {"b": b, "h": h, "lower": lower, "upper": upper, "d": numbers(COUNT, n)}
        instance = Instance(
            **{k: torch.tensor(v) for k, v in fields.items() if v.shape[1] and (k != "d" or rng.rand() < 0.5)}
        )
    y = torch.tensor(numbers(COUNT, p) * 10.0 ** rng.randint(-1, 3))
    return RandomCase(seed, program, y, instance, float(10.0 ** rng.randint(-1, 2)))


def _bounds_and_points(
    rng: np.random.RandomState, n: int, numbers: Numbers
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds and an allowed point for each instance, `(COUNT, n)`; which bounds are infinite differs between instances."""
    center, width = numbers(COUNT, n), np.abs(numbers(COUNT, n)) + 0.5
    lower, upper = center - width, center + width
    kind = rng.randint(5, size=n)[None, :].repeat(COUNT, 0)
    kind[1:] = np.where(rng.rand(COUNT - 1, n) < 0.2, rng.randint(5, size=(COUNT - 1, n)), kind[1:])
    lower[(kind == 1) | (kind == 2)] = -np.inf
    upper[(kind == 1) | (kind == 3)] = np.inf
    lower[kind == 4] = upper[kind == 4] = center[kind == 4]
    where = rng.randint(3, size=(COUNT, n))
    points = np.where(where == 0, lower, np.where(where == 1, upper, center))
    return lower, upper, np.where(np.isfinite(points), points, center)


def _rows(rng: np.random.RandomState, n: int, count: int, numbers: Numbers) -> np.ndarray:
    rows = numbers(count, n) * (rng.rand(count, n) < 0.6)
    return rows[np.abs(rows).sum(1) > 0]


def clarabel_smoothed(
    program: Program, c: np.ndarray, mu: float, sides: Sides, regularizer: Regularizer
) -> tuple[str, np.ndarray]:
    """Status and w of min cᵀw + ½ wᵀQ w + (μ/2)‖w‖² or cᵀw + μ‖w‖₂ over A w = b, G w ≤ h, bounds; by Clarabel's own API."""
    n = program.n
    eye = sp.eye_array(n, format="csr")
    fixed = sides.lower == sides.upper
    below, above = np.isfinite(sides.lower) & ~fixed, np.isfinite(sides.upper) & ~fixed
    equal = sp.vstack([program.A, eye[fixed]])
    less = sp.vstack([program.G, -eye[below], eye[above]])
    right = np.concatenate([sides.b, sides.lower[fixed], sides.h, -sides.lower[below], sides.upper[above]])
    cones = [clarabel.ZeroConeT(equal.shape[0]), clarabel.NonnegativeConeT(less.shape[0])]
    matrix = sp.vstack([equal, less])
    if regularizer == "squared":
        whole = mu * eye if program.Q is None else mu * eye + program.Q.matrix
        quadratic, linear = sp.csc_matrix(sp.triu(whole)), c
    else:  # μ t with ‖w‖ ≤ t
        quadratic, linear = sp.csc_matrix((n + 1, n + 1)), np.append(c, mu)
        matrix = sp.block_array([[matrix, sp.csr_array((matrix.shape[0], 1))], [None, -sp.eye_array(1)], [-eye, None]])
        right = np.concatenate([right, np.zeros(n + 1)])
        cones.append(clarabel.SecondOrderConeT(n + 1))
    for tolerance in (1e-12, 1e-10):
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solution = clarabel.DefaultSolver(quadratic, linear, sp.csc_matrix(matrix), right, cones, settings).solve()
        if str(solution.status) != "InsufficientProgress":  # "AlmostSolved" at 1e-12 is better than "Solved" at 1e-10
            break
    return str(solution.status), np.array(solution.x)[:n]


def smoothed_objective(c: np.ndarray, w: np.ndarray, mu: float, regularizer: Regularizer) -> float:
    return float(c @ w + (mu / 2 * w @ w if regularizer == "squared" else mu * np.linalg.norm(w)))


def jacobian(
    program: Program, c: np.ndarray, w: np.ndarray, mu: float, sides: Sides, regularizer: Regularizer
) -> np.ndarray | None:
    """dw/dc `(n, n)` at the solution w; `None` where it does not exist or is too close to a kink to be compared.

    With Z a basis of the directions that keep all tight rows and bounds tight, and H the Hessian of the regularizer,
    dw/dc = −Z (ZᵀHZ)⁻¹ Zᵀ. That needs strict complementarity: positive multipliers of all tight inequalities.
    """
    close, far = 1e-6, 1e-3
    n, eye = program.n, np.eye(program.n)
    length = np.linalg.norm(w)
    if regularizer == "norm" and length < far:
        return None
    free = sides.lower != sides.upper
    inequalities = np.vstack([program.G.toarray(), -eye[free], eye[free]])
    gap = np.concatenate([sides.h - program.G @ w, (w - sides.lower)[free], (sides.upper - w)[free]])
    if ((gap > close) & (gap < far)).any():
        return None
    equal, tight = np.vstack([program.A.toarray(), eye[~free]]), inequalities[gap <= close]
    slope = c + (mu * w if regularizer == "squared" else mu * w / length)
    hessian = mu * eye if regularizer == "squared" else mu * (eye / length - np.outer(w, w) / length**3)
    if len(tight) and not _strictly_complementary(slope, equal, tight, far):
        return None
    Z = scipy.linalg.null_space(np.vstack([equal, tight])) if len(equal) + len(tight) else eye
    if not Z.shape[1]:
        return np.zeros((n, n))
    reduced = Z.T @ hessian @ Z
    if np.linalg.cond(reduced) > 1e4:
        return None
    return -Z @ np.linalg.solve(reduced, Z.T)


def _strictly_complementary(slope: np.ndarray, equal: np.ndarray, tight: np.ndarray, margin: float) -> bool:
    """Whether slope + equalᵀλ + tightᵀν = 0 for some λ and ν whose smallest entry is above the margin: a linear program."""
    m, k = len(equal), len(tight)
    matrix = np.vstack([equal, tight]).T
    accuracy = 1e-5 * (1 + np.abs(slope).max())
    result = scipy.optimize.linprog(
        np.append(np.zeros(m + k), -1.0),
        A_ub=np.vstack(
            [
                np.hstack([matrix, np.zeros((len(slope), 1))]),
                np.hstack([-matrix, np.zeros((len(slope), 1))]),
                np.hstack([np.zeros((k, m)), -np.eye(k), np.ones((k, 1))]),
            ]
        ),
        b_ub=np.concatenate([accuracy - slope, accuracy + slope, np.zeros(k)]),
        bounds=[(None, None)] * m + [(0, None)] * k + [(None, 1.0)],
    )
    return result.status == 0 and -result.fun > margin * (1 + np.abs(slope).max())
