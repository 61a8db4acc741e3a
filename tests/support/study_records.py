"""Made-up records of a study, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dflearn.studies.config import RunConfig
from dflearn.studies.record import Record

MACHINE = {
    "processor": "a processor",
    "system": "a system",
    "python": "3.11.7",
    "versions": {"dflearn": "0.1", "torch": "2.4"},
    "commit": "abc1234",
}


def record(problem: str, method: str, seed: int, regret: float, seconds: float, epochs: int = 5) -> Record:
    """A run whose metrics are multiples of `regret` and whose validation regret falls towards it."""
    scaled = {"mean_of_ratios": 1.0, "ratio_of_sums": 0.9, "published_style": 3.0, "absolute_regret": 2.0}
    values = {name: factor * regret for name, factor in scaled.items()} | {"floor_ratio_of_sums": 0.04}
    return Record(
        config=RunConfig(problem, method, seed),
        metrics={name: (value, 0.9 * value, 1.1 * value) for name, value in values.items()},
        history={"validation_ratio_of_sums": [0.9 * regret * (1 + 1 / (k + 1)) for k in range(epochs)]},
        seconds={"epoch": seconds, "total_wall": 10 * seconds},
        peak_megabytes=100.0,
        solver="HiGHS 1",
        training_solver="Exact of HiGHS 1",
        machine=MACHINE,
    )


def study(
    problems: Sequence[str] = ("SP-5", "KP-100"),
    methods: Sequence[str] = ("MSE", "SPO+^relax", "SCE^relax", "SPO+^DYS", "SCE^DYS", "Regret^DYS", "SqDE^DYS", "PFY"),
    seeds: Sequence[int] = (1, 2, 3),
) -> list[Record]:
    rng = np.random.RandomState(0)
    return [
        record(problem, method, seed, 0.1 + 0.1 * rng.rand(), 0.1 * (k + 1) * (1 + 0.1 * rng.rand()))
        for problem in problems
        for k, method in enumerate(methods)
        for seed in seeds
    ]
