"""The MSE baseline in the paper's setting: its test regret by every definition, beside the published figure.

    python benchmarks/studies/mse_baseline.py

Runs what results/mse_baseline lacks of the study mse_baseline.toml, then writes comparison.csv and the table in README.md.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.report.render import render
from dflearn.studies.config import read_study
from dflearn.studies.driver import complete
from dflearn.studies.record import Record
from dflearn.studies.summary import summarize

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "results" / "mse_baseline"
METRICS = ("published_style", "mean_of_ratios", "ratio_of_sums", "mse", "floor_ratio_of_sums")


def compare(records: Sequence[Record], published: dict[str, float]) -> list[dict[str, Any]]:
    """One row per problem: the mean over seeds of each metric, and how far the published figure is."""
    compared = []
    for summary in summarize(records, "published_style"):
        name = summary.problem
        solvers = sorted({record.solver.split(" time_limit")[0] for record in summary.records})
        styles = summary.values("published_style")
        compared.append(
            {
                "problem": name,
                "seeds": len(summary.seeds),
                "solver": ", ".join(solvers),
                "published": published.get(name, float("nan")),
                **{metric: round(summary.mean_of(metric), 4) for metric in METRICS},
                "least_seed": round(float(styles.min()), 4),
                "largest_seed": round(float(styles.max()), 4),
                "difference": round(float(np.mean(styles)) - published.get(name, float("nan")), 4),
            }
        )
    return compared


def write(rows: list[dict[str, Any]], folder: Path) -> str:
    """comparison.csv, and the same as Markdown, which also replaces the table of README.md."""
    with open(folder / "comparison.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    text = render(list(rows[0]), lines, "markdown")
    readme = folder / "README.md"
    if readme.exists():
        block = f"<!-- table -->\n{text}\n<!-- end -->"
        readme.write_text(re.sub(r"<!-- table -->.*<!-- end -->", lambda _: block, readme.read_text(), flags=re.S))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="default: %(default)s")
    out = parser.parse_args().out
    records = complete(read_study(HERE / "mse_baseline.toml"), out / "runs.jsonl.xz")
    with open(OUT / "published.csv") as file:
        published = {row["problem"]: float(row["published"]) for row in csv.DictReader(file)}
    print(write(compare(records, published), out))


if __name__ == "__main__":
    main()
