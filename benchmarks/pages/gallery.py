"""The cards of docs/gallery/README.md; every number is read from a committed result of its example.

`results/examples/NAME.txt` is what `python examples/NAME.py` prints.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).resolve().parents[2] / "results"


class Card(NamedTuple):
    """before, after: regret in percent of the optimum, and the method that has it."""

    title: str
    page: str
    industry: str
    data: str
    shows: str
    before: tuple[str, float]
    after: tuple[str, float]


def printed(name: str, *methods: str, table: int = 0) -> list[tuple[str, float]]:
    """The first percentage in the row of each method, in one of the tables that a script printed."""
    found = []
    for method in methods:
        rows = re.findall(rf"^{re.escape(method)} +([\d.]+)%", (RESULTS / "examples" / f"{name}.txt").read_text(), re.M)
        found.append((method, float(rows[table])))
    return found


def energy(problem: str) -> dict[str, float]:
    """By method, the first percentage of the problem's row in the first table of results/energy."""
    lines = (RESULTS / "energy" / "table.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("|")]
    own = next(row for row in rows if row[1].strip() == problem)
    return {name.strip(): float(cell.partition("%")[0]) for name, cell in zip(rows[0][2:-1], own[2:-1], strict=True)}


def salesman(method: str, relaxation: str) -> tuple[str, float]:
    table = (RESULTS / "travelling_salesman" / "table.md").read_text()
    (share,) = re.findall(rf"^\| {relaxation} \|[^|]*\| {re.escape(method)} \|[^|]*\| ([\d.]+)%", table, re.M)
    return method, float(share)


def best(*found: tuple[str, float]) -> tuple[str, float]:
    return min(found, key=lambda one: one[1])


def gallery() -> list[Card]:
    knapsack, scheduling = map(energy, ("energy knapsack 60, value", "schedule_load1"))
    surrogates = ("SPO+", "SCE")

    def of_table(found: dict[str, float]) -> tuple[tuple[str, float], tuple[str, float]]:
        return ("two-stage", found["two-stage"]), best(*((name, found[name]) for name in surrogates))

    def of_script(name: str, *methods: str) -> tuple[tuple[str, float], tuple[str, float]]:
        first, *others = printed(name, "two-stage", *(methods or surrogates))
        return first, best(*others)

    def forecasts(name: str, table: int = 0) -> tuple[tuple[str, float], tuple[str, float]]:
        *classical, own = printed(name, "mean (ridge)", "quantile", "cost after recourse", table=table)
        return best(*classical), own

    ridge, *others = printed("portfolio", "ridge", "Fenchel-Young", "the return itself")
    return [
        Card("Energy knapsack", "energy-knapsack.md", "Electricity", "789 real days of prices", "features per half-hour; what you know belongs in `S`", *of_table(knapsack)),
        Card("Energy-cost-aware scheduling", "energy-scheduling.md", "Data centres", "789 real days, CSPLib tasks", "48 prices in 411 variables; trained on the relaxation", *of_table(scheduling)),
        Card("Delivery", "delivery.md", "Logistics", "simulated: 100 places, 460 roads", "a network with cycles; another customer every day", *of_script("delivery")),
        Card("Buying ahead", "inventory.md", "Purchasing", "simulated: 14 days of prices", "demand per instance, known costs, integer order days", *of_script("inventory")),
        Card("Your own solver", "own-solver.md", "Shipping", "simulated: satellite images", "a numpy routine instead of a program", *of_script("own_solver", "SPO+", "PFY")),
        Card("The travelling salesman", "travelling-salesman.md", "Routing", "simulated: 8 cities", "weak and tight relaxations of one problem", salesman("two-stage", "none"), salesman("SPO+", "exact")),
        Card("A portfolio with risk", "portfolio.md", "Finance", "simulated: 20 assets", "a quadratic objective by factors; the exact QP layer", ridge, best(*others)),
        Card("Newsvendors with one shelf", "newsvendor.md", "Retail", "simulated: demand of 5 goods", "predicted demand; rows that may be broken at a price", *forecasts("newsvendor", 1)),
        Card("Generator scheduling", "generators.md", "Power plants", "simulated: load of a day", "predicted load, ramps, quadratic fuel costs", *forecasts("generators")),
        Card("Transport and express", "transport.md", "Supply chains", "simulated: demand of towns", "predicted demand, supply that runs out", *forecasts("transport")),
        Card("Unit commitment", "commitment.md", "Power plants", "simulated: load of a day", "integer decisions, predicted load, balancing", *forecasts("commitment")),
    ]  # fmt: skip


def block() -> str:
    """The cards as Markdown inside HTML, which code hosts and the site both show."""
    parts = ['<div class="cards" markdown>\n']
    for card in gallery():
        (before, old), (after, new) = card.before, card.after
        parts.append(
            f'<div class="card" markdown>\n\n**[{card.title}]({card.page})**\n\n{card.industry} · {card.data}\n\n'
            f"**{old:.2f} % → {new:.2f} %**\n\n{before} → {after}\n\n{card.shows[0].upper()}{card.shows[1:]}.\n\n</div>\n"
        )
    return "\n".join([*parts, "</div>\n"])
