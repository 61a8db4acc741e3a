"""Small settings, so that a run takes a fraction of a second, and records that no run has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dflearn.studies.config import RunConfig, Settings, resolve
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


TINY = Settings(points=80, test=40, validation=0.25, epochs=2, batch_size=8)


def tiny(problem: str = "SP-3", method: str = "MSE", seed: int = 1, **options: Any) -> RunConfig:
    return resolve(problem, method, seed, TINY, **options)


def made_up(config: RunConfig, style: float = 0.3, ratios: float = 0.1, seconds: float = 1.0) -> Record:
    """A record that no run has made."""
    return Record(
        config=config,
        metrics={"published_style": (style, style - 0.01, style + 0.01), "mean_of_ratios": (ratios, 0.0, 1.0)},
        history={"loss": [2.0, 1.0]},
        seconds={"epoch": seconds, "labels": 0.0, "prepare": 0.0, "train": seconds, "evaluate": 0.0, "total_wall": 9.0},
        peak_megabytes=100.0,
        solver="HiGHS 1.0 threads=1",
        training_solver="none",
        machine={"processor": "none", "commit": "none", "versions": {"torch": "0"}},
        notes=("made up",),
        regrets=np.array([0.5, 0.25], dtype=np.float32),
        optima=np.array([2.0, 4.0], dtype=np.float32),
    )
