"""dfl train: from a program and two tables to a saved model and a page about it. dfl decide: decisions by that model."""

from __future__ import annotations

import shlex
from dataclasses import field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

from dflearn.cli.answers import Answer, as_options, in_options
from dflearn.cli.options import Cache, OwnProgram, Positive, SavedModel, TableFiles, Words, Workers
from dflearn.errors import MissingExtraError, OptionError
from dflearn.files import as_json

if TYPE_CHECKING:
    from dflearn.program import Program
    from dflearn.solvers.base import Solver
    from dflearn.tables import TrainResult
    from dflearn.tables.tables import Table

PAGE = Parameter(group=Group("Page", sort_key=0, validator=mutually_exclusive))


class Train(OwnProgram, Workers, Cache):
    """Train models on your own program and tables, and save the best one.

    examples:
      dfl train --program model.mps --features x.csv --costs y.csv --out model.dfl
      dfl train --program model.lp --features x.parquet --costs y.parquet --id day --out model.dfl --unit EUR

    Tables have one row per instance. A column of --costs names a variable of the
    program: its coefficient in the objective is predicted from the features. Other
    coefficients stay as in the file. A column with the name of a constraint is its
    right-hand side, which is predicted too: see --recourse and --elastic. A page
    beside the model shows its savings in money, with confidence intervals.
    """

    program: Path = field()
    """the optimization model, .mps or .lp (or .gz)"""
    features: Path = field()
    """table of features, .csv or .parquet"""
    costs: Path = field()
    """table of true costs, .csv or .parquet"""
    out: Path
    """the model file to write"""
    loss: Words = ()
    """losses of decision-focused models; dfl methods lists them (default: smoothed-spo+ sce; for right-hand sides: task quantile)"""
    forecasters: Words = ()
    """ordinary models: ridge, huber, boosting (default: all)"""
    forecast: Path | None = None
    """your present forecast of the costs, as a candidate and for comparison: a table with a column per cost"""
    layer: str = "auto"
    """layer of the losses: smoothed, davis-yin, perturbed, relaxed or exact (default: the usual one of the loss)"""
    positive: bool = False
    """costs are always positive: predict positive costs only"""
    epochs: Positive | None = None
    """training epochs of a linear model (default: 160 steps, fewer for a large program)"""
    lr: float | None = None
    """learning rate: the change of forecasts per step, in units of their error"""
    minutes: float = 10.0
    """processor time in minutes after which no further decision-focused model is trained (default: 10)"""
    solves: Positive | None = None
    """largest number of exact solves for the choice of the model; with fewer, fewer rows validate (default: 8000, fewer for slow ones)"""
    refit: bool = False
    """after the test, train the models again on all rows"""
    test: float | None = None
    """share of rows in the held-out test set (default: 0.25; 0.5 with --folds)"""
    ordered: bool | str = False
    """rows follow each other in time: test on the last ones, ordered by this column, or as they stand (as-is: unchecked)"""
    gap: int = 0
    """with --ordered: rows left out between training, validation and test set (default: 0)"""
    groups: str | None = None
    """a feature column, then not used as a feature: rows with the same value stay in one set"""
    folds: Positive | None = None
    """number of trainings over time: each trains on the rows before its test set"""
    weights: str | None = None
    """weights of the rows: a feature column, then not used as a feature, or a table with one column"""
    seed: int = 0
    """random seed of the split and of training (default: 0)"""
    device: str | None = None
    """device for decision-focused models, such as cuda or cuda:1 (default: cpu)"""
    solver: Literal["highs", "gurobi", "scip"] | None = None
    """exact solver of the decisions (default: the fastest for the program)"""
    time_limit: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """time limit of an exact decision, in seconds; the best solution within the limit is used"""
    mip_gap: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0
    """allowed relative gap of an integer decision to the optimum (default: 0)"""
    page: Annotated[Path | None, PAGE] = None
    """the page to write (default: the name of --out with .html)"""
    no_page: Annotated[bool, PAGE] = False
    """write no page"""
    unit: str = ""
    """unit of the objective on the page, such as EUR"""
    rows_per_year: Annotated[float | None, Parameter(validator=Number(gt=0, lt=float("inf")))] = None
    """rows per year, for savings per year (default: from the ids if they are dates, else savings per 1,000 rows)"""

    def run(self) -> Answer:
        from dflearn.tables.methods import check_choices, losses_for

        self.check_output(self.out)
        page = self._checked_page()
        self.check_inputs()
        with in_options():
            check_choices(self.loss, self.layer)
            features, costs, instances = self.read_tables(self.id)
            assert costs is not None
            source = self.read_program(features, costs)
            for other in (costs, instances):
                if other is not None:
                    other.order_like(features)  # rows that do not match are an error before anything heavy is loaded

            from dflearn.solvers.base import Status
            from dflearn.tables import workflow
            from dflearn.tables.tables import read_table

            weights: str | Table | None = self.weights
            if self.weights is not None and self.weights.endswith((".csv", ".parquet")):
                weights = read_table(self.weights, self.id)
            program = self.with_slack(source.program())
            self.loss = losses_for(program, self.loss or None)
            in_folds = {"folds": self.folds, "test": self.test or 0.5, "ordered": self.ordered or True}
            at_once = {"ordered": self.ordered, "test": self.test or 0.25}
            settings: dict[str, Any] = {
                **(in_folds if self.folds else at_once),
                **{name: getattr(self, name) for name in SETTINGS},
                "losses": self.loss,
                "forecasters": self.forecasters or None,
                "forecast": None if self.forecast is None else read_table(self.forecast, self.id),
                "weights": weights,
                "id_column": self.id,
                "checkpoint": self.out.with_name(self.out.name + ".unfinished"),
                "offset": source.offset,
                "solver": self.spread(self._solver(program)),
                "accept": (Status.OPTIMAL,) if self.time_limit is None else (Status.OPTIMAL, Status.FEASIBLE),
                "cache": self.cache_folder,
            }
            run: Any = workflow.train_rolling if self.folds else workflow.train
            result = run(program, features, costs, instances, **settings)
        options = {name: as_json(value) for name, value in vars(self).items() if name not in ("json", "debug")}
        result.save(self.out, options)
        steps, of_fold = self.next_steps(), " of the last fold" if self.folds else ""
        last: TrainResult = result.last if self.folds else result
        regrets = ", ".join(f"{name} {judged.absolute_regret:.4g}" for name, judged in last.validation.items())
        what = ("of which {} have predicted costs", "{} predicted numbers")[program.predicts_rows]
        lines = [
            f"{self.program}: {program.sense}, {program.n} variables, {what.format(program.p)}",
            as_options(str(result)),
            f"\n{self.out}: the {last.chosen} model{of_fold}. Mean validation regret: {regrets}.",
            *([] if page is None else [f"{page}: the results in money, with figures."]),
            f"Next: {steps[0][1]}",
        ]
        if page is not None:
            from dflearn.report.training import training_page

            told = replace(last, notes=[as_options(note) for note in result.notes])
            rolled = result if self.folds else None
            training_page(told, unit=self.unit, per_year=self.rows_per_year, commands=steps, rolled=rolled).write(page)
        folds = [self._document(one) for one in result.folds] if self.folds else None
        return Answer("\n".join(lines), {"model": self.out, "page": page, **self._document(last), "folds": folds})

    def _solver(self, program: Program) -> Solver:
        from dflearn import solvers
        from dflearn.solvers.task import DecisionTask

        if self.solver is None and self.time_limit is None and not self.mip_gap:
            return DecisionTask.of(program).solver
        kind = {"highs": solvers.HiGHS, "gurobi": solvers.Gurobi, "scip": solvers.SCIP}[self.solver or "highs"]
        return kind(program, time_limit=self.time_limit or float("inf"), gap=self.mip_gap)

    def _checked_page(self) -> Path | None:
        """The file of the page, or `None`; an error before training if it cannot be written."""
        drawable = find_spec("matplotlib") is not None
        if self.no_page or (self.page is None and not drawable):
            return None
        if not drawable:
            raise MissingExtraError("--page has figures, which need matplotlib: pip install 'dflearn[plot]'")
        page = self.page or self.out.with_suffix(".html")
        if page.absolute() == self.out.absolute():
            raise OptionError(f"--out and the page are both {page}: name another --page, or add --no-page")
        self.check_output(page, "--page")
        return page

    def next_steps(self) -> list[tuple[str, str]]:
        """Next steps: the purpose and the command of each."""
        model, features, costs = (shlex.quote(str(path)) for path in (self.out, self.features, self.costs))
        instances = "" if self.instances is None else f" --instances {shlex.quote(str(self.instances))}"
        named = "" if self.id is None else f" --id {shlex.quote(self.id)}"
        new, true = f"--features NEW{self.features.suffix}", f"--costs TRUE{self.costs.suffix}"
        more = "" if self.instances is None else f" --instances NEW_INSTANCES{self.instances.suffix}"
        unseen = f"{new} {true}{more}" if self.refit else f"--features {features} --costs {costs}{instances}"
        forecasts = f"FORECASTS.csv --program {shlex.quote(str(self.program))}"
        decide, doctor = f"dfl decide --model {model} {new}{more}", f"dfl doctor --model {model} {unseen}"
        evaluate = f"dfl evaluate {forecasts} {true}{more}{named}"
        return [
            ("Decide for new rows with the same columns of features:", f"{decide} --out decisions.csv"),
            (
                "Once their true costs are known, measure the regret of the decisions:",
                f"{decide} {true} --out judged.csv",
            ),
            ("Measure other forecasts by the regret of their decisions:", evaluate),
            ("Find out what keeps the model from getting better:", doctor),
        ]

    def _document(self, result: TrainResult) -> dict[str, Any]:
        """The results for JSON; docs/reference/command-line.md explains the keys."""
        notes = [as_options(note) for note in result.notes]
        return result.as_dict(self.rows_per_year) | {"unit": self.unit, "notes": notes}


SETTINGS = ("layer", "positive", "epochs", "lr", "gap", "groups", "seed", "device", "minutes", "solves", "refit")


class Decide(SavedModel, TableFiles, Workers):
    """Decide for new rows of features with a saved model.

    example: dfl decide --model model.dfl --features new.csv --out decisions.csv

    The file has a row per instance: its id, the status of the solve, the objective
    with the predicted costs, and a column per variable. With --costs, it also has
    the true objective and the regret.
    """

    model: Path = field()
    """a model file of dfl train"""
    features: Path = field()
    """table of features, .csv or .parquet"""
    costs: Path | None = None
    """table of true costs, to measure the regret"""
    forecast: Path | None = None
    """table of your forecast, for a model that was trained with --forecast"""
    out: Path
    """the .csv or .parquet file to write"""
    partial: bool = False
    """also write rows without a decision, with empty cells, in place of an error"""

    def run(self) -> Answer:
        from dflearn.tables.tables import check_writable, read_table

        self.check_output(self.out)
        check_writable(self.out)
        self.check_inputs()

        from dflearn.tables import decisions

        with in_options(self.model):
            model = self.load_model()
            tables = self.read_tables(self.id or model.record_["id"])
            solver = self.spread(model.solver_)
            forecast = None if self.forecast is None else read_table(self.forecast, self.id or model.record_["id"])
            options: dict[str, Any] = {"id_column": self.id, "partial": self.partial, "solver": solver}
            decided = decisions.decide(model, *tables, forecast=forecast, **options)
        decided.save(self.out)
        document = {"out": self.out, "model": self.model, "chosen": model.record_["chosen"], **decided.as_dict()}
        return Answer(f"{self.out}: {decided}", document)
