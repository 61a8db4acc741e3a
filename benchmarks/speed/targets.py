"""What is asked of the library's speed, and whether results meet it; and which ratios of a run fell below the committed ones.

    python benchmarks/speed/targets.py [build/bench] [--tolerance 0.6]        # default: results/bench

Nothing is measured here. A ratio is the peer's time over ours: larger is better. One regressed if it is below the tolerance times the
committed one, which leaves room for what the same code shows from run to run on a busy machine: then the exit status is 1. Rows that
only one side has are left out, and so are means, which may be of other rows.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, Rows, table

RESULTS = ROOT / "results" / "bench"
PLACES = ("problem", "batch", "loop", "import")  # the columns that say which row it is
MEAN = "geometric mean"


@dataclass(frozen=True)
class Target:
    """One figure per row of a table, what it must reach, and what one hopes for: bounds from below (from above with `at_most`), `None`
    where nothing is asked. row: the one row that counts, by its place; empty for all but the mean. count: rows of a full run."""

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
        own = (row for row in rows if (place(row) == self.row if self.row else place(row) != MEAN))
        return {place(row): float(row[self.column]) for row in own if self.column in row}

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
    for loss, start in itertools.product(("SPO+", "PFY"), ("cold", "warm")):
        subject = f"{loss} on relaxed knapsacks"
        yield Target(f"{subject}, {start}, against {spo}", "epochs", subject, f"{start} ratio", 2, 5, count=2)
    for way, peer in (("unrolled", "the published layer"), ("jfb", "dense jfb")):
        place = "epochs", "SCE^DYS against the published layer", f"{way} ratio"
        yield Target(f"SCE^DYS {way} against {peer}", *place, 4, 20, count=12)
        yield Target("the same, mean of the rows above", *place, 10, None, row=MEAN)
    for problem in ("KP-400", "CFL-200"):
        place = "paper_times", "SCE^DYS, sparse and dense", "ratio"
        yield Target(f"the authors' iteration against their dense one, {problem}", *place, 10, 40, row=problem)
    for start in ("cold", "warm"):
        name, subject = f"SCE^smoothed {start} against the published layer", "SCE^smoothed against the published layer"
        yield Target(name, "epochs", subject, f"{start} ratio", 4, 20, count=12)
    for way in ("SCE^DYS", "SCE^smoothed cold", "SCE^smoothed warm"):
        name = f"{way} against SPO+ of {spo}"
        yield Target(name, "epochs", "SCE against PyEPO's SPO+", f"{way} ratio", 2, 8, count=4)
    starts = (("cold", 25, 100), ("warm", 100, None))
    for peer, (start, must, goal) in itertools.product(("cvxpylayers", "qpth"), starts):
        name, place = f"smoothed layer, {start}, against {peer}", ("layers", "forward and backward")
        yield Target(name, *place, f"{peer} {start} ratio", must, goal, count=9)
    name = "exact quadratic layer, cold, batch of 32, against cvxpylayers"
    yield Target(name, "quadratic", "batch of 32", "cvxpylayers ratio", 10, 100, count=5)
    yield Target("1000 labels against PyEPO's data set", "labelling", "peers", "Gurobi ratio", 10, 100, count=2)
    yield Target("labels on two threads against one", "labelling", "threads", "threads ratio", 1.6, 1.9, "CFL-50")
    for part in ("DavisYin unrolled", "DavisYin jfb", "Smoothed", "labels, relaxed"):
        name, column = f"{part}: exponent of memory in the variables", f"{part} MiB, exponent"
        yield Target(name, "growth", "exponents", column, 1.9, 1.2, at_most=True, count=3)
    for part in ("DavisYin unrolled", "Smoothed"):
        name, column = f"{part}: exponent of time in nnz(A) + nnz(L)", f"{part} ms, exponent"
        yield Target(name, "growth", "exponents", column, None, 1.2, at_most=True, count=3)
    yield Target("`fit` beyond a loop by hand, ms per step", "training", "fit", "overhead ms", 0.3, None, "fit", True)
    name, row = "imports beyond `import torch`, s", "torch and what training uses"
    yield Target(name, "training", "imports", "beyond torch s", 0.5, 0.3, row, True)
    yield Target("the first gradient, nothing compiled before, s", "training", "first", "s", 12, 5, at_most=True)
    for when in ("after dfl compile", "from a wheel"):
        yield Target(f"the first gradient {when}, s", "training", "first", f"{when} s", 3, 1, at_most=True)


TARGETS = tuple(_targets())


def verdicts(folder: Path = RESULTS) -> Rows:
    """One row per target."""
    rows = []
    for target in TARGETS:
        figures = target.figures(folder)
        worst = target.worst(figures) if figures else ""
        bounds = {"must": target.must, "goal": target.goal}
        sign = "≤" if target.at_most else "≥"
        row = {"": target.name, "worst": f"{two_digits(figures[worst])} ({worst})" if worst else ""}
        row |= {name: "" if bound is None else f"{sign} {bound:g}" for name, bound in bounds.items()}
        rows.append(row | {"verdict": target.verdict(figures)})
    return rows


def ratios(folder: Path) -> dict[tuple[str, ...], float]:
    """(benchmark, subject, row, column) → ratio, of all files in the folder."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        for subject, rows in json.loads(path.read_text())["subjects"].items():
            for row in (row for row in rows if place(row) != MEAN):
                # Some tables have several rows per place: what else is text tells them apart.
                text = " ".join(str(v) for k, v in row.items() if isinstance(v, str) and k != "problem")
                for column in (name for name in row if name.endswith("ratio") or name.startswith("gain")):
                    found[path.stem, subject, f"{place(row)} {text}".strip(), column] = float(row[column])
    return found


def regressions(new: Path, committed: Path, tolerance: float) -> tuple[int, list[str]]:
    """How many ratios both have, and a line for each that regressed."""
    before, now = ratios(committed), ratios(new)
    common = [key for key in now if key in before]
    worse = {
        key: tuple(map(two_digits, (now[key], before[key]))) for key in common if now[key] < tolerance * before[key]
    }
    lines = [
        f"{file}, {subject}: {column} on {row} is {is_now}, was {was}"
        for (file, subject, row, column), (is_now, was) in worse.items()
    ]
    return len(common), lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--tolerance", type=float, default=0.6)
    options = parser.parse_args()
    print(table(verdicts(options.folder)))
    count, lines = regressions(options.folder, RESULTS, options.tolerance)
    if lines:
        raise SystemExit("\n".join([f"{len(lines)} of {count} ratios regressed:", *lines]))
    print(f"None of {count} ratios is below {options.tolerance:g} times the committed one.")


if __name__ == "__main__":
    main()
