"""The worst of the optimal decisions: what a prediction costs when ties are broken against it.

    max over w of obj(y, w)   s.t.   w feasible,   obj(ŷ, w) ≤ min over v of obj(ŷ, v)

A solver returns one optimal decision of possibly many. A constant prediction makes every decision optimal, and its
regret is then whatever the solver happens to return; the pessimistic regret does not depend on the solver.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from dflearn.data.labels import progress_bar
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS

TIE = 1e-7  # decisions this close to the optimum, relative to it and to the largest cost, count as optimal too


def worst_optimal(
    program: Program,
    predicted: Tensor,
    costs: Tensor,
    decisions: Tensor,
    instance: Instance | None = None,
    ids: Tensor | None = None,
    *,
    progress: bool = True,
) -> np.ndarray:
    """max of obj(y, w) over the decisions w that are optimal for ŷ, by one (MI)LP per instance; float64 `(count,)`.

    predicted ŷ and costs y `(count, p)`; decisions `(count, n)`: one optimal decision for each ŷ. The answer is +inf
    where the optimal decisions reach arbitrarily bad ones.
    """
    count = predicted.shape[0]
    guess = program.objective.vector(predicted.double(), instance).numpy()
    truth = program.objective.vector(costs.double(), instance)
    optimum = (guess * decisions.double().numpy()).sum(-1)
    sides = program.sides(instance, count)
    worst = np.empty(count)
    with progress_bar(count, "pessimistic", progress) as bar:
        for i in range(count):
            called = f"instance {i}" if ids is None else f"id {int(ids[i])}"
            worst[i] = _worst(_face(program, sides.row(i), guess[i], optimum[i]), truth[i], called)
            bar.update()
    return worst


def _worst(face: Program, truth: Tensor, called: str) -> float:
    """max of truthᵀw over the face; +inf where it has no end."""
    solution = HiGHS(face).solve(-truth)
    solution.check((Status.OPTIMAL, Status.UNBOUNDED), name=lambda _: called, what="worst optimal decision")
    return -float(solution.objective) if solution.status == Status.OPTIMAL else np.inf


def _face(program: Program, sides: Sides, c: np.ndarray, optimum: float) -> Program:
    """The decisions of one instance that are optimal for c: one more row, scaled to a largest coefficient of 1."""
    G, h, scale = program.G, sides.h, np.abs(c).max(initial=0.0)
    if scale > 0:  # with c = 0 every decision is optimal
        level = optimum / scale
        G = sp.vstack([G, sp.csr_array(c[None] / scale)], format="csr")
        h = np.append(h, level + TIE * max(1.0, abs(level)))
    return Program(
        A=program.A,
        b=sides.b,
        G=G,
        h=h,
        lower=sides.lower,
        upper=sides.upper,
        integer=program.integer,
        n=program.n,
        name=f"{program.name}: optimal decisions",
    )
