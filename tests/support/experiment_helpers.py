"""Small settings, so that a run takes a fraction of a second, and records made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.studies.config import RunConfig, Settings, resolve
from dflearn.studies.record import Record

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
