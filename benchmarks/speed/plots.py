"""The figures of results/bench/, drawn from its files: regret against time, time and memory against size.

python benchmarks/speed/plots.py [FOLDER]            # default: results/bench
"""

import json
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from growth import FAMILIES, PARTS
from targets import RESULTS

COLORS = ("#0b66c3", "#7f7f7f", "#1a8f5a", "#c0392b", "#8a4fbe")
SHOWN = ("SPO+", "SPO+, PyEPO + Gurobi", "SCE^DYS", "SCE^DYS as published", "SCE^smoothed")


def columns_of(count: int, height: float, rows: int = 1) -> tuple[Any, Any]:
    """A figure, and its axes `(rows, count)` in a common look."""
    figure = Figure(figsize=(4.2 * count, height), layout="constrained")
    places = np.arange(1, rows * count + 1).reshape(rows, count)
    axes = np.array([[figure.add_subplot(rows, count, place) for place in column] for column in places.T]).T
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25)
    return figure, axes


def legend(figure: Any, axes: Any, columns: int) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def regret_against_time(record: dict[str, Any]) -> Any:
    """One line per method: the regret after each epoch, at the seconds of training that it took to get there."""
    measured = {name: found for name, found in record["measured"].items() if "SPO+, PyEPO + Gurobi" in found}
    figure, all_axes = columns_of(len(measured), 3.6)
    for axes, (name, own) in zip(all_axes[0], measured.items(), strict=True):
        for who, color in zip(SHOWN, COLORS, strict=True):
            if who in own:
                # The first epoch may compile: it counts like the others.
                seconds = list(accumulate([own[who]["seconds"], *own[who]["turns"][1:]]))
                axes.plot(seconds, own[who]["regrets"], "o-", markersize=3, label=who, color=color)
        title = name if name.startswith("SP") else f"{name}, relaxed"
        axes.set(xscale="log", xlabel="seconds of training, one thread", title=title)
    all_axes[0, 0].set_ylabel("test regret, ratio of sums")
    legend(figure, all_axes[0, 0], len(SHOWN))
    return figure


def growth(record: dict[str, Any]) -> Any:
    """Time and memory of each part, one column per family of problems, on logarithmic axes."""
    rows = record["subjects"]["sizes"]
    measured = {family: [row for row in rows if row["problem"] in names] for family, names in FAMILIES.items()}
    families = {family: sizes for family, sizes in measured.items() if sizes}
    figure, all_axes = columns_of(len(families), 6.4, rows=2)
    for column, (family, sizes) in zip(all_axes.T, families.items(), strict=True):
        for axes, unit in zip(column, ("ms", "MiB"), strict=True):
            for part, color in zip(PARTS, COLORS, strict=True):
                known = [row for row in sizes if row.get(f"{part} {unit}", 0) > 0]
                if known:
                    x, y = [row["variables"] for row in known], [row[f"{part} {unit}"] for row in known]
                    axes.plot(x, y, "o-", markersize=3, label=part, color=color)
            axes.set(xscale="log", yscale="log", xlabel="variables", title=family if unit == "ms" else "")
    for axes, ylabel in zip(all_axes[:, 0], ("ms per instance", "MiB added"), strict=True):
        axes.set_ylabel(ylabel)
    legend(figure, all_axes[0, 0], len(PARTS))
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    with matplotlib.rc_context({"svg.hashsalt": "dflearn", "svg.fonttype": "none"}):
        for draw, name in ((regret_against_time, "epochs"), (growth, "growth")):
            if (folder / f"{name}.json").exists():
                record = json.loads((folder / f"{name}.json").read_text())
                draw(record).savefig(folder / f"{name}.svg", metadata={"Date": None})
                print(folder / f"{name}.svg")
