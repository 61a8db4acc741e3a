"""The worst of the optimal decisions: what a prediction costs when ties are broken against it.

    max over w of obj(y, w)   s.t.   w feasible,   obj(ŷ, w) ≤ min over v of obj(ŷ, v)

A solver returns one optimal decision of possibly many. A constant prediction makes every decision optimal, and its
regret is then whatever the solver happens to return; the pessimistic regret does not depend on the solver.

With a convex quadratic part all optimal decisions have the same R w and the same w_j where δ_j > 0, and so the same ½ wᵀQ w:
the question stays linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from dflearn.data.labels import progress_bar
from dflearn.errors import OptionError
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status
from dflearn.solvers.highs import HiGHS

TIE = 1e-7  # decisions this close to the optimum, relative to the terms it sums, count as optimal too


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
    truth = program.objective.vector(costs.double(), instance)
    curved = (
        0.0 if program.Q is None else program.Q.value(decisions.double().numpy())
    )  # the same for all that are optimal
    count = predicted.shape[0]
    called = [f"instance {i}" if ids is None else f"id {int(ids[i])}" for i in range(count)]
    with progress_bar(count, "pessimistic", progress) as bar:
        worst = np.empty(count)
        for i, solution in enumerate(furthest_optimal(program, predicted, truth, decisions, instance, called)):
            worst[i] = -float(solution.objective) if solution.status == Status.OPTIMAL else np.inf
            bar.update()
    return worst + curved


def furthest_optimal(
    program: Program,
    predicted: Tensor,
    directions: Tensor,
    decisions: Tensor,
    instance: Instance | None = None,
    called: Sequence[str] = (),
) -> Iterator[Solution]:
    """For one instance after the other, the decision that is optimal for ŷ and goes furthest in its direction v `(count, n)`.

    It may be UNBOUNDED; `objective` is −vᵀw. Arguments as of `worst_optimal`; `called` names the instances in messages.
    """
    if program.Q is not None and program.is_integer:
        raise OptionError(
            f"the worst optimal decision is not known for {program!r}, whose objective is quadratic over integers"
        )
    if instance is not None and instance.q is not None:
        raise OptionError("the worst optimal decision is not known where instances have a q: give Q to the program")
    count = predicted.shape[0]
    guess = program.objective.vector(predicted.double(), instance).numpy()
    optimal = decisions.double().numpy()
    sides = program.sides(program.realize(predicted, instance), count)
    names = called or [f"instance {i}" for i in range(count)]
    for i, name in enumerate(names):
        solution = HiGHS(_face(program, sides.row(i), guess[i], optimal[i])).solve(-directions[i])
        named = partial(_always, name)
        yield solution.check((Status.OPTIMAL, Status.UNBOUNDED), name=named, what="worst optimal decision")


def _always(name: str, _: int) -> str:
    return name


def _reach(sides: Sides, w: np.ndarray) -> np.ndarray:
    """How large each variable may be, in its own unit; where no bound says so, as large as the others, or one."""
    ends = np.stack([np.abs(side) for side in (sides.lower, sides.upper)])
    known = np.maximum(np.where(np.isfinite(ends), ends, 0.0).max(0), np.abs(w))
    known = np.where(np.isinf(ends).any(0), np.abs(w), known)
    return np.where(known > 0, known, known.max(initial=0.0) or 1.0)


def _face(program: Program, sides: Sides, c: np.ndarray, w: np.ndarray) -> Program:
    """The decisions of one instance that are optimal for c, by one that is: one more row, and with Q two for each of its squares."""
    G, h = program.G, sides.h
    rows, reach = [c[None]], _reach(sides, w)
    if program.Q is not None:
        squares = np.vstack([program.Q.factor.toarray(), np.eye(program.n)[program.Q.diagonal > 0]])
        rows += [squares, -squares]
    for row in np.vstack(rows):
        scale = np.abs(row).max(initial=0.0)
        if scale > 0:  # with c = 0 every decision is optimal
            terms = row * w / scale  # to a largest coefficient of 1
            G = sp.vstack([G, sp.csr_array(row[None] / scale)], format="csr")
            h = np.append(h, terms.sum() + TIE * (np.abs(terms).sum() or float(np.abs(row / scale) @ reach)))
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
