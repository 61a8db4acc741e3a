"""What every benchmark shares: interleaved repeats, medians, tables, cases, and a record of machine and versions.

One-thread timings use the CPU time of the process, which other work on the machine hardly touches; timings of several
threads use the clock on the wall.
"""

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

from dflearn.files import replacing
from dflearn.problems import problem_named
from dflearn.studies.record import installed, machine

Row = dict[str, Any]
Rows = list[Row]
Ways = Mapping[str, Callable[[], Any]]
ROOT = Path(__file__).resolve().parents[2]
RIVALS = ("pyepo",)  # beside the packages that dflearn itself uses
PEERS = ("ortools", "qpth", "moreau")  # in environments of their own, pinned by environments/*.txt


def in_turns(ways: Ways, clock: Callable[[], float], repeats: int) -> dict[str, list[float]]:
    """Seconds of every repeat of every way, in turns, so that a slow spell falls on all alike."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begun = clock()
            way()
            times[name].append(clock() - begun)
    return times


def medians(ways: Ways, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each way, after one uncounted call of each."""
    for way in ways.values():
        way()
    times = in_turns(ways, time.process_time, repeats)
    return {name: statistics.median(values) for name, values in times.items()}


def least(way: Callable[[], Any], seconds: float = 1.0) -> float:
    """The least CPU time of a call, in ms, of as many as fit into so many seconds; at least three, after two that do not count."""
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


def columns(values: Mapping[str, Any], unit: str, scale: float = 1.0) -> Row:
    """Columns of a row: `{"ours": 2e-3}`, "ms", 1e3 → `{"ours ms": 2.0}`."""
    return {f"{name} {unit}": scale * value for name, value in values.items()}


def ratios(times: Mapping[str, float], ours: str) -> Row:
    """How many times as long as ours the others take."""
    return {f"{name} ratio": value / times[ours] for name, value in times.items() if name != ours}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as Markdown; numbers with three significant digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    show = lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)  # noqa: E731
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def geometric_mean(rows: Sequence[Mapping[str, Any]], *keys: str) -> Row:
    """The last row of a table: the geometric mean of those ratios that every row has."""
    common = [key for key in keys if all(key in row for row in rows)]
    mean = {key: math.exp(statistics.fmean(math.log(row[key]) for row in rows)) for key in common}
    return {"problem": "geometric mean", **mean}


def parser(description: str | None, repeats: int | None = 9) -> argparse.ArgumentParser:
    """The options that all benchmarks take."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=repeats, help="how often each way is timed; medians count")
    arguments.add_argument("--json", type=Path, help="write rows, machine and versions to this file; a table beside it")
    arguments.add_argument("--quick", action="store_true", help="a part of the rows, the same as in the full run")
    arguments.add_argument("--threads", type=int, default=1, help="threads for everyone (default: 1)")
    return arguments


def command_line(kept: Mapping[str, Any] | None = None) -> str:
    """How this script was called, from the root of the repository; after the calls that made what is kept of a file."""
    here = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    before = kept["command"].split("; ") if kept and kept["command"] else []
    return "; ".join(dict.fromkeys([*before, f"python benchmarks/speed/{here}"]))


def earlier(file: Path | None, wanted: object) -> dict[str, Any] | None:
    """What the file has already, if only a part of it is `wanted` anew."""
    return json.loads(file.read_text()) if wanted and file is not None and file.exists() else None


Cases = Sequence[tuple[Any, ...]]


def main(
    title: str,
    description: str | None,
    subjects: Mapping[str, Callable[[argparse.Namespace], Rows]],
    repeats: int = 9,
    quick: Sequence[str] = (),
) -> None:
    """A benchmark of some subjects (name → options → rows), each a table; `--subjects` measures some anew and keeps the others."""
    cases, some = ([(name,) for name in names] for names in (subjects, quick))
    measure = lambda options, name: {name: subjects[name](options)}  # noqa: E731
    by_case(title, description, measure, cases, some, repeats=repeats, axes=["subject"])


def by_case(
    title: str,
    description: str | None,
    measure: Callable[..., dict[str, Rows]],
    cases: Cases,
    quick: Cases = (),
    *,
    repeats: int = 9,
    axes: Sequence[str] = ("problem",),
    derive: Callable[[dict[str, Rows]], dict[str, Rows]] = dict,
) -> None:
    """A benchmark of cases in the tables' order; `--problems` and other axes measure some anew and keep the others.

    measure: options, the values of the axes → rows by subject. quick: the cases of `--quick`, all by default. derive: adds
    tables that follow from others.
    """  # fmt: skip
    arguments = parser(description, repeats)
    for axis, values in zip(axes, map(dict.fromkeys, zip(*cases, strict=True)), strict=True):
        plural, kind = f"--{axis}" + ("es" if axis == "batch" else "s"), type(next(iter(values)))
        arguments.add_argument(
            plural, dest=axis, nargs="+", type=kind, choices=list(values), help="the others are kept"
        )
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    asked = [getattr(options, axis) for axis in axes]
    kept = earlier(options.json, any(asked)) or {"subjects": {}, "command": ""}
    subjects, commits = kept["subjects"], kept.get("commits", {})
    chosen = [case for case in cases if all(not some or own in some for some, own in zip(asked, case, strict=True))]
    chosen = [*quick] if options.quick and quick and not any(asked) else chosen
    same = lambda row, case: all(row.get(axis, own) == own for axis, own in zip(axes, case, strict=True))  # noqa: E731
    for case in chosen:
        for subject, rows in measure(options, *case).items():
            others = [row for row in subjects.get(subject, []) if not same(row, case)]
            subjects[subject] = sorted(others + rows, key=lambda row: [same(row, known) for known in cases].index(True))
        commits[", ".join(map(str, case))] = provenance()["commit"]
        subjects, last = derive(subjects), case == chosen[-1]
        named = f"{title}, {options.threads} thread{'s' * (options.threads > 1)}"
        report(named, subjects, options.json, command_line(kept), quiet=not last, commits=commits)


def provenance() -> dict[str, Any]:
    """Machine, versions and commit."""
    here = machine()
    versions = here["versions"] | installed(RIVALS)
    for peer in PEERS:
        pinned = (ROOT / "benchmarks" / "speed" / "environments" / f"{peer}.txt").read_text().splitlines()
        versions[peer] = next(line.partition("==")[2] for line in pinned if line.startswith(f"{peer}=="))
    known = {name: here[name] for name in ("processor", "python", "commit")}
    return known | {"cores": os.cpu_count(), "versions": versions}


def report(
    title: str, subjects: Mapping[str, Rows], file: Path | None, command: str, quiet: bool = False, **more: Any
) -> None:
    """Print one table per subject; with a file, write JSON (and `more` in it) there and Markdown beside it."""
    record = {"title": title, "command": command, **provenance(), "subjects": subjects, **more}
    if not quiet:
        print(page(record))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        for path, text in ((file, json.dumps(record, indent=1) + "\n"), (file.with_suffix(".md"), page(record))):
            with replacing(path) as temporary:
                temporary.write_text(text)


def page(record: Mapping[str, Any]) -> str:
    text = f"# {record['title']}\n\n`{record['command']}`\n\n{record['processor']}, {record['cores']} cores, "
    text += f"{record['versions']}, commit {record['commit']}\n"
    return text + "".join(f"\n## {name}\n\n{table(rows)}\n" for name, rows in record["subjects"].items())
