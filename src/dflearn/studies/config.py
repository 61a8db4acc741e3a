"""Configuration: a TOML file says which grid of runs, in which settings; a run's resolved config is its identity."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from dflearn.errors import DataError
from dflearn.paper.methods import Plain, resolve_parameters
from dflearn.problems import problem_named

#: Raised when a bug is fixed that changed numbers: finished runs of another version no longer count.
RESULTS_VERSION = 1

GUROBI_LIMIT = 2000  # variables, and rows, of the licence that comes with gurobipy

ExactSolver = Literal["default", "gurobi"]


@dataclass(frozen=True)
class Settings:
    """Data and training; the defaults are the paper's.

    Attributes:
        points: instances drawn, of which `test` (a number, or a share below 1) are held out first, then `validation`
            out of the rest; the others train.
        features, degree, noise: of the generator.
    """

    points: int = 2000
    test: int | float = 1000
    validation: int | float = 0.2
    epochs: int = 25
    batch_size: int = 32
    learning_rate: float = 0.005
    features: int = 10
    degree: int = 6
    noise: float = 0.5

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise DataError(f"{f.name} must be a number that is not negative, got {value!r}")
        for name in ("points", "epochs", "batch_size", "features", "degree"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise DataError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class RunConfig:
    """One run, resolved: everything that affects its numbers, and nothing else.

    Attributes:
        parameters: of the method, in the order of their names.
        solver: what solves integer programs, for labels, in losses and in the evaluation: "default" is HiGHS.
    """

    problem: str
    method: str
    seed: int
    parameters: tuple[tuple[str, Plain], ...] = ()
    settings: Settings = field(default_factory=Settings)
    solver: ExactSolver = "default"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "parameters": dict(self.parameters)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RunConfig:
        settings = Settings(**content["settings"])
        parameters = tuple(sorted(content["parameters"].items()))
        return cls(**{**content, "settings": settings, "parameters": parameters})

    @cached_property
    def key(self) -> str:
        """A hash of the config and the results version: what the store knows the run by."""
        return self._hash(self.as_dict())

    @cached_property
    def question(self) -> str:
        """The same without the solver: exact solvers answer the same question, so one answer is enough."""
        return self._hash({name: value for name, value in self.as_dict().items() if name != "solver"})

    @staticmethod
    def _hash(content: dict[str, Any]) -> str:
        text = json.dumps({**content, "results_version": RESULTS_VERSION}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{self.problem} {self.method} seed {self.seed}"


def resolve(
    problem: str,
    method: str,
    seed: int,
    settings: Settings | None = None,
    parameters: Mapping[str, Plain] | None = None,
    solver: ExactSolver = "default",
) -> RunConfig:
    """The config of one run, with the method's parameters filled in and the solver where it makes a difference."""
    settings = Settings() if settings is None else settings
    built = problem_named(problem, seed=seed, features=settings.features, degree=settings.degree, noise=settings.noise)
    own = tuple(sorted(resolve_parameters(method, built.name, parameters).items()))
    chosen: ExactSolver = "gurobi" if solver == "gurobi" and _fits_gurobi(built.name) else "default"
    return RunConfig(built.name, method, seed, own, settings, chosen)


@cache
def _fits_gurobi(problem: str) -> bool:
    program = problem_named(problem).program  # its size is that of every seed
    rows = program.A.shape[0] + program.G.shape[0]
    return program.is_integer and max(program.n, rows) <= GUROBI_LIMIT


@dataclass(frozen=True)
class Study:
    """A grid: every method on every problem with every seed.

    Attributes:
        parameters: method → values in place of those that the method has fixed.
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    solver: ExactSolver = "default"
    settings: Settings = field(default_factory=Settings)
    parameters: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("problems", "methods", "seeds"):
            if not getattr(self, name):
                raise DataError(f"{name} is empty: a study needs at least one of each of problems, methods and seeds")
        if self.solver not in ("default", "gurobi"):
            raise DataError(f"solver is 'default' or 'gurobi', got {self.solver!r}")
        strangers = sorted(set(self.parameters) - set(self.methods))
        if strangers:
            raise DataError(
                f"parameters are given for {', '.join(strangers)}, which is not among the methods of the study"
            )

    def runs(self) -> list[RunConfig]:
        """Problem by problem, seed by seed, so that a problem's labels are computed once and early."""
        return [
            resolve(problem, method, seed, self.settings, self.parameters.get(method), self.solver)
            for problem in self.problems
            for seed in self.seeds
            for method in self.methods
        ]


def read_study(path: str | Path) -> Study:
    """The study of a TOML file; whatever is unknown or of the wrong kind is refused by name."""
    try:
        content = tomllib.loads(Path(path).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a TOML file: {error}") from error
    try:
        _check_keys(content, Study, "")
        lists = {name: _list(content, name, kind) for name, kind in _LISTS.items() if name in content}
        missing = [name for name in ("problems", "methods") if name not in content]
        if missing:
            raise DataError(f"{' and '.join(missing)} must be given: lists of names")
        settings = content.get("settings", {})
        _check_keys(settings, Settings, " in [settings]")
        parameters = content.get("parameters", {})
        if not isinstance(parameters, dict) or not all(isinstance(own, dict) for own in parameters.values()):
            raise DataError('parameters are tables by method, such as [parameters."SCE^DYS"]')
        return Study(**{**content, **lists, "settings": Settings(**settings), "parameters": parameters})
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


_LISTS = {"problems": str, "methods": str, "seeds": int}


def _check_keys(content: Any, kind: type, where: str) -> None:
    if not isinstance(content, dict):
        raise DataError(f"a table is wanted{where}, got {content!r}")
    known = [f.name for f in fields(kind)]
    unknown = [key for key in content if key not in known]
    if unknown:
        raise DataError(f"unknown key {', '.join(map(repr, unknown))}{where}; the keys are {', '.join(known)}")


def _list(content: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    value = content[name]
    if not isinstance(value, list) or not all(type(item) is kind for item in value):
        raise DataError(f"{name} must be a list of {'names' if kind is str else 'integers'}, got {value!r}")
    return tuple(value)
