"""dfl decide: decisions for new instances, by a model that dfl train saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dflearn.cli.arguments import add_command, add_worker_options, spread
from dflearn.cli.inputs import add_table_options, check_output, in_options, read_tables


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "decide",
        decide,
        "decide for new rows of features, with a saved model",
        "  dfl decide --model model.dfl --features new.csv --out decisions.csv\n"
        "  dfl decide --model model.dfl --features new.csv --costs true.csv --out judged.parquet\n\n"
        "One row per instance: its id if it has one, the status, the objective with the predicted costs, and a column\n"
        "per variable. With the true costs also the objective and the regret that the decision turned out to have.",
    )
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="a file that dfl train wrote")
    add_table_options(parser, costs="table of true costs, to report the regret", required=False)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .csv or .parquet file to write")
    parser.add_argument(
        "--partial", action="store_true", help="write rows without a decision too, empty, instead of stopping"
    )
    add_worker_options(parser)


def decide(options: argparse.Namespace) -> None:
    from dflearn.data.tables import check_writable
    from dflearn.estimator import decisions

    check_output(options, "model", "features", "costs", "instances")
    check_writable(options.out)
    with in_options(options.model):
        model = decisions.load(options.model)
        tables = read_tables(options, options.id or model.record_["id"])
        solver = spread(model.solver_, options)
        decided = decisions.decide(model, *tables, id_column=options.id, partial=options.partial, solver=solver)
    decided.save(options.out)
    print(f"{options.out}: {decided}")
