"""What a run would take: from what was measured, as near to it as there is; otherwise from the published seconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import mean, median

from dflearn.paper.published import published_rows
from dflearn.problems import problem_named
from dflearn.studies.config import RunConfig
from dflearn.studies.record import Record

# Rough guesses where nothing was measured: seconds of an exact solve of one instance by the problem's own solver.
SOLVE = {
    "SP-5": 1e-4, "SP-10": 1e-4, "SP-15": 1e-4, "SP-25": 2e-4,
    "KP-100": 2e-4, "KP-200": 3e-4, "KP-400": 0.01, "KP-500": 0.01,
    "CFL-50": 0.02, "CFL-100": 0.05, "CFL-200": 0.08, "CFL-250": 0.1,
}  # fmt: skip
UNKNOWN = 0.1  # the same for problems that the paper does not have
SOLVES = 2.0  # exact solves per instance drawn: labels, and the test set by the prediction and by E[y | x]


@dataclass(frozen=True)
class CostEstimate:
    """CPU seconds on one core, and where the training part of them comes from."""

    seconds: float
    source: str


class Costs:
    """Estimates: seconds of training, plus seconds of exact solves for labels and evaluation.

    Training, per epoch, from the first of these that there is:
    1. other seeds of the method on this problem;
    2. the method on the nearest other size, times the ratio of the published seconds of the two sizes where both are
       published, else times the ratio of the numbers of predicted costs;
    3. the published seconds, times the median ratio of ours to the published ones over all that was measured;
    4. the method on another kind of problem, times the ratio of the numbers of predicted costs;
    5. the published seconds of the slowest method on the problem, corrected as in 3.

    Solves: the mean of what other runs on the problem took; without one, a rough guess, corrected by the nearest size.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        training: dict[tuple[str, str], list[float]] = {}
        solving: dict[str, list[float]] = {}
        for record in records:
            config, seconds = record.config, record.seconds
            spent = (seconds["prepare"] + seconds["train"]) / config.settings.epochs
            training.setdefault((config.problem, config.method), []).append(spent)
            spent = (seconds["labels"] + seconds["evaluate"]) / config.settings.points
            solving.setdefault(config.problem, []).append(spent)
        self.training = {key: mean(values) for key, values in training.items()}
        self.solving = {problem: mean(values) for problem, values in solving.items()}
        rows = published_rows()
        ratios = [value / rows[key].seconds for key, value in self.training.items() if key in rows]
        self.against_published = median(ratios) if ratios else 1.0

    def __call__(self, config: RunConfig) -> float:
        return self.estimate(config).seconds

    def estimate(self, config: RunConfig) -> CostEstimate:
        per_epoch, source = self._training(config.problem, config.method)
        solves = config.settings.points * self._solving(config.problem)
        return CostEstimate(per_epoch * config.settings.epochs + solves, source)

    def _training(self, problem: str, method: str) -> tuple[float, str]:
        if (problem, method) in self.training:
            return self.training[problem, method], "other seeds"
        rows = published_rows()
        known = [name for name, other in self.training if other == method]
        near = _nearest(problem, [name for name in known if _kind(name) == _kind(problem)])
        if near is not None:
            both = (problem, method) in rows and (near, method) in rows
            published = rows[problem, method].seconds / rows[near, method].seconds if both else 0.0
            factor = published or _size(problem) / _size(near)
            return self.training[near, method] * factor, f"{near}, scaled by {factor:.2g}"
        if (problem, method) in rows:
            return rows[problem, method].seconds * self.against_published, self._corrected("published seconds")
        if known:
            factor = _size(problem) / _size(known[0])
            return self.training[known[0], method] * factor, f"{known[0]}, scaled by {factor:.2g}"
        slowest = max((row.seconds for row in rows.values() if row.problem == problem), default=10.0)
        return slowest * self.against_published, self._corrected("slowest published method")

    def _corrected(self, what: str) -> str:
        return what if self.against_published == 1 else f"{what} times {self.against_published:.2g}"

    def _solving(self, problem: str) -> float:
        """Seconds per instance drawn."""
        if problem in self.solving:
            return self.solving[problem]
        near = _nearest(problem, [name for name in self.solving if _kind(name) == _kind(problem)])
        guess = SOLVES * SOLVE.get(problem, UNKNOWN)
        return guess if near is None else guess * self.solving[near] / (SOLVES * SOLVE.get(near, UNKNOWN))


def makespan(seconds: Iterable[float], cores: int) -> float:
    """When the last of these runs ends on so many cores, the longest begun first."""
    busy_until = [0.0] * cores
    for taken in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + taken)
    return max(busy_until)


def _kind(problem: str) -> str:
    return problem.partition("-")[0]


def _nearest(problem: str, others: list[str]) -> str | None:
    """The one among `others` whose size is nearest."""
    return min(others, key=lambda name: abs(_size(name) - _size(problem)), default=None)


@cache
def _size(problem: str) -> float:
    """How many costs are predicted."""
    return float(problem_named(problem).program.p)
