"""Energy-cost-aware scheduling: when should each task run, if tomorrow's electricity prices are only predicted?

    python examples/energy_scheduling.py --data energy_days.npz --instance schedule_load1.txt
    python examples/energy_scheduling.py --quick        # synthetic days and tasks, a minute at most

Each task starts once in its window on one machine; the tasks that run on a machine at one time share its capacity. The 48
predicted prices enter the costs of hundreds of variables, so S of the program is a matrix `(n, 48)`. Training uses the
linear relaxation; the test days are decided by the exact integer program.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import dflearn as dfl
from dflearn.data import Split
from dflearn.data.cache import default_cache
from dflearn.evaluation import Evaluation
from dflearn.problems.energy import EnergyDays, load_energy_days, split_days
from dflearn.problems.scheduling import Scheduling
from energy_methods import METHODS, SETTINGS, Judged, judge

INK, GREY, RED, BLUE, GOLD = "#1f2933", "#c3cad3", "#d1495b", "#2b6cb0", "#e0a030"
COLORS = dict(zip(METHODS, (RED, GOLD, "#5aa469", BLUE), strict=True))


def prepare(days: EnergyDays, problem: Scheduling, seed: int, cache: Path | None) -> tuple[Split, float]:
    """Labelled days in the literature's proportions of 550, 100 and 139; and the unit in which costs are counted."""
    data = dfl.label(days.dataset(days.prices), problem.solver(), cache=cache)
    train, validation = (round(len(days) * part / 789) for part in (550, 100))
    return split_days(data, seed, train=train, validation=validation)


def size(problem: Scheduling, days: EnergyDays, count: int = 5) -> str:
    """The program's size, and what its solves take and differ by: CPU time of this process, the first `count` days."""
    prices = torch.as_tensor(days.prices[:count])
    exact, relaxed = problem.solver(), problem.relaxed_solver()
    seconds, optimum = [], []
    for solver in (exact, relaxed):
        solver.solve(prices[:1])  # builds the model
        begun = time.process_time()
        optimum.append(solver.solve(prices).check().objective)
        seconds.append((time.process_time() - begun) / count)
    gap = float(((optimum[0] - optimum[1]) / optimum[0]).mean())
    return (
        f"{problem.program!r}\nan exact solve takes {1000 * seconds[0]:.0f} ms, its relaxation {1000 * seconds[1]:.1f} ms "
        f"and lies {gap:.2%} below"
    )


def table(found: dict[str, Judged], unit: float) -> str:
    baseline = found["two-stage"].evaluation
    cost = unit * baseline.optima.mean()
    lines = [f"\n{len(baseline.ids)} test days; knowing the prices, a day would cost {cost:,.0f} on average"]
    lines.append(f"{'':<30}{'regret':>8}{'paid too much':>15}{'saved a day against two-stage':>32}{'μ':>7}{'epoch':>7}")
    for method, judged in found.items():
        evaluation = judged.evaluation
        saved = ""
        if method != "two-stage":
            value, low, high = (0.0 - unit * part for part in dfl.compare(evaluation, baseline).absolute_regret)
            saved = f"{value:,.0f} [{high:,.0f}, {low:,.0f}]"
        paid = unit * evaluation.absolute_regret
        mu = "" if judged.mu is None else f"{judged.mu:g}"
        lines.append(f"{method:<30}{evaluation.ratio_of_sums:>8.2%}{paid:>15,.0f}{saved:>32}{mu:>7}{judged.epoch:>7}")
    return "\n".join(lines)


def draw(path: Path, days: EnergyDays, problem: Scheduling, found: dict[str, Evaluation]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.9, 1))
    draw_day(left, days, problem, found)
    for place, method in enumerate(METHODS):
        value, low, high = found[method].metrics["ratio_of_sums"]
        right.barh(place, value, 0.7, color=COLORS[method])
        right.errorbar(value, place, xerr=[[value - low], [high - value]], ecolor=INK, elinewidth=1)
    right.set_yticks(range(len(METHODS)), [method.replace(", ", ",\n") for method in METHODS])
    right.invert_yaxis()
    right.xaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    right.set(xlabel="Σ regret / Σ optimum, with 95 % interval")
    right.set_title("Paid too much, all test days")
    for axes in (left, right):
        axes.title.set(weight="bold", color=INK, size=12)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    print(f"\nplot: {path}")


def draw_day(axes, days: EnergyDays, problem: Scheduling, found: dict[str, Evaluation]) -> None:  # type: ignore[no-untyped-def]
    """Power drawn on a test day by two schedules, over the price: a day of large gain, the ninth decile."""
    gain = found["two-stage"].regrets - found["SCE"].regrets
    which = int(np.argsort(gain)[int(0.9 * len(gain))])
    hour = np.arange(49) / 2
    price = days.prices[found["SCE"].ids[which]]
    axes.fill_between(hour, np.append(price, price[-1]), step="post", color=GREY, label="true price")
    axes.set(
        xlabel="hour of the day", ylabel="price", xlim=(0, 24), xticks=range(0, 25, 3), ylim=(0, 1.45 * price.max())
    )
    power_axes = axes.twinx()
    for name, color, style in (("two-stage", RED, "-"), ("SCE", BLUE, "-")):
        decisions = found[name].decisions
        assert decisions is not None
        power = problem.power(decisions[which].double().numpy())
        over = found[name].regrets[which] / found[name].optima[which]
        power_axes.step(
            hour, np.append(power, power[-1]), style, where="post", color=color, linewidth=2.2,
            label=f"power of {name}: {over:.1%} too dear",
        )  # fmt: skip
    power_axes.set(ylabel="power drawn", ylim=(0, None))
    power_axes.spines[["top"]].set_visible(False)
    handles = [part for held in (axes, power_axes) for part in held.get_legend_handles_labels()[0]]
    axes.legend(handles=handles, frameon=False, loc="upper left", ncols=3, fontsize=9)
    power_axes.set_ylim(0, 1.3 * power_axes.get_ylim()[1])
    axes.set_title("Two schedules for one test day")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--data", type=Path, help="file of real days (default: $DFLEARN_ENERGY, else synthetic ones)"
    )
    arguments.add_argument(
        "--instance", type=Path, help="tasks and machines in CSPLib's format (default: invented ones)"
    )
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--epochs", type=int, default=SETTINGS["epochs"])
    arguments.add_argument("--plot", type=Path, default=Path("energy_scheduling.png"))
    arguments.add_argument("--quick", action="store_true", help="40 synthetic days (or the file), four tasks, 2 epochs")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.epochs = 2
    days = load_energy_days(options.data, days=40 if options.quick else 789)
    invented = Scheduling.synthetic(4 if options.quick else 10)
    problem = invented if options.instance is None else Scheduling.read(options.instance)
    print(days)
    print(size(problem, days))
    cache = None if options.quick else default_cache()
    split, unit = prepare(days, problem, options.seed, cache)
    common = {"seed": options.seed, "validator": problem.relaxed_solver(), "epochs": options.epochs, "cache": cache}
    found = {method: judge(method, problem, split, **common) for method in METHODS}
    print(table(found, unit))
    try:
        draw(options.plot, days, problem, {method: judged.evaluation for method, judged in found.items()})
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")


if __name__ == "__main__":
    main()
