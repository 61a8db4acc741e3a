"""Does a weak relaxation hurt decision-focused training? The travelling salesman in four formulations.

    python examples/travelling_salesman.py --out results/travelling_salesman
    python examples/travelling_salesman.py --quick

A linear model predicts the travel time of every road between eight cities; the shortest tour for the predicted times is
driven. Training solves a linear relaxation of the tour problem, either as it is (SPO+) or smoothed (SCE and smoothed
SPO+). Relaxations of the same problem can be weak or tight. From weak to tight:

    assignment      every city is left once and entered once; subtours are allowed
    MTZ             Miller, Tucker and Zemlin: a position u_i for each city, u_i − u_j + (n−1) x_ij ≤ n−2
    MTZ, lifted     the same, with the stronger rows of Desrochers and Laporte
    DFJ             Dantzig, Fulkerson and Johnson: Σ x_ij within S ≤ |S| − 1 for every set S of cities (all of them)
    exact           the tours themselves

The study is travelling_salesman.toml; its finished runs are kept in runs.jsonl.xz and never repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dflearn as dfl
from beside import percent, picture
from dflearn.evaluation import estimates
from dflearn.report.style import BLUE, INK, LINE, ORANGE, VERMILLION, color_of
from dflearn.studies.config import read_study
from dflearn.studies.driver import complete
from dflearn.studies.record import Record
from tours import AS_WRITTEN, FORMULATIONS, Tours

STUDY = Path(__file__).with_suffix(".toml")
GRID = (0.1, 0.3, 1.0, 3.0, 10.0)  # of μ, times the mean travel time
LABELS = {"sSPO+": "smoothed SPO+"}  # losses that this page spells out


def place_of(method: str) -> tuple[str, str]:
    """A method's name in the study → the relaxation it trains through, and what this page calls it."""
    if method == "two-stage":
        return "none", method
    loss, _, formulation = method.partition("^")
    written = AS_WRITTEN if method.endswith(AS_WRITTEN) else ""
    formulation = formulation.removesuffix(AS_WRITTEN)
    return "exact" if formulation == "ILP" else formulation, LABELS.get(loss, loss) + written


# -- the answer -----------------------------------------------------------------------------------------------------


def gap(tours: Tours, formulation: str, points: int, test: int) -> float:
    """How far the relaxation lies below the optimum at the true costs of the test days."""
    if formulation in ("none", "exact"):
        return 0.0
    costs = tours.split(points, tours.seed, test, 0.5).test.batch().require("costs")
    bound = dfl.HiGHS(tours.formulation(formulation).relax()).solve(costs).check().objective
    return float(1 - bound.sum() / tours.solver().solve(costs).objective.sum())


def summarize(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Per formulation and method: gap, regret over the test days of all seeds, and the difference to exact SPO+. Intervals are
    Student's, at 95 %, over seeds, which share neither cities nor data."""
    found = {(record.config.method, record.config.seed): record for record in records}
    methods = list(dict.fromkeys(method for method, _ in found))
    seeds = [s for s in sorted({seed for _, seed in found}) if all((method, s) in found for method in methods)]
    settings, cities = records[0].config.settings, int(records[0].config.problem.partition("-")[2])
    exact = np.array([found["SPO+^ILP", seed].metric("ratio_of_sums") for seed in seeds])
    problems = [Tours(cities, seed=seed) for seed in seeds]
    gaps = {
        formulation: float(
            np.mean([gap(tours, formulation, settings.points, int(settings.test)) for tours in problems])
        )
        for formulation in dict.fromkeys(place_of(method)[0] for method in methods)
    }
    rows = []
    for method in methods:
        formulation, name = place_of(method)
        runs = [found[method, seed] for seed in seeds]
        regret = np.array([run.metric("ratio_of_sums") for run in runs])
        worse, low, _ = estimates.mean(regret - exact, 0.95)
        mu = " ".join(f"{run.chosen['share']:g}" for run in runs if "share" in run.chosen)
        row = {"formulation": formulation, "method": name, "gap": gaps[formulation], "regret": float(regret.mean())}
        rows.append(row | {"seeds": len(runs), "mu": mu, "worse": worse, "error": worse - low})
    return rows


HEADING = """# The travelling salesman: {cities} cities

`python examples/travelling_salesman.py --out results/travelling_salesman`

Means over seeds, and what is more than exact SPO+ on the same seed, with Student's 95 % interval over seeds, which share
neither cities nor data. The gap is how far the relaxation lies below the optimum at the true costs. μ is what validation
chose for each seed, in units of the mean travel time.

"""


def table(rows: list[dict[str, Any]]) -> str:
    head = "| relaxation | its gap | method | seeds | Σ regret / Σ optimum | more than exact SPO+ | μ |"
    lines = [head, "|---" * 7 + "|"]
    for row in rows:
        gap = "" if row["formulation"] == "none" else f"{row['gap']:.1%}"
        worse = f"{row['worse']:+.2%} ± {row['error']:.2%}" if row["error"] > 0 else ""
        cells = [row["formulation"], gap, row["method"], row["seeds"], f"{row['regret']:.2%}", worse, row["mu"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def differences(tours: Tours, count: int = 200) -> str:
    """How far the decisions of each relaxation lie from those of DFJ at the same costs, without and with smoothing. Relative, ‖x
    − x_DFJ‖ / ‖x_DFJ‖ over both directions of every road and `count` days of true costs."""
    costs = tours.generate(count).batch().require("costs").double()
    scale, roads = float(costs.mean()), len(tours.roads)
    lines = ["| decisions | " + " | ".join(FORMULATIONS) + " |", "|---" * (1 + len(FORMULATIONS)) + "|"]
    for share in (0.0, *GRID):
        used = {}
        for name in FORMULATIONS:
            program = tours.formulation(name, rescaled=True)
            layer = dfl.Smoothed(program, share * scale) if share else dfl.Exact(dfl.HiGHS(program.relax()))
            w = layer(costs)
            used[name] = w[:, :roads] + w[:, roads : 2 * roads]  # the two directions may be exchanged
        far = (float((x - used["DFJ"]).norm() / used["DFJ"].norm()) for x in used.values())
        lines.append(f"| {f'μ = {share:g}' if share else 'not smoothed'} | {' | '.join(f'{d:.0%}' for d in far)} |")
    return "\n".join(lines)


SECOND = """

## How much the relaxations differ

Decisions at the true costs of 200 days of one seed, as roads: their distance to those of DFJ, relative. μ in units of the mean
travel time.

"""


def draw(figure: Any, tours: Tours, rows: list[dict[str, Any]]) -> None:
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))
    draw_answers(top, tours)
    draw_regrets(bottom.subplots(), rows)


def draw_answers(top: Any, tours: Tours) -> None:
    """What each relaxation answers on the day of 50 on which the lifted one is weakest."""
    cities = tours.structure["places"]
    costs = tours.generate(50).batch().require("costs").double()
    bounds = dfl.HiGHS(tours.formulation("MTZ, lifted").relax()).solve(costs).objective
    hardest = int((bounds / tours.solver().solve(costs).objective).argmin())
    costs = costs[hardest : hardest + 1]
    optimum = float(tours.solver().solve(costs).objective)
    for axes, name in zip(top.subplots(1, 5), (*FORMULATIONS, "exact"), strict=True):
        solver = tours.solver() if name == "exact" else dfl.HiGHS(tours.formulation(name).relax())
        solution = solver.solve(costs)
        bound, decision = float(solution.objective), solution.decision[0, : len(tours.arcs)].numpy()
        use = decision.reshape(-1, len(tours.roads)).sum(0)  # both directions of a road
        for (one, other), amount in zip(tours.roads, use, strict=True):
            if amount > 1e-6:
                color = VERMILLION if amount > 1 + 1e-6 else BLUE if amount > 1 - 1e-6 else ORANGE
                axes.plot(*cities[[one, other]].T, color=color, linewidth=1 + 3 * amount, solid_capstyle="round")
        axes.scatter(*cities.T, s=60, color="white", edgecolors=INK, zorder=3)
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-0.08, 1.08), ylim=(-0.08, 1.08))
        axes.spines[:].set_color(LINE)
        axes.set_title("the best tour" if name == "exact" else f"{name}: {1 - bound / optimum:.0%} below")
    top.suptitle(
        "What each relaxation answers for the same times (red: a road driven both ways, gold: a fraction of a road)",
        weight="bold", color=INK, size=12,
    )  # fmt: skip


def draw_regrets(axes: Any, rows: list[dict[str, Any]]) -> None:
    names = [*FORMULATIONS, "exact"]
    gaps = {row["formulation"]: row["gap"] for row in rows}
    markers = {"SPO+": "o", "smoothed SPO+": "^", "SCE": "D", "SCE, u as written": "s"}
    for shift, (method, marker) in enumerate(markers.items()):
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: names.index(row["formulation"]))
        place = [names.index(row["formulation"]) + 0.04 * (shift - 1.5) for row in own]
        axes.errorbar(
            place, [row["worse"] for row in own], [row["error"] for row in own], color=color_of(method.partition(",")[0]), marker=marker,
            markersize=8, linewidth=2, capsize=3, label=method, linestyle=":" if "written" in method else "-",
        )  # fmt: skip
    for row in rows:
        if row["method"] == "two-stage":
            axes.axhline(row["worse"], color=color_of("two-stage"), linestyle="--", label="two-stage")
    labels = [f"{name}\n{gaps[name]:.1%} below the optimum" if gaps[name] else name for name in names]
    axes.set_xticks(range(len(names)), labels)
    percent(axes.yaxis, decimals=1)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xlabel("relaxation that training solves: weak on the left, tight on the right")
    axes.set_xlim(-0.3, len(names) - 0.7)
    axes.set(ylabel="Σ regret / Σ optimum,\nmore than exact SPO+ has")
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 0.92))
    axes.set_title("Regret after training through each relaxation")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=Path("travelling_salesman"))
    arguments.add_argument("--plot", type=Path, default=Path("travelling_salesman.png"))
    arguments.add_argument("--quick", action="store_true", help="six cities, one seed, 20 + 10 + 20 days, 2 epochs")
    options = arguments.parse_args()
    study = read_study(STUDY)
    if options.quick:
        settings = replace(study.settings, points=50, test=20, validation=10, epochs=2)
        study = replace(study, problems=("TSP-6",), seeds=(1,), settings=settings)
    records = complete(study, options.out / "runs.jsonl.xz")
    rows = summarize(records)
    tours = Tours(int(study.problems[0].partition("-")[2]), seed=study.seeds[0])
    text = HEADING.format(cities=tours.cities) + table(rows) + SECOND + differences(tours) + "\n"
    (options.out / "table.md").write_text(text)
    print(f"\n{text}")
    picture(options.plot, (13, 7.2), draw, tours, rows)


if __name__ == "__main__":
    main()
