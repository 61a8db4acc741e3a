"""dfl train: from a model file and two tables to a trained model, in one command."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.arguments import add_command, add_solve_options, cache_of, positive, spread
from dflearn.cli.inputs import (
    add_mapping_option,
    add_part_options,
    add_table_options,
    as_options,
    check_output,
    cost_map,
    in_options,
    read_tables,
    read_weights,
)
from dflearn.errors import OptionError, ProgramError

if TYPE_CHECKING:
    from dflearn.data.tables import MixedTable, Table
    from dflearn.frontends.linear_model import LinearModel


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "train",
        train,
        "train a model on your own program and tables, and save it",
        "  dfl train --program model.mps --features x.csv --costs y.csv --out model.dfl\n"
        "  dfl train --program model.lp --features x.parquet --costs y.parquet --id day --positive --out model.dfl\n\n"
        "Tables have one row per instance. The columns of the costs are variables of the program, whose coefficients\n"
        "in the objective are predicted from all columns of the features; other coefficients stay as in the file.",
    )
    parser.add_argument("--program", type=Path, required=True, metavar="FILE", help="the program, .mps or .lp (or .gz)")
    add_table_options(parser, costs="table of true costs, .csv or .parquet", required=True)
    add_mapping_option(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the model file to write")
    parser.add_argument(
        "--loss",
        nargs="+",
        default=["smoothed-spo+", "sce"],
        metavar="NAME",
        help="models are trained with each: smoothed-spo+, sce (default: both), spo+, fenchel-young, pfy, …",
    )
    parser.add_argument("--layer", default="auto", help="smoothed, davis-yin, perturbed, relaxed or exact")
    parser.add_argument("--positive", action="store_true", help="costs are known to be positive: predict no others")
    parser.add_argument(
        "--epochs", type=positive, help="of a run; default: 15, or more where few rows make for less than 300 steps"
    )
    parser.add_argument(
        "--lr", type=float, help="how far a step moves forecasts, in units of their error (default: several are tried)"
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="for all decision-focused runs (default: 3)")
    parser.add_argument("--refit", action="store_true", help="after choosing and testing, train again on all rows")
    add_part_options(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the parts and of training (default: 0)")
    add_solve_options(parser)


def train(options: argparse.Namespace) -> None:
    from dflearn.estimator import workflow
    from dflearn.solvers.task import DecisionTask

    check_output(options, "program", "features", "costs", "instances", "map")
    with in_options():
        workflow.check_choices(options.loss, options.layer)
        features, costs, instances = read_tables(options, options.id)
        assert costs is not None
        source = read_program(options, features, costs)
        program = source.program()
        result = workflow.train(
            program,
            features,
            costs,
            instances,
            losses=options.loss,
            layer=options.layer,
            positive=options.positive,
            epochs=options.epochs,
            lr=options.lr,
            test=options.test or 0.25,
            ordered=options.ordered,
            gap=options.gap,
            groups=options.groups,
            weights=read_weights(options, options.id),
            seed=options.seed,
            id_column=options.id,
            minutes=options.minutes,
            refit=options.refit,
            checkpoint=options.out.with_name(options.out.name + ".unfinished"),
            offset=source.offset,
            solver=spread(DecisionTask.of(program).solver, options),
            cache=cache_of(options),
        )
    result.save(options.out, {name: _plain(value) for name, value in vars(options).items() if name != "run"})
    print(f"{options.program}: {program.sense}, {program.n} variables, of which {program.p} have predicted costs")
    print(as_options(str(result)))
    regrets = ", ".join(f"{name} {judged.absolute_regret:.4g}" for name, judged in result.validation.items())
    print(
        f"\n{options.out}: the {result.chosen} model. Mean regret on the rows to choose by: {regrets}.\n"
        f"Next: dfl decide --model {options.out} --features NEW{options.features.suffix}"
        f"{'' if instances is None else ' --instances NEW_INSTANCES' + options.instances.suffix} --out decisions.csv"
    )


def read_program(options: argparse.Namespace, features: MixedTable, costs: Table) -> LinearModel:
    """The file, with the columns of the costs to predict; what HiGHS remarks about it is printed."""
    from dflearn.frontends.files import read_model

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            source = read_model(options.program, cost_map(options, costs.names))
        except (OptionError, ProgramError) as error:
            if not str(error).startswith("costs"):  # it is about the program alone
                raise
            hint = [name for name in costs.names if name in features.names]
            more = f"; if {hint[0]!r} names the rows, add --id {hint[0]}" if hint and options.id is None else ""
            said = str(error).removeprefix("costs: ")
            by = "" if options.map is None else f" by {options.map}"
            raise type(error)(f"{options.costs} with {options.program}{by}: {said}{more}") from error
    for warning in noted:
        print(f"note: {warning.message}")
    return source


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
