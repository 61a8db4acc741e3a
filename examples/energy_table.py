"""The energy table: both energy examples as studies over several seeds.

    python examples/energy_table.py --data energy_days.npz --schedules . --out results/energy
    python examples/energy_table.py --out results/energy --no-run
    python examples/energy_table.py --quick

energy_knapsack.toml and energy_scheduling.toml are the studies; finished runs are kept in runs.jsonl.xz and never repeated.
"""

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from beside import percent, picture
from dflearn.evaluation import estimates
from dflearn.problems.energy import VARIABLE, load_energy_days, synthetic_energy_days
from dflearn.report.style import INK, color_of
from dflearn.studies.config import read_study
from dflearn.studies.driver import complete
from dflearn.studies.record import Record
from dflearn.studies.store import read_records
from energy_methods import HERE, METHODS, NAMES, SCHEDULES

STUDIES = ("energy_knapsack.toml", "energy_scheduling.toml")
Found = dict[tuple[str, int, str], Record]


def label(problem: str) -> str:
    """energy-60-price → energy knapsack 60, price; schedules keep their name."""
    kind, _, rest = problem.partition("-")
    capacity, _, predict = rest.partition("-")
    return f"energy knapsack {capacity}, {predict or 'value'}" if kind == "energy" else problem


def by_run(records: Iterable[Record]) -> Found:
    """Problem, seed and method, as this page calls them → record."""
    return {(label(r.config.problem), r.config.seed, NAMES[r.config.method]): r for r in records}


def share(records: Sequence[Record]) -> float:
    """Σ regret / Σ |optimum| over the test days of all these runs."""
    regrets = sum(float(record.regrets.sum(dtype=float)) for record in records)
    return regrets / sum(float(np.abs(record.optima).sum(dtype=float)) for record in records)


def difference(found: Found, problem: str, seeds: list[int], method: str) -> estimates.Estimate:
    """Σ (regret of two-stage − regret of `method`) / Σ optimum over the test days of all seeds, with its 95 % interval. The
    interval is over days. One that several seeds test counts as one day, with all its regrets and optima."""
    base, own = ([found[problem, seed, name] for seed in seeds] for name in (METHODS[0], method))
    for one, other in zip(base, own, strict=True):
        assert np.array_equal(one.ids, other.ids), f"{problem}: methods were tested on different days"
    days = np.unique(np.concatenate([run.ids for run in own]), return_inverse=True)[1]
    saved = np.concatenate([run.regrets for run in base]) - np.concatenate([run.regrets for run in own])
    optimum = np.abs(np.concatenate([run.optima for run in own]))
    return estimates.ratio_of_sums(np.bincount(days, saved), np.bincount(days, optimum), 0.95)


def problems_of(found: Found) -> dict[str, list[int]]:
    """The problems in the order of the studies, others last, and their seeds."""
    order = [label(problem) for study in STUDIES for problem in read_study(HERE / study).problems]
    known = {problem for problem, _, _ in found}
    names = [name for name in dict.fromkeys([*order, *sorted(known)]) if name in known]
    return {name: sorted({seed for problem, seed, _ in found if problem == name}) for name in names}


def summary(found: Found) -> str:
    """A table of all problems and methods, then for each problem the regret by seed and the μ that was chosen."""
    overview, details = "| | " + " | ".join(METHODS) + " |\n" + "|---" * (1 + len(METHODS)) + "|\n", ""
    for problem, seeds in problems_of(found).items():
        cells = []
        details += f"\n## {problem}\n\n| method | by seed | μ | epoch |\n|---|---|---|---|\n"
        for method in METHODS:
            runs = [found[problem, seed, method] for seed in seeds]
            less, low, _ = difference(found, problem, seeds, method)
            cells.append(f"{share(runs):.2%}" + f" ({less:.2%} ± {less - low:.2%})" * (method != METHODS[0]))
            mu = " ".join(str(run.chosen["share"]) for run in runs if "share" in run.chosen)
            epochs, by_seed = (
                " ".join(of) for of in zip(*((str(r.chosen["epoch"]), f"{share([r]):.2%}") for r in runs), strict=True)
            )
            details += f"| {method} | {by_seed} | {mu} | {epochs} |\n"
        overview += f"| {problem} | {' | '.join(cells)} |\n"
    return overview + details


def draw(figure: Any, found: Found) -> None:
    """How much less regret than two-stage, as a share of two-stage's own regret, for each problem and method."""
    problems, axes = problems_of(found), figure.subplots()
    for shift, method in enumerate(METHODS[1:]):
        for place, (problem, seeds) in enumerate(problems.items()):
            whole = share([found[problem, seed, METHODS[0]] for seed in seeds])
            value, low, high = (part / whole for part in difference(found, problem, seeds, method))
            axes.errorbar(
                value, place + 0.2 * (shift - 1), xerr=[[value - low], [high - value]], color=color_of(method), fmt="o",
                capsize=3, label=method if place == 0 else None,
            )  # fmt: skip
    axes.set_yticks(range(len(problems)), problems)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    percent(axes.xaxis)
    axes.set_xlabel("share of two-stage's regret that is saved, with its 95 % interval over test days")
    axes.legend(frameon=False)


HEADING = """# Energy: {days} {kind} days, seeds {seeds}

`python examples/energy_table.py --data energy_days.npz --schedules . --out results/energy`

Σ regret / Σ optimum on the test days of all seeds; in brackets, how much less that is than two-stage, with its 95 %
interval over days. Days are paired. The seeds draw their test days from the same {days} days, so that a day may be tested
more than once; it counts as one.

"""


def run(options: argparse.Namespace) -> list[Record]:
    """What the file lacks is run and added to it."""
    path, study = options.out / "runs.jsonl.xz", read_study(HERE / STUDIES[0])
    if options.quick:
        settings = replace(study.settings, points=60, test=10, validation=8, epochs=2)
        return complete(replace(study, problems=("energy-60",), seeds=(1,), settings=settings), path)
    records = complete(study, path)
    return records + (complete(read_study(HERE / STUDIES[1]), path) if options.schedules else [])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, help=f"file of real days (default: ${VARIABLE}, else synthetic ones)")
    arguments.add_argument("--schedules", type=Path, help="folder with schedule_load1.txt of CSPLib (default: none)")
    arguments.add_argument("--out", type=Path, default=Path("energy"))
    arguments.add_argument("--no-run", action="store_true", help="show what is there")
    arguments.add_argument("--quick", action="store_true", help="one capacity, one seed, 60 days, 2 epochs")
    options = arguments.parse_args()
    for variable, place in ((VARIABLE, options.data), (SCHEDULES, options.schedules)):
        if place is not None:
            os.environ[variable] = str(place)
    records = read_records(options.out / "runs.jsonl.xz") if options.no_run else run(options)
    if not options.no_run:
        print(load_energy_days())
    digests = {dict(record.config.problem_options)["digest"] for record in records}
    synthetic = synthetic_energy_days(seed=records[0].config.seed).digest in digests
    seeds = ", ".join(map(str, sorted({record.config.seed for record in records})))
    days, kind = records[0].config.settings.points, "synthetic" if synthetic else "real"
    found = by_run(records)
    text = summary(found)
    (options.out / "table.md").write_text(HEADING.format(days=days, kind=kind, seeds=seeds) + text)
    picture(options.out / "saved.png", (8, 0.8 + 0.6 * len(problems_of(found))), draw, found)
    print(text)


if __name__ == "__main__":
    main()
