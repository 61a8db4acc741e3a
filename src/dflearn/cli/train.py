"""dfl train: from a model file and two tables to a trained model, in one command."""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dflearn.cli.arguments import add_command, add_solve_options, cache_of, positive, spread, table
from dflearn.cli.inputs import (
    Tables,
    add_table_options,
    check_output,
    check_solved,
    instance_of,
    places_of,
    read_tables,
)
from dflearn.errors import DataError, ProgramError

if TYPE_CHECKING:
    from dflearn.data import DecisionDataset
    from dflearn.data.tables import Table
    from dflearn.estimator import DecisionFocusedRegressor
    from dflearn.evaluation import Comparison, Evaluation
    from dflearn.frontends.linear_model import LinearModel
    from dflearn.program import Program
    from dflearn.solvers.base import Solver

LEAST_ROWS = 10  # below it, a test says nothing
EPOCHS, STEPS = 100, 1000  # of training, at least
BATCH, HELD_OUT = 32, 0.2  # rows in a step; share of the rows, those to test on apart, to choose by
AVERAGE, TWO_STAGE = "average costs", "two-stage"  # the other models are called by their losses
WORDS = {
    "mean_of_ratios": ("mean of regret / optimum", ".2%"),
    "ratio_of_sums": ("total regret / total optimum", ".2%"),
    "published_style": ("as in published tables, by 32 rows", ".2%"),
    "absolute_regret": ("mean regret", ".4g"),
    "exact_share": ("decisions without regret", ".1%"),
    "mse": ("mean squared error of costs", ".4g"),
}


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
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the model file to write")
    parser.add_argument(
        "--loss",
        nargs="+",
        default=["spo+", "sce"],
        metavar="NAME",
        help="one model is trained with each: spo+, sce (default: both), smoothed-spo+, fenchel-young, pfy, …",
    )
    parser.add_argument("--layer", default="auto", help="smoothed, davis-yin, perturbed, relaxed or exact")
    parser.add_argument("--model", choices=("linear", "mlp"), default="linear", help="kind of model (default: linear)")
    parser.add_argument("--positive", action="store_true", help="costs are known to be positive: predict no others")
    parser.add_argument(
        "--epochs", type=positive, help=f"default: {EPOCHS}, or more where few rows make for less than {STEPS} steps"
    )
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of Adam (default: 0.02)")
    parser.add_argument("--test", type=float, default=0.25, metavar="SHARE", help="of rows to test on (default: 0.25)")
    parser.add_argument("--ordered", action="store_true", help="test on the last rows, for rows in order of time")
    parser.add_argument("--seed", type=int, default=0, help="of the parts and of training (default: 0)")
    add_solve_options(parser)


def train(options: argparse.Namespace) -> None:
    import dflearn.estimator  # noqa: F401  # what can be wrong is told now rather than after an hour of solving
    from dflearn.estimator.choices import LAYERS, LOSSES

    check_output(options, "program", "features", "costs", "instances")
    losses = [loss for loss in LOSSES if loss != "mse"]
    for name, asked, known in (("loss", options.loss, losses), ("layer", [options.layer], ["auto", *LAYERS])):
        unknown = [one for one in asked if one not in known]
        if unknown:
            raise DataError(f"--{name} is one of {', '.join(known)}; got {unknown[0]!r}")
    tables = read_tables(options, options.id)
    if options.positive and tables.costs is not None:
        check_positive(tables.costs)
    training_rows, test_rows = parts(tables, options)
    source, program = read_program(options, tables)
    places = {} if tables.instances is None else places_of(tables.instances, source)
    data, solver = labelled(tables, program, places, options)
    rest, test = data.subset(training_rows), data.subset(test_rows)

    print(f"{options.program}: {program.sense}, {program.n} variables, of which {program.p} have predicted costs")
    models = {}
    for name, loss in {TWO_STAGE: "mse", **{loss: loss for loss in options.loss}}.items():
        with working(f"training the {name} model"):
            models[name] = fit(loss, program, rest, options)
    held_out = rest.subset(models[TWO_STAGE].held_out_)
    print(
        f"{len(data)} rows: {len(rest) - len(held_out)} to train on, {len(held_out)} to choose by, {len(test)} to test on"
    )
    for name in constant_features(tables):
        print(f"note: the feature {name!r} has the same value in all rows, so it tells nothing")
    with working("deciding with each model"):
        chosen_by = {name: judge(model.predict, program, held_out, solver, options) for name, model in models.items()}
        tested = {name: judge(model.predict, program, test, solver, options) for name, model in models.items()}
        average = rest.batch().require("costs").mean(0).numpy()
        baseline = judge(lambda x: np.tile(average, (len(x), 1)), program, test, solver, options)

    from dflearn.evaluation import compare

    regrets = {name: judged.absolute_regret for name, judged in chosen_by.items()}
    chosen = min(regrets, key=regrets.__getitem__)  # the first of equals, so two-stage where nothing is better
    focused = min(options.loss, key=regrets.__getitem__)
    difference = compare(tested[focused], tested[TWO_STAGE])
    print(
        f"\n{comparison_table({AVERAGE: baseline, **tested}, difference, focused)}\n\n{in_words(difference, focused)}"
    )
    if baseline.absolute_regret <= min(judged.absolute_regret for judged in tested.values()):
        print("note: none beats average costs: the features tell too little, or are too many for so few rows")
    below = [name for name, model in models.items() if model.predict(held_out.features.numpy()).min() < 0]
    if below and rest.batch().require("costs").min() > 0:
        print(f"note: all costs are positive, and predictions of {', '.join(below)} are not: see --positive")
    models[chosen].save(
        options.out,
        {
            "features": list(tables.features.names),
            "id": options.id,
            "instances": places,
            "offset": source.offset,
            "chosen": chosen,
            "compared": focused,
            "options": {name: _plain(value) for name, value in vars(options).items() if name != "run"},
            "validation": {name: judged.as_dict() for name, judged in chosen_by.items()},
            "test": {name: judged.as_dict() for name, judged in {AVERAGE: baseline, **tested}.items()},
            "difference": difference.as_dict(),
        },
    )
    print(
        f"\n{options.out}: the {chosen} model. Mean regret on the rows to choose by: "
        f"{', '.join(f'{name} {regret:.4g}' for name, regret in regrets.items())}.\n"
        f"Next: dfl decide --model {options.out} --features NEW{options.features.suffix}"
        f"{' --instances NEW_INSTANCES' + options.instances.suffix if places else ''} --out decisions.csv"
    )


def check_positive(costs: Table) -> None:
    negative = np.argwhere(costs.values < 0)
    if len(negative):
        row, column = negative[0]
        raise DataError(
            f"{costs.where(row)}, column {costs.names[column]!r} holds {costs.values[row, column]:g}, and --positive says "
            "that no cost is negative: leave it out"
        )


def working(what: str) -> Any:
    """While it lasts, a line on stderr, where that is a terminal."""
    from tqdm import tqdm

    return tqdm(desc=what, bar_format="{desc} …", leave=False, disable=None)


def parts(tables: Tables, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """The rows to train on and choose by, and those to test on."""
    rows = len(tables.features)
    if rows < LEAST_ROWS:
        raise DataError(
            f"{options.features} has {rows} rows; to train, choose and test, {LEAST_ROWS} is the least, and some hundreds "
            "are better"
        )
    count = round(options.test * rows)
    if not 2 <= count <= rows // 2:
        raise DataError(
            f"--test {options.test} of {rows} rows is {count}: at least 2, and at most half of them, can test"
        )
    order = np.arange(rows) if options.ordered else np.random.RandomState(options.seed).permutation(rows)
    return order[:-count], order[-count:]


def read_program(options: argparse.Namespace, tables: Tables) -> tuple[LinearModel, Program]:
    """The file, and the program in which the columns of the costs are predicted."""
    from dflearn.frontends.files import read_model

    assert tables.costs is not None
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            source = read_model(options.program, {name: {name: 1.0} for name in tables.costs.names})
        except ProgramError as error:
            if not str(error).startswith("costs"):  # it is about the program alone
                raise
            hint = [name for name in tables.costs.names if name in tables.features.names]
            more = f"; if {hint[0]!r} names the rows, add --id {hint[0]}" if hint and options.id is None else ""
            said = str(error).removeprefix("costs: ")
            raise ProgramError(f"{options.costs} with {options.program}: {said}{more}") from error
    for warning in noted:
        print(f"note: {warning.message}")
    return source, source.program()


def labelled(
    tables: Tables, program: Program, places: dict[str, Any], options: argparse.Namespace
) -> tuple[DecisionDataset, Solver]:
    """The instances with their optimal decisions, and the exact solver that found them."""
    import torch

    from dflearn.data import DecisionDataset
    from dflearn.data.labels import solve_cached
    from dflearn.solvers.highs import HiGHS

    assert tables.costs is not None
    instance = instance_of(tables.instances, places, program)
    costs = torch.tensor(tables.costs.columns(program.cost_names or (), "the program"))
    solver = spread(HiGHS(program), options)
    solution = solve_cached(solver, costs, instance, cache=cache_of(options))
    check_solved(solution, tables, "optimal decision with the true costs")
    return DecisionDataset(torch.tensor(tables.features.values), costs, solution.decision, instance), solver


def fit(loss: str, program: Program, data: DecisionDataset, options: argparse.Namespace) -> DecisionFocusedRegressor:
    from dflearn.estimator import DecisionFocusedRegressor

    assert data.costs is not None
    assert data.decisions is not None
    regressor = DecisionFocusedRegressor(
        program,
        loss=loss,
        layer=options.layer,
        model=options.model,
        standardize=True,
        positive=options.positive,
        epochs=options.epochs or max(EPOCHS, math.ceil(STEPS * BATCH / ((1 - HELD_OUT) * len(data)))),
        batch_size=BATCH,
        validation_fraction=HELD_OUT,
        lr=options.lr,
        early_stopping=None,
        random_state=options.seed,
    )
    X, y, decisions = (part.numpy() for part in (data.features, data.costs, data.decisions))
    return regressor.fit(X, y, decisions=decisions, instance=data.instance)


def judge(
    predict: Any, program: Program, data: DecisionDataset, solver: Solver, options: argparse.Namespace
) -> Evaluation:
    from dflearn.evaluation import evaluate

    predicted = predict(data.features.numpy())
    return evaluate(predicted, program, data, solver, cache=cache_of(options), progress=False)


def constant_features(tables: Tables) -> list[str]:
    table = tables.features
    return [name for name, column in zip(table.names, table.values.T, strict=True) if (column == column[0]).all()]


def comparison_table(tested: dict[str, Evaluation], difference: Comparison, focused: str) -> str:
    rows = []
    for metric, (words, form) in WORDS.items():
        cells = [_cell(judged.metrics[metric].value, form) for judged in tested.values()]
        between = ""
        if hasattr(difference, metric):
            value, low, high = (_cell(number, f"+{form}") for number in getattr(difference, metric))
            between = f"{value} [{low}, {high}]"
        rows.append([words, *cells, between])
    last = f"{focused} − {TWO_STAGE} [{difference.confidence:.0%} interval]"
    return table(["on the test rows", *tested, last], rows)


def in_words(difference: Comparison, focused: str) -> str:
    """What the comparison says, and how surely."""
    value, low, high = difference.absolute_regret
    counts = f"less regret on {difference.wins} rows, the same on {difference.ties}, more on {difference.losses}"
    if low <= 0 <= high:
        verdict = "The difference may be chance: its interval holds zero. More rows would tell."
    else:
        verdict = f"Decision-focused training {'lowers' if value < 0 else 'raises'} the regret, beyond chance."
    return f"{focused} against {TWO_STAGE}: {counts}.\n{verdict}"


def _cell(number: float, form: str) -> str:
    return format(number, form) if np.isfinite(number) else "unknown"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
