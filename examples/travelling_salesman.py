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

Every finished (seed, formulation, method) is a line of runs.jsonl and is not run again; the figure is drawn from that file.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dflearn as dfl
from dflearn.data import DecisionDataset, Split
from dflearn.evaluation import estimates
from dflearn.losses import MSE, SCE, SmoothedSPOPlus, SPOPlus
from rows import append, read
from tours import FORMULATIONS, Tours, travel_times

INK, GREY, RED, BLUE, GREEN, GOLD = "#1f2933", "#9aa5b1", "#d1495b", "#2b6cb0", "#5aa469", "#e0a030"
SETTINGS: dict[str, Any] = {"epochs": 25, "lr": 0.02, "batch_size": 16}
GRID = (0.1, 0.3, 1.0, 3.0, 10.0)  # of μ, times the mean travel time
KEY = ("seed", "formulation", "method")
METHODS = ("SPO+", "smoothed SPO+", "SCE", "SCE, u as written")


# -- one run --------------------------------------------------------------------------------------------------------


def run(tours: Tours, split: Split, formulation: str, method: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train through one formulation and judge by the exact tours."""
    exact = tours.solver()
    options = {**SETTINGS, "epochs": epochs, "seed": seed, "progress": False, "keep": "best"}
    make_model = lambda seed: dfl.models.Linear(split.train.features.shape[1], len(tours.roads), seed=seed)  # noqa: E731
    model, mu, train = make_model(seed), None, split.train
    by_regret = {"validation": split.validation, "problem": exact}
    begun = time.process_time()
    if formulation == "none":
        dfl.fit(model, MSE(), train, validation=split.validation, **options)
    elif formulation == "exact":
        dfl.fit(model, SPOPlus(dfl.Exact(exact)), train, **by_regret, **options)
    else:
        rescaled = method != "SCE, u as written"
        program = tours.formulation(formulation, rescaled)
        train = train.with_decisions(tours.directed(train.batch().require("decisions"), program, rescaled))
        if method == "SPO+":
            dfl.fit(model, SPOPlus(dfl.Exact(dfl.HiGHS(program.relax()))), train, **by_regret, **options)
        else:
            scale = float(train.batch().require("costs").mean())
            best = np.inf
            kind = SmoothedSPOPlus if method == "smoothed SPO+" else SCE
            for share in GRID:
                candidate = make_model(seed)
                history = dfl.fit(candidate, kind(dfl.Smoothed(program, share * scale)), train, **by_regret, **options)
                assert history.best is not None
                if history.best["validation_absolute_regret"] < best:
                    best, mu, model = history.best["validation_absolute_regret"], share, candidate
    seconds = time.process_time() - begun
    evaluation = dfl.evaluate(model, tours.program(), split.test, exact, progress=False)
    return {
        "mu": mu,
        "seconds": round(seconds, 2),
        "ratio_of_sums": evaluation.ratio_of_sums,
        "mean_of_ratios": evaluation.mean_of_ratios,
        "regret": [round(float(value), 6) for value in evaluation.regrets],
        "optimum": [round(float(value), 6) for value in evaluation.optima],
    }


def tightness(tours: Tours, formulation: str, test: DecisionDataset) -> dict[str, float]:
    """How far the relaxation lies below the optimum at the true costs, and what a solve takes (CPU ms)."""
    costs = test.batch().require("costs")
    optimum = tours.solver().solve(costs).objective
    if formulation in ("none", "exact"):
        return {"gap": 0.0}
    relaxed = dfl.HiGHS(tours.formulation(formulation).relax())
    relaxed.solve(costs[:1])
    begun = time.process_time()
    bound = relaxed.solve(costs).check().objective
    milliseconds = 1000 * (time.process_time() - begun) / len(costs)
    return {"gap": float(1 - bound.sum() / optimum.sum()), "milliseconds": round(milliseconds, 3)}


def wanted(formulations: tuple[str, ...] = FORMULATIONS) -> list[tuple[str, str]]:
    pairs = [("none", "two-stage"), ("exact", "SPO+")]
    for formulation in formulations:
        pairs += [(formulation, method) for method in METHODS if "MTZ" in formulation or "as written" not in method]
    return pairs


# -- the answer -----------------------------------------------------------------------------------------------------


def summarize(found: dict[tuple[int, str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Per formulation and method: gap, regret over the test days of all seeds, and the difference to exact SPO+.

    Intervals are Student's, at 95 %, over seeds, which share neither cities nor data.
    """
    seeds = [seed for seed in sorted({key[0] for key in found}) if all((seed, *pair) in found for pair in wanted())]
    rows = []
    for formulation, method in wanted():
        runs = [found[seed, formulation, method] for seed in seeds]
        if not runs:
            continue  # no seed is finished yet
        regret = np.array([row["ratio_of_sums"] for row in runs])
        row = {
            "formulation": formulation,
            "method": method,
            "gap": float(np.mean([row["gap"] for row in runs])),
            "regret": float(regret.mean()),
            "seeds": len(runs),
            "mu": " ".join(f"{row['mu']:g}" for row in runs if row["mu"] is not None),
        }
        worse = regret - np.array([found[seed, "exact", "SPO+"]["ratio_of_sums"] for seed in seeds])
        row["worse"], low, _ = estimates.mean(worse, 0.95)
        row["error"] = row["worse"] - low
        rows.append(row)
    return rows


HEADING = """# The travelling salesman: {cities} cities

`python examples/travelling_salesman.py --out results/travelling_salesman`

Means over seeds, and what is more than exact SPO+ on the same seed, with Student's 95 % interval over seeds, which share
neither cities nor data. The gap is how far the relaxation lies below the optimum at the true costs. μ is what validation
chose for each seed, in units of the mean travel time.

"""


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| relaxation | its gap | method | seeds | Σ regret / Σ optimum | more than exact SPO+ | μ |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gap = "" if row["formulation"] == "none" else f"{row['gap']:.1%}"
        worse = f"{row['worse']:+.2%} ± {row['error']:.2%}" if row["error"] > 0 else ""
        lines.append(
            f"| {row['formulation']} | {gap} | {row['method']} | {row['seeds']} | {row['regret']:.2%} | {worse} | {row['mu']} |"
        )
    return "\n".join(lines)


def differences(tours: Tours, seed: int, count: int = 200) -> str:
    """How far the decisions of each relaxation lie from those of DFJ at the same costs, without and with smoothing.

    Relative, ‖x − x_DFJ‖ / ‖x_DFJ‖ over both directions of every road and `count` days of true costs.
    """
    costs = travel_times(tours, count, seed)[0].batch().require("costs").double()
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


def draw(path: Path, tours: Tours, seed: int, rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(13, 7.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))
    data, cities = travel_times(tours, 50, seed)
    costs = data.batch().require("costs").double()
    bounds = dfl.HiGHS(tours.formulation("MTZ, lifted").relax()).solve(costs).objective
    hardest = int((bounds / tours.solver().solve(costs).objective).argmin())
    costs = costs[hardest : hardest + 1]
    optimum = float(tours.solver().solve(costs).objective)
    for axes, name in zip(top.subplots(1, 5), (*FORMULATIONS, "exact"), strict=True):
        if name == "exact":
            use, bound = tours.solver().solve(costs).decision[0].numpy(), optimum
        else:
            solution = dfl.HiGHS(tours.formulation(name).relax()).solve(costs)
            both = solution.decision[0, : len(tours.arcs)].numpy().reshape(2, -1)
            use, bound = both.sum(0), float(solution.objective)
        for (one, other), amount in zip(tours.roads, use, strict=True):
            if amount > 1e-6:
                color = RED if amount > 1 + 1e-6 else BLUE if amount > 1 - 1e-6 else GOLD
                axes.plot(*cities[[one, other]].T, color=color, linewidth=1 + 3 * amount, solid_capstyle="round")
        axes.scatter(*cities.T, s=60, color="white", edgecolors=INK, zorder=3)
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-0.08, 1.08), ylim=(-0.08, 1.08))
        axes.spines[:].set_color(GREY)
        axes.set_title("the best tour" if name == "exact" else f"{name}: {1 - bound / optimum:.0%} below", size=11)
    top.suptitle(
        "What each relaxation answers for the same times (red: a road driven both ways, gold: a fraction of a road)",
        weight="bold", color=INK, size=12,
    )  # fmt: skip

    axes = bottom.subplots()
    names = [*FORMULATIONS, "exact"]
    gaps = {row["formulation"]: row["gap"] for row in rows}
    for shift, (method, color, marker) in enumerate(
        (("SPO+", GREEN, "o"), ("smoothed SPO+", GOLD, "^"), ("SCE", BLUE, "D"), ("SCE, u as written", RED, "s"))
    ):
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: names.index(row["formulation"]))
        place = [names.index(row["formulation"]) + 0.04 * (shift - 1.5) for row in own]
        axes.errorbar(
            place, [row["worse"] for row in own], [row["error"] for row in own], color=color, marker=marker,
            markersize=8, linewidth=2, capsize=3, label=method, linestyle=":" if "written" in method else "-",
        )  # fmt: skip
    for row in rows:
        if row["method"] == "two-stage":
            axes.axhline(row["worse"], color=GREY, linestyle="--", label="two-stage")
    axes.set_xticks(
        range(len(names)), [f"{name}\n{gaps[name]:.1%} below the optimum" if gaps[name] else name for name in names]
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(
        xlim=(-0.3, len(names) - 0.7), xlabel="relaxation that training solves: weak on the left, tight on the right"
    )
    axes.set(ylabel="Σ regret / Σ optimum,\nmore than exact SPO+ has")
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 0.92))
    axes.set_title("Regret after training through each relaxation", weight="bold", color=INK, size=12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    print(f"plot: {path}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cities", type=int, default=8)
    arguments.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 9)))
    arguments.add_argument(
        "--sizes", nargs=3, type=int, default=[200, 100, 500], metavar=("TRAIN", "VALIDATION", "TEST")
    )
    arguments.add_argument("--epochs", type=int, default=SETTINGS["epochs"])
    arguments.add_argument("--out", type=Path, default=Path("travelling_salesman"))
    arguments.add_argument("--plot", type=Path, default=Path("travelling_salesman.png"))
    arguments.add_argument("--quick", action="store_true", help="six cities, one seed, 20 + 10 + 20 days, 2 epochs")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.cities, options.seeds, options.sizes, options.epochs = 6, [1], [20, 10, 20], 2
    tours = Tours(options.cities)
    settings = {
        **SETTINGS, "epochs": options.epochs, "grid": list(GRID), "cities": options.cities, "sizes": options.sizes,
    }  # fmt: skip
    path = options.out / "runs.jsonl"
    for seed in options.seeds:
        done = read(path, settings, *KEY)
        missing = [(f, m) for f, m in wanted() if (seed, f, m) not in done]
        if not missing:
            continue
        _, validation, test = options.sizes
        data, _ = travel_times(tours, sum(options.sizes), seed)
        split = dfl.label(data, tours.solver()).split(seed, test=test, validation=validation)
        for formulation, method in missing:
            row = {
                "seed": seed, "formulation": formulation, "method": method, "settings": settings,
                **tightness(tours, formulation, split.test),
                **run(tours, split, formulation, method, seed, options.epochs),
            }  # fmt: skip
            append(path, row)
            print(f"seed {seed}, {formulation}, {method}: {row['ratio_of_sums']:.2%}", flush=True)
    rows = summarize(read(path, settings, *KEY))
    text = HEADING.format(cities=options.cities) + table(rows) + SECOND + differences(tours, options.seeds[0]) + "\n"
    (options.out / "table.md").write_text(text)
    print(f"\n{text}")
    try:
        draw(options.plot, tours, options.seeds[0], rows)
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")


if __name__ == "__main__":
    main()
