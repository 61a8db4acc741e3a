"""What every benchmark shares: interleaved repeats, medians, a table, and a record of machine and versions.

One-thread timings use the CPU time of the process, which other work on the machine hardly touches; timings of several
threads use the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = (
    "dflearn",
    "torch",
    "numpy",
    "scipy",
    "numba",
    "highspy",
    "cvxpy",
    "cvxpylayers",
    "gurobipy",
    "pyepo",
    "qpth",
)


def medians(ways: Mapping[str, Callable[[], Any]], repeats: int, *, wall: bool = False) -> dict[str, float]:
    """Median seconds of each way, after one uncounted call of each; in turns, so that a slow spell falls on all alike."""
    clock = time.perf_counter if wall else time.process_time
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begun = clock()
            way()
            times[name].append(clock() - begun)
    return {name: statistics.median(values) for name, values in times.items()}


def first_call(way: Callable[[], Any]) -> float:
    """Seconds of a call that may compile or import."""
    begun = time.perf_counter()
    way()
    return time.perf_counter() - begun


def peak_megabytes() -> float:
    """The process's largest resident memory so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def provenance() -> dict[str, Any]:
    """Machine, versions and commit."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {
        "processor": _processor(),
        "cores": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as Markdown; numbers with three significant digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    show = lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)  # noqa: E731
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks take."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=9, help="how often each way is timed (the median counts)")
    arguments.add_argument("--json", type=Path, help="write rows, machine and versions to this file; a table beside it")
    return arguments


def report(title: str, subjects: Mapping[str, Sequence[Mapping[str, Any]]], file: Path | None, command: str) -> None:
    """Print one table per subject; with a file, write JSON there and Markdown beside it."""
    record = {"title": title, "command": command, **provenance(), "subjects": subjects}
    text = f"# {title}\n\n`{command}`\n\n{record['processor']}, {record['versions']}, commit {record['commit']}\n"
    for name, rows in subjects.items():
        text += f"\n## {name}\n\n{table(rows)}\n"
    print(text)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
        file.with_suffix(".md").write_text(text)
