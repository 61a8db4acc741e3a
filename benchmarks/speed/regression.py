"""Have ratios become worse? Compares a run's with the committed ones; never absolute times, which depend on the machine.

    python benchmarks/speed/regression.py build/bench [--committed results/bench] [--tolerance 0.6]

A ratio regressed when it is below the tolerance times the committed one. The default leaves room for what the same code
shows from run to run on a busy machine. Rows that only one side has are left out, and so are means, which may be of
other rows. Exit status 1 names every ratio that regressed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from targets import MEAN, RESULTS, place, two_digits

TOLERANCE = 0.6


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
    worse = [
        (key, two_digits(now[key]), two_digits(before[key])) for key in common if now[key] < tolerance * before[key]
    ]
    return len(common), [
        f"{name}, {subject}: {column} on {row} is {is_now}, was {was}"
        for (name, subject, row, column), is_now, was in worse
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("new", type=Path, help="folder of the run")
    parser.add_argument("--committed", type=Path, default=RESULTS)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    options = parser.parse_args()
    count, lines = regressions(options.new, options.committed, options.tolerance)
    if not count:
        raise SystemExit(f"{options.new} and {options.committed} have no ratio in common: run `make bench` first")
    if lines:
        raise SystemExit("\n".join([f"{len(lines)} of {count} ratios regressed:", *lines]))
    print(f"None of {count} ratios is below {options.tolerance:g} times the committed one.")


if __name__ == "__main__":
    main()
