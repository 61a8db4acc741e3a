"""The figures of results/bench/, drawn from its files: regret against time, time and memory against size.

python benchmarks/speed/plots.py [FOLDER]            # default: results/bench
"""

from __future__ import annotations

import json
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from growth import FAMILIES, PARTS
from targets import RESULTS

COLORS = ("#0b66c3", "#7f7f7f", "#1a8f5a", "#c0392b", "#8a4fbe")
SHOWN = ("SPO+", "SPO+, PyEPO + Gurobi", "SCE^DYS", "SCE^DYS as published", "SCE^smoothed")


def read(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())


def grid(axes: Any, **labels: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set(**labels)


def regret_against_time(folder: Path) -> Any:
    """One line per method: the regret after each epoch, at the seconds of training that it took to get there."""
    measured = read(folder, "epochs")["measured"]
    names = [name for name, found in measured.items() if "SPO+, PyEPO + Gurobi" in found]
    figure = Figure(figsize=(4.2 * len(names), 3.6), layout="constrained")
    for k, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), k + 1)
        for who, color in zip(SHOWN, COLORS, strict=True):
            if who in measured[name]:
                found = measured[name][who]
                # The first epoch may compile: it counts like the others.
                seconds = list(accumulate([found["seconds"], *found["turns"][1:]]))
                axes.plot(seconds, found["regrets"], "o-", markersize=3, label=who, color=color)
        title = name if name.startswith("SP") else f"{name}, relaxed"
        grid(axes, xscale="log", xlabel="seconds of training, one thread", title=title)
        if not k:
            axes.set_ylabel("test regret, ratio of sums")
            figure.legend(
                *axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(SHOWN), frameon=False
            )
    return figure


def growth(folder: Path) -> Any:
    """Time and memory of each part, one column per family of problems, on logarithmic axes."""
    rows = read(folder, "growth")["subjects"]["sizes"]
    measured = {family: [row for row in rows if row["problem"] in names] for family, names in FAMILIES.items()}
    families = {family: sizes for family, sizes in measured.items() if sizes}
    figure = Figure(figsize=(4.2 * len(families), 6.4), layout="constrained")
    for k, (family, sizes) in enumerate(families.items()):
        for line, (unit, ylabel) in enumerate({"ms": "ms per instance", "MiB": "MiB added"}.items()):
            axes = figure.add_subplot(2, len(families), line * len(families) + k + 1)
            for part, color in zip(PARTS, COLORS, strict=True):
                known = [row for row in sizes if row.get(f"{part} {unit}", 0) > 0]
                if known:
                    x, y = [row["variables"] for row in known], [row[f"{part} {unit}"] for row in known]
                    axes.plot(x, y, "o-", markersize=3, label=part, color=color)
            grid(axes, xscale="log", yscale="log", xlabel="variables", title=family if not line else "")
            if not k:
                axes.set_ylabel(ylabel)
            if not k and not line:
                handles = axes.get_legend_handles_labels()
                figure.legend(*handles, loc="outside lower center", ncols=len(PARTS), frameon=False)
    return figure


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    with matplotlib.rc_context({"svg.hashsalt": "dflearn", "svg.fonttype": "none"}):
        for figure, name in ((regret_against_time, "epochs"), (growth, "growth")):
            if (folder / f"{name}.json").exists():
                figure(folder).savefig(folder / f"{name}.svg", metadata={"Date": None})
                print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
