"""The figures of README.md and of pages in docs/ (`DOCUMENTS`), written from the files in results/, so that they cannot differ.

    python benchmarks/pages/results_blocks.py            # rewrites the block between the markers of each

Nothing is measured here. A test compares the documents with what this would write.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "speed"))

from dflearn.problems import PROBLEMS  # noqa: E402
from dflearn.report.render import render  # noqa: E402
from dflearn.studies.paper.tables import Row, rows_of, seed_counts  # noqa: E402
from dflearn.studies.store import read_records  # noqa: E402
from targets import MEAN, two_digits  # noqa: E402

Headline = tuple[str, str, str, str, str, dict[str, Any]]
BLOCK = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", re.DOTALL)
PAPER = ("MSE", "SPO+^relax", "PFY", "CaVE", "SCE^DYS", "SCE^smoothed", "SCE^smoothed scaled")


def measured(name: str, subject: str) -> list[dict[str, Any]]:
    """The rows of one subject of a benchmark; none where it was not measured."""
    path = ROOT / "results" / "bench" / f"{name}.json"
    return json.loads(path.read_text())["subjects"].get(subject, []) if path.exists() else []


def ratios(title: str, file: str, subject: str, columns: dict[str, str], *places: str) -> str:
    """A table of ratios to two digits, one line per row of the benchmark, losing ones included."""
    rows = measured(file, subject)
    if not rows:
        return f"{title}: not measured."
    there = {key: name for key, name in columns.items() if any(key in row for row in rows)}
    names = {place: place for place in places} | there
    lines = [f"| {' | '.join(show(row.get(key, '')) for key in names)} |" for row in rows]
    head = [f"{title} ([all columns](../../results/bench/{file}.md)):", "", f"| {' | '.join(names.values())} |"]
    return "\n".join([*head, "|---" * len(names) + "|", *lines])


def show(value: Any) -> str:
    return two_digits(value) + "×" if isinstance(value, float) else str(value)


def headline() -> str:
    """Speed in one table: the range over the problems of a benchmark, and the worst row where it is one to know."""
    lines = []
    for line in HEADLINES:
        names = list(dict.fromkeys(str(row.get("problem") or row["loss"]) for row in rows_behind(line)))
        problems = "all twelve problems of the paper" if set(names) == set(PROBLEMS) else ", ".join(names)
        lines.append(f"| {line[0]} | {line[1]} | {spread(line)} | {problems} |")
    return "\n".join(["| what | against | times as fast | on |", "|---|---|---|---|", *lines])


def rows_behind(line: Headline) -> list[dict[str, Any]]:
    _, _, file, subject, _, chosen = line
    rows = [row for row in measured(file, subject) if row.get("problem") != MEAN and chosen.items() <= row.items()]
    return [row for row in rows if line[4] in row]


def spread(line: Headline) -> str:
    figures = [float(row[line[4]]) for row in rows_behind(line)]
    return f"{two_digits(min(figures))}× to {two_digits(max(figures))}×"


# What, against whom, where the ratio is, and what the rows that count hold.
HEADLINES: tuple[Headline, ...] = (
    ("an epoch of SPO+, shortest paths", "PyEPO + Gurobi", "epochs", "SPO+ on shortest paths", "cold ratio", {}),
    ("an epoch of SPO+, relaxed knapsacks", "PyEPO + Gurobi", "epochs", "SPO+ on relaxed knapsacks", "cold ratio", {}),
    ("an epoch on a 5×5 grid whose structure nobody knows", "PyEPO + Gurobi", "small_lps", "epochs", "Gurobi / SmallLP", {}),
    ("an epoch of SCE^DYS unrolled", "the authors' layer", "epochs", "SCE^DYS against the published layer", "unrolled ratio", {}),
    ("an epoch of SCE^smoothed", "the authors' layer", "epochs", "SCE^smoothed against the published layer", "cold ratio", {}),
    ("the smoothed layer, batch 32", "cvxpylayers", "layers", "forward and backward", "cvxpylayers cold ratio", {"batch": 32}),
    ("the smoothed layer, batch 32", "qpth", "layers", "forward and backward", "qpth cold ratio", {"batch": 32}),
    ("the smoothed layer, batch 1", "cvxpylayers", "layers", "forward and backward", "cvxpylayers cold ratio", {"batch": 1}),
    ("the exact quadratic layer, batch 32", "cvxpylayers", "quadratic", "batch of 32", "cvxpylayers ratio", {}),
    ("the exact quadratic layer, batch 32", "Moreau", "quadratic", "batch of 32", "Moreau ratio", {}),
    ("1000 labels, shortest paths", "PyEPO + Gurobi", "labelling", "peers", "Gurobi ratio", {}),
    ("exact knapsacks, true costs", "Gurobi", "knapsacks", "against general solvers", "Gurobi ratio", {"costs": "true"}),
)  # fmt: skip


COLD_WARM = {"cold ratio": "cold", "warm ratio": "warm"}
PYEPO = {**COLD_WARM, "OR-Tools ratio": "OR-Tools, cold"}
DYS = {"unrolled ratio": "unrolled", "jfb ratio": "Jacobian-free"}
GENERAL = {"HiGHS ratio": "HiGHS", "Gurobi ratio": "Gurobi"}
WAYS = {"SCE^DYS ratio": "SCE^DYS unrolled"}
WAYS |= {f"{way} ratio": way for way in ("SCE^DYS jfb", "SCE^smoothed cold", "SCE^smoothed warm")}
LAYERS = {f"{peer} {start} ratio": f"{peer}, {start}" for peer in ("cvxpylayers", "qpth") for start in ("cold", "warm")}
QUADRATIC = {f"{peer} ratio": peer for peer in ("cvxpylayers", "qpth", "Moreau", "Moreau, interior points")}
QUADRATIC |= {"cvxpylayers, factor given ratio": "cvxpylayers, we with the factor of Q"}
# Title, subject and columns.
TRAINING: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("SPO+ on shortest paths against PyEPO + Gurobi", "SPO+ on shortest paths", PYEPO),
    ("SPO+ on relaxed knapsacks against PyEPO + Gurobi", "SPO+ on relaxed knapsacks", PYEPO),
    ("PFY on relaxed knapsacks against PyEPO + Gurobi", "PFY on relaxed knapsacks", PYEPO),
    ("SCE^DYS unrolled against the published layer, Jacobian-free against the dense one", "SCE^DYS against the published layer", DYS),
    ("SCE^smoothed against the published layer", "SCE^smoothed against the published layer", COLD_WARM),
    ("SCE against SPO+ of PyEPO + Gurobi", "SCE against PyEPO's SPO+", WAYS),
)  # fmt: skip
AS_PUBLISHED = "An epoch of SCE^DYS as published, by our kernel against the authors' dense matrices"
EXACT_QUADRATIC = "The exact quadratic layer, forward and backward, cold, batch of"
KNAPSACKS = "Exact knapsacks, `FewRowBinary` against general solvers; costs are true or expected values"
FACILITIES = "Exact facility location, `RelaxationFirst` against general solvers; costs are true ones or predictions"
LABELS = "Labels of 1000 instances against PyEPO's data set"


def speed() -> str:
    """Every ratio on one thread."""
    parts = [
        *training(),
        ratios(AS_PUBLISHED, "paper_times", "SCE^DYS, sparse and dense", {"ratio": "times as fast"}, "problem"),
        layers(),
        *(ratios(f"{EXACT_QUADRATIC} {b}", "quadratic", f"batch of {b}", QUADRATIC, "problem") for b in (32, 1)),
        ratios(LABELS, "labelling", "peers", {"Gurobi ratio": "Gurobi", "OR-Tools ratio": "OR-Tools"}, "problem"),
        ratios("Exact solvers against HiGHS at its best", "solvers", "oracles", {"gain": "times as fast"}, "problem", "oracle"),
        ratios(KNAPSACKS, "knapsacks", "against general solvers", GENERAL, "problem", "costs"),
        ratios(FACILITIES, "facilities", "against general solvers", GENERAL, "problem", "costs"),
    ]  # fmt: skip
    return "\n\n".join(parts)


def training(threads: str = "") -> list[str]:
    """Ratios of seconds per epoch, on one thread or as the suffix of the file's name says."""
    return [ratios(title, f"epochs{threads}", subject, columns, "problem") for title, subject, columns in TRAINING]


def layers(threads: str = "") -> str:
    title, subject = "The smoothed layer, forward and backward", "forward and backward"
    return ratios(title, f"layers{threads}", subject, LAYERS, "problem", "batch")


def paper() -> str:
    """The methods of the paper's final comparison on every problem: our figure, in brackets the published one."""
    records = read_records(ROOT / "results" / "paper" / "runs.jsonl.xz")
    lines = []
    for problem in PROBLEMS:
        rows = {row.summary.method: row for row in rows_of(problem, PAPER, records)}
        if rows:
            lines.append([problem, seed_counts(list(rows.values())), *(beside(rows.get(method)) for method in PAPER)])
    return render(["", "seeds", *PAPER], lines, "markdown")


def beside(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.summary.regret:.3f}" + (f" ({row.published.regret:.2f})" if row.published else "")


def readme() -> str:
    """Three numbers: regret, and speed twice."""
    records = read_records(ROOT / "results" / "paper" / "runs.jsonl.xz")
    gains = []
    for problem in PROBLEMS:
        regret = {row.summary.method: row.summary.regret for row in rows_of(problem, ("MSE", PAPER[-1]), records)}
        gains.append(1 - regret[PAPER[-1]] / regret["MSE"])
    least, most = min(gains), max(gains)
    path, layer = HEADLINES[0], HEADLINES[5]
    return f"""| | |
|---|---|
| **{least:.0%} to {most:.0%}** | less regret than squared error on each of the {len(gains)} problems of the paper, by SCE and the same linear model |
| **{spread(path)}** | as fast as PyEPO with Gurobi: {path[0]} |
| **{spread(layer)}** | as fast as cvxpylayers: {layer[0]}, forward and backward |
"""


def results() -> str:
    return f"""
## Decisions

The table shows test regret on the paper's problems, in the style that the paper prints, averaged over the seeds. Figures in
brackets are the published ones. SCE^DYS is the authors' own code. The last two columns are ours, untuned: SCE through the exactly
smoothed program with the paper's model, and the same with [a model in units of the costs](../how-to/choose-a-method.md).
[Claim by claim](reproduction.md) explains the differences. [Every row](../../results/paper/README.md) is listed, and so are
[methods tuned alike](../../results/comparison/README.md).

{paper()}

## Speed

The table shows the peer's time divided by ours, on one thread, without compilation. [Performance](performance.md) says how it is
measured and lists every ratio.

{headline()}

"""


def performance() -> str:
    return f"""
Training is timed in seconds per epoch of 800 instances: the same data, linear model, start, order, batches of 32 and Adam
for everyone, each in a process of its own, in turns, on one thread, in CPU time; medians, warm-up apart. Ratios are the
peer's time over ours, to two digits; below 1 the peer is faster. Cold: no start. Warm: each instance starts where its last
solve ended. The pages linked from the tables hold times, memory, accuracy, versions, the machine, the commit and the command
that made them. `make bench OUT=results/bench` makes all of them anew.

### Every ratio with one thread

{speed()}

### Every ratio with two threads

By the clock on the wall (`make bench THREADS=2 OUT=results/bench`; these rows: `python benchmarks/speed/epochs.py --threads 2
--problems …`, `python benchmarks/speed/layers.py --threads 2 --batches 1 32`). Where problems are small, PyEPO's loop is slower
with two threads than with one, so that the tables above are the ones to go by.

{chr(10).join([*(part + chr(10) for part in training("_2_threads")), layers("_2_threads")])}

"""


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
        rows = re.findall(
            rf"^{re.escape(method)} +([\d.]+)%", (ROOT / "results" / "examples" / f"{name}.txt").read_text(), re.M
        )
        found.append((method, float(rows[table])))
    return found


def energy(problem: str) -> dict[str, float]:
    """By method, the first percentage of the problem's row in the first table of results/energy."""
    lines = (ROOT / "results" / "energy" / "table.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("|")]
    own = next(row for row in rows if row[1].strip() == problem)
    return {name.strip(): float(cell.partition("%")[0]) for name, cell in zip(rows[0][2:-1], own[2:-1], strict=True)}


def salesman(method: str, relaxation: str) -> tuple[str, float]:
    table = (ROOT / "results" / "travelling_salesman" / "table.md").read_text()
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


def cards() -> str:
    """The cards as Markdown inside HTML, which code hosts and the site both show."""
    parts = ['<div class="cards" markdown>\n']
    for card in gallery():
        (before, old), (after, new) = card.before, card.after
        parts.append(
            f'<div class="card" markdown>\n\n**[{card.title}]({card.page})**\n\n{card.industry} · {card.data}\n\n'
            f"**{old:.2f} % → {new:.2f} %**\n\n{before} → {after}\n\n{card.shows[0].upper()}{card.shows[1:]}.\n\n</div>\n"
        )
    return "\n".join([*parts, "</div>\n"])


DOCUMENTS: dict[str, Callable[[], str]] = {
    "README.md": readme,
    "docs/explanation/comparison.md": lambda: f"\n{headline()}\n\n",
    "docs/notes/performance.md": performance,
    "docs/notes/results.md": results,
    "docs/gallery/README.md": cards,
}

if __name__ == "__main__":
    for name, block in DOCUMENTS.items():
        path = ROOT / name
        path.write_text(BLOCK.sub(lambda _, block=block: block(), path.read_text()))
