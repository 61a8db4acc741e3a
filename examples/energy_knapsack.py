"""Energy knapsack: which half-hours of tomorrow are worth having, when their prices are not known yet?

    python examples/energy_knapsack.py --data energy_days.npz
    python examples/energy_knapsack.py --quick        # synthetic days, a minute at most

    max over w of Σ value_t w_t   s.t.   Σ weight_t w_t ≤ capacity,   w ∈ {0, 1}⁴⁸

The value of a half-hour is about its weight times its price. The literature predicts the value from features that say
nothing of the weight; `--predict price` predicts the price, and leaves the weight, which is known, to the program.
"""

from typing import Any

import numpy as np

from beside import percent, picture
from dflearn.problems.energy import EnergyDays, load_energy_days
from dflearn.report.style import INK, LINE, color_of
from energy_methods import METHODS, Judged, one_seed, options_for
from energy_table import by_run, label, summary


def draw(figure: Any, days: EnergyDays, found: dict[str, dict[str, Judged]]) -> None:
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1.1, 0.9))
    first = next(iter(found))
    draw_day(left, days, label(first), found[first])
    draw_regrets(middle, found)
    draw_savings(right, label(first), found[first])
    figure.get_layout_engine().set(wspace=0.05)


def draw_day(axes: Any, days: EnergyDays, title: str, found: dict[str, Judged]) -> None:
    """The test day whose two regrets are closest to their averages over all days."""
    runs = {name: found[name].record for name in ("SCE", "two-stage")}
    shown = {name: run.regrets / run.optima for name, run in runs.items()}
    which = int(np.argmin(sum((shown[name] - run.metric("ratio_of_sums")) ** 2 for name, run in runs.items())))
    price = days.prices[runs["SCE"].ids[which]]
    hour, top = np.arange(48) / 2, price.max()
    axes.bar(hour, price, width=0.42, color=LINE, align="edge", label="true price")
    for row, name in enumerate(("SCE", "two-stage"), 1):
        chosen = found[name].decisions[which] > 0.5
        text = f"{name} takes: {shown[name][which]:.0%} below the best"
        axes.bar(hour[chosen], 0.055 * top, 0.42, -0.07 * top * row, color=color_of(name), align="edge", label=text)
    axes.set(xlabel="hour of the day", ylabel="price", xlim=(0, 24), xticks=range(0, 25, 6))
    axes.set_ylim(-0.15 * top, 1.35 * top)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    axes.set_title(f"A typical test day, {title}")


def draw_regrets(axes: Any, found: dict[str, dict[str, Judged]]) -> None:
    from matplotlib.ticker import MultipleLocator

    middle, width = np.arange(len(found)), 0.19
    for number, method in enumerate(METHODS):
        height, low, high = np.array([own[method].record.metrics["ratio_of_sums"] for own in found.values()]).T
        place = middle + (number - 1.5) * width
        axes.bar(place, height, width * 0.92, color=color_of(method), label=method)
        axes.errorbar(place, height, [height - low, high - height], fmt="none", ecolor=INK, elinewidth=0.8)
    axes.set_xticks(middle, [label(problem).removeprefix("energy knapsack ").replace(", ", "\n") for problem in found])
    axes.yaxis.set_major_locator(MultipleLocator(0.05))
    percent(axes.yaxis)
    axes.set(xlabel="capacity, and what is predicted", ylabel="Σ regret / Σ optimum")
    axes.legend(frameon=False, fontsize=9)
    axes.set_title("All test days")


def draw_savings(axes: Any, title: str, found: dict[str, Judged]) -> None:
    saved = np.sort(found["two-stage"].record.regrets - found["SCE"].record.regrets)[::-1]
    axes.bar(
        np.arange(len(saved)), saved, width=1.0, color=np.where(saved >= 0, color_of("SCE"), color_of("two-stage"))
    )
    axes.axhline(saved.mean(), color=INK, linewidth=1)
    text = f"{saved.mean():.0f} a day on average"
    axes.annotate(text, (len(saved), saved.mean()), ha="right", va="bottom", color=INK)
    axes.set(xlabel="test days, sorted", ylabel="value gained by SCE over two-stage")
    axes.set_title(f"Day by day, {title.removeprefix('energy knapsack ')}")


def main() -> None:
    quick = "100 days, one capacity, 3 epochs"
    arguments = options_for(__doc__, quick, "energy_knapsack.png")
    arguments.add_argument("--capacities", nargs="+", type=int, default=[60, 120, 180])
    arguments.add_argument("--predict", nargs="+", choices=["value", "price"], default=["value", "price"])
    options = arguments.parse_args()
    if options.quick:
        options.capacities, options.epochs = options.capacities[:1], 3
    ends = [{"value": "", "price": "-price"}[predict] for predict in options.predict]
    problems = [f"energy-{capacity}{end}" for end in ends for capacity in options.capacities]
    found = one_seed("energy_knapsack.toml", problems, options, points=100, test=18, validation=12)
    days = load_energy_days(seed=options.seed)
    print(f"{days}\n\n{summary(by_run(run.record for own in found.values() for run in own.values()))}")
    picture(options.plot, (13, 4.4), draw, days, found)


if __name__ == "__main__":
    main()
