"""The comparison of surrogate losses on equal terms: runs what results/comparison lacks, and writes its table.

    python benchmarks/studies/comparison.py
    python benchmarks/studies/comparison.py --problems SP-5 --seeds 1 2 --out elsewhere

comparison.toml beside this file is the study; `dfl run` carries it out too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.report.render import render
from dflearn.studies.config import Study, read_study
from dflearn.studies.driver import complete
from dflearn.studies.record import Record

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "results" / "comparison"
BASELINE = "SPO+^relax"
HEADER = (
    "method", "seeds", "mean of ratios", "published style", "seconds per epoch", "chosen", f"less {BASELINE}",
)  # fmt: skip


def the_study() -> Study:
    return read_study(HERE / "comparison.toml")


def by_run(records: Sequence[Record]) -> dict[tuple[str, str], dict[int, Record]]:
    """Problem and method → seed → record."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        found.setdefault((record.config.problem, record.config.method), {})[record.config.seed] = record
    return found


def ratios(record: Record) -> np.ndarray:
    """regret / optimum of each test instance."""
    assert record.regrets is not None
    assert record.optima is not None
    return record.regrets.astype(float) / np.abs(record.optima.astype(float))


def rows(problem: str, methods: Sequence[str], found: dict[tuple[str, str], dict[int, Record]]) -> list[list[str]]:
    """Per method: mean of ratios over seeds, and the paired difference to the baseline with its interval.

    The interval is of the mean over all test instances of all seeds, paired by instance: 1.96 standard errors.
    """
    lines = []
    for method in methods:
        runs = found.get((problem, method), {})
        if not runs:
            continue
        means = [ratios(record).mean() for record in runs.values()]
        shared = [seed for seed in runs if seed in found.get((problem, BASELINE), {})]
        less = ""
        if shared and method != BASELINE:
            pairs = [ratios(runs[seed]) - ratios(found[problem, BASELINE][seed]) for seed in shared]
            difference = np.concatenate(pairs)
            error = 1.96 * difference.std(ddof=1) / np.sqrt(difference.size)
            less = f"{difference.mean():+.4f} ± {error:.4f}"
        lines.append(
            [
                method,
                str(len(runs)),
                f"{np.mean(means):.4f} ± {np.std(means):.4f}",
                _mean(record.metric("published_style") for record in runs.values()),
                _mean(record.seconds["epoch"] for record in runs.values()),
                " ".join(str(record.chosen["share"]) for record in runs.values() if record.chosen),
                less,
            ]
        )
    return lines


def _mean(values: Any) -> str:
    return f"{np.mean(list(values)):.3g}"


def page(records: Sequence[Record]) -> str:
    found, study = by_run(records), the_study()
    text = ""
    for problem in study.problems:
        if lines := rows(problem, study.methods, found):
            text += f"\n## {problem}\n\n{render(HEADER, lines, 'markdown')}\n"
    return text


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    study = the_study()
    arguments.add_argument("--problems", nargs="+", default=list(study.problems))
    arguments.add_argument("--seeds", nargs="+", type=int, default=list(study.seeds))
    arguments.add_argument("--out", type=Path, default=OUT)
    options = arguments.parse_args()
    study = replace(study, problems=tuple(options.problems), seeds=tuple(options.seeds))
    text = page(complete(study, options.out / "runs.jsonl.xz"))
    (options.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
