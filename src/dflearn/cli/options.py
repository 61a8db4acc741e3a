"""Options of several commands. A command is a dataclass: its fields are its options, and `run` returns the answer."""

from __future__ import annotations

import os
import zipfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, dataclass_transform

from cyclopts import Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

import dflearn as dfl
from dflearn.cli.answers import Answer
from dflearn.errors import DataError, OptionError, ProgramError
from dflearn.files import check_writable

if TYPE_CHECKING:
    from dflearn.frontends.linear_model import LinearModel
    from dflearn.solvers.task import Decided
    from dflearn.tables.tables import MixedTable, Table

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
SEVERAL = Parameter(consume_multiple=(1, None))  # --loss sce spo+
Words = Annotated[tuple[str, ...], SEVERAL]

# Sections of a help page. At most one option of a mutually exclusive section may be given.
WORKERS = Parameter(group=Group("Workers", sort_key=1, validator=mutually_exclusive))
CLUSTER = Parameter(group=Group("Ray cluster", sort_key=2))
CACHE = Parameter(group=Group("Cache", sort_key=3, validator=mutually_exclusive))
OUTPUT = Parameter(group=Group("Output", sort_key=4))

INPUTS = ("program", "model", "features", "costs", "instances", "forecast", "map")  # options that name files to read
TABLE = (".csv", ".parquet")
ENDINGS = {"program": (".mps", ".lp", ".mps.gz", ".lp.gz"), "model": (), "map": (*TABLE, ".json")}
ENDINGS["predictions"] = (*TABLE, ".dfl")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Options:
    """A subclass is a dataclass of options. `field(kw_only=False)` is positional, `field()` is required though inherited."""

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)


class Command(Options, ABC):
    json: Annotated[bool, OUTPUT] = False
    """print one JSON document in place of text"""
    debug: Annotated[bool, OUTPUT] = False
    """show the traceback of an error"""

    @abstractmethod
    def run(self) -> Answer: ...


class NamedProblem(Command):
    problem: str | None = None
    """name of the problem, if the data file does not have it"""
    seed: int | None = None
    """seed of the problem (default: 1)"""

    def named_problem(self) -> dfl.problems.Problem:
        assert self.problem is not None
        return dfl.problems.problem_named(self.problem, seed=1 if self.seed is None else self.seed)

    def problem_behind(self, dataset: dfl.DecisionDataset) -> dfl.problems.Problem:
        """The problem of a data file, or of the options; they must not contradict each other."""
        if dataset.origin:
            given = {name: getattr(self, name) for name in ("problem", "seed") if getattr(self, name) is not None}
            return dfl.problems.problem_of_origin(dataset.origin, given)
        if self.problem is None:
            raise OptionError("the file does not name the problem of its data: add --problem NAME --seed SEED")
        return self.named_problem()


class Cache(Command):
    cache: Annotated[Path | None, CACHE] = None
    """folder for the results of exact solves (default: $DFLEARN_CACHE or ~/.cache/dflearn)"""
    no_cache: Annotated[bool, CACHE] = False
    """do not store results of exact solves"""

    @property
    def cache_folder(self) -> Path | None:
        from dflearn.data.cache import default_cache

        return None if self.no_cache else self.cache or default_cache()


class Cluster(Command):
    executor: Annotated[Literal["local", "ray"], WORKERS] = "local"
    """compute on this machine (default) or on a Ray cluster"""
    address: Annotated[str | None, CLUSTER] = None
    """host:port of the cluster, or auto (default: start a cluster on this machine)"""
    memory: Annotated[float, CLUSTER] = 2.0
    """memory of each task on the cluster, in GiB (default: 2)"""

    @property
    def on_ray(self) -> bool:
        if self.address is not None and self.executor != "ray":
            raise OptionError("--address is for a Ray cluster: add --executor ray")
        return self.executor == "ray"


class Workers(Cluster):
    workers: Annotated[Positive, WORKERS] = 1
    """processes that solve instances at the same time (default: 1)"""

    def spread(self, what: Decided) -> dfl.Solver:
        """The solver of what is decided, on the workers of the options."""
        from dflearn.solvers.task import DecisionTask

        solver = DecisionTask.of(what).solver
        if self.on_ray:
            from dflearn.integrations.ray import GIGABYTE, OnRay

            return OnRay(solver, self.address, self.memory * GIGABYTE)
        return solver if self.workers == 1 else dfl.Parallel(solver, self.workers)


class TableFiles(Command):
    features: Path | None = None
    """table of features, .csv or .parquet"""
    costs: Path | None = None
    """table of true costs, .csv or .parquet"""
    id: str | None = None
    """the column with the names of the rows, in every table"""
    instances: Path | None = None
    """table of what differs by row: right-hand sides (a column per constraint), bounds (lower:x, upper:x), known costs (d:x)"""

    def inputs(self) -> dict[str, Path]:
        """The files to read, by the names of their options."""
        return {name: path for name in INPUTS if (path := getattr(self, name, None)) is not None}

    def check_inputs(self, *tables: Path) -> None:
        """An error before anything is computed if a file is missing or has another ending."""
        for name, path in [*self.inputs().items(), *(("predictions", path) for path in tables)]:
            with open(path, "rb") as file:  # a missing file is an error of its own
                file.read(1)
            endings = ENDINGS.get(name, TABLE)
            if endings and not str(path).endswith(endings):
                raise DataError(f"--{name}: {path} should end in {' or '.join(endings[:2])}, which tells its format")
            if name == "model" and not zipfile.is_zipfile(path):
                raise DataError(f"{path} is not a model that can be read here: it is no zip file, or is cut short")

    def check_output(self, out: Path, called: str = "--out") -> None:
        """An error before anything is computed if `out` cannot be written, or is one of the inputs."""
        check_writable(out)
        for name, path in self.inputs().items():
            if path.absolute() == out.absolute() or (path.exists() and out.exists() and os.path.samefile(path, out)):
                raise OptionError(f"{called} and --{name} are both {path}: write to another file")

    def read_tables(self, id_column: str | None) -> tuple[MixedTable, Table | None, Table | None]:
        from dflearn.tables.tables import read_mixed, read_table

        assert self.features is not None
        costs = None if self.costs is None else read_table(self.costs, id_column)
        instances = None if self.instances is None else read_table(self.instances, id_column, infinite=True)
        return read_mixed(self.features, id_column), costs, instances

    def without_tables(self, files: str) -> None:
        """An error for options about tables if none of `files` is given."""
        for name in ("features", "costs", "instances", "id", "map"):
            if getattr(self, name) is not None:
                raise OptionError(f"--{name} is about tables of your own: add {files}")


class OwnProgram(TableFiles):
    """A program in a file, and how its tables refer to it."""

    program: Path | None = None
    """the optimization model, .mps or .lp (or .gz)"""
    map: Path | None = None
    """the variables of each cost: a table with columns cost, variable, factor, or .json; for example price_{t},gen_*_{t},1"""
    recourse: Words = ()
    """variables that are decided after the true values are known: names, or patterns such as over*"""
    elastic: Words = ()
    """price per unit of breaking a predicted constraint: 4, or 0.5,4 (too much, too little); ROW=4 for one constraint"""

    def read_program(self, features: MixedTable | None, costs: Table) -> LinearModel:
        """The file, with the costs to predict."""
        from dflearn.frontends.costs import may_be
        from dflearn.frontends.files import read_model
        from dflearn.tables.table_files import read_cost_map

        assert self.program is not None
        entered = {} if self.map is None else read_cost_map(self.map)
        own = {name: {name: 1.0} for name in costs.names if not any(may_be(cost, name) for cost in entered)}
        try:
            return read_model(self.program, entered | own, recourse=self.recourse)
        except (OptionError, ProgramError) as error:
            if not str(error).startswith("costs"):  # it is about the program
                raise
            hint = [name for name in costs.names if features is not None and name in features.names]
            more = f"; if {hint[0]!r} names the rows, add --id {hint[0]}" if hint and self.id is None else ""
            where = f"{self.costs} with {self.program}" + ("" if self.map is None else f" by {self.map}")
            raise type(error)(f"{where}: {str(error).removeprefix('costs: ')}{more}") from error

    def with_slack(self, program: dfl.Program) -> dfl.Program:
        for text in self.elastic:
            row, _, price = text.rpartition("=")
            try:
                amounts = tuple(float(part) for part in price.split(","))
            except ValueError as error:
                raise OptionError(f"--elastic is PRICE, EXCEEDING,LACKING or ROW=PRICE; got {text!r}") from error
            program = program.elastic(row or "predicted", amounts[0] if len(amounts) == 1 else amounts)
        return program


class SavedModel(Command):
    model: Path | None = None
    """a model file that dfl train wrote"""
    trust_code: bool = False
    """run the code that the model file names; only for files from people you trust"""

    def load_model(self) -> dfl.DecisionFocusedRegressor:
        from dflearn.tables import decisions

        assert self.model is not None
        model = decisions.load(self.model, trust=self.trust_code)
        model.learned_encoding()
        return model
