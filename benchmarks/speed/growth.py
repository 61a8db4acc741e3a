"""How time and memory grow with the size of the problem, up to 25,050 variables.

    python benchmarks/speed/growth.py [--quick] [--repeats 5] [--problems SP-5 SP-10 …] [--parts Smoothed …] [--json results/bench/growth.json]

Each part at each size in a process of its own. Layers: forward and backward of a batch of 32, per instance. Labels: the
problem's exact solver, per instance; integer programs that HiGHS does not prove optimal in 20 s are marked. Memory is what
a size adds at its peak to what was there after a small problem. The exponent of a family is the slope of the least-squares
line through the logarithms of its larger half: of time against the entries of the matrix and of its factor, of memory
against the variables. Nothing quadratic in memory means exponents well below 2.
With --problems, the other problems, and with --parts the other parts, keep what the JSON file has of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from contest import Entry, contest
from harness import by_place, command_line, earlier, parser, report

FAMILIES = {
    "SP": ("SP-5", "SP-10", "SP-15", "SP-25", "SP-50", "SP-100"),
    "KP": ("KP-100", "KP-200", "KP-400", "KP-1000", "KP-4000", "KP-10000"),
    "CFL": ("CFL-50", "CFL-100", "CFL-200", "CFL-250", "CFL-500x50"),
}
QUICK = ("SP-5", "SP-25")
PARTS = ("DavisYin unrolled", "DavisYin jfb", "Smoothed", "labels, relaxed", "labels")
INTEGER = ("KP", "CFL")  # where labels differ from relaxed ones


def measure(name: str, repeats: int, parts: Sequence[str]) -> dict[str, Any]:
    """One row: a size."""
    row: dict[str, Any] = {"problem": name}
    for part in parts:
        if part == "labels" and not name.startswith(INTEGER):
            continue  # the program is its own relaxation
        result = contest({part: Entry("run_dflearn.py", (part,))}, "growth", {"problem": name}, repeats)[part]
        found = result.found[-1]
        row |= {"variables": int(found["variables"])}
        if "entries" in found:
            row["nonzeros + nnz(L)"] = int(found["entries"])
        row[f"{part} ms"] = 1e3 * result.seconds / float(found["instances"])
        row[f"{part} MiB"] = result.peak - result.imports
        if float(found.get("solved", 1.0)) < 1:
            row[f"{part} solved"] = f"{float(found['solved']):.0%} in time"
    return row


def exponents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slopes of each family that has three sizes or more."""
    found = []
    for family in FAMILIES:
        sizes = [row for row in rows if row["problem"].startswith(family)]
        larger = sizes[len(sizes) // 2 - (len(sizes) < 5) :] if len(sizes) > 2 else []
        if not larger:
            continue
        line: dict[str, Any] = {"problem": f"{family}, {larger[0]['problem']} to {larger[-1]['problem']}"}
        for part in PARTS:
            for unit, against in (("ms", "nonzeros + nnz(L)"), ("MiB", "variables")):
                key = f"{part} {unit}"
                known = [row for row in larger if row.get(key, 0) > 0 and f"{part} solved" not in row]
                if len(known) > 1:
                    x, y = np.log([[row[against], row[key]] for row in known]).T
                    line[f"{key}, exponent"] = float(np.polyfit(x, y, 1)[0])
        found.append(line)
    return found


def main() -> None:
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--problems", nargs="+", metavar="NAME")
    arguments.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", default=PARTS)
    options = arguments.parse_args()
    known = [name for family in FAMILIES.values() for name in family]
    names = options.problems or (QUICK if options.quick else known)
    parts = ("DavisYin unrolled", "Smoothed") if options.quick else options.parts
    kept = earlier(options.json, options.problems)
    sizes, ordered = by_place(kept, "sizes", known, "problem")
    for name in names:
        sizes[name] = {**sizes.get(name, {}), **measure(name, 1 if options.quick else options.repeats, parts)}
        slopes = exponents(ordered())
        subjects = {"sizes": ordered()} | ({"exponents": slopes} if slopes else {})
        report("Growth with size", subjects, options.json, command_line(kept), quiet=name != names[-1])


if __name__ == "__main__":
    main()
