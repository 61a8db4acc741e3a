"""The figures of README.md, written from the files in results/, so that the two cannot differ.

    python benchmarks/readme_results.py            # rewrites the block between the markers in README.md

Nothing is measured here. A test compares README.md with what this would write.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", re.DOTALL)
SEEDS = 5  # a problem of the comparison is shown once all its seeds are done


def rows_of(name: str, subject: str, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of one subject of a benchmark that have the wanted values."""
    found = json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text())["subjects"][subject]
    return [row for row in found if all(row[key] == value for key, value in wanted.items())]


def two_digits(value: float) -> str:
    """Timings are worth no more: 217.3 is 220, 8.83 is 8.8."""
    return f"{float(f'{value:.2g}'):g}"


def speed() -> str:
    """Ratios of times of one and the same run."""

    def line(what: str, file: str, subject: str, column: str, *problems: str, **wanted: Any) -> str:
        found = {row["problem"]: row[column] for row in rows_of(file, subject, **wanted)}
        figures = ", ".join(f"{problem} {two_digits(found[problem])}×" for problem in problems)
        return f"| {what} | {figures} | [{file}](results/bench/{file}.md) |"

    small, large = ("SP-10", "KP-100", "CFL-50"), ("SP-15", "SP-25", "KP-400", "CFL-100")
    from_start = {
        row["problem"]: row["cold ms per instance"] / row["warm ms per instance"]
        for row in rows_of("smoothed", "growth")
    }
    figures = ", ".join(f"{name} {two_digits(from_start[name])}×" for name in ("SP-10", "SP-25", "SP-50", "CFL-250"))
    lines = [
        line("`Smoothed` against cvxpylayers", "smoothed", "peers", "cold ratio", *small, batch=32),
        line("the same, from a start", "smoothed", "peers", "warm ratio", *small, batch=32),
        line("the same, a batch of one", "smoothed", "peers", "cold ratio", *small, batch=1),
        f"| `Smoothed` from a start against cold, batches of 8 | {figures} | [smoothed](results/bench/smoothed.md) |",
        line("`DavisYin`, unrolled, against the published layer", "davis_yin", "peers", "unrolled ratio", *large),
        line("`DavisYin`, Jacobian-free, against the dense layer", "davis_yin", "peers", "jfb ratio", *large),
        line("`DagShortestPath` against HiGHS at its best", "solvers", "oracles", "gain", "SP-5", "SP-15", "SP-25"),
        line("`FewRowLP` against HiGHS at its best", "solvers", "oracles", "gain", "KP-100", "KP-400", "KP-500"),
        line("HiGHS from an instance's own basis against cold", "solvers", "starts", "gain", *large),
    ]
    return "\n".join(["| | times as fast | benchmark |", "|---|---|---|", *lines])


def regret() -> str:
    """Mean of ratios by method, and the paired difference from SPO+ with its 95 % interval."""
    sections = re.split(r"^## ", (ROOT / "results" / "comparison" / "table.md").read_text(), flags=re.MULTILINE)[1:]
    columns: dict[str, dict[str, str]] = {}
    for section in sections:
        name, *lines = section.splitlines()
        header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
        found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
        if all(int(row["seeds"]) == SEEDS for row in found.values()):
            columns[name] = {
                method: row["mean of ratios"].split()[0] + (f" ({row['less SPO+']})" if row["less SPO+"] else "")
                for method, row in found.items()
            }
    methods = dict.fromkeys(method for column in columns.values() for method in column)
    lines = [
        f"| {method} | {' | '.join(column.get(method, '') for column in columns.values())} |" for method in methods
    ]
    return "\n".join([f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *lines])


def block() -> str:
    return f"""
Test regret, mean of regret / optimum over {SEEDS} seeds; in brackets the paired difference from SPO+ with its 95 % interval
over test instances (training runs vary beyond that). PFY, SCE^DYS, SCE^smoothed and sSPO+ have a parameter, and so train
five times and keep the value of least validation regret; the others train once. The runs were made at several commits,
which the record names ([comparison](results/comparison/table.md), `python benchmarks/comparison.py`).

{regret()}

PFY is `FenchelYoung` through `Perturbed`; SCE^DYS and SCE^smoothed are `SCE` through `DavisYin` and `Smoothed`; sSPO+ is
`SmoothedSPOPlus`.

Speed: ratios of CPU times of one thread, medians of 5 to 9 repeats (3 of cvxpylayers), to two digits; layers forward and
backward, batches of 32 unless said. The linked pages hold the times, the machine and the command, and also what gains
little, such as a second thread.

{speed()}

"""


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(BLOCK.sub(lambda _: block(), readme.read_text()))


if __name__ == "__main__":
    main()
