"""dfl evaluate: predicted costs in a file, judged by the decisions they lead to."""

from __future__ import annotations

import argparse
import csv
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.arguments import (
    add_command,
    add_problem_options,
    add_solve_options,
    cache_of,
    check_folder,
    problem_behind,
    spread,
    write_json,
)
from dflearn.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from dflearn.data import DecisionDataset

PARTS = ("all", "train", "validation", "test")


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "evaluate",
        evaluate,
        "judge predicted costs by the regret of the decisions they lead to",
        "  dfl evaluate predictions.csv --data labelled.npz --part test\n"
        "  dfl evaluate predictions.npz --data labelled.npz --json metrics.json\n\n"
        "A .csv file has one row per instance and one column per cost; a header is optional, and if it calls the\n"
        "first column id, rows are matched by instance id. A .npz file holds the array costs, optionally ids.\n"
        "Without ids the rows are those of --part, in order.",
    )
    parser.add_argument("predictions", type=Path, help="predicted costs, .csv or .npz")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="the data set with the true costs")
    parser.add_argument("--problem", help="which problem it is, for data that do not say so themselves")
    add_problem_options(parser)
    parser.add_argument(
        "--part",
        choices=PARTS,
        default="all",
        help="judge a part of the paper's split by the problem's seed (default: all)",
    )
    parser.add_argument("--pessimistic", action="store_true", help="also break ties against the prediction (slower)")
    parser.add_argument("--no-floor", action="store_true", help="do not decide with E[y | x] for comparison")
    parser.add_argument("--confidence", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the metrics to this file")
    add_solve_options(parser)


def evaluate(options: argparse.Namespace) -> None:
    import torch

    from dflearn import evaluation
    from dflearn.data import DecisionDataset

    if options.json:
        check_folder(options.json)
    costs, ids = read_predictions(options.predictions)
    dataset = DecisionDataset.load(options.data)
    problem = problem_behind(dataset, options)
    if options.part != "all":
        dataset = getattr(dataset.split(problem.seed), options.part)
    if ids is not None:
        dataset = _rows_with(dataset, ids, options.predictions)
    found = evaluation.evaluate(
        torch.as_tensor(costs),
        problem,
        dataset,
        spread(problem.solver(), options),
        cache=cache_of(options),
        pessimistic=options.pessimistic,
        floor=not options.no_floor,
        confidence=options.confidence,
    )
    print(found.summary())
    if options.json:
        write_json(options.json, found.as_dict())


def read_predictions(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Predicted costs, float64 `(count, p)`, and instance ids, int64 `(count,)`, where the file has them."""
    import numpy as np

    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                costs, ids = file["costs"].astype(np.float64), file.get("ids")
        elif path.suffix == ".csv":
            costs, ids = _read_csv(path)
        else:
            raise DataError("its name must end in .csv or .npz")
        if costs.ndim != 2 or (ids is not None and ids.shape != costs.shape[:1]):
            raise DataError(f"costs have shape {costs.shape}; one row per instance is wanted, and one id per row")
        return costs, None if ids is None else ids.astype(np.int64)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} holds no predictions that can be read: {error}") from error


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    import numpy as np

    with open(path, newline="") as file:
        first = next(csv.reader(file), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy only warns about an empty file
        numbers = np.loadtxt(path, delimiter=",", ndmin=2, skiprows=0 if _is_numeric(first) else 1)
    if not numbers.size:
        raise DataError("it has no rows")
    if first and first[0].strip().lower() == "id":
        return numbers[:, 1:], numbers[:, 0]
    return numbers, None


def _is_numeric(cells: list[str]) -> bool:
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def _rows_with(dataset: DecisionDataset, ids: np.ndarray, path: Path) -> DecisionDataset:
    """The instances with these ids, in this order."""
    place = {int(number): row for row, number in enumerate(dataset.ids)}
    missing = [int(number) for number in ids if int(number) not in place]
    if missing:
        raise DataError(f"{path} has {len(missing)} ids that the data lack, the first {missing[0]}")
    return dataset.subset([place[int(number)] for number in ids])
