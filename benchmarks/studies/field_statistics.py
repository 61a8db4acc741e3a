"""What the field study's records say: common seeds, ranks, Friedman's test with Nemenyi's distance, paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from dflearn.evaluation.estimates import Estimate
from dflearn.evaluation.repetitions import over_seeds

Record = dict[str, Any]
TUNED_ON = 0


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over blocks, 1 the best, and how far two must lie apart at 5 %.

    Attributes:
        ranks: `(blocks, methods)`.
        p_value: Friedman's, that all methods are alike.
        distance: Nemenyi's critical difference of mean ranks, q √(k (k + 1) / (6 blocks)).
    """

    methods: list[str]
    ranks: np.ndarray
    p_value: float
    distance: float

    @property
    def mean(self) -> dict[str, float]:
        means = dict(zip(self.methods, self.ranks.mean(0).tolist(), strict=True))
        return dict(sorted(means.items(), key=lambda pair: pair[1]))


def ranking(methods: Sequence[str], table: np.ndarray) -> Ranking:
    """Of regrets `(blocks, methods)`; what failed, NaN, shares the last ranks."""
    blocks, count = table.shape
    ranks = np.array([rankdata(np.where(np.isnan(row), np.inf, row)) for row in table])
    p_value = float(friedmanchisquare(*ranks.T).pvalue) if count > 2 and blocks > 1 else math.nan
    quantile = float(studentized_range.ppf(0.95, count, np.inf)) / math.sqrt(2) if count > 1 else math.nan
    return Ranking(list(methods), ranks, p_value, quantile * math.sqrt(count * (count + 1) / (6 * blocks)))


@dataclass(frozen=True)
class Field:
    """The records, by problem, method and seed."""

    records: Sequence[Record]

    @cached_property
    def tested(self) -> dict[tuple[str, str, int], Record]:
        return {(one["problem"], one["method"], one["seed"]): one for one in self.records if one["seed"] != TUNED_ON}

    @cached_property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(one["method"] for one in self.records))

    @cached_property
    def problems(self) -> list[str]:
        """Those that every method was tested on: the ranks are of these."""
        found = dict.fromkeys(one["problem"] for one in self.records)
        return [name for name in found if all(self.seeds_of(name, method) for method in self.methods)]

    @cached_property
    def others(self) -> list[str]:
        """Those that only some methods are defined on."""
        return [name for name in dict.fromkeys(p for p, _, _ in self.tested) if name not in self.problems]

    def seeds_of(self, problem: str, method: str) -> set[int]:
        return self._seeds.get((problem, method), set())

    @cached_property
    def _seeds(self) -> dict[tuple[str, str], set[int]]:
        found: dict[tuple[str, str], set[int]] = {}
        for problem, method, seed in self.tested:
            found.setdefault((problem, method), set()).add(seed)
        return found

    @cached_property
    def seeds(self) -> list[int]:
        """Those that every method has on every problem of `problems`."""
        each = [self.seeds_of(problem, method) for problem in self.problems for method in self.methods]
        return sorted(set.intersection(*each)) if each else []

    def common(self, problem: str, methods: Sequence[str]) -> list[int]:
        """The seeds that all of these methods have on one problem."""
        return sorted(set.intersection(*(self.seeds_of(problem, method) for method in methods)))

    def value(self, problem: str, method: str, seed: int, name: str = "regret") -> float:
        return float(self.tested[problem, method, seed].get(name, math.nan))

    def mean(self, problem: str, method: str, name: str = "regret") -> float:
        seeds = self.seeds if problem in self.problems else self.common(problem, self.methods_on(problem))
        return float(np.mean([self.value(problem, method, seed, name) for seed in seeds]))

    def methods_on(self, problem: str) -> list[str]:
        return [method for method in self.methods if self.seeds_of(problem, method)]

    def by_problem(self, problems: Sequence[str] | None = None, name: str = "regret") -> Ranking:
        """A block per problem: means over common seeds. The independent unit is the problem."""
        names = self.problems if problems is None else problems
        table = np.array([[self.mean(problem, method, name) for method in self.methods] for problem in names])
        return ranking(self.methods, table)

    def by_run(self) -> Ranking:
        """A block per problem and seed: more blocks, of which those of a problem share its tuning."""
        blocks = [(problem, seed) for problem in self.problems for seed in self.seeds]
        return ranking(
            self.methods,
            np.array([[self.value(problem, method, seed) for method in self.methods] for problem, seed in blocks]),
        )

    def difference(self, problem: str, method: str, other: str) -> Estimate:
        """Regret less that of `other`, over seeds and test instances."""
        key = problem, method, other
        if key not in self._differences:
            self._differences[key] = self._difference(*key)
        return self._differences[key]

    @cached_property
    def _differences(self) -> dict[tuple[str, str, str], Estimate]:
        return {}

    def _difference(self, problem: str, method: str, other: str) -> Estimate:
        seeds = self.common(problem, [method, other]) if problem not in self.problems else self.seeds
        pairs = [(self.tested[problem, method, seed], self.tested[problem, other, seed]) for seed in seeds]
        if any("regrets" not in one for pair in pairs for one in pair):
            return Estimate(math.nan)
        parts = [np.array(one["regrets"]) - np.array(another["regrets"]) for one, another in pairs]
        ones = [np.ones_like(part) for part in parts]
        return over_seeds(parts, ones, ones, 0.95)

    def trials(self, problem: str, method: str) -> list[tuple[float, float]]:
        """Value tried and validation regret on the tuning seed; infinite where it failed."""
        return self._tried.get((problem, method), [])

    @cached_property
    def _tried(self) -> dict[tuple[str, str], list[tuple[float, float]]]:
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for one in (one for one in self.records if one["seed"] == TUNED_ON):
            pair = one["trial"], one.get("validation", math.inf)
            found.setdefault((one["problem"], one["method"]), []).append(pair)
        return {key: sorted(pairs) for key, pairs in found.items()}

    def sensitivity(self, method: str) -> tuple[float, float]:
        """Validation regret with the middle and the worst of five values over that with the best, median over problems."""
        rows = []
        for problem in self.problems:
            values = [regret for _, regret in self.trials(problem, method)]
            rows.append((values[len(values) // 2] / min(values), max(values) / min(values)))
        middle, worst = np.median(np.array(rows), axis=0)
        return float(middle), float(worst)

    def at_the_edge(self, method: str) -> int:
        """On how many problems the best value was the least or the largest that was tried: a wider grid may find better ones."""
        best = [min(self.trials(problem, method), key=lambda pair: pair[1])[0] for problem in self.problems]
        ends = [[value for value, _ in self.trials(problem, method)] for problem in self.problems]
        return sum(value in (values[0], values[-1]) for value, values in zip(best, ends, strict=True))

    def beats(self, method: str, other: str) -> tuple[int, int]:
        """On how many problems the difference is below zero, and above, beyond chance."""
        found = [self.difference(problem, method, other) for problem in self.problems]
        return sum(one.high < 0 for one in found), sum(one.low > 0 for one in found)
