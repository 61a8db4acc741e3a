"""What the intervals of `dflearn.evaluate` and `dflearn.compare` cover, beside the 95 % that they say.

    python benchmarks/studies/interval_coverage.py             # everything: results/coverage/coverage.json and README.md
    python benchmarks/studies/interval_coverage.py SP-5        # one of the problems again

The instances of a problem are generated and decided once, with least squares on 1,000 other instances. They are the
population: what `evaluate` says of all of them is the truth. Then rows are drawn from them with replacement, again and again,
and it is counted how often the interval from the drawn rows holds the truth. Differences are to deciding with E[y | x], or
with average costs where that is not known. Nothing is solved twice, so a draw costs milliseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.evaluation import METRICS, Evaluation, compare, evaluate
from dflearn.evaluation.comparison import COMPARED
from dflearn.evaluation.regret import PUBLISHED_BATCH
from dflearn.problems import problem_named

POPULATIONS = {"SP-5": 20_000, "KP-100": 20_000, "CFL-50": 800, "energy-60": 789}  # instances
DRAWS = {50: 500, 200: 1_000, 1000: 200}  # how often so many rows are drawn
TRAIN, SEED, CONFIDENCE, NEAR = 1_000, 1, 0.95, 2.0
OUT = Path(__file__).resolve().parents[2] / "results" / "coverage"
PACKAGES = ("numpy", "scipy", "torch", "highspy", "numba")


def population(name: str, count: int) -> tuple[Evaluation, Evaluation]:
    """All instances, judged with least squares and with what it is compared to."""
    problem = problem_named(name, seed=SEED)
    if name.startswith("energy"):
        data = train = problem.generate(count, seed=SEED)
    else:
        data, train = problem.generate(count, seed=SEED + 1), problem.generate(TRAIN, seed=SEED + 2)
    data = label(data, problem, progress=False)
    predicted = least_squares(train, data.features)
    found = evaluate(predicted, problem, data, progress=False, confidence=CONFIDENCE)
    if found.floor_regrets is not None:
        return found, replace(found, regrets=found.floor_regrets, floor_regrets=None)
    average = train.batch().require("costs").double().mean(0).expand(len(data), -1)
    return found, evaluate(average, problem, data, progress=False, confidence=CONFIDENCE)


def least_squares(train: DecisionDataset, features: Tensor) -> Tensor:
    """Costs for `features` by the linear map with the least squared error; one map for all costs with features per cost."""

    def with_constant(x: Tensor) -> Tensor:
        return torch.cat([x.double(), torch.ones(*x.shape[:-1], 1, dtype=torch.float64)], -1)

    shared = train.features.ndim == 3
    x, y = with_constant(train.features), train.batch().require("costs").double()
    weights = torch.linalg.lstsq(x.flatten(0, -2), y.reshape(-1, 1) if shared else y).solution
    predicted = with_constant(features) @ weights
    return predicted.squeeze(-1) if shared else predicted


def drawn(of: Evaluation, rows: np.ndarray) -> Evaluation:
    """The evaluation of these rows, which may be there several times."""
    floor = None if of.floor_regrets is None else of.floor_regrets[rows]
    return replace(
        of,
        ids=np.arange(len(rows)),
        regrets=of.regrets[rows],
        optima=of.optima[rows],
        squared_errors=of.squared_errors[rows],
        floor_regrets=floor,
        decisions=None,
    )


def truths(one: Evaluation, other: Evaluation, count: int) -> dict[str, float]:
    """Every metric and difference of the population; the published style as expected from so many rows."""
    found = {name: estimate.value for name, estimate in one.metrics.items()}
    kept = ~one.zero_optima
    r, i = one.regrets[kept], 1 / np.abs(one.optima[kept])
    whole, rest = divmod(count, PUBLISHED_BATCH)
    sizes = [PUBLISHED_BATCH] * whole + [rest] * (rest > 0)
    batch = [(r * i).mean() / size + (1 - 1 / size) * r.mean() * i.mean() for size in sizes]
    found["published_style"] = float(np.average(batch, weights=sizes))
    return found | {f"difference of {name}": getattr(compare(one, other), name).value for name in COMPARED}


def students(of: Evaluation) -> dict[str, tuple[float, float]]:
    """Student's t interval of each plain mean, to compare with."""
    kept = ~of.zero_optima
    values = {"mean_of_ratios": of.regrets[kept] / np.abs(of.optima[kept]), "absolute_regret": of.regrets}
    if of.floor_regrets is not None:
        values["floor_absolute_regret"] = of.floor_regrets
    values["mse"] = of.squared_errors
    return {name: scipy.stats.ttest_1samp(one, 0.0).confidence_interval(CONFIDENCE) for name, one in values.items()}


def measure(name: str) -> dict[str, Any]:
    """For each number of rows and each figure: how often its interval held the truth, missed it low and high, in percent."""
    one, other = population(name, POPULATIONS[name])
    generator, found = np.random.default_rng(SEED), {}
    for count, times in DRAWS.items():
        known, hits = truths(one, other, count), {}
        for _ in range(times):
            rows = generator.integers(len(one.ids), size=count)
            part, reference = drawn(one, rows), drawn(other, rows)
            difference = compare(part, reference)
            intervals = {key: estimate[1:] for key, estimate in part.metrics.items()}
            intervals |= {f"difference of {key}": getattr(difference, key)[1:] for key in COMPARED}
            intervals |= {f"Student's {key}": interval for key, interval in students(part).items()}
            for key, (low, high) in intervals.items():
                truth = known[key.removeprefix("Student's ")]
                hits.setdefault(key, []).append((low <= truth <= high, high < truth, truth < low))
        found[str(count)] = {key: (100 * np.mean(each, axis=0)).round(1).tolist() for key, each in hits.items()}
    return {"instances": len(one.ids), "coverage": found}


def page(record: dict[str, Any]) -> str:
    """The README of results/coverage."""
    problems, draws = record["problems"], record["config"]["draws"]
    names = [name for name in METRICS if name != "pessimistic_regret"] + [f"difference of {name}" for name in COMPARED]
    lines = [
        "# What the intervals cover",
        "",
        f"Of intervals at {record['config']['confidence']:.0%}, so many percent hold the truth. Each cell: 50, 200 and 1,000 rows.",
        "In brackets: Student's t interval at 200 rows.",
        "",
        "| | " + " | ".join(problems) + " |",
        "|---|" + "---:|" * len(problems),
    ]
    for name in names:
        cells = []
        for one in problems.values():
            found = one["coverage"]
            if name not in found["200"]:
                cells.append("")
                continue
            numbers = " · ".join(f"{found[count][name][0]:.1f}" for count in draws)
            before = found["200"].get(f"Student's {name}")
            cells.append(numbers + ("" if before is None else f" [{before[0]:.1f}]"))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    off = {
        f"{name} on {problem}": one["coverage"]["200"][name][0]
        for problem, one in problems.items()
        for name in names
        if name in one["coverage"]["200"] and abs(one["coverage"]["200"][name][0] - 95) > NEAR
    }
    far = ", ".join(f"{what} ({share:.1f})" for what, share in off.items()) or "none"
    times = ", ".join(f"{times} draws of {count} rows" for count, times in draws.items())
    sizes = ", ".join(f"{one['instances']:,} of {name}" for name, one in problems.items())
    return "\n".join(
        [
            *lines,
            "",
            f"**More than {NEAR:g} points off at 200 rows:** {far}.",
            "",
            "A share of 1,000 draws is known to ±1.4 points, of 500 to ±1.9, of 200 to ±3.0 (95 %). The squared error of costs has",
            "tails so heavy that 200 rows often do not show them: where its interval misses, it ends below the truth.",
            "`pessimistic_regret` is a mean of regrets like `absolute_regret`, and costs one more solve per instance: it was left",
            "out. An exact_share of 100.0 is that of a problem on which no decision is without regret.",
            "",
            "The rule (the farther of Student's and the studentized bootstrap's limit) was chosen among Student's t, t on a log",
            "scale, Hall's transformation, BCa, and the studentized bootstrap, alone or symmetric, by other draws from SP-5 and KP-100.",
            "",
            f"Populations: {sizes}. From each, {times}, with replacement. `python benchmarks/studies/interval_coverage.py` makes this page;",
            f"[coverage.json](coverage.json) has the numbers, and on which side the truth was missed. Seed {record['config']['seed']};",
            f"commits {', '.join(one['commit'][:7] for one in problems.values())}; {', '.join(f'{name} {number}' for name, number in record['versions'].items())}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="default: all")
    parser.add_argument("--out", type=Path, default=OUT, help="folder (default: results/coverage)")
    arguments = parser.parse_args()
    path = arguments.out / "coverage.json"
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.problems or POPULATIONS:
        found = measure(name)
        held = json.loads(path.read_text())["problems"] if path.exists() else {}
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        held[name] = {"commit": commit, **found}
        config = {"populations": POPULATIONS, "draws": {str(count): times for count, times in DRAWS.items()}}
        record = {
            "config": config | {"train": TRAIN, "seed": SEED, "confidence": CONFIDENCE},
            "versions": {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}},
            "problems": {key: held[key] for key in POPULATIONS if key in held},
        }
        path.write_text(json.dumps(record, indent=1) + "\n")
        (arguments.out / "README.md").write_text(page(record))
        print(f"{name}: {json.dumps(held[name]['coverage']['200'])}", flush=True)


if __name__ == "__main__":
    main()
