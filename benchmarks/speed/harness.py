"""What every benchmark shares: interleaved repeats, medians, a table, and a record of machine and versions.

One-thread timings use the CPU time of the process, which other work on the machine hardly touches; timings of several
threads use the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflearn.problems import problem_named
from dflearn.studies.record import installed, machine

Row = dict[str, Any]
Rows = list[Row]
ROOT = Path(__file__).resolve().parents[2]
RIVALS = ("pyepo",)  # beside the packages that dflearn itself uses
PEERS = ("ortools", "qpth", "piqp", "moreau")  # in environments of their own, pinned by environments/*.txt


def in_turns(ways: Mapping[str, Callable[[], Any]], clock: Callable[[], float], repeats: int) -> dict[str, list[float]]:
    """Seconds of every repeat of every way, in turns, so that a slow spell falls on all alike."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begun = clock()
            way()
            times[name].append(clock() - begun)
    return times


def medians(ways: Mapping[str, Callable[[], Any]], repeats: int, *, wall: bool = False) -> dict[str, float]:
    """Median seconds of each way, after one uncounted call of each."""
    for way in ways.values():
        way()
    times = in_turns(ways, time.perf_counter if wall else time.process_time, repeats)
    return {name: statistics.median(values) for name, values in times.items()}


def least(way: Callable[[], Any], seconds: float = 1.0) -> float:
    """The least CPU time of a call, in ms, of as many as fit into so many seconds; three at least, after two that do not count."""
    way()
    way()
    best, begun, calls = math.inf, time.process_time(), 0
    while calls < 3 or time.process_time() - begun < seconds:
        start = time.process_time_ns()
        way()
        best, calls = min(best, time.process_time_ns() - start), calls + 1
    return best / 1e6


def costs_of(name: str, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Costs of the first instances of a problem of the paper."""
    return problem_named(name, seed=1).generate(count, dtype=dtype).batch().require("costs")


def moved(costs: Tensor) -> Tensor:
    """Costs that differ by 2 %, as between two epochs of training."""
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (costs * (1 + 0.02 * noise)).to(costs.dtype)


def step(layer: Any, costs: Tensor, start: Tensor | None = None) -> Callable[[], Tensor]:
    """Forward and backward with the same incoming gradient for everyone; the gradient."""
    incoming = torch.linspace(-1, 1, layer.program.n, dtype=costs.dtype).expand(len(costs), -1)

    def run() -> Tensor:
        y = costs.detach().requires_grad_()
        layer.solve(y, None, start).decision.backward(incoming)
        assert y.grad is not None
        return y.grad

    return run


def provenance() -> dict[str, Any]:
    """Machine, versions and commit."""
    here = machine()
    versions = here["versions"] | installed(RIVALS)
    for peer in PEERS:
        pinned = (ROOT / "benchmarks" / "speed" / "environments" / f"{peer}.txt").read_text().splitlines()
        versions[peer] = next(line.partition("==")[2] for line in pinned if line.startswith(f"{peer}=="))
    return {name: here[name] for name in ("processor", "python", "commit")} | {
        "cores": os.cpu_count(),
        "versions": versions,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as Markdown; numbers with three significant digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    show = lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)  # noqa: E731
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def geometric_mean(rows: Sequence[Mapping[str, Any]], *keys: str) -> dict[str, Any]:
    """The last row of a table: the geometric mean of those ratios that every row has."""
    common = [key for key in keys if all(key in row for row in rows)]
    mean = {key: math.exp(statistics.fmean(math.log(row[key]) for row in rows)) for key in common}
    return {"problem": "geometric mean", **mean}


def parser(description: str | None, repeats: int = 9) -> argparse.ArgumentParser:
    """The options that all benchmarks take."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--repeats", type=int, default=repeats, help="how often each way is timed (the median counts)"
    )
    arguments.add_argument("--json", type=Path, help="write rows, machine and versions to this file; a table beside it")
    arguments.add_argument("--quick", action="store_true", help="a part of the rows, the same as in the full run")
    arguments.add_argument("--threads", type=int, default=1, help="threads for everyone (default: 1)")
    return arguments


def command_line(kept: Mapping[str, Any] | None = None) -> str:
    """How this script was called, from the root of the repository; after the calls that made what is kept of a file."""
    before = kept["command"].split("; ") if kept else []
    return "; ".join(
        dict.fromkeys([*before, f"python benchmarks/speed/{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"])
    )


def earlier(file: Path | None, wanted: object) -> dict[str, Any] | None:
    """What the file has already, where only a part of it is `wanted` anew."""
    return json.loads(file.read_text()) if wanted and file is not None and file.exists() else None


def main(
    title: str,
    description: str | None,
    subjects: Mapping[str, Callable[[argparse.Namespace], Rows]],
    repeats: int = 9,
    quick: Sequence[str] = (),
) -> None:
    """A benchmark of some subjects, each a table; `--subjects` measures some anew and keeps the others.

    subjects: name → options → rows. quick: the subjects of `--quick`, all by default.
    """  # fmt: skip
    arguments = parser(description, repeats)
    arguments.add_argument("--subjects", nargs="+", choices=list(subjects), help="the others stay as the file has them")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    kept = earlier(options.json, options.subjects)
    rows = dict(kept["subjects"]) if kept else {}
    for name in options.subjects or (options.quick and quick) or subjects:
        rows[name] = subjects[name](options)
    report(title, rows, options.json, command_line(kept))


def by_place(
    kept: Mapping[str, Any] | None, subject: str, order: Sequence[Any], *keys: str
) -> tuple[dict[Any, Row], Callable[[], list[Row]]]:
    """The rows that a file keeps, by the values of `keys`, and those that are there in their order."""
    held = kept["subjects"].get(subject, []) if kept else []
    rows: dict[Any, Row] = {tuple(row[key] for key in keys) if keys[1:] else row[keys[0]]: row for row in held}
    return rows, lambda: [rows[place] for place in order if place in rows]


def report(
    title: str,
    subjects: Mapping[str, Sequence[Mapping[str, Any]]],
    file: Path | None,
    command: str,
    quiet: bool = False,
    **more: Any,
) -> None:
    """Print one table per subject; with a file, write JSON (and `more` in it) there and Markdown beside it."""
    record = {"title": title, "command": command, **provenance(), "subjects": subjects, **more}
    text = f"# {title}\n\n`{command}`\n\n{record['processor']}, {record['cores']} cores, {record['versions']}, "
    text += f"commit {record['commit']}\n"
    for name, rows in subjects.items():
        text += f"\n## {name}\n\n{table(rows)}\n"
    if not quiet:
        print(text)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(record, indent=1) + "\n")
        write(file.with_suffix(".md"), text)


def write(file: Path, text: str) -> None:
    """The file appears whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    os.replace(temporary, file)
