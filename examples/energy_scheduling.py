"""Energy-cost-aware scheduling: when should each task run, if tomorrow's electricity prices are only predicted?

    python examples/energy_scheduling.py --data energy_days.npz --instance schedule_load1.txt
    python examples/energy_scheduling.py --quick        # synthetic days and tasks, a minute at most

Each task starts once in its window on one machine; the tasks that run on a machine at one time share its capacity. The 48
predicted prices enter the costs of hundreds of variables, so S of the program is a matrix `(n, 48)`. Training uses the
linear relaxation; the test days are decided by the exact integer program.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from beside import draw_regrets, large_gain, picture
from dflearn.problems.scheduling import Scheduling
from dflearn.report.style import LINE, color_of
from dflearn.studies.config import problem_of
from energy_methods import SCHEDULES, Judged, one_seed, options_for
from energy_table import by_run, summary


def draw(figure: Any, problem: Scheduling, found: dict[str, Judged]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.9, 1))
    draw_day(left, problem, found)
    draw_regrets(right, {name: run.record for name, run in found.items()}, decimals=1)
    right.set_title("Paid too much, all test days")


def draw_day(axes: Any, problem: Scheduling, found: dict[str, Judged]) -> None:
    """Power drawn on a test day by two schedules, over the price: a day of large gain, the ninth decile."""
    which = large_gain(found["two-stage"].record.regrets - found["SCE"].record.regrets)
    hour = np.arange(49) / 2
    price = problem.days.prices[found["SCE"].record.ids[which]]
    axes.fill_between(hour, np.append(price, price[-1]), step="post", color=LINE, label="true price")
    axes.set(xlabel="hour of the day", ylabel="price", xlim=(0, 24), xticks=range(0, 25, 3))
    axes.set_ylim(0, 1.45 * price.max())
    power_axes = axes.twinx()
    for name in ("two-stage", "SCE"):
        run, decisions = found[name]
        power = problem.power(decisions[which].astype(float))
        text = f"power of {name}: {run.regrets[which] / run.optima[which]:.1%} too dear"
        power_axes.step(
            hour, np.append(power, power[-1]), where="post", color=color_of(name), linewidth=2.2, label=text
        )
    power_axes.set(ylabel="power drawn", ylim=(0, None))
    handles = [part for held in (axes, power_axes) for part in held.get_legend_handles_labels()[0]]
    axes.legend(handles=handles, frameon=False, loc="upper left", ncols=3, fontsize=9)
    power_axes.set_ylim(0, 1.3 * power_axes.get_ylim()[1])
    axes.set_title("Two schedules for one test day")


def main() -> None:
    arguments = options_for(__doc__, "40 days, four tasks, 2 epochs", "energy_scheduling.png")
    what = "tasks and machines in CSPLib's format, schedule_loadK.txt (default: invented ones)"
    arguments.add_argument("--instance", type=Path, help=what)
    options = arguments.parse_args()
    name = "scheduling-4x3" if options.quick else "scheduling-10x3"
    options.epochs = 2 if options.quick else options.epochs
    if options.instance is not None:
        os.environ[SCHEDULES], name = str(options.instance.parent), options.instance.stem
    (found,) = one_seed("energy_scheduling.toml", [name], options, points=40, test=7, validation=5).values()
    records = [run.record for run in found.values()]
    problem = problem_of(records[0].config)
    assert isinstance(problem, Scheduling)
    cost = records[0].optima.mean()
    print(f"{problem.days}\n{problem.program!r}\nknowing the prices, a test day would cost {cost:,.0f} on average\n")
    print(summary(by_run(records)))
    picture(options.plot, (13, 4.6), draw, problem, found)


if __name__ == "__main__":
    main()
