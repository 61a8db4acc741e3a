"""Energy knapsack: which half-hours of tomorrow are worth having, when their prices are not known yet?

    python examples/energy_knapsack.py --data energy_days.npz
    python examples/energy_knapsack.py --quick        # synthetic days, a minute at most

    max over w of Σ value_t w_t   s.t.   Σ weight_t w_t ≤ capacity,   w ∈ {0, 1}⁴⁸

The value of a half-hour is about its weight times its price. The literature predicts the value from features that say
nothing of the weight; `--predict price` predicts the price, and leaves the weight, which is known, to the program.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import dflearn as dfl
from dflearn.data import Split
from dflearn.evaluation import Evaluation
from dflearn.problems.energy import EnergyDays, EnergyKnapsack, load_energy_days, split_days
from energy_methods import METHODS, SETTINGS, Judged, judge

INK, GREY, RED, BLUE, GOLD = "#1f2933", "#c3cad3", "#d1495b", "#2b6cb0", "#e0a030"
COLORS = dict(zip(METHODS, (RED, GOLD, "#5aa469", BLUE), strict=True))


def prepare(days: EnergyDays, problem: EnergyKnapsack, seed: int) -> tuple[Split, float]:
    """Labelled days in the literature's proportions of 550, 100 and 139; and the unit in which costs are counted."""
    data = dfl.label(days.dataset(problem.costs(days)), problem.solver())
    train, validation = (round(len(days) * part / 789) for part in (550, 100))
    return split_days(data, seed, train=train, validation=validation)


def table(problem: EnergyKnapsack, found: dict[str, Judged], unit: float) -> str:
    baseline = found["two-stage"].evaluation
    lines = [f"\ncapacity {problem.capacity}, predicting the {problem.predict}: {len(baseline.ids)} test days"]
    lines.append(f"{'':<30}{'regret':>8}{'value lost':>12}{'saved a day against two-stage':>32}{'μ':>7}{'epoch':>7}")
    for method, judged in found.items():
        evaluation = judged.evaluation
        saved = ""
        if method != "two-stage":
            value, low, high = (0.0 - unit * part for part in dfl.compare(evaluation, baseline).absolute_regret)
            saved = f"{value:.0f} [{high:.0f}, {low:.0f}]"
        lost = unit * evaluation.absolute_regret
        mu = "" if judged.mu is None else f"{judged.mu:g}"
        lines.append(f"{method:<30}{evaluation.ratio_of_sums:>8.2%}{lost:>12.0f}{saved:>32}{mu:>7}{judged.epoch:>7}")
    return "\n".join(lines)


# -- the plot -------------------------------------------------------------------------------------------------------


def draw(path: Path, days: EnergyDays, results: dict[tuple[str, int], dict[str, Evaluation]], units: dict) -> None:  # type: ignore[type-arg]
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1.1, 0.9))
    capacity = min(key[1] for key in results)
    draw_day(left, days, capacity, results["value", capacity])
    draw_regrets(middle, results)
    draw_savings(right, capacity, results["value", capacity], units["value", capacity])
    for axes in (left, middle, right):
        axes.title.set(weight="bold", color=INK, size=12)
        axes.spines[["top", "right"]].set_visible(False)
    figure.get_layout_engine().set(wspace=0.05)
    figure.savefig(path, dpi=150)
    print(f"\nplot: {path}")


def draw_day(axes, days: EnergyDays, capacity: int, found: dict[str, Evaluation]) -> None:  # type: ignore[no-untyped-def]
    """The test day whose two regrets are closest to their averages over all days."""
    shown = {name: found[name].regrets / found[name].optima for name in ("SCE", "two-stage")}
    which = int(np.argmin(sum((share - found[name].ratio_of_sums) ** 2 for name, share in shown.items())))
    price = days.prices[found["SCE"].ids[which]]
    hour, top = np.arange(48) / 2, price.max()
    axes.bar(hour, price, width=0.42, color=GREY, align="edge", label="true price")
    for row, (name, color) in enumerate((("SCE", BLUE), ("two-stage", RED)), 1):
        decisions = found[name].decisions
        assert decisions is not None
        chosen = decisions[which].numpy() > 0.5
        label = f"{name} takes: {shown[name][which]:.0%} below the best"
        axes.bar(hour[chosen], 0.055 * top, 0.42, -0.07 * top * row, color=color, align="edge", label=label)
    axes.set(xlabel="hour of the day", ylabel="price", xlim=(0, 24), xticks=range(0, 25, 6))
    axes.set_ylim(-0.15 * top, 1.35 * top)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    axes.set_title(f"A typical test day, capacity {capacity}")


def draw_regrets(axes, results: dict[tuple[str, int], dict[str, Evaluation]]) -> None:  # type: ignore[no-untyped-def]
    from matplotlib.ticker import MultipleLocator, PercentFormatter

    keys = sorted(results, key=lambda key: (key[0] == "price", key[1]))
    middle = np.arange(len(keys)) + 0.5 * np.array([predict == "price" for predict, _ in keys])
    width = 0.19
    for number, method in enumerate(METHODS):
        height, low, high = np.array([results[key][method].metrics["ratio_of_sums"] for key in keys]).T
        place = middle + (number - 1.5) * width
        axes.bar(place, height, width * 0.92, color=COLORS[method], label=method)
        axes.errorbar(place, height, [height - low, high - height], fmt="none", ecolor=INK, elinewidth=0.8)
    axes.set_xticks(middle, [f"{capacity}\n{predict}" for predict, capacity in keys])
    axes.yaxis.set_major_locator(MultipleLocator(0.05))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(xlabel="capacity, and what is predicted", ylabel="Σ regret / Σ optimum")
    axes.legend(frameon=False, fontsize=9)
    axes.set_title("All test days")


def draw_savings(axes, capacity: int, found: dict[str, Evaluation], unit: float) -> None:  # type: ignore[no-untyped-def]
    saved = np.sort(unit * (found["two-stage"].regrets - found["SCE"].regrets))[::-1]
    axes.bar(np.arange(len(saved)), saved, width=1.0, color=np.where(saved >= 0, BLUE, RED))
    axes.axhline(saved.mean(), color=INK, linewidth=1)
    axes.annotate(
        f"{saved.mean():.0f} a day on average", (len(saved), saved.mean()), ha="right", va="bottom", color=INK
    )
    axes.set(xlabel="test days, sorted", ylabel="value gained by SCE over two-stage")
    axes.set_title(f"Day by day, capacity {capacity}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--data", type=Path, help="file of real days (default: $DFLEARN_ENERGY, else synthetic ones)"
    )
    arguments.add_argument("--capacities", nargs="+", type=int, default=[60, 120, 180])
    arguments.add_argument("--predict", nargs="+", choices=["value", "price"], default=["value", "price"])
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--epochs", type=int, default=SETTINGS["epochs"])
    arguments.add_argument("--plot", type=Path, default=Path("energy_knapsack.png"))
    arguments.add_argument(
        "--quick", action="store_true", help="100 synthetic days (or the file), one capacity, 3 epochs"
    )
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.capacities, options.epochs = options.capacities[:1], 3
    days = load_energy_days(options.data, days=100 if options.quick else 789)
    print(days)
    results, units = {}, {}
    for predict in options.predict:
        for capacity in options.capacities:
            problem = EnergyKnapsack(tuple(days.weights.tolist()), capacity, predict)
            split, unit = prepare(days, problem, options.seed)
            found = {
                method: judge(
                    method, problem, split, seed=options.seed, validator=problem.solver(), epochs=options.epochs
                )
                for method in METHODS
            }
            print(table(problem, found, unit), flush=True)
            results[predict, capacity] = {method: judged.evaluation for method, judged in found.items()}
            units[predict, capacity] = unit
    try:
        draw(options.plot, days, results, units)
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")


if __name__ == "__main__":
    main()
