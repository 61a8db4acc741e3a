"""dfl decide: decisions for new instances, by a model that dfl train saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command, add_worker_options, spread
from dflearn.cli.checks import add_trust_option, check_inputs, check_output, load_model
from dflearn.cli.inputs import add_table_options, in_options, read_tables

if TYPE_CHECKING:
    from dflearn.tables import Decisions


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
    add_trust_option(parser)
    add_worker_options(parser)


def decide(options: argparse.Namespace) -> Answer:
    from dflearn.tables.tables import check_writable

    check_output(options, "model", "features", "costs", "instances")
    check_writable(options.out)
    check_inputs(options, "model", "features", "costs", "instances")

    from dflearn.tables import decisions

    with in_options(options.model):
        model = load_model(options)
        tables = read_tables(options, options.id or model.record_["id"])
        solver = spread(model.solver_, options)
        decided = decisions.decide(model, *tables, id_column=options.id, partial=options.partial, solver=solver)
    decided.save(options.out)
    document = {
        "out": options.out,
        "model": options.model,
        "chosen": model.record_["chosen"],
        "decisions": len(decided.solution.status),
        "statuses": {name.lower(): number for name, number in decided.solution.counts().items()},
        **_worth(decided),
    }
    return Answer(f"{options.out}: {decided}", document)


def _worth(decided: Decisions) -> dict[str, float | None]:
    """What the decisions turned out to be worth, where the true costs are known."""
    import numpy as np

    if decided.optima is None:
        return {"mean_regret": None, "ratio_of_sums": None}
    regret = np.array(decided.columns["regret"])
    total = float(np.nansum(np.abs(decided.optima)))
    return {
        "mean_regret": float(np.nanmean(regret)),
        "ratio_of_sums": float(np.nansum(regret)) / total if total > 0 else None,
    }
