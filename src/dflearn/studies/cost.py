"""What a run would take: from the nearest thing measured, or else from what was published."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from dflearn.studies.config import RunConfig, problem_of
from dflearn.studies.methods import load_plugins
from dflearn.studies.modules import import_modules
from dflearn.studies.record import Record

EPOCH = 1.0  # seconds of an epoch where nothing at all is known
SOLVE = 0.1  # seconds of an exact solve, the same
SOLVES = 2.0  # exact solves per instance drawn: labels, and the test set by the prediction and by E[y | x]


@dataclass(frozen=True)
class Prior:
    """What is known before anything was measured.

    Attributes:
        epoch: (problem, method) → published seconds of training per epoch, on another machine.
        solve: problem → seconds of an exact solve of one instance.
    """

    epoch: Mapping[tuple[str, str], float] = field(default_factory=dict)
    solve: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CostEstimate:
    """CPU seconds on one core, and where the training part of them comes from."""

    seconds: float
    source: str


class Costs:
    """Estimated seconds: training, plus exact solves for labels and evaluation.

    Training, per epoch, from the first of these that is known: other seeds of the method on this problem; published seconds,
    times the median ratio of ours to theirs; the method on the nearest problem, of the same kind if possible, times the
    ratio of the numbers of predicted costs; a guess. Solves: the mean of other runs on the problem, or else those of the
    prior.

    folder: where the modules that runs import may lie; see `import_modules`.
    """

    def __init__(self, records: Iterable[Record], prior: Prior | None = None, folder: Path | None = None) -> None:
        self.folder, self.prior = folder, prior or Prior()
        training, solving = defaultdict[tuple[str, str], list[float]](list), defaultdict[str, list[float]](list)
        self.configs: dict[str, RunConfig] = {}
        for record in records:
            config, seconds = record.config, record.seconds
            self.configs[config.problem] = config
            if "train" in seconds:
                spent = (seconds.get("prepare", 0.0) + seconds["train"]) / config.settings.epochs
                training[config.problem, config.method].append(spent)
            if "labels" in seconds and "evaluate" in seconds:
                solving[config.problem].append((seconds["labels"] + seconds["evaluate"]) / config.settings.points)
        self.training = {key: mean(values) for key, values in training.items()}
        self.solving = {problem: mean(values) for problem, values in solving.items()}
        ratios = [value / self.prior.epoch[key] for key, value in self.training.items() if key in self.prior.epoch]
        self.correction = median(ratios) if ratios else 1.0
        self._sizes: dict[str, float] = {}

    def __call__(self, config: RunConfig) -> float:
        return self.estimate(config).seconds

    def estimate(self, config: RunConfig) -> CostEstimate:
        self.configs.setdefault(config.problem, config)
        per_epoch, source = self._training(config.problem, config.method)
        guess = SOLVES * self.prior.solve.get(config.problem, SOLVE)
        solves = config.settings.points * self.solving.get(config.problem, guess)
        return CostEstimate(per_epoch * config.settings.epochs + solves, source)

    def by_method(self, configs: Iterable[RunConfig]) -> list[dict[str, Any]]:
        """For each problem and method among these runs: how many there are, what they take together, and how that is known."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for config in configs:
            named = {"problem": config.problem, "method": config.method}
            row = rows.setdefault((config.problem, config.method), {**named, "runs": 0, "seconds": 0.0})
            estimate = self.estimate(config)
            row |= {"runs": row["runs"] + 1, "seconds": row["seconds"] + estimate.seconds, "source": estimate.source}
        return list(rows.values())

    def _training(self, problem: str, method: str) -> tuple[float, str]:
        key = problem, method
        if key in self.training:
            return self.training[key], "other seeds"
        if key in self.prior.epoch:
            times = "" if self.correction == 1 else f" times {self.correction:.2g}"
            return self.prior.epoch[key] * self.correction, f"published seconds{times}"
        known = [name for name, other in self.training if other == method]
        if not known:
            return EPOCH, "a guess: nothing like it was measured"
        size, kind = self._size(problem), problem.partition("-")[0]
        near = min(known, key=lambda name: (name.partition("-")[0] != kind, abs(self._size(name) - size)))
        factor = size / self._size(near)
        return self.training[near, method] * factor, f"{near}, scaled by {factor:.2g}"

    def _size(self, problem: str) -> float:
        """How many costs are predicted."""
        if problem not in self._sizes:
            config = self.configs[problem]
            load_plugins()
            import_modules(config.imports, self.folder)
            self._sizes[problem] = float(problem_of(config).program.p)
        return self._sizes[problem]


def makespan(seconds: Iterable[float], cores: int) -> float:
    """When the last of these runs ends on so many cores, the longest begun first."""
    busy_until = [0.0] * cores
    for taken in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + taken)
    return max(busy_until)
