"""dfl train: from a model file and two tables to a trained model and a page about it, in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command, add_solve_options, cache_of, positive, spread
from dflearn.cli.checks import check_inputs, check_output
from dflearn.cli.inputs import (
    add_mapping_option,
    add_part_options,
    add_recourse_options,
    add_table_options,
    as_options,
    cost_map,
    in_options,
    read_tables,
    read_weights,
    with_slack,
)
from dflearn.errors import MissingExtraError, OptionError, ProgramError

if TYPE_CHECKING:
    from dflearn.frontends.linear_model import LinearModel
    from dflearn.tables import TrainResult
    from dflearn.tables.rolling import RollingResult
    from dflearn.tables.tables import MixedTable, Table

INPUTS = ("program", "features", "costs", "instances", "map")


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "train",
        train,
        "train a model on your own program and tables, and save it",
        "  dfl train --program model.mps --features x.csv --costs y.csv --out model.dfl\n"
        "  dfl train --program model.lp --features x.parquet --costs y.parquet --id day --positive --out model.dfl\n"
        "  dfl train --program model.mps --features x.csv --costs y.csv --out model.dfl --unit EUR --rows-per-year 250\n\n"
        "Tables have one row per instance. The columns of the costs are variables of the program, whose coefficients\n"
        "in the objective are predicted from all columns of the features; other coefficients stay as in the file. A column\n"
        "that is called like a constraint is its right-hand side, which is predicted then: see --recourse and --elastic.\n"
        "A page beside the model tells in money what it saves, where, and how surely.",
    )
    parser.add_argument("--program", type=Path, required=True, metavar="FILE", help="the program, .mps or .lp (or .gz)")
    add_table_options(parser, costs="table of true costs, .csv or .parquet", required=True)
    add_mapping_option(parser)
    add_recourse_options(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the model file to write")
    parser.add_argument(
        "--loss",
        nargs="+",
        metavar="NAME",
        help="models are trained with each: smoothed-spo+, sce (default: both), spo+, pfy, …: dfl methods lists them; where "
        "right-hand sides are predicted, task, quantile (default: both), score-function",
    )
    parser.add_argument("--layer", default="auto", help="smoothed, davis-yin, perturbed, relaxed or exact")
    parser.add_argument("--positive", action="store_true", help="costs are known to be positive: predict no others")
    parser.add_argument(
        "--epochs", type=positive, help="of a run; default: 15, or more where few rows make for less than 300 steps"
    )
    parser.add_argument(
        "--lr", type=float, help="how far a step moves forecasts, in units of their error (default: several are tried)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for all decision-focused runs (default: 10)")
    parser.add_argument("--refit", action="store_true", help="after choosing and testing, train again on all rows")
    add_part_options(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the parts and of training (default: 0)")
    parser.add_argument(
        "--device", help="where decision-focused models are trained: cpu (default), cuda or cuda:1, say"
    )
    add_page_options(parser)
    add_solve_options(parser)


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """The page about the models, and how it counts money."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--page", type=Path, metavar="FILE", help="the page to write (default: beside --out, .html)")
    where.add_argument("--no-page", action="store_true", help="write no page")
    parser.add_argument("--unit", default="", metavar="TEXT", help="of the objective, for the page: EUR, say")
    parser.add_argument(
        "--rows-per-year",
        type=_amount,
        metavar="N",
        help="to tell savings per year (default: by the ids where they are dates in order, else per 1,000 rows)",
    )


def train(options: argparse.Namespace) -> Answer:
    from dflearn.tables.methods import check_choices

    check_output(options, *INPUTS)
    page = check_page(options)
    check_inputs(options, *INPUTS)
    with in_options():
        check_choices(options.loss or (), options.layer)
        features, costs, instances = read_tables(options, options.id)
        assert costs is not None
        source = read_program(options, features, costs)
        for other in (costs, instances):
            if other is not None:
                other.order_like(features)  # whether rows match is told before anything heavy is loaded

        from dflearn.solvers.task import DecisionTask
        from dflearn.tables import workflow
        from dflearn.tables.rolling import train_rolling

        program = with_slack(source.program(), options)
        options.loss = list(workflow.losses_for(program, options.loss))
        in_folds = {"folds": options.folds, "test": options.test or 0.5, "ordered": options.ordered or True}
        at_once = {"ordered": options.ordered, "test": options.test or 0.25}
        result: Any = (train_rolling if options.folds else workflow.train)(
            program,
            features,
            costs,
            instances,
            **(in_folds if options.folds else at_once),
            losses=options.loss,
            layer=options.layer,
            positive=options.positive,
            epochs=options.epochs,
            lr=options.lr,
            gap=options.gap,
            groups=options.groups,
            weights=read_weights(options, options.id),
            seed=options.seed,
            device=options.device,
            id_column=options.id,
            minutes=options.minutes,
            refit=options.refit,
            checkpoint=options.out.with_name(options.out.name + ".unfinished"),
            offset=source.offset,
            solver=spread(DecisionTask.of(program).solver, options),
            cache=cache_of(options),
        )
    result.save(options.out, {name: _plain(value) for name, value in vars(options).items() if name not in HANDED_ON})
    next_steps = commands_after(options)
    last: TrainResult = result.last if options.folds else result
    regrets = ", ".join(f"{name} {judged.absolute_regret:.4g}" for name, judged in last.validation.items())
    lines = [
        f"{options.program}: {program.sense}, {program.n} variables, "
        + (f"{program.p} predicted numbers" if program.predicts_rows else f"of which {program.p} have predicted costs"),
        as_options(str(result)),
        f"\n{options.out}: the {last.chosen} model{' of the last fold' if options.folds else ''}. Mean regret on the rows to choose by: {regrets}.",
        *([] if page is None else [f"{page}: the same in money, with pictures."]),
        f"Next: {next_steps[0][1]}",
    ]
    if page is not None:
        write_page(last, page, options, next_steps, result if options.folds else None)
    folds = [document_of(one, options) for one in result.folds] if options.folds else None
    document = {"model": options.out, "page": page, **document_of(last, options), "folds": folds}
    return Answer("\n".join(lines), document)


# -- the answer -----------------------------------------------------------------------------------------------------

HANDED_ON = ("run", "command", "json", "debug")  # in the options, and no setting of the training


def check_page(options: argparse.Namespace) -> Path | None:
    """Where the page goes, checked before anything is trained; `None` where there will be none."""
    if options.no_page:
        return None
    if find_spec("matplotlib") is None:
        if options.page is not None:
            raise MissingExtraError("--page has figures, which need matplotlib: pip install 'dflearn[plot]'")
        return None
    page = options.page or options.out.with_suffix(".html")
    if page.absolute() == options.out.absolute():
        raise OptionError(f"--out and the page are both {page}: name another --page, or leave it out with --no-page")
    check_output(options, *INPUTS, out=page, called="--page")
    return page


def write_page(
    result: TrainResult,
    page: Path,
    options: argparse.Namespace,
    next_steps: list[tuple[str, str]],
    rolled: RollingResult | None,
) -> None:
    from dflearn.report.training import training_page

    notes = [as_options(note) for note in (result if rolled is None else rolled).notes]
    told, rows = replace(result, notes=notes), options.rows_per_year
    training_page(told, unit=options.unit, per_year=rows, commands=next_steps, rolled=rolled).write(page)


def commands_after(options: argparse.Namespace) -> list[tuple[str, str]]:
    """What to do next, and what to type for it."""
    new = f"NEW{options.features.suffix}"
    more = "" if options.instances is None else f" --instances NEW_INSTANCES{options.instances.suffix}"
    named = "" if options.id is None else f" --id {_quoted(options.id)}"
    known = f"--features {_quoted(options.features)} --costs {_quoted(options.costs)}"
    known += "" if options.instances is None else f" --instances {_quoted(options.instances)}"
    if options.refit:  # no row is left that was not trained on
        known = f"--features {new} --costs TRUE{options.costs.suffix}{more}"
    decide = f"dfl decide --model {_quoted(options.out)} --features {new}{more} --out decisions.csv"
    return [
        ("Decide for new rows, which have the same columns of features:", decide),
        (
            "Once their true costs are known, see what the decisions were worth:",
            f"dfl decide --model {_quoted(options.out)} --features {new}{more} --costs TRUE{options.costs.suffix} --out judged.csv",
        ),
        (
            "Judge forecasts of your own, from whatever made them, by the decisions they lead to:",
            f"dfl evaluate FORECASTS.csv --program {_quoted(options.program)} --costs TRUE{options.costs.suffix}{more}{named}",
        ),
        ("Ask what keeps the model from getting better:", f"dfl doctor --model {_quoted(options.out)} {known}"),
    ]


def _quoted(word: object) -> str:
    """A file or a name as a shell reads it."""
    return shlex.quote(str(word))


def document_of(result: TrainResult, options: argparse.Namespace) -> dict[str, Any]:
    """How the models did, for programs; docs/command-line.md tells the keys."""
    from dflearn.tables.result import THOUSAND, rows_per_year, savings

    rows = rows_per_year(result, options.rows_per_year)
    found = savings(result, rows or THOUSAND)
    return {
        "chosen": result.chosen,
        "baseline": result.baseline,
        "compared": result.compared,
        "rows": dict(zip(("train", "choose", "test"), map(len, result.parts), strict=True)),
        "unit": options.unit,
        "rows_per_year": rows,
        "savings": [one.as_dict() for one in found],
        "difference": result.difference.as_dict(),
        "test": {name: judged.as_dict() for name, judged in result.tested.items()},
        "choose": {name: judged.as_dict() for name, judged in result.validation.items()},
        "notes": [as_options(note) for note in result.notes],
    }


# -- the program ----------------------------------------------------------------------------------------------------


def read_program(options: argparse.Namespace, features: MixedTable | None, costs: Table) -> LinearModel:
    """The file, with the columns of the costs to predict; what HiGHS remarks about it goes to stderr."""
    from dflearn.frontends.files import read_model

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            source = read_model(options.program, cost_map(options, costs.names), recourse=options.recourse)
        except (OptionError, ProgramError) as error:
            if not str(error).startswith("costs"):  # it is about the program alone
                raise
            hint = [name for name in costs.names if features is not None and name in features.names]
            more = f"; if {hint[0]!r} names the rows, add --id {hint[0]}" if hint and options.id is None else ""
            said = str(error).removeprefix("costs: ")
            by = "" if options.map is None else f" by {options.map}"
            raise type(error)(f"{options.costs} with {options.program}{by}: {said}{more}") from error
    for warning in noted:
        print(f"note: {warning.message}", file=sys.stderr)
    return source


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _amount(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return number
