"""What is asked of the library's speed, and whether the results in results/bench/ meet it.

    python benchmarks/speed/targets.py [FOLDER]          # default: results/bench

Nothing is measured here. A ratio is the peer's time over ours: larger is better.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, table

RESULTS = ROOT / "results" / "bench"
PLACES = ("problem", "batch", "loop", "import")  # the columns that say which row it is
MEAN = "geometric mean"


@dataclass(frozen=True)
class Target:
    """One figure per row of a table, what it must reach, and what one hopes for.

    Attributes:
        name: what is compared.
        file, subject, column: where its figures are.
        must, goal: bounds from below (from above with `at_most`); `None` where nothing is asked.
        row: the one row that counts, by its place; empty for all but the mean.
        count: how many rows a full run has.
    """

    name: str
    file: str
    subject: str
    column: str
    must: float | None
    goal: float | None
    row: str = ""
    at_most: bool = False
    count: int = 1

    def figures(self, folder: Path = RESULTS) -> dict[str, float]:
        """Place → figure; empty where nothing was measured."""
        path = folder / f"{self.file}.json"
        rows = json.loads(path.read_text())["subjects"].get(self.subject, []) if path.exists() else []
        return {
            place(row): float(row[self.column])
            for row in rows
            if self.column in row and (place(row) == self.row if self.row else place(row) != MEAN)
        }

    def reached(self, figure: float, bound: float) -> bool:
        return figure <= bound if self.at_most else figure >= bound

    def worst(self, figures: dict[str, float]) -> str:
        return (max if self.at_most else min)(figures, key=figures.__getitem__)

    def verdict(self, figures: dict[str, float]) -> str:
        """In words, with the rows that fall short, and how many rows there are where some are missing."""
        if not figures:
            return "not measured"
        part = f" ({len(figures)} of {self.count} rows)" if len(figures) < self.count else ""
        if self.goal is not None and all(self.reached(value, self.goal) for value in figures.values()):
            return "goal met" + part
        short = {row: value for row, value in figures.items() if self.must and not self.reached(value, self.must)}
        if not short:
            return ("met" if self.must is not None else "goal missed") + part
        return "**missed** on " + ", ".join(f"{row} ({two_digits(value)})" for row, value in short.items()) + part


def place(row: dict[str, Any]) -> str:
    return " × ".join(str(row[key]) for key in PLACES if key in row)


def two_digits(value: float) -> str:
    """Timings are worth no more: 217.3 is 220, 8.83 is 8.8."""
    return f"{float(f'{value:.2g}'):g}"


def _targets() -> Iterator[Target]:
    spo = "PyEPO + Gurobi"
    yield Target(f"SPO+ against {spo}", "epochs", "SPO+ on shortest paths", "cold ratio", 10, 50, count=2)
    for loss in ("SPO+", "PFY"):
        for start in ("cold", "warm"):
            name = f"{loss} on relaxed knapsacks, {start}, against {spo}"
            yield Target(name, "epochs", f"{loss} on relaxed knapsacks", f"{start} ratio", 2, 5, count=2)
    for way, peer in (("unrolled", "the published layer"), ("jfb", "dense jfb")):
        subject = "SCE^DYS against the published layer"
        yield Target(f"SCE^DYS {way} against {peer}", "epochs", subject, f"{way} ratio", 4, 20, count=12)
        yield Target("the same, mean of the rows above", "epochs", subject, f"{way} ratio", 10, None, row=MEAN)
    for problem in ("KP-400", "CFL-200"):
        name = f"the authors' iteration against their dense one, {problem}"
        yield Target(name, "as_published", "epochs", "ratio", 10, 40, row=problem)
    for start in ("cold", "warm"):
        name = f"SCE^smoothed {start} against the published layer"
        yield Target(name, "epochs", "SCE^smoothed against the published layer", f"{start} ratio", 4, 20, count=12)
    for way in ("SCE^DYS", "SCE^smoothed cold", "SCE^smoothed warm"):
        name = f"{way} against SPO+ of {spo}"
        yield Target(name, "epochs", "SCE against PyEPO's SPO+", f"{way} ratio", 2, 8, count=4)
    for peer in ("cvxpylayers", "qpth"):
        for start, must, goal in (("cold", 25, 100), ("warm", 100, None)):
            name = f"smoothed layer, {start}, against {peer}"
            yield Target(name, "layers", "forward and backward", f"{peer} {start} ratio", must, goal, count=9)
    name = "exact quadratic layer, cold, batch of 32, against cvxpylayers"
    yield Target(name, "quadratic", "batch of 32", "cvxpylayers ratio", 10, 100, count=5)
    one = ("milliseconds", "one")
    yield Target(
        "smoothed layer, batch of one, cold, against cvxpylayers", *one, "cvxpylayers cold ratio", 40, 100, count=3
    )
    name = "the same beyond a layer that solves nothing, ms"
    yield Target(name, *one, "beyond nothing ms", 0.15, 0.05, at_most=True, count=3)
    cold, name = "cold ms per instance", "smoothed layer, cold, ms per instance"
    yield Target(name, "milliseconds", "grids", cold, 2, 1, "SP-25 × 1", True)
    yield Target(name, "milliseconds", "grids", cold, 0.5, None, "SP-25 × 32", True)
    yield Target(name, "milliseconds", "grids", cold, 35, 25, "SP-100 × 8", True)
    for problem in ("SP-25", "SP-50", "SP-100"):
        name = "smoothed layer, warm against cold"
        yield Target(name, "milliseconds", "grids", "cold / warm", 1.3, 3, f"{problem} × 8")
    yield Target("the first call, nothing compiled before, s", "milliseconds", "first", "s", 3, 1, at_most=True)
    yield Target(
        "the same from a wheel of `make wheel`, s", "milliseconds", "first", "from a wheel s", 3, 1, at_most=True
    )
    yield Target("the same after `dfl compile`, s", "milliseconds", "first", "after dfl compile s", 3, 1, at_most=True)
    yield Target("1000 labels against PyEPO's data set", "labelling", "peers", "Gurobi ratio", 10, 100, count=2)
    yield Target("labels on two threads against one", "labelling", "threads", "threads ratio", 1.6, 1.9, "CFL-50")
    for part in ("DavisYin unrolled", "DavisYin jfb", "Smoothed", "labels, relaxed"):
        name = f"{part}: exponent of memory in the variables"
        yield Target(name, "growth", "exponents", f"{part} MiB, exponent", 1.9, 1.2, at_most=True, count=3)
    for part in ("DavisYin unrolled", "Smoothed"):
        name = f"{part}: exponent of time in nnz(A) + nnz(L)"
        yield Target(name, "growth", "exponents", f"{part} ms, exponent", None, 1.2, at_most=True, count=3)
    yield Target("`fit` beyond a loop by hand, ms per step", "training", "fit", "overhead ms", 0.3, None, "fit", True)
    name = "imports beyond `import torch`, s"
    yield Target(name, "training", "imports", "beyond torch s", 0.5, 0.3, "torch and what training uses", True)


TARGETS = tuple(_targets())


def verdicts(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """One row per target."""
    rows = []
    for target in TARGETS:
        figures = target.figures(folder)
        worst = target.worst(figures) if figures else ""
        sign = "≤ " if target.at_most else "≥ "
        rows.append(
            {
                "": target.name,
                "worst": f"{two_digits(figures[worst])} ({worst})" if worst else "",
                "must": "" if target.must is None else f"{sign}{target.must:g}",
                "goal": "" if target.goal is None else f"{sign}{target.goal:g}",
                "verdict": target.verdict(figures),
            }
        )
    return rows


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    print(table(verdicts(folder)))


if __name__ == "__main__":
    main()
