"""Energy knapsack: which half-hours of tomorrow are worth having, when their prices are not known yet?

    python examples/energy_knapsack.py --data energy_days.npz
    python examples/energy_knapsack.py --quick        # synthetic days, a minute at most

    max over w of Σ value_t w_t   s.t.   Σ weight_t w_t ≤ capacity,   w ∈ {0, 1}⁴⁸

The value of a half-hour is about its weight times its price. The literature predicts the value from features that say
nothing of the weight; `--predict price` predicts the price, and leaves the weight, which is known, to the program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from beside import BLUE, GREY, INK, RED, options_of, percent, picture
from dflearn.evaluation import Evaluation
from dflearn.problems.energy import EnergyDays, EnergyKnapsack, load_energy_days
from energy_methods import COLORS, METHODS, SETTINGS, judge, prepare, table

# -- the plot -------------------------------------------------------------------------------------------------------


def draw(figure: Any, days: EnergyDays, results: dict[tuple[str, int], dict[str, Evaluation]], units: dict) -> None:  # type: ignore[type-arg]
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1.1, 0.9))
    capacity = min(key[1] for key in results)
    draw_day(left, days, capacity, results["value", capacity])
    draw_regrets(middle, results)
    draw_savings(right, capacity, results["value", capacity], units["value", capacity])
    figure.get_layout_engine().set(wspace=0.05)


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
    from matplotlib.ticker import MultipleLocator

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
    percent(axes.yaxis)
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
    quick = "100 synthetic days (or the file), one capacity, 3 epochs"
    arguments = options_of(__doc__, quick, plot="energy_knapsack.png", epochs=SETTINGS["epochs"])
    arguments.add_argument(
        "--data", type=Path, help="file of real days (default: $DFLEARN_ENERGY, else synthetic ones)"
    )
    arguments.add_argument("--capacities", nargs="+", type=int, default=[60, 120, 180])
    arguments.add_argument("--predict", nargs="+", choices=["value", "price"], default=["value", "price"])
    options = arguments.parse_args()
    if options.quick:
        options.capacities, options.epochs = options.capacities[:1], 3
    days = load_energy_days(options.data, days=100 if options.quick else 789)
    print(days)
    results, units = {}, {}
    for predict in options.predict:
        for capacity in options.capacities:
            problem = EnergyKnapsack(tuple(days.weights.tolist()), capacity, predict)
            split, unit = prepare(days, problem.costs(days), problem, options.seed)
            common = {"seed": options.seed, "validator": problem.solver(), "epochs": options.epochs}
            found = {method: judge(method, problem, split, **common) for method in METHODS}
            print(f"\ncapacity {capacity}, predicting the {predict}: {len(split.test)} test days")
            print(table(found, unit, "value lost"), flush=True)
            results[predict, capacity] = {method: judged.evaluation for method, judged in found.items()}
            units[predict, capacity] = unit
    picture(options.plot, (13, 4.4), draw, days, results, units)


if __name__ == "__main__":
    main()
