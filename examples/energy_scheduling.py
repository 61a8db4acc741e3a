"""Energy-cost-aware scheduling: when should each task run, if tomorrow's electricity prices are only predicted?

    python examples/energy_scheduling.py --data energy_days.npz --instance schedule_load1.txt
    python examples/energy_scheduling.py --quick        # synthetic days and tasks, a minute at most

Each task starts once in its window on one machine; the tasks that run on a machine at one time share its capacity. The 48
predicted prices enter the costs of hundreds of variables, so S of the program is a matrix `(n, 48)`. Training uses the
linear relaxation; the test days are decided by the exact integer program.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beside import BLUE, GREY, RED, draw_regrets, large_gain, options_of, picture
from dflearn.data.cache import default_cache
from dflearn.evaluation import Evaluation
from dflearn.problems.energy import EnergyDays, load_energy_days
from dflearn.problems.scheduling import Scheduling
from energy_methods import COLORS, METHODS, SETTINGS, judge, prepare, table


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


def draw(figure: Any, days: EnergyDays, problem: Scheduling, found: dict[str, Evaluation]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.9, 1))
    draw_day(left, days, problem, found)
    draw_regrets(right, found, COLORS, decimals=1)
    right.set_title("Paid too much, all test days")


def draw_day(axes, days: EnergyDays, problem: Scheduling, found: dict[str, Evaluation]) -> None:  # type: ignore[no-untyped-def]
    """Power drawn on a test day by two schedules, over the price: a day of large gain, the ninth decile."""
    which = large_gain(found["two-stage"].regrets - found["SCE"].regrets)
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
    handles = [part for held in (axes, power_axes) for part in held.get_legend_handles_labels()[0]]
    axes.legend(handles=handles, frameon=False, loc="upper left", ncols=3, fontsize=9)
    power_axes.set_ylim(0, 1.3 * power_axes.get_ylim()[1])
    axes.set_title("Two schedules for one test day")


def main() -> None:
    quick = "40 synthetic days (or the file), four tasks, 2 epochs"
    arguments = options_of(__doc__, quick, plot="energy_scheduling.png", epochs=SETTINGS["epochs"])
    arguments.add_argument(
        "--data", type=Path, help="file of real days (default: $DFLEARN_ENERGY, else synthetic ones)"
    )
    arguments.add_argument(
        "--instance", type=Path, help="tasks and machines in CSPLib's format (default: invented ones)"
    )
    options = arguments.parse_args()
    if options.quick:
        options.epochs = 2
    days = load_energy_days(options.data, days=40 if options.quick else 789)
    invented = Scheduling.synthetic(4 if options.quick else 10)
    problem = invented if options.instance is None else Scheduling.read(options.instance)
    print(days)
    print(size(problem, days))
    cache = None if options.quick else default_cache()
    split, unit = prepare(days, days.prices, problem, options.seed, cache)
    common = {"seed": options.seed, "validator": problem.relaxed_solver(), "epochs": options.epochs, "cache": cache}
    found = {method: judge(method, problem, split, **common) for method in METHODS}
    evaluations = {method: judged.evaluation for method, judged in found.items()}
    cost = unit * evaluations["two-stage"].optima.mean()
    print(f"\n{len(split.test)} test days; knowing the prices, a day would cost {cost:,.0f} on average")
    print(table(found, unit, "paid too much"))
    picture(options.plot, (13, 4.6), draw, days, problem, evaluations)


if __name__ == "__main__":
    main()
