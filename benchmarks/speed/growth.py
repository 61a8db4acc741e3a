"""How time and memory grow with the size of the problem, up to 25,050 variables.

    python benchmarks/speed/growth.py [--quick] [--repeats 5] [--problems SP-5 SP-10 …] [--json results/bench/growth.json]

Each part at each size in a process of its own. Layers: forward and backward of a batch of 32, per instance. Labels: the
problem's exact solver, per instance; integer programs that HiGHS does not prove optimal in 20 s are marked. Memory is what
a size adds at its peak to what was there after a small problem. The exponent of a family is the slope of the least-squares
line through the logarithms of its larger half: of time against the entries of the matrix and of its factor, of memory
against the variables. Nothing quadratic in memory means exponents well below 2.
"""

from typing import Any

import numpy as np

from contest import Entry, contest
from harness import Row, Rows, by_case

FAMILIES = {
    "SP": ("SP-5", "SP-10", "SP-15", "SP-25", "SP-50", "SP-100"),
    "KP": ("KP-100", "KP-200", "KP-400", "KP-1000", "KP-4000", "KP-10000"),
    "CFL": ("CFL-50", "CFL-100", "CFL-200", "CFL-250", "CFL-500x50"),
}
PARTS = ("DavisYin unrolled", "DavisYin jfb", "Smoothed", "labels, relaxed", "labels")
INTEGER = ("KP", "CFL")  # where labels differ from relaxed ones


def measure(options: Any, name: str) -> dict[str, Rows]:
    """One row: a size."""
    row: Row = {"problem": name}
    for part in ("DavisYin unrolled", "Smoothed") if options.quick else PARTS:
        if part == "labels" and not name.startswith(INTEGER):
            continue  # the program is its own relaxation
        repeats = 1 if options.quick else options.repeats
        result = contest({part: Entry("run_dflearn.py", (part,))}, "growth", {"problem": name}, repeats)[part]
        found = {key: float(value) for key, value in result.found[-1].items()}
        row["variables"] = int(found["variables"])
        if "entries" in found:
            row["nonzeros + nnz(L)"] = int(found["entries"])
        row[f"{part} ms"] = 1e3 * result.seconds / found["instances"]
        row[f"{part} MiB"] = result.peak - result.imports
        if found.get("solved", 1.0) < 1:
            row[f"{part} solved"] = f"{found['solved']:.0%} in time"
    return {"sizes": [row]}


def exponents(rows: Rows) -> Rows:
    """The slopes of each family that has three sizes or more."""
    found = []
    for family in FAMILIES:
        sizes = [row for row in rows if row["problem"].startswith(family)]
        larger = sizes[len(sizes) // 2 - (len(sizes) < 5) :] if len(sizes) > 2 else []
        if not larger:
            continue
        line: Row = {"problem": f"{family}, {larger[0]['problem']} to {larger[-1]['problem']}"}
        for part in PARTS:
            for unit, against in (("ms", "nonzeros + nnz(L)"), ("MiB", "variables")):
                key = f"{part} {unit}"
                known = [row for row in larger if row.get(key, 0) > 0 and f"{part} solved" not in row]
                if len(known) > 1:
                    x, y = np.log([[row[against], row[key]] for row in known]).T
                    line[f"{key}, exponent"] = float(np.polyfit(x, y, 1)[0])
        found.append(line)
    return found


def with_exponents(subjects: dict[str, Rows]) -> dict[str, Rows]:
    slopes = exponents(subjects["sizes"])
    return {"sizes": subjects["sizes"]} | ({"exponents": slopes} if slopes else {})


if __name__ == "__main__":
    cases, quick = [(name,) for names in FAMILIES.values() for name in names], [("SP-5",), ("SP-25",)]
    by_case("Growth with size", __doc__, measure, cases, quick, repeats=3, derive=with_exponents)
