"""The problems of the field study: those of the registry, tours of the example, and a battery on real days."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.problems.base import Problem
from dflearn.problems.energy import EnergyDays, EnergyProblem
from dflearn.problems.registry import problem_named
from dflearn.program import Program
from dflearn.solvers.base import Solver
from field_fresh_problems import FRESH
from field_new_problems import NEW

ROOT = Path(__file__).resolve().parents[2]


def make_problem(name: str, seed: int, **options: Any) -> Problem:
    """`TSP-7`, `battery`, one of `NEW` or `FRESH`, or a name of the registry, whose options may be given."""
    if name.startswith("TSP"):
        return _tours(int(name.partition("-")[2]), seed)
    if name == "battery":
        return Battery(seed=seed)
    if name in (drawn := NEW | FRESH):
        return drawn[name](seed=seed)
    return problem_named(name, seed=seed, **options)


def _from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _tours(cities: int, seed: int) -> Problem:
    """The example's travelling salesman, whose tours are tried one by one inside losses too."""
    _from(ROOT / "examples")
    from tours import Tours

    @dataclass(frozen=True)
    class Tried(Tours):
        def relaxed_solver(self) -> Solver:
            return self.solver()

    return Tried(cities, seed=seed)


@dataclass(frozen=True)
class Battery(EnergyProblem):
    """When to charge and to discharge, before the prices of 48 half-hours are known: the linear program of `practice.battery`."""

    @property
    def name(self) -> str:
        return "battery"

    def costs(self, days: EnergyDays) -> np.ndarray:
        return days.prices

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        _from(ROOT)
        from benchmarks.practice.battery import program

        return program()
