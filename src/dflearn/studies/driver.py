"""The driver of a study: carries out the missing runs, stores each when it ends, shows the progress, and estimates times."""

from __future__ import annotations

import heapq
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from dflearn.data.cache import default_cache
from dflearn.errors import SolverError
from dflearn.studies.config import RunConfig, Study
from dflearn.studies.executors import Executor, InProcess
from dflearn.studies.record import Record
from dflearn.studies.store import Store, read_records

REFRESH = 1.0  # seconds between two updates of the progress bar
RETRIES = 2  # how often a run is tried again if its process or machine was lost
EPOCH = 1.0  # seconds of an epoch where nothing is known
SOLVE = 0.1  # seconds of an exact solve where nothing is known
SOLVES = 2.0  # exact solves per instance: labels, and the test set by the prediction and by E[y | x]
BAR = "{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"


@dataclass
class StudyOutcome:
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

    Ctrl-C leaves every finished run in the store and raises `KeyboardInterrupt`; the next call goes on.

    Args:
        retry_failed: also repeat runs that failed before.
        retries: how often a run is repeated if its process or machine is lost; one that raised an error is not.
        budget: seconds on the wall clock; a run that is not expected to end within them is not begun.
        estimate: seconds that a run is expected to take; for the budget and for the time left.
    """
    from tqdm import tqdm

    configs = list({config.question: config for config in configs}.values())
    store.clear_running()
    store.put_wanted(configs)
    queue = [config for config in configs if not store.has(config)]
    skipped = [] if retry_failed else [config for config in queue if store.failure(config) is not None]
    queue, summary = [config for config in queue if config not in skipped], StudyOutcome(skipped=skipped)
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
                    bar.write(f"trying again: {config}: {outcome.reason}", file=sys.stderr)
                else:
                    tries = f" (tried {losses[key]} times)" if losses[key] > 1 else ""
                    store.put_failure(config, f"{outcome.error}{tries}")
                    summary.failed.append(config)
                    bar.write(f"failed: {config}: {outcome.reason}{tries}", file=sys.stderr)
        finally:
            store.clear_running()
    return summary


def complete(study: Study, path: str | Path) -> list[Record]:
    """The records of a study that is kept as a .jsonl file (.gz, .xz); missing runs are carried out here, and added to it.

    Finished runs are kept in a store beside the file until all are done, so that an interruption loses none.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    configs, known = study.runs(), read_records(path) if path.exists() else []
    answers = {record.config.question: record for record in known}
    if any(config.question not in answers for config in configs):
        with Store(path.with_name(f"{path.name.partition('.')[0]}.sqlite")) as store:
            for record in known:
                store.put(record)
            outcome = run_study(configs, store, InProcess(default_cache()), retry_failed=True)
            if outcome.failed:
                failure = store.failure(outcome.failed[0])
                raise SolverError(f"{len(outcome.failed)} runs failed, the first by: {failure and failure.error}")
            store.export(path, instances=True)
            answers = {record.config.question: record for record in store.records()}
        store.path.unlink()
    return [answers[config.question] for config in configs]


@dataclass(frozen=True)
class Prior:
    """What is known before anything was measured."""

    epoch: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (problem, method) → published s/epoch
    solve: Mapping[str, float] = field(default_factory=dict)  # problem → seconds of an exact solve of one instance


class Costs:
    """Estimated CPU seconds of a run: training, plus exact solves for labels and evaluation.

    The seconds of an epoch are the first of these that is known: the mean of other seeds; the published seconds, times the
    median ratio of ours to theirs; the mean of the method on other problems; a guess. The seconds of solves are the mean of
    other runs on the problem, or those of the prior.
    """

    def __init__(self, records: Iterable[Record], prior: Prior | None = None) -> None:
        self.prior = prior or Prior()
        epochs, solves = defaultdict[tuple[str, str], list[float]](list), defaultdict[str, list[float]](list)
        for record in records:
            config, seconds = record.config, record.seconds
            if "train" in seconds:
                spent = (seconds.get("prepare", 0.0) + seconds["train"]) / config.settings.epochs
                epochs[config.problem, config.method].append(spent)
            if "labels" in seconds and "evaluate" in seconds:
                solves[config.problem].append((seconds["labels"] + seconds["evaluate"]) / config.settings.points)
        self.epoch = {key: mean(values) for key, values in epochs.items()}
        self.solve = {problem: mean(values) for problem, values in solves.items()}
        published = self.prior.epoch
        self.correction = median([self.epoch[key] / published[key] for key in self.epoch if key in published] or [1.0])

    def __call__(self, config: RunConfig) -> float:
        return self.estimate(config)[0]

    def estimate(self, config: RunConfig) -> tuple[float, str]:
        """Seconds, and where those of training come from."""
        problem, method = config.problem, config.method
        epoch, source = EPOCH, "a guess: the method was never measured"
        if (problem, method) in self.epoch:
            epoch, source = self.epoch[problem, method], "other seeds"
        elif (problem, method) in self.prior.epoch:
            times = "" if self.correction == 1 else f" times {self.correction:.2g}"
            epoch, source = self.prior.epoch[problem, method] * self.correction, f"published seconds{times}"
        elif elsewhere := [seconds for (_, other), seconds in self.epoch.items() if other == method]:
            epoch, source = mean(elsewhere), "other problems"
        solve = self.solve.get(problem, SOLVES * self.prior.solve.get(problem, SOLVE))
        return epoch * config.settings.epochs + solve * config.settings.points, source

    def by_method(self, configs: Iterable[RunConfig]) -> list[dict[str, Any]]:
        """For each problem and method among these runs: how many there are, their seconds together, and the source of these."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for config in configs:
            named, (seconds, source) = {"problem": config.problem, "method": config.method}, self.estimate(config)
            row = rows.setdefault((config.problem, config.method), {**named, "runs": 0, "seconds": 0.0})
            row |= {"runs": row["runs"] + 1, "seconds": row["seconds"] + seconds, "source": source}
        return list(rows.values())


def makespan(seconds: Iterable[float], cores: int) -> float:
    """When the last of these runs ends on so many cores, if the longest starts first."""
    busy_until = [0.0] * cores
    for taken in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + taken)
    return max(busy_until)


def duration(seconds: float) -> str:
    """5 s, 12 min, 3.4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
