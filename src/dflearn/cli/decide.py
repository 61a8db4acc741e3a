"""dfl decide: decisions for new instances, by a model that dfl train saved."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dflearn.cli.arguments import add_command, add_worker_options, spread
from dflearn.cli.inputs import add_table_options, check_output, check_solved, instance_of, load_model, tables_for
from dflearn.data.tables import check_writable, write_table

if TYPE_CHECKING:
    from dflearn.program import Program
    from dflearn.solvers.base import Solution


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
    import torch

    check_output(options, "model", "features", "costs", "instances")
    check_writable(options.out)
    regressor, program = load_model(options.model)
    record, solver = regressor.record_, spread(regressor.solver_, options)
    tables = tables_for(record, options)
    instance = instance_of(tables.instances, record["instances"], program)
    predicted = regressor.predict(tables.features.columns(record["features"], "the features in training"))
    solution = solver.solve(torch.tensor(predicted), instance)
    if not options.partial:
        check_solved(solution, tables, "decision with the predicted costs")
    columns: dict[str, Any] = {}
    if tables.features.ids is not None:
        columns[options.id or record["id"]] = tables.features.ids
    columns["status"] = statuses(solution)
    columns["predicted_objective"] = in_own_sense(solution.objective, program, record["offset"])
    if tables.costs is not None:
        costs = torch.tensor(tables.costs.columns(program.cost_names or (), "the costs in training"))
        best = solver.solve(costs, instance)
        if not options.partial:
            check_solved(best, tables, "optimal decision with the true costs")
        reached = program.objective(costs, solution.decision, instance)
        columns["true_objective"] = in_own_sense(reached, program, record["offset"])
        columns["regret"] = program.objective(costs, solution.decision - best.decision, instance).numpy()
    taken = {*columns}
    for name, values, whole in zip(
        program.variable_names or (), solution.decision.numpy().T, program.integer, strict=True
    ):
        decided = np.rint(values).astype(np.int64) if whole and np.isfinite(values).all() else values + 0.0
        columns[f"{name} (variable)" if name in taken else name] = decided
    write_table(options.out, {name: plain(cells) for name, cells in columns.items()})

    counts = ", ".join(f"{number} {name.lower()}" for name, number in solution.counts().items())
    print(f"{options.out}: {len(tables.features)} decisions, {counts}")
    if tables.costs is not None:
        regret = np.nansum(columns["regret"])
        optimum = np.nansum(np.abs(program.objective(costs, best.decision, instance).numpy()))
        print(f"mean regret {np.nanmean(columns['regret']):.4g}, total regret / total optimum {regret / optimum:.2%}")


def statuses(solution: Solution) -> list[str]:
    from dflearn.solvers.base import Status

    return [Status(code).name.lower() for code in solution.status.tolist()]


def in_own_sense(objective: Any, program: Program, offset: float) -> np.ndarray:
    """An objective as the program's file states it: its own sense, its constant included."""
    return (-1 if program.sense == "maximize" else 1) * objective.numpy() + offset + 0.0


def plain(cells: Sequence[Any] | np.ndarray) -> list[Any]:
    """Python's own numbers, which CSV writes in full."""
    return cells.tolist() if isinstance(cells, np.ndarray) else list(cells)
