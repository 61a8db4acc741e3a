"""Small programs that the tests of solvers share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from dflearn.program import Program, Quadratic


def grid_edges(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Tails and heads of the edges east and south in a square grid, nodes numbered row by row."""
    node = np.arange(side * side).reshape(side, side)
    east, south = (node[:, :-1], node[:, 1:]), (node[:-1], node[1:])
    return tuple(np.concatenate([one.ravel(), other.ravel()]) for one, other in zip(east, south, strict=True))  # type: ignore[return-value]


def shortest_path(side: int = 4) -> Program:
    tails, heads = grid_edges(side)
    arcs = np.arange(len(tails))
    entries, columns = np.repeat([-1.0, 1.0], len(arcs)), np.concatenate([arcs, arcs])
    A = sp.csr_array((entries, (np.concatenate([tails, heads]), columns)))
    b = np.zeros(side * side)
    b[0], b[-1] = -1, 1
    return Program(A=A, b=b, upper=1, name=f"path {side}")


def knapsack(items: int = 12, dimensions: int = 2, seed: int = 0) -> Program:
    weights = np.random.RandomState(seed).uniform(3, 8, (dimensions, items))
    return Program(
        G=weights, h=0.4 * weights.sum(1), upper=1, S=-np.eye(items), integer=True, sense="maximize", name="knapsack"
    )


def facility_location(customers: int = 4, facilities: int = 3, seed: int = 0) -> Program:
    """Mixed-integer, with S and d: serve every customer from open facilities within their capacities."""
    rng = np.random.RandomState(seed)
    demand = rng.uniform(1, 4, customers)
    pairs = customers * facilities
    serve = sp.kron(sp.eye_array(customers), np.ones((1, facilities)))
    load = sp.kron(demand[None, :], sp.eye_array(facilities))
    return Program(
        A=sp.hstack([serve, sp.csr_array((customers, facilities))]),
        b=np.ones(customers),
        G=sp.hstack([load, -0.7 * demand.sum() * sp.eye_array(facilities)]),
        h=np.zeros(facilities),
        upper=1,
        S=sp.vstack([sp.diags_array(np.repeat(demand, facilities)), sp.csr_array((facilities, pairs))]),
        d=np.concatenate([np.zeros(pairs), rng.uniform(1, 3, facilities)]),
        integer=np.arange(pairs, pairs + facilities),
        name="facility location",
    )


def top_k(items: int = 7, k: int = 3, *, at_most: bool = True) -> Program:
    row = {"G": np.ones((1, items)), "h": [k]} if at_most else {"A": np.ones((1, items)), "b": [k]}
    return Program(**row, upper=1, integer=True, name="top k")


def paths(tails: Sequence[int] | np.ndarray, heads: Sequence[int] | np.ndarray, source: int, target: int) -> Program:
    """min over w of yᵀw  s.t.  in(v) − out(v) = −1 at the source, 1 at the target, 0 elsewhere,  0 ≤ w ≤ 1."""
    arcs = np.arange(len(tails))
    A = np.zeros((max(*tails, *heads, source, target) + 1, len(arcs)))
    A[tails, arcs], A[heads, arcs] = -1, 1
    b = np.zeros(len(A))
    b[source], b[target] = -1, 1
    used = np.abs(A).any(1)
    return Program(A=A[used], b=b[used], upper=1)


def supply(seed: int = 0) -> Program:
    """A linear program with equations, inequalities, lower bounds and a shift d."""
    rng = np.random.RandomState(seed)
    A, G = rng.normal(size=(2, 8)), rng.normal(size=(3, 8))
    inside = rng.uniform(0, 1, 8)
    return Program(A=A, b=A @ inside, G=G, h=G @ inside + 0.1, lower=-1, upper=2, d=rng.normal(size=8), name="supply")


def portfolio(assets: int = 8, seed: int = 0) -> Program:
    """A quadratic program:   max yᵀw − ½ wᵀQ w   s.t.   Σ w = 1,   w ≥ 0,   no more than half of it in the first three."""
    rng = np.random.RandomState(seed)
    factor = rng.normal(size=(3, assets))
    return Program(
        A=np.ones((1, assets)),
        b=[1],
        G=[[1.0] * 3 + [0.0] * (assets - 3)],
        h=[0.5],
        S=-np.eye(assets),
        Q=factor.T @ factor + np.diag(rng.uniform(0.1, 1, assets)),
        sense="maximize",
        name="portfolio",
    )


def lots(seed: int = 0) -> Program:
    """A mixed-integer quadratic program: whole lots of some goods, any amount of others, and a quadratic price of their mix."""
    rng = np.random.RandomState(seed)
    return Program(
        G=rng.uniform(1, 3, (2, 5)),
        h=[9, 10],
        upper=4,
        Q=Quadratic(rng.normal(size=(2, 5)), np.full(5, 0.5)),
        S=-3 * np.eye(5),
        integer=[0, 1, 2],
        name="lots",
    )


def predicted_demand() -> Program:
    """A linear program whose right-hand sides are predicted beside its costs: y = (three costs, demand, room)."""
    return Program(
        A=[[1.0, 1, 1]],
        b=[2.0],
        B=[[0.0, 0, 0, 0.1, 0]],
        G=[[1.0, 2, 0]],
        h=[3.0],
        H=[[0.0, 0, 0, 0, 0.2]],
        upper=5,
        S=np.eye(3, 5),
        name="predicted demand",
    )
