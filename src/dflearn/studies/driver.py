"""The driver of a study: runs the missing runs, keeps each as soon as it ends, and shows the progress."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dflearn.data.cache import default_cache
from dflearn.errors import SolverError
from dflearn.studies.config import RunConfig, Study
from dflearn.studies.executors import Executor, InProcess
from dflearn.studies.record import Record
from dflearn.studies.store import Store, read_records

REFRESH = 1.0  # seconds between two looks at the clock
RETRIES = 2  # how often a run is tried again whose process or machine was lost
BAR = "{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"


@dataclass
class StudyOutcome:
    """The result of `run_study`."""

    done: int = 0
    failed: list[RunConfig] = field(default_factory=list)
    skipped: list[RunConfig] = field(default_factory=list)  # failed before, and not repeated
    left: list[RunConfig] = field(default_factory=list)  # the budget was spent


def run_study(
    configs: Sequence[RunConfig],
    store: Store,
    executor: Executor,
    *,
    retry_failed: bool = False,
    retries: int = RETRIES,
    budget: float | None = None,
    estimate: Callable[[RunConfig], float] | None = None,
    progress: bool = True,
) -> StudyOutcome:
    """Carry out the runs that the store does not hold, in the given order.

    An interruption (Ctrl-C) leaves every finished run in the store and raises `KeyboardInterrupt`; the next call goes
    on.

    Args:
        retry_failed: also repeat runs that failed before.
        retries: how often a run is tried again at once when its process or machine is lost. A run that raised an error
            itself would raise it again, so it fails the first time.
        budget: seconds on the wall clock; a run that is not expected to end within them is not begun.
        estimate: seconds that a run is expected to take; for the budget and for the time left.
    """
    from tqdm import tqdm

    configs = list({config.question: config for config in configs}.values())
    store.clear_running()
    store.put_wanted(configs)
    summary, queue = StudyOutcome(), []
    for config in configs:
        if store.has(config):
            continue
        if store.failure(config) is not None and not retry_failed:
            summary.skipped.append(config)
        else:
            queue.append(config)
    expected = {config.key: 0.0 if estimate is None else estimate(config) for config in queue}
    begun, began = time.monotonic(), dict[str, float]()  # of the study, and of each run under way
    losses: Counter[str] = Counter()
    done = len(configs) - len(queue) - len(summary.skipped)
    shown = None if progress and queue else True
    with tqdm(total=len(configs), initial=done, desc="runs", bar_format=BAR, disable=shown, leave=False) as bar:
        try:
            while queue or began:
                now = time.monotonic()
                while queue and len(began) < executor.slots:
                    config = queue.pop(0)
                    if budget is not None and now - begun + expected[config.key] > budget:
                        summary.left.append(config)
                        continue
                    store.put_running(config)
                    executor.submit(config)
                    began[config.key] = now
                if not began:
                    break
                parts = [f"{len(began)} running", f"{len(queue)} waiting", f"{len(summary.failed)} failed"]
                if estimate is not None:
                    left = sum(max(0.0, expected[key] - (now - since)) for key, since in began.items())
                    left += sum(expected[config.key] for config in queue)
                    parts.append(f"about {duration(left / executor.slots)} left")
                bar.set_postfix_str(", ".join(parts))
                outcome = executor.next(REFRESH)
                if outcome is None:
                    continue
                config, key = outcome.config, outcome.config.key
                del began[key]
                losses[key] += outcome.lost
                if outcome.record is not None:
                    store.put(outcome.record)
                    summary.done += 1
                    bar.update(1)
                elif outcome.lost and losses[key] <= retries:
                    queue.insert(0, config)
                    bar.write(f"try {losses[key] + 1} of {retries + 1}: {config}: {outcome.reason}", file=sys.stderr)
                else:
                    tries = f" (tried {losses[key]} times)" if losses[key] > 1 else ""
                    store.put_failure(config, f"{outcome.error}{tries}")
                    summary.failed.append(config)
                    bar.write(f"failed: {config}: {outcome.reason}{tries}", file=sys.stderr)
        finally:
            store.clear_running()
    return summary


def complete(study: Study, path: str | Path, executor: Executor | None = None) -> list[Record]:
    """The records of a study that is kept as a .jsonl file (.gz, .xz): what it lacks is run and added to it.

    Runs in progress are kept in a store beside the file, so that an interruption loses none that was finished.

    Args:
        executor: who runs; default: this process, which remembers exact solves where `dfl` does.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    configs, known = study.runs(), read_records(path) if path.exists() else []
    answers = {record.config.question: record for record in known}
    if any(config.question not in answers for config in configs):
        with Store(path.with_name(f"{path.name.partition('.')[0]}.sqlite")) as store:
            for record in known:
                store.put(record)
            with executor or InProcess(default_cache()) as used:
                outcome = run_study(configs, store, used, retry_failed=True)
            if outcome.failed:
                failure = store.failure(outcome.failed[0])
                raise SolverError(f"{len(outcome.failed)} runs failed, the first by: {failure and failure.error}")
            store.export(path, instances=True)
            answers = {record.config.question: record for record in store.records()}
        store.path.unlink()
    return [answers[config.question] for config in configs]


def duration(seconds: float) -> str:
    """5 s, 12 min, 3.4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
