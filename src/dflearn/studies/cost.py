"""What a run would take: from what was measured, as near to it as there is; otherwise from what is known beforehand."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

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
        epoch: (problem, method) → seconds of training per epoch on some machine, such as published ones.
        solve: problem → seconds of an exact solve of one instance.
        source: what `epoch` comes from, in words.
        benchmark: (problem, method) → seconds of training per epoch with the code as it is; runs, where there are any, say it
            better.
        replaced: (method, training solver) of records whose method has another solver by now: the seconds that they took to
            train say nothing about runs to come.
    """

    epoch: Mapping[tuple[str, str], float] = field(default_factory=dict)
    solve: Mapping[str, float] = field(default_factory=dict)
    source: str = "seconds known before"
    benchmark: Mapping[tuple[str, str], float] = field(default_factory=dict)
    replaced: Collection[tuple[str, str]] = ()


@dataclass(frozen=True)
class CostEstimate:
    """CPU seconds on one core, and where the training part of them comes from."""

    seconds: float
    source: str


class Costs:
    """Estimates: seconds of training, plus seconds of exact solves for labels and evaluation.

    Training, per epoch, from the first of these that there is:
    1. other seeds of the method on this problem; a benchmark of it;
    2. the method on the nearest other size, times the ratio of the prior's seconds of the two sizes where it has both,
       else times the ratio of the numbers of predicted costs;
    3. the prior's seconds, times the median ratio of ours to the prior's over all that was measured;
    4. the method on another kind of problem, times the ratio of the numbers of predicted costs;
    5. the prior's seconds of the slowest method on the problem, corrected as in 3; a guess without any.

    Solves: the mean of what other runs on the problem took; without one, the prior's, corrected by the nearest size.

    folder: where the modules that runs import may lie; see `import_modules`.
    """

    def __init__(self, records: Iterable[Record], prior: Prior | None = None, folder: Path | None = None) -> None:
        self.folder = folder
        self.prior = Prior() if prior is None else prior
        training: dict[tuple[str, str], list[float]] = {}
        solving: dict[str, list[float]] = {}
        self.configs: dict[str, RunConfig] = {}
        for record in records:
            config, seconds = record.config, record.seconds
            self.configs[config.problem] = config
            if "train" in seconds and (config.method, record.training_solver) not in self.prior.replaced:
                spent = (seconds.get("prepare", 0.0) + seconds["train"]) / config.settings.epochs
                training.setdefault((config.problem, config.method), []).append(spent)
            if "labels" in seconds and "evaluate" in seconds:
                spent = (seconds["labels"] + seconds["evaluate"]) / config.settings.points
                solving.setdefault(config.problem, []).append(spent)
        runs = {key: mean(values) for key, values in training.items()}
        self.training = {**self.prior.benchmark, **runs}
        self.benchmarks = self.prior.benchmark.keys() - runs.keys()
        self.solving = {problem: mean(values) for problem, values in solving.items()}
        ratios = [value / self.prior.epoch[key] for key, value in runs.items() if key in self.prior.epoch]
        self.correction = median(ratios) if ratios else 1.0
        self._sizes: dict[str, float] = {}

    def __call__(self, config: RunConfig) -> float:
        return self.estimate(config).seconds

    def estimate(self, config: RunConfig) -> CostEstimate:
        self.configs.setdefault(config.problem, config)
        per_epoch, source = self._training(config.problem, config.method)
        solves = config.settings.points * self._solving(config.problem)
        return CostEstimate(per_epoch * config.settings.epochs + solves, source)

    def _training(self, problem: str, method: str) -> tuple[float, str]:
        if (problem, method) in self.training:
            source = "a benchmark" if (problem, method) in self.benchmarks else "other seeds"
            return self.training[problem, method], source
        before = self.prior.epoch
        known = [name for name, other in self.training if other == method]
        near = self._nearest(problem, [name for name in known if _kind(name) == _kind(problem)])
        if near is not None:
            both = (problem, method) in before and (near, method) in before
            factor = before[problem, method] / before[near, method] if both else 0.0
            factor = factor or self._size(problem) / self._size(near)
            return self.training[near, method] * factor, f"{near}, scaled by {factor:.2g}"
        if (problem, method) in before:
            return before[problem, method] * self.correction, self._corrected(self.prior.source)
        if known:
            factor = self._size(problem) / self._size(known[0])
            return self.training[known[0], method] * factor, f"{known[0]}, scaled by {factor:.2g}"
        slowest = max((seconds for (name, _), seconds in before.items() if name == problem), default=None)
        if slowest is None:
            return EPOCH, "a guess: nothing like it was measured"
        return slowest * self.correction, self._corrected(f"{self.prior.source} of the slowest method")

    def _corrected(self, what: str) -> str:
        return what if self.correction == 1 else f"{what} times {self.correction:.2g}"

    def _solving(self, problem: str) -> float:
        """Seconds per instance drawn."""
        if problem in self.solving:
            return self.solving[problem]
        near = self._nearest(problem, [name for name in self.solving if _kind(name) == _kind(problem)])
        guess = SOLVES * self.prior.solve.get(problem, SOLVE)
        return guess if near is None else guess * self.solving[near] / (SOLVES * self.prior.solve.get(near, SOLVE))

    def _nearest(self, problem: str, others: list[str]) -> str | None:
        """The one among `others` whose size is nearest."""
        return min(others, key=lambda name: abs(self._size(name) - self._size(problem)), default=None)

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


def _kind(problem: str) -> str:
    return problem.partition("-")[0]
