"""Configuration: a TOML file says which grid of runs, in which settings; a run's resolved config is its identity."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from dflearn.errors import DataError, DflearnError, OptionError
from dflearn.problems.base import Problem
from dflearn.problems.registry import options_of, problem_named
from dflearn.studies.methods import Plain, load_plugins, resolve_parameters
from dflearn.studies.models import check_model
from dflearn.studies.modules import import_modules

#: Goes up when a fixed bug changes numbers: finished runs of another version no longer count.
RESULTS_VERSION = 1

GUROBI_LIMIT = 2000  # variables, and rows, of the licence that comes with gurobipy

ExactSolver = Literal["default", "gurobi"]
WORDS = {"keep": ("last", "best"), "validation_solver": ("relaxed", "exact")}  # settings that are words
WHOLE = ("points", "epochs", "batch_size", "features", "degree")  # settings that are integers
Pairs = tuple[tuple[str, Any], ...]  # a hashable mapping: sorted by name, lists as tuples
PAIRS = ("parameters", "model_options", "problem_options", "tuning")  # the fields of a run that hold one
# Defaults that a key leaves out: the runs in results/ are older than these fields.
USUAL: dict[str, Any] = {
    "model": "linear", "model_options": {}, "problem_options": {}, "tuning": {}, "keep": "last",
    "validation_solver": "relaxed",
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Data and training; the defaults are the paper's.

    Attributes:
        points: instances drawn. `test` of them (a number, or a share below 1) are held out first, then `validation` of the
            rest; the others are the training set. A problem with real data takes so many of its rows.
        features, degree, noise: of the generator, for problems that have them.
        keep: the weights of the last epoch, or of the epoch that is best on the validation set.
        validation_solver: solves the relaxation or the exact program for choices on the validation set (best epoch, tuned
            parameters).
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
    keep: str = "last"
    validation_solver: str = "relaxed"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name in WORDS:
                if value not in WORDS[name]:
                    raise OptionError(f"{name} is {' or '.join(map(repr, WORDS[name]))}, got {value!r}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise OptionError(f"{name} must be a number that is not negative, got {value!r}")
            elif name in WHOLE and (not isinstance(value, int) or value < 1):
                raise OptionError(f"{name} must be an integer of at least 1, got {value!r}")


@dataclass(frozen=True)
class RunConfig:
    """One run, resolved: everything that affects its numbers, and where its code is.

    Attributes:
        solver: of integer programs, for labels, in losses and in the evaluation: "default" is HiGHS.
        tuning: parameter → values; the run trains once for each combination and keeps the one with the least regret on
            the validation set.
        imports: modules that register the method, the problem or the model. Not part of the run's identity.
    """

    problem: str
    method: str
    seed: int
    parameters: Pairs = ()
    settings: Settings = field(default_factory=Settings)
    solver: ExactSolver = "default"
    model: str = "linear"
    model_options: Pairs = ()
    problem_options: Pairs = ()
    tuning: Pairs = ()
    imports: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        content = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return content | {name: dict(content[name]) for name in PAIRS} | {"settings": asdict(self.settings)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RunConfig:
        given = {**content, "settings": Settings(**content["settings"]), "imports": tuple(content.get("imports", ()))}
        return cls(**{**given, **{name: pairs(content.get(name)) for name in PAIRS}})

    @property
    def choices(self) -> dict[str, Any]:
        """All that may differ between two runs of a method on a problem, by name."""
        tuned = ", ".join(f"{name} in {_plain(values)}" for name, values in self.tuning)
        named = {**dict(self.parameters), **asdict(self.settings), **dict(self.problem_options), "model": self.model}
        return {**named, **dict(self.model_options), "tuned": tuned or "nothing"}

    @property
    def data_choices(self) -> dict[str, Any]:
        """Those of `choices` that make other data: runs that differ here cannot be compared."""
        names = ("points", "test", "validation", "features", "degree", "noise")
        return {**{name: getattr(self.settings, name) for name in names}, **dict(self.problem_options)}

    @cached_property
    def key(self) -> str:
        """A hash of the config and the results version: the run's key in the store."""
        return self._hash("imports")

    @cached_property
    def question(self) -> str:
        """The same without the solver: exact solvers answer the same question, so one answer is enough."""
        return self._hash("imports", "solver")

    def _hash(self, *without: str) -> str:
        def spelled(content: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in content.items() if name not in USUAL or value != USUAL[name]}

        content = {name: value for name, value in spelled(self.as_dict()).items() if name not in without}
        content |= {"settings": spelled(content["settings"]), "results_version": RESULTS_VERSION}
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{self.problem} {self.method} seed {self.seed}"


def pairs(content: Mapping[str, Any] | None) -> Pairs:
    return tuple(sorted((key, _hashable(value)) for key, value in (content or {}).items()))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def problem_of(config: RunConfig) -> Problem:
    """The problem of a run: the settings of the generator go to problems that have them."""
    return _problem(config.problem, config.seed, config.settings, dict(config.problem_options))


def _problem(name: str, seed: int, settings: Settings, options: Mapping[str, Any]) -> Problem:
    general = {"seed": seed, "features": settings.features, "degree": settings.degree, "noise": settings.noise}
    known = options_of(name)
    return problem_named(name, **{key: value for key, value in general.items() if key in known} | dict(options))


def resolve(
    problem: str,
    method: str,
    seed: int,
    settings: Settings | None = None,
    parameters: Mapping[str, Plain] | None = None,
    solver: ExactSolver = "default",
    *,
    model: str = "linear",
    model_options: Mapping[str, Any] | None = None,
    problem_options: Mapping[str, Any] | None = None,
    tuning: Mapping[str, Sequence[Plain]] | None = None,
    imports: Sequence[str] = (),
) -> RunConfig:
    """The config of one run, with the method's parameters filled in and the solver where it makes a difference."""
    load_plugins()
    import_modules(imports)
    settings, options, tuning = settings or Settings(), dict(problem_options or {}), dict(tuning or {})
    built = _problem(problem, seed, settings, options)
    own = resolve_parameters(method, built.name, parameters or {}, tuning)
    check_model(model, model_options or {})
    for name, values in tuning.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise OptionError(f"the tuning of {name} is a list of values to try, got {values!r}")
    chosen: ExactSolver = "gurobi" if solver == "gurobi" and _fits_gurobi(problem, pairs(options)) else "default"
    return RunConfig(
        built.name, method, seed, pairs(own), settings, chosen, model, pairs(model_options),
        pairs(options | built.recorded), pairs(tuning), tuple(imports),
    )  # fmt: skip


@cache
def _fits_gurobi(problem: str, options: Pairs) -> bool:
    program = problem_named(problem, **dict(options)).program  # its size is that of every seed
    rows = program.A.shape[0] + program.G.shape[0]
    return program.is_integer and max(program.n, rows) <= GUROBI_LIMIT


@dataclass(frozen=True)
class Study:
    """A grid: every method on every problem with every seed. Parameters and tuning are by method, options by problem."""

    problems: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    solver: ExactSolver = "default"
    settings: Settings = field(default_factory=Settings)
    parameters: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict)
    model: str = "linear"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tuning: Mapping[str, Mapping[str, Sequence[Plain]]] = field(default_factory=dict)
    imports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("problems", "methods", "seeds"):
            if not getattr(self, name):
                raise OptionError(f"{name} is empty: a study needs at least one of each of problems, methods and seeds")
        if self.solver not in get_args(ExactSolver):
            raise OptionError(f"solver is 'default' or 'gurobi', got {self.solver!r}")
        for name, among in {"parameters": "methods", "tuning": "methods", "options": "problems"}.items():
            strangers = sorted(set(getattr(self, name)) - set(getattr(self, among)))
            if strangers:
                raise OptionError(f"{name} are given for {', '.join(strangers)}, not among the {among}: add it there")

    def runs(self) -> list[RunConfig]:
        """Each run once, problem by problem and seed by seed, so that a problem's labels are computed once and early."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in ("model", "model_options", "imports")}
        every = [
            resolve(
                *(problem, method, seed, self.settings, self.parameters.get(method), self.solver),
                **shared | {"problem_options": self.options.get(problem), "tuning": self.tuning.get(method)},
            )
            for problem in self.problems
            for seed in self.seeds
            for method in self.methods
        ]
        return list({config.question: config for config in every}.values())


def _tables(given: Any) -> bool:
    return isinstance(given, dict) and all(isinstance(own, dict) for own in given.values())


Form = tuple[Callable[[Any], bool], str]  # whether a value has the right form, and that form in words
NAMES: Form = (lambda given: isinstance(given, list) and all(isinstance(one, str) for one in given), "a list of names")
FORMS: dict[str, Form] = {
    "problems": NAMES,
    "methods": NAMES,
    "seeds": (lambda given: isinstance(given, list) and all(type(one) is int for one in given), "a list of integers"),
    "solver": (lambda given: isinstance(given, str), "'default' or 'gurobi'"),
    "settings": (lambda given: isinstance(given, dict), "a table"),
    "parameters": (_tables, 'tables by method, such as [parameters."SCE^DYS"]'),
    "model": (
        lambda given: isinstance(given.get("name") if isinstance(given, dict) else given, str),
        'a name such as "linear", or a table with a name and options',
    ),
    "options": (_tables, 'tables by problem, such as [options."KP-100"]'),
    "tuning": (_tables, 'tables by method, such as [tuning."SCE^smoothed"]'),
    "import": NAMES,
}


def read_study(path: str | Path) -> Study:
    """The study of a TOML file. An unknown key or a value of the wrong kind is an error.

    The modules of `import` are imported here, from the file's folder or from Python's path.
    """
    try:
        content = tomllib.loads(Path(path).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a TOML file: {error}") from error
    try:
        _check_names(content, FORMS, "")
        for name, value in content.items():
            fits, form = FORMS[name]
            if not fits(value):
                raise OptionError(f"{name} must be {form}, got {value!r}")
        if missing := [name for name in ("problems", "methods") if name not in content]:
            raise OptionError(f"{' and '.join(missing)} must be given: lists of names")
        settings, model = content.get("settings", {}), content.pop("model", "linear")
        _check_names(settings, [f.name for f in fields(Settings)], " in [settings]")
        options = {"name": model} if isinstance(model, str) else model
        imports = tuple(content.pop("import", ()))
        import_modules(imports, Path(path).parent)
        given = {name: _hashable(value) for name, value in content.items()} | {"settings": Settings(**settings)}
        return Study(**given, imports=imports, model=options.pop("name"), model_options=options)
    except DflearnError as error:
        raise type(error)(f"{path}: {error}") from error


def _check_names(content: Mapping[str, Any], known: Collection[str], where: str) -> None:
    unknown = [key for key in content if key not in known]
    if unknown:
        raise OptionError(f"unknown key {', '.join(map(repr, unknown))}{where}; the keys are {', '.join(known)}")


def seeds_of(words: Sequence[str]) -> list[int]:
    """["1-3", "5"] → [1, 2, 3, 5]."""
    seeds: list[int] = []
    for word in words:
        first, dash, last = word.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise OptionError(f"seeds are numbers or ranges such as 1-5, got {word!r}")
        seeds += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(seeds))
