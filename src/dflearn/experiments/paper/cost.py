"""What a run would take: measured where the same or a similar run is known, otherwise from the published seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import mean

from dflearn.experiments.config import RunConfig
from dflearn.experiments.paper.published import published_rows
from dflearn.experiments.record import Record
from dflearn.problems import PROBLEMS, problem_named

# Rough guesses, in seconds, where nothing was measured: exact solves of one test instance by HiGHS, and start-up.
SOLVE = {"SP": 0.0001, "KP-100": 0.06, "KP-200": 0.12, "KP-400": 0.3, "KP-500": 0.47, "CFL-50": 0.02, "CFL-100": 0.05, "CFL-200": 0.08, "CFL-250": 0.1}  # fmt: skip
STARTING = 3.0


@dataclass(frozen=True)
class Estimate:
    """Seconds on one core, and where the figure comes from."""

    seconds: float
    source: str


class Costs:
    """Estimates from what the records show.

    1. Other seeds of the same method on the same problem: the mean of their wall-clock seconds.
    2. The same method on another size of the problem: its seconds, times the ratio of the published seconds per epoch of
       the two sizes where both are published, else times the ratio of the numbers of predicted costs.
    3. Otherwise the published seconds per epoch (or, for methods without a published row, those of the slowest published
       method of that problem), times the epochs, plus a rough guess of the exact solves of labels and evaluation.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        found: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for record in records:
            entry = (record.config.settings.epochs, record.seconds["total_wall"])
            found.setdefault((record.config.problem, record.config.method), []).append(entry)
        self.measured = {key: mean(seconds / epochs for epochs, seconds in runs) for key, runs in found.items()}

    def __call__(self, config: RunConfig) -> float:
        return self.estimate(config).seconds

    def estimate(self, config: RunConfig) -> Estimate:
        epochs, here = config.settings.epochs, (config.problem, config.method)
        if here in self.measured:
            return Estimate(self.measured[here] * epochs, "other seeds")
        kind = config.problem.split("-")[0]
        sizes = [name for name in PROBLEMS if name.startswith(f"{kind}-") and (name, config.method) in self.measured]
        if sizes and config.problem in PROBLEMS:
            near = min(sizes, key=lambda name: abs(PROBLEMS.index(name) - PROBLEMS.index(config.problem)))
            factor = self._ratio(config.problem, near, config.method)
            return Estimate(self.measured[near, config.method] * epochs * factor, f"{near}, scaled by {factor:.2g}")
        return Estimate(self._guess(config, kind), "published seconds")

    @staticmethod
    def _ratio(problem: str, other: str, method: str) -> float:
        rows = published_rows()
        if (problem, method) in rows and (other, method) in rows:
            return rows[problem, method].seconds / rows[other, method].seconds
        return _costs(problem) / _costs(other)

    @staticmethod
    def _guess(config: RunConfig, kind: str) -> float:
        rows = published_rows()
        row = rows.get((config.problem, config.method))
        slowest = max((r.seconds for r in rows.values() if r.problem == config.problem), default=10.0)
        solves = 2 * config.settings.points * SOLVE.get(config.problem, SOLVE.get(kind, 0.1))
        return STARTING + config.settings.epochs * (slowest if row is None else row.seconds) + solves


@cache
def _costs(problem: str) -> float:
    """How many costs are predicted."""
    return float(problem_named(problem).program.p)
