"""Families of planning models in real units: stocks, storage, networks, lots, facilities.

Quantities are of size one in base units and tonnes for the library; prices are around 300 for a tonne.
"""

from typing import Any

import numpy as np

from fuzz.bases import Rng

PRICE = 300.0


class Model:
    """Variables and rows, one after the other."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.price: list[float] = []
        self.whole: list[bool] = []
        self.size: list[float] = []
        self.rows: dict[str, list[tuple[dict[int, float], float]]] = {"=": [], "<": []}

    def variable(self, upper: float = np.inf, price: float = 0.0, *, whole: bool = False, size: float = 1.0) -> int:
        self.lower.append(0.0)
        self.upper.append(upper)
        self.price.append(price)
        self.whole.append(whole)
        self.size.append(size)
        return len(self.lower) - 1

    def row(self, sense: str, terms: dict[int, float], right: float = 0.0) -> None:
        self.rows[sense].append((terms, right))

    def parts(self, rng: Rng, spread: float = 0.1) -> dict[str, Any]:
        """As families give them, with two instances whose prices differ by `spread`."""
        n, tonnes = len(self.lower), float(2.0 ** rng.integers(0, 11))
        whole = np.array(self.whole)
        out: dict[str, Any] = {"lower": np.array(self.lower), "upper": np.array(self.upper), "integer": whole}
        for sense, matrix, side in (("=", "A", "b"), ("<", "G", "h")):
            out[matrix] = np.zeros((len(self.rows[sense]), n))
            for row, (terms, _) in zip(out[matrix], self.rows[sense], strict=True):
                row[list(terms)] = list(terms.values())
            out[side] = np.array([right for _, right in self.rows[sense]])
        rows = len(out["A"]) + len(out["G"])
        out |= {"y": np.array(self.price) * (1 + spread * rng.normal(size=(2, n))), "S": None, "d": np.zeros(n)}
        out |= {"mu": PRICE * float(2.0 ** rng.integers(-3, 4)), "w0": np.zeros(n), "sizes": np.array(self.size)}
        # The library's costs and coefficients are those of the base; quantities and right-hand sides are in tonnes.
        return out | {"column": np.where(whole, 1.0, tonnes), "row": np.full(rows, tonnes), "cost": tonnes}


def balances(rng: Rng) -> dict[str, Any]:
    """Stock balances, storage, networks and lots: right-hand sides 0, and quantities that end at zero."""
    return [blending, storage, network, lots][int(rng.integers(4))](rng)


def blending(rng: Rng) -> dict[str, Any]:
    """Materials are bought, kept and used; each period needs its mass, of enough protein."""
    model, materials, periods = Model(), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    if materials == 3:
        periods = 2
    content = np.sort(rng.uniform(0.08, 0.45, materials))
    before: list[int | None] = [None] * materials
    for _ in range(periods):
        demand, uses = rng.uniform(0.3, 2.0), {}
        for m in range(materials):
            dear = PRICE * (0.6 + content[m]) * rng.uniform(0.8, 1.2)
            buy, use = model.variable(price=dear), model.variable()
            stock = model.variable(float(rng.choice([np.inf, rng.uniform(0.5, 2.0)])), float(rng.uniform(0.0, 5.0)))
            balance = {stock: 1.0, buy: -1.0, use: 1.0}
            if before[m] is not None:
                balance[int(before[m] or 0)] = -1.0
            model.row("=", balance)
            before[m], uses[use] = stock, float(content[m])
        model.row("=", dict.fromkeys(uses, 1.0), demand)
        wanted = float(content[0] + rng.uniform(0.1, 0.9) * (content[-1] - content[0]))
        if materials > 1:
            model.row("<", {use: -part for use, part in uses.items()}, -wanted * demand)
    return model.parts(rng)


def storage(rng: Rng) -> dict[str, Any]:
    """A battery or a reservoir: level = level before + η charge − discharge, prices that rise and fall."""
    model, before, free = Model(), None, bool(rng.random() < 0.3)
    power, most, eta = rng.uniform(0.2, 1.0), rng.uniform(0.5, 2.0), rng.uniform(0.7, 1.0)
    for _ in range(int(rng.integers(3, 7))):
        price = PRICE * rng.uniform(0.2, 2.0)
        charge, discharge = model.variable(float(power), price), model.variable(float(power), -price * 0.98)
        level = model.variable(np.inf if free else float(most))
        balance = {level: 1.0, charge: -float(eta), discharge: 1.0}
        if before is not None:
            balance[before] = -1.0
        model.row("=", balance)
        before = level
    if free and before is not None:
        model.row("<", {before: 1.0}, float(most))
    return model.parts(rng)


def network(rng: Rng) -> dict[str, Any]:
    """Sources, hubs with a balance of zero, customers with a demand; some arcs have a capacity."""
    model, sources, hubs, customers = Model(), int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    balance: list[dict[int, float]] = [{} for _ in range(hubs)]
    supply: list[dict[int, float]] = [{} for _ in range(sources)]
    arrives: list[dict[int, float]] = [{} for _ in range(customers)]
    demand = rng.uniform(0.2, 1.5, customers)

    def arc(price: float, narrow: bool) -> int:
        return model.variable(float(rng.uniform(0.3, 2.0)) if narrow else np.inf, price)

    for k in range(hubs):
        for s in range(sources):
            new = arc(PRICE * rng.uniform(0.3, 1.0), rng.random() < 0.3 and k > 0)
            balance[k][new], supply[s][new] = -1.0, 1.0
        for q in range(customers):
            if k == 0 or rng.random() < 0.5:
                new = arc(PRICE * rng.uniform(0.3, 1.0), rng.random() < 0.3 and k > 0)
                balance[k][new], arrives[q][new] = 1.0, 1.0
    if hubs > 1:
        new = arc(PRICE * 0.1, False)
        balance[0][new], balance[1][new] = 1.0, -1.0
    for terms in balance:
        model.row("=", terms)
    for q, terms in enumerate(arrives):
        model.row("=", terms, float(demand[q]))
    for s, terms in enumerate(supply):
        model.row("<", terms, float(demand.sum() * (rng.uniform(1.0, 2.0) if s == 0 else rng.uniform(0.1, 0.6))))
    return model.parts(rng)


def lots(rng: Rng) -> dict[str, Any]:
    """Lot sizes: production needs a setup in its period."""
    model, before = Model(), None
    most = float(rng.choice([3.0, 10.0, 1e3]))
    for _ in range(int(rng.integers(2, 5))):
        make, stock = model.variable(price=PRICE * rng.uniform(0.5, 1.5)), model.variable(price=rng.uniform(1.0, 60.0))
        setup = model.variable(1.0, PRICE * rng.uniform(0.2, 1.0), whole=True, size=1 / most)
        demand = float(rng.uniform(0.0, 1.0)) if rng.random() < 0.8 else 0.0
        balance = {make: 1.0, stock: -1.0}
        if before is not None:
            balance[before] = 1.0
        model.row("=", balance, demand)
        model.row("<", {make: 1.0, setup: -most})
        before = stock
    return _switched(model, rng)


def big_m(rng: Rng) -> dict[str, Any]:
    """Facilities: what flows out of one that is closed is nothing, by M times a switch."""
    model, sites, customers = Model(), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    most = float(10.0 ** rng.integers(4, 9)) * float(rng.choice([1.0, rng.uniform(0.5, 1.0)]))
    demand, each = rng.uniform(0.2, 1.5, customers), rng.random() < 0.5
    arrives: list[dict[int, float]] = [{} for _ in range(customers)]
    for s in range(sites):
        opened = model.variable(1.0, PRICE * rng.uniform(0.2, 2.0), whole=True, size=1 / most)
        flows = [model.variable(price=PRICE * rng.uniform(0.3, 1.0)) for _ in range(customers)]
        for q, flow in enumerate(flows):
            arrives[q][flow] = 1.0
            if each:
                model.row("<", {flow: 1.0, opened: -most})
        if not each:
            model.row("<", dict.fromkeys(flows, 1.0) | {opened: -most})
        if rng.random() < 0.3 and s:
            model.row("<", dict.fromkeys(flows, 1.0), float(demand.sum() * rng.uniform(0.3, 1.0)))
    for q, terms in enumerate(arrives):
        model.row("=", terms, float(demand[q]))
    return _switched(model, rng)


def _switched(model: Model, rng: Rng) -> dict[str, Any]:
    """Switches keep their unit: M is in tonnes, as the flows are. Or the relaxation."""
    out = model.parts(rng)
    if rng.random() < 0.3:
        out["integer"] = np.zeros(len(out["lower"]), bool)
    return out
