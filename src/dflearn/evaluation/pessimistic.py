"""The worst of the optimal decisions: what a prediction costs when ties are broken against it.

    max over w of obj(y, w)   s.t.   w feasible,   obj(ŷ, w) ≤ min over v of obj(ŷ, v)

A constant prediction makes every decision optimal; its pessimistic regret does not depend on which one the solver returns.
With a convex quadratic part all optimal decisions have the same R w and the same w_j where δ_j > 0: the question stays linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.data.labels import progress_bar
from dflearn.engine.certify import OPTIMAL
from dflearn.errors import OptionError
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status
from dflearn.solvers.highs import HiGHS

Array = np.ndarray
TIE = OPTIMAL  # decisions this close to the optimum, relative to its terms, count as optimal too, as in `certify`


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
    # ½ wᵀQ w is the same for all that are optimal.
    curved = 0.0 if program.Q is None else program.Q.value(decisions.double().numpy())
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
    """For each instance, the decision that is optimal for ŷ and goes furthest in its direction v `(count, n)`, or UNBOUNDED.

    `objective` is −vᵀw. Arguments as of `worst_optimal`; `called` names the instances in messages.
    """
    if program.Q is not None and program.is_integer:
        raise OptionError(f"the worst optimal decision is unknown for {program!r}, quadratic over integers")
    if instance is not None and instance.q is not None:
        raise OptionError("the worst optimal decision is not known where instances have a q: give Q to the program")
    count = predicted.shape[0]
    guess = program.objective.vector(predicted.double(), instance).numpy()
    optimal = decisions.double().numpy()
    optimal = np.where(program.integer, np.rint(optimal), optimal)
    sides = program.sides(program.realize(predicted, instance), count)
    names = called or [f"instance {i}" for i in range(count)]
    slopes, sizes, prices = guess, np.abs(guess), np.full((count, program.A.shape[0] + program.G.shape[0]), np.nan)
    if program.Q is not None:
        slopes, sizes = slopes + program.Q.times(optimal), sizes + program.Q.sizes(optimal)
    if not program.is_integer and count:
        prices = HiGHS(replace(program, Q=None)).priced(slopes, sides)[1]
    for i, name in enumerate(names):
        v, w = directions[i].double(), torch.as_tensor(optimal[i])
        moves = _moves(program, sides.row(i), slopes[i], sizes[i], optimal[i], prices[i])
        found = HiGHS(moves).solve(-v)
        found.check((Status.OPTIMAL, Status.UNBOUNDED), name=[name].__getitem__, what="worst optimal decision")
        yield replace(found, decision=found.decision + w, objective=found.objective - v @ w, bound=found.bound - v @ w)


def _reach(sides: Sides, w: np.ndarray) -> np.ndarray:
    """How large each variable may be, in its own unit; where no bound says so, as large as the others, or one."""
    ends = np.stack([np.abs(side) for side in (sides.lower, sides.upper)])
    known = np.maximum(np.where(np.isfinite(ends), ends, 0.0).max(0), np.abs(w))
    known = np.where(np.isinf(ends).any(0), np.abs(w), known)
    return np.where(known > 0, known, known.max(initial=0.0) or 1.0)


def _moves(program: Program, sides: Sides, slope: Array, size: Array, w: Array, y: Array) -> Program:
    """The moves x from w, an optimal decision of one instance, to its other optimal decisions w + x.

        A x = 0,   G x ≤ max(h − G w, 0),   R x = 0,   lower ≤ w + x ≤ upper,   x_j = 0 where δ_j > 0,

    and, by prices y `(rows,)` that prove an optimum, G_i x = 0 for rows with a price and x_j = 0 for variables with a reduced cost
    ρ = c + Q w − Mᵀy. These are all optimal decisions, whichever optimal y it is. Prices and reduced costs count from `TIE` of
    their terms. Without prices (integers, NaN) the row (c + Q w)ᵀx ≤ `TIE` of its terms takes their place.

    x = 0 is always a move, however w was rounded: the program is never infeasible.
    slope c + Q w `(n,)`; size `(n,)`: the sum of its terms' sizes.
    """
    A, G, h = program.A, program.G, np.maximum(sides.h - program.G @ w, 0.0)
    fixed = np.zeros(program.n, bool)
    if program.Q is not None:
        A, fixed = sp.vstack([A, program.Q.factor], format="csr"), program.Q.diagonal > 0
    if np.isfinite(y).all():
        M = sp.csr_array(sp.vstack([program.A, program.G], format="csr"))
        terms = size + abs(M).T @ np.abs(y)
        fixed = fixed | (np.abs(slope - M.T @ y) > TIE * terms)
        price = y[program.A.shape[0] :]
        felt = abs(G) @ np.divide(1.0, terms, out=np.zeros_like(terms), where=terms > 0) * np.abs(price)
        tight = (price < 0) & (felt > TIE)
        A, G, h = sp.vstack([A, G[tight]], format="csr"), G[~tight], h[~tight]
    elif slope.any():
        scale = np.abs(slope).max()  # to a largest coefficient of 1
        terms = float(size @ np.abs(w)) or float(size @ _reach(sides, w))
        G, h = sp.vstack([G, sp.csr_array(slope[None] / scale)], format="csr"), np.append(h, TIE * terms / scale)
    lower = np.where(fixed, 0.0, np.minimum(sides.lower - w, 0.0))
    upper = np.where(fixed, 0.0, np.maximum(sides.upper - w, 0.0))
    rows = {"A": A, "b": np.zeros(A.shape[0]), "G": G, "h": h, "n": program.n, "lower": lower, "upper": upper}
    return Program(**rows, integer=program.integer, name=f"{program.name}: optimal decisions")
