"""dfl run, dfl status, dfl export: studies from TOML files."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import (
    add_cache_options,
    add_command,
    add_ray_options,
    cache_of,
    on_ray,
    positive,
)
from dflearn.errors import DataError, OptionError
from dflearn.report.render import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflearn.studies.config import RunConfig
    from dflearn.studies.cost import Prior
    from dflearn.studies.driver import StudyOutcome
    from dflearn.studies.executors import Executor
    from dflearn.studies.record import Record
    from dflearn.studies.store import Store

ENDING = ".sqlite"


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "run",
        run,
        "carry out a study: a grid of problems, methods and seeds from a TOML file",
        "  dfl run experiment.toml\n  dfl run experiment.toml --jobs 2 --retry-failed\n"
        "  dfl run experiment.toml --executor ray --address 10.0.0.1:6379\n\n"
        "Finished runs are kept in experiment.sqlite beside the file and never repeated: call it again to go on.",
    )
    parser.add_argument("study", type=Path, help="the TOML file")
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="where runs are kept (default: beside the TOML file)"
    )
    add_executor_options(parser)
    parser = add_command(commands, "status", status, "say where a study stands", "  dfl status experiment.toml")
    parser.add_argument("study", type=Path, help="the study's TOML file or its store")
    parser = add_command(
        commands,
        "export",
        export,
        "write the finished runs of a study as a table",
        "  dfl export experiment.toml --out runs.csv\n  dfl export paper.sqlite --out runs.parquet\n\n"
        "A .csv or .parquet file has a row per run; a .jsonl file holds whole records, and .jsonl.xz or .jsonl.gz the same\n"
        "compressed.",
    )
    parser.add_argument("study", type=Path, help="the study's TOML file or its store")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .csv, .parquet or .jsonl file")
    parser.add_argument(
        "--instances", action="store_true", help="also regret and optimum of every test instance (.jsonl only)"
    )


def add_executor_options(parser: argparse.ArgumentParser) -> None:
    """How runs are carried out."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--jobs", type=positive, help="runs side by side, each in a process of its own (default: one per core)"
    )
    how.add_argument("--in-process", action="store_true", help="one after the other in this process")
    add_ray_options(parser, how)
    parser.add_argument(
        "--retries",
        type=int,
        default=2,
        help="how often a run is tried again whose process or node was lost (default: 2)",
    )
    parser.add_argument("--retry-failed", action="store_true", help="also repeat runs that failed before")
    parser.add_argument(
        "--raw",
        type=Path,
        metavar="FOLDER",
        help="keep predictions and decisions of the test rows of every run that is carried out, as FOLDER/KEY.npz",
    )
    add_cache_options(parser)


def store_of(study: Path) -> Path:
    """The store that belongs to a TOML file; a store stands for itself."""
    return study.with_suffix(ENDING) if study.suffix == ".toml" else study


def carry_out(
    configs: Sequence[RunConfig],
    store: Store,
    options: argparse.Namespace,
    budget: float | None = None,
    prior: Prior | None = None,
) -> StudyOutcome:
    """Run what is missing, with a progress bar, and say what failed."""
    from dflearn.studies.cost import Costs
    from dflearn.studies.driver import run_study

    missing = sum(not store.has(config) for config in configs)
    with _executor(options, missing) as executor:
        summary = run_study(
            configs,
            store,
            executor,
            retry_failed=options.retry_failed,
            retries=options.retries,
            budget=budget,
            estimate=Costs(store.records(), prior),
        )
    if summary.skipped:
        print(f"{len(summary.skipped)} runs failed before and were not repeated; --retry-failed repeats them")
    return summary


def _executor(options: argparse.Namespace, missing: int) -> Executor:
    from dflearn.studies.executors import InProcess, LocalProcesses, available_cores

    ray = on_ray(options)
    if options.raw is not None and not ray:
        try:
            options.raw.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # before hours of training, not after
            raise OptionError(f"--raw: no folder can be made at {options.raw}: {error.strerror}") from error
    if options.in_process or not missing:
        return InProcess(cache_of(options), options.raw)
    if ray and options.raw is not None:
        raise OptionError(
            "--raw writes to folders of this machine, and Ray's runs are on others: leave one of the two out"
        )
    if ray:
        from dflearn.integrations.ray import GIGABYTE, RayExecutor

        return RayExecutor(options.address, cache_of(options), options.memory * GIGABYTE)
    return LocalProcesses(options.jobs or min(available_cores(), missing), cache_of(options), options.raw)


def run(options: argparse.Namespace) -> Answer:
    from dflearn.studies.config import read_study
    from dflearn.studies.store import Store
    from dflearn.studies.summary import left_out_lines

    configs = read_study(options.study).runs()
    with Store(options.store or store_of(options.study)) as store:
        summary = carry_out(configs, store, options)
        found = [record for config in configs if (record := store.get(config)) is not None]
        rows = [
            [
                str(record.config.problem),
                record.config.method,
                str(record.config.seed),
                f"{record.metric('mean_of_ratios'):.4f}",
                f"{record.metric('published_style'):.4f}",
                f"{record.seconds['epoch']:.3g}",
            ]
            for record in found
        ]
        notes = [*left_out_lines(found), *stale_lines(found)]
        lines = [
            render(["problem", "method", "seed", "mean of ratios", "published style", "s/epoch"], rows),
            f"\n{len(found)} of {len(configs)} runs in {store.path}, {summary.done} of them new",
            *notes,
        ]
        document = {
            "store": store.path,
            "asked": len(configs),
            "done": len(found),
            "new": summary.done,
            "runs": [_run_document(record) for record in found],
            "notes": notes,
        }
        lacking = len(configs) - len(found)
        why = DataError(f"{lacking} runs are not there; `dfl status {store.path}` says why") if lacking else None
        return Answer("\n".join(lines), document, why)


def _run_document(record: Record) -> dict[str, Any]:
    config = record.config
    metrics = {name: record.metric(name) for name in ("mean_of_ratios", "published_style")}
    run = {"problem": str(config.problem), "method": config.method, "seed": config.seed}
    return {**run, **metrics, "seconds_per_epoch": record.seconds["epoch"]}


def stale_lines(records: Sequence[Record]) -> list[str]:
    """A warning where runs were made with other versions of the study's modules than there are now."""
    from dflearn.studies.record import outdated

    old = outdated(records)
    if not old:
        return []
    modules = ", ".join(dict.fromkeys(name for record in old for name in record.config.imports))
    return [
        f"warning: {len(old)} of these runs were made before {modules} changed, the first is {old[0].config}. They are kept "
        "as they are: name another store, with --store, to run them anew"
    ]


def status(options: argparse.Namespace) -> Answer:
    from dflearn.studies.cost import Costs
    from dflearn.studies.driver import duration
    from dflearn.studies.store import Store

    with Store(store_of(options.study), must_exist=True) as store:
        progress, costs = store.progress(), Costs(store.records(), folder=options.study.parent)
    total = len(progress.done) + len(progress.running) + len(progress.failed) + len(progress.missing)
    lines = [
        f"{store.path}: {total} runs, {len(progress.done)} done, {len(progress.running)} running, "
        f"{len(progress.failed)} failed, {len(progress.missing)} missing"
    ]
    now = time.time()
    for config, began in progress.running.items():
        lines.append(f"  running for {duration(now - began)}: {config}, expected to take {duration(costs(config))}")
    failed = [{"run": str(one.config), "error": one.error.splitlines()[-1]} for one in progress.failed]
    lines += [f"  failed: {one['run']}: {one['error']}" for one in failed]
    left = sum(map(costs, [*progress.missing, *progress.running]))
    if progress.missing:
        lines.append(f"  left: about {duration(left)} on one core")
    running = [
        {"run": str(config), "seconds": now - began, "expected_seconds": costs(config)}
        for config, began in progress.running.items()
    ]
    document = {
        "store": store.path,
        "runs": total,
        "done": len(progress.done),
        "running": running,
        "failed": failed,
        "missing": len(progress.missing),
        "seconds_left": left,
    }
    return Answer("\n".join(lines), document)


def export(options: argparse.Namespace) -> Answer:
    from dflearn.studies.store import Store

    with Store(store_of(options.study), must_exist=True) as store:
        count = store.export(options.out, instances=options.instances)
    return Answer(f"{count} runs in {options.out}", {"out": options.out, "runs": count})
