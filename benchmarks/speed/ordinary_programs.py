"""Programs that planners solve every day, in their own units (tonnes, megawatts, euros): drawn for `ordinary_models.py`.

A model is drawn from a size and a seed: one program, and instances numbered 0, 1, 2, …. Each instance has its own costs. If the
seed is even, each has its own demands too (`Instance`). Every program has a solution: what cannot be delivered is bought or paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.program import Instance, Program

Size = tuple[int, ...]
Random = np.random.Generator
BIG = (1e5, 1e6, 1e7, 1e8)  # the M of `facilities`, by seed


class Draft:
    """A program that grows by variables and rows."""

    def __init__(self) -> None:
        self.n = 0
        self.bounds: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self.rows: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"A": [], "G": []}
        self.sides: dict[str, list[float]] = {"A": [], "G": []}

    def variables(
        self, *shape: int, upper: object = np.inf, cost: object = 0.0, integer: bool = False, lower: object = 0.0
    ) -> np.ndarray:
        """Positions `shape` of new variables, with bounds and known costs that broadcast to that shape."""
        places = np.arange(self.n, self.n + int(np.prod(shape))).reshape(shape)
        self.n += places.size
        parts = (np.broadcast_to(np.asarray(part, float), shape).ravel() for part in (lower, upper, cost, integer))
        self.bounds.append(tuple(parts))  # type: ignore[arg-type]
        return places

    def row(self, kind: str, side: float, *terms: tuple[object, object]) -> None:
        """Σ coefficient · variable = side (kind "A") or ≤ side ("G")."""
        places = [np.atleast_1d(np.asarray(place, int)).ravel() for place, _ in terms]
        entries = [
            np.broadcast_to(np.asarray(entry, float), where.shape)
            for where, (_, entry) in zip(places, terms, strict=True)
        ]
        self.rows[kind].append((np.concatenate(places), np.concatenate(entries)))
        self.sides[kind].append(float(side))

    def program(self, name: str, priced: Sequence[tuple[np.ndarray, float]]) -> Program:
        """The program. `priced` names variables `(p,)`, and how often the predicted cost y `(p,)` each of them pays."""
        matrices = {}
        for kind, rows in self.rows.items():
            starts = np.cumsum([0, *(len(places) for places, _ in rows)])
            parts = [np.concatenate([row[k] for row in rows]) if rows else np.zeros(0) for k in (1, 0)]
            matrices[kind] = sp.csr_array((parts[0], parts[1].astype(int), starts), shape=(len(rows), self.n))
        p = priced[0][0].size
        S = sum(sp.csr_array((np.full(p, sign), (at.ravel(), np.arange(p))), shape=(self.n, p)) for at, sign in priced)
        lower, upper, d, integer = (np.concatenate(part) for part in zip(*self.bounds, strict=True))
        return Program(
            **{kind: matrix for kind, matrix in matrices.items() if matrix.shape[0]},
            **{side: self.sides[kind] for kind, side in (("A", "b"), ("G", "h")) if self.sides[kind]},
            lower=lower,
            upper=upper,
            S=S,
            d=d,
            integer=integer.astype(bool),
            name=name,
        )


@dataclass(frozen=True)
class Model:
    """A program and its instances.

    Attributes:
        costs: draws y `(p,)`.
        demands: draws the right-hand sides that differ, by name.
        reference: the same program, better written, where solvers' tolerances would spoil the reference's answer.
    """

    program: Program
    seed: int
    costs: Callable[[Random], np.ndarray]
    demands: Callable[[Random], dict[str, np.ndarray]]
    reference: Program | None = None

    def draw(self, indices: Sequence[int]) -> tuple[torch.Tensor, Instance | None]:
        """Costs and demands of these instances; an instance does not depend on the others."""
        costs, demands = [], []
        for index in indices:
            random = np.random.default_rng([self.seed, index])
            costs.append(self.costs(random))
            demands.append(self.demands(random))
        y = torch.as_tensor(np.array(costs))
        if self.seed % 2:
            return y, None
        return y, Instance(**{name: torch.as_tensor(np.array([d[name] for d in demands])) for name in demands[0]})

    def relaxed(self) -> Model:
        return replace(self, program=self.program.relax(), reference=self.reference and self.reference.relax())


def blending(size: Size, seed: int) -> Model:
    """Feed from ingredients (€/t): stock_t = stock_{t−1} + buy_t − use_t, Σ use = demand, Σ protein · use ≥ what is asked."""
    kinds, periods = size
    random, draft = np.random.default_rng(seed), Draft()
    protein = np.sort(random.uniform(0.08, 0.48, kinds))
    prices = 180 + 400 * protein + random.normal(0, 15, kinds)
    buy = draft.variables(kinds, periods, upper=80)
    use, stock = draft.variables(kinds, periods), draft.variables(kinds, periods, cost=random.uniform(1, 4))
    base = random.uniform(80, 140, periods).round(1)
    for k in range(kinds):
        for t in range(periods):
            before = [(stock[k, t - 1], -1)] if t else []
            draft.row("A", 0, (stock[k, t], 1), (buy[k, t], -1), (use[k, t], 1), *before)
    for t in range(periods):
        draft.row("A", base[t], (use[:, t], 1))
        draft.row("G", -protein.mean() * base[t], (use[:, t], -protein))

    def demands(draws: Random) -> dict[str, np.ndarray]:
        asked = base * draws.uniform(0.8, 1.1, periods)
        return {"b": np.concatenate([np.zeros(kinds * periods), asked]), "h": -protein.mean() * asked}

    costs = lambda draws: (prices[:, None] * draws.normal(1, 0.08, (kinds, periods))).ravel()  # noqa: E731
    return Model(draft.program("blending", [(buy, 1.0)]), seed, costs, demands)


def storage(size: Size, seed: int) -> Model:
    """A battery (MW, MWh) behind a meter, at hourly prices (€/MWh) that may be negative; the day ends as it began."""
    (hours,) = size
    random, draft = np.random.default_rng(seed), Draft()
    power, hour = random.uniform(1, 3), np.arange(hours) % 24
    charge, discharge = draft.variables(hours, upper=power), draft.variables(hours, upper=power, cost=2.0)
    level = draft.variables(hours, upper=4 * power)
    bought, sold = draft.variables(hours, upper=15), draft.variables(hours, upper=8, cost=12.0)
    shape = 4 + 2 * np.sin((hour - 9) * np.pi / 12)
    sun = np.maximum(0.0, 5 * np.sin((hour - 6) * np.pi / 12))
    for t in range(hours):
        draft.row("A", 0, (level[t], 1), (level[t - 1], -1), (charge[t], -0.95), (discharge[t], 1 / 0.95))
    for t in range(hours):
        draft.row("A", shape[t] - sun[t], (bought[t], 1), (sold[t], -1), (discharge[t], 1), (charge[t], -1))

    def demands(draws: Random) -> dict[str, np.ndarray]:
        load = shape * draws.uniform(0.7, 1.3, hours) - sun * draws.uniform(0, 1.2)
        return {"b": np.concatenate([np.zeros(hours), load])}

    def costs(draws: Random) -> np.ndarray:
        return 70 - 35 * np.sin((hour - 7) * np.pi / 6) + draws.normal(0, 25, hours)

    return Model(draft.program("storage", [(bought, 1.0), (sold, -1.0)]), seed, costs, demands)


def lot_sizing(size: Size, seed: int) -> Model:
    """How much to produce when: set-ups (€), stock, a machine that the products share, overtime."""
    products, periods = size
    random, draft = np.random.default_rng(seed), Draft()
    base = np.where(random.random((products, periods)) < 0.15, 0, random.integers(20, 120, (products, periods)))
    capacity, unit = 1.3 * base.mean() * products, random.uniform(8, 30, products)
    make = draft.variables(products, periods)
    stock = draft.variables(products, periods, cost=random.uniform(0.3, 2, (products, 1)))
    setup = draft.variables(products, periods, upper=1, integer=True, cost=random.integers(200, 2000, (products, 1)))
    overtime = draft.variables(periods, cost=60.0)
    for k in range(products):
        for t in range(periods):
            before = [(stock[k, t - 1], 1)] if t else []
            draft.row("A", base[k, t], (make[k, t], 1), (stock[k, t], -1), *before)
            draft.row("G", 0, (make[k, t], 1), (setup[k, t], -base[k].sum() * 1.3))
    for t in range(periods):
        draft.row("G", capacity, (make[:, t], 1), (setup[:, t], 0.05 * capacity), (overtime[t], -1))

    def demands(draws: Random) -> dict[str, np.ndarray]:
        return {"b": (base * draws.uniform(0.7, 1.3, base.shape)).round().ravel()}

    costs = lambda draws: (unit[:, None] * draws.normal(1, 0.1, base.shape)).ravel()  # noqa: E731
    return Model(draft.program("lot-sizing", [(make, 1.0)]), seed, costs, demands)


def network(size: Size, seed: int) -> Model:
    """Goods (t) from plants over transit nodes, whose right-hand sides are 0, to customers, at a cost per arc (€/t)."""
    nodes, arcs = size
    random, draft = np.random.default_rng(seed), Draft()
    plants, customers = max(2, nodes // 8), max(3, nodes // 4)
    transit = nodes - plants - customers
    tails, heads = random.integers(0, plants + transit, arcs), random.integers(plants, nodes, arcs)
    # Every transit node and every customer is reached, and every plant delivers.
    heads[: nodes - plants], tails[: nodes - plants] = (
        np.arange(plants, nodes),
        [random.integers(0, max(plants, min(k, plants + transit))) for k in range(plants, nodes)],
    )
    heads = np.where(heads == tails, np.where(tails + 1 < nodes, tails + 1, nodes - 1), heads)
    distance = random.uniform(4, 45, arcs)
    flow = draft.variables(arcs, upper=random.integers(40, 400, arcs))
    made = draft.variables(plants, upper=600, cost=random.uniform(90, 120, plants))
    missing = draft.variables(customers, cost=800.0, upper=1000)
    base = random.uniform(20, 150, customers).round(1)
    for node in range(nodes):
        terms = [(flow[heads == node], 1), (flow[tails == node], -1)]
        if node < plants:
            draft.row("A", 0, *terms, (made[node], 1))
        elif node < plants + transit:
            draft.row("A", 0, *terms)
        else:
            draft.row("A", base[node - plants - transit], *terms, (missing[node - plants - transit], 1))

    def demands(draws: Random) -> dict[str, np.ndarray]:
        return {"b": np.concatenate([np.zeros(plants + transit), base * draws.uniform(0.6, 1.4, customers)])}

    costs = lambda draws: distance * draws.lognormal(0, 0.15, arcs)  # noqa: E731
    return Model(draft.program("network flow", [(flow, 1.0)]), seed, costs, demands)


def unit_commitment(size: Size, seed: int) -> Model:
    """Power plants (MW) that are on or off, with least output, ramps, and start-up costs (€); fuel (€/MWh) is predicted."""
    units, hours = size
    random, draft = np.random.default_rng(seed), Draft()
    most = random.integers(8, 31, units) * 10.0
    least, ramp, fuel = 0.35 * most, 0.5 * most, random.uniform(25, 90, units)
    power = draft.variables(units, hours, upper=most[:, None])
    on = draft.variables(units, hours, upper=1, integer=True, cost=3.5 * most[:, None])
    begin = draft.variables(units, hours, upper=1, cost=random.uniform(10, 35, (units, 1)) * most[:, None])
    short = draft.variables(hours, cost=3000.0)
    base = most.sum() * (0.55 + 0.2 * np.sin((np.arange(hours) * 24 / hours - 8) * np.pi / 12))
    for u in range(units):
        for t in range(hours):
            draft.row("G", 0, (power[u, t], 1), (on[u, t], -most[u]))
            draft.row("G", 0, (power[u, t], -1), (on[u, t], least[u]))
            if t:
                draft.row("G", 0, (on[u, t], 1), (on[u, t - 1], -1), (begin[u, t], -1))
                draft.row(
                    "G", 0, (power[u, t], 1), (power[u, t - 1], -1), (on[u, t - 1], -ramp[u]), (begin[u, t], -most[u])
                )
                draft.row("G", most[u], (power[u, t - 1], 1), (power[u, t], -1), (on[u, t], most[u] - ramp[u]))
    for t in range(hours):
        draft.row("A", base[t], (power[:, t], 1), (short[t], 1))

    def demands(draws: Random) -> dict[str, np.ndarray]:
        return {"b": base * draws.normal(1, 0.04, hours) * draws.uniform(0.85, 1.1)}

    costs = lambda draws: (fuel[:, None] * draws.normal(1, 0.06, (units, hours)) + draws.normal(0, 4)).ravel()  # noqa: E731
    return Model(draft.program("unit commitment", [(power, 1.0)]), seed, costs, demands)


def facilities(size: Size, seed: int) -> Model:
    """Sites to open (€), whose capacity is a big M; the reference's M is twice all demand."""
    sites, customers = size
    random = np.random.default_rng(seed)
    base = random.integers(5, 60, customers).astype(float)
    opening = random.integers(2000, 9000, sites)
    distance = random.uniform(5, 90, (sites, customers))

    def program(capacity: float) -> Program:
        draft = Draft()
        flow = draft.variables(sites, customers)
        is_open = draft.variables(sites, upper=1, integer=True, cost=opening)
        for j in range(customers):
            draft.row("A", base[j], (flow[:, j], 1))
        for i in range(sites):
            draft.row("G", 0, (flow[i], 1), (is_open[i], -capacity))
        return draft.program("facilities", [(flow, 1.0)])

    demands = lambda draws: {"b": (base * draws.uniform(0.7, 1.4, customers)).round(1)}  # noqa: E731
    costs = lambda draws: (distance * draws.lognormal(0, 0.1, distance.shape)).ravel()  # noqa: E731
    return Model(program(BIG[seed % len(BIG)]), seed, costs, demands, reference=program(2 * base.sum()))
