"""The record of one run: its config, metrics, times and machine."""

from __future__ import annotations

import base64
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.files import as_json
from dflearn.studies.config import RESULTS_VERSION, RunConfig
from dflearn.studies.modules import digest_of

#: The arrays of a record: one number per test instance.
ARRAYS = {"regrets": np.dtype("<f4"), "optima": np.dtype("<f4"), "ids": np.dtype("<i4")}
PLAIN = (
    "metrics", "history", "seconds", "peak_megabytes", "solver", "training_solver", "machine", "notes", "chosen", "tried",
)  # fmt: skip

PACKAGES = ("dflearn", "torch", "numpy", "scipy", "numba", "highspy", "gurobipy", "cvxpy", "cvxpylayers", "clarabel")


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run.

    Attributes:
        metrics: name of a metric of `evaluate` → value, lower and upper end of its 95 % interval, on the test set.
        history: column → one value per epoch. `loss`, `gradient`, `validation_…` (regret on the relaxation), and
            seconds: `cpu_seconds` and `wall_seconds` of training alone, `validation_seconds` (CPU).
        seconds: CPU seconds: `epoch` (mean over the epochs after the first, in which code may be compiled), `labels`,
            `prepare` (the method's own set-up), `train`, `evaluate`; and on the wall clock: `epoch_wall`, `total_wall`.
        peak_megabytes: the largest resident memory of the process during the run.
        solver, training_solver: identity of the exact solver that labelled and judged; the solver inside the loss.
        machine: processor, versions of packages, commit, when it ended.
        notes: warnings for the reader of these metrics.
        chosen: by validation: the value of each tuned parameter, and the `epoch` whose weights were kept.
        tried: one row per combination of tuned parameters: their values, `validation_absolute_regret` (NaN if training
            diverged), `seconds_per_epoch`, and the `error` if there was one.
        regrets, optima, ids: per test instance, float32, float32 and int32 `(count,)`, in the order of the split; `None` in an
            export without them.
    """

    config: RunConfig
    metrics: Mapping[str, tuple[float, float, float]]
    history: Mapping[str, list[float]]
    seconds: Mapping[str, float]
    peak_megabytes: float
    solver: str
    training_solver: str
    machine: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    tried: tuple[Mapping[str, Any], ...] = ()
    regrets: np.ndarray | None = field(default=None, repr=False)
    optima: np.ndarray | None = field(default=None, repr=False)
    ids: np.ndarray | None = field(default=None, repr=False)

    def metric(self, name: str) -> float:
        return self.metrics[name][0]

    def as_dict(self, *, instances: bool = False) -> dict[str, Any]:
        """Plain values for JSON; NaN is `None`. instances: with the arrays, as the base64 of their bytes."""
        identity = {"key": self.config.key, "results_version": RESULTS_VERSION, "config": self.config.as_dict()}
        plain = {name: as_json(getattr(self, name)) for name in PLAIN}
        arrays = {name: getattr(self, name) for name in ARRAYS if instances and getattr(self, name) is not None}
        packed = {name: base64.b64encode(rows.astype(ARRAYS[name]).tobytes()).decode() for name, rows in arrays.items()}
        return identity | plain | packed

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Record:
        """The inverse of `as_dict`, for any results version; the caller checks `key` and `results_version`."""
        packed = {name: base64.b64decode(content[name]) for name in ARRAYS if name in content}
        arrays: dict[str, Any] = {name: np.frombuffer(held, ARRAYS[name]) for name, held in packed.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            raise DataError("its arrays have different lengths")
        given = {name: content[name] for name in PLAIN if name in content} | {
            "metrics": {name: (_number(a), _number(b), _number(c)) for name, (a, b, c) in content["metrics"].items()},
            "history": {name: list(map(_number, values)) for name, values in content["history"].items()},
            "peak_megabytes": _number(content["peak_megabytes"]),
            "notes": tuple(content["notes"]),
            "tried": tuple(content.get("tried", ())),
        }
        return cls(RunConfig.from_dict(content["config"]), **given, **arrays)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def made_with(config: RunConfig) -> dict[str, str]:
    """The version of the user's modules that a run imports, if any, for its record."""
    return {"modules": digest_of(config.imports)} if config.imports else {}


def outdated(records: Iterable[Record]) -> list[Record]:
    """The runs made with another version of their modules: the present code may not reproduce their metrics."""
    dated = ((record, record.machine["modules"]) for record in records if "modules" in record.machine)
    return [record for record, modules in dated if {"modules": modules} != made_with(record.config)]


@cache
def machine() -> dict[str, Any]:
    about = {"processor": _processor(), "system": platform.platform(), "python": platform.python_version()}
    return {**about, "versions": installed(PACKAGES), "commit": _commit()}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Installed package → version."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the source tree, "-dirty" if the package's files differ from it."""

    def git(*words: str) -> str:
        folder = Path(__file__).parents[1]
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=folder).stdout.strip()

    try:
        dirty = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class PeakMemory:
    """The largest resident memory of this process since the object was made; on other systems than Linux, since the start."""

    def __init__(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the kernel's high-water mark

    def megabytes(self) -> float:
        with suppress(OSError):
            found = re.search(r"^VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
            if found is not None:
                return round(int(found[1]) / 1024, 1)
        if os.name == "posix":
            import resource

            unit = 1024**2 if platform.system() == "Darwin" else 1024
            return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
        return math.nan
