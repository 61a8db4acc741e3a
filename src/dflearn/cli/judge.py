"""dfl evaluate: predicted costs in files, judged by the decisions they lead to, on a data set or on a program of your own."""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import (
    add_command,
    add_problem_options,
    add_solve_options,
    cache_of,
    problem_behind,
    spread,
    write_json,
)
from dflearn.cli.checks import check_inputs
from dflearn.cli.inputs import (
    add_mapping_option,
    add_recourse_options,
    add_row_options,
    in_options,
    read_tables,
    with_slack,
)
from dflearn.errors import DataError, OptionError
from dflearn.files import check_writable
from dflearn.reading import UNREADABLE, check_dense, read_npz

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
        "  dfl evaluate predictions.npz --data labelled.npz --json metrics.json\n"
        "  dfl evaluate --program model.mps --costs y.csv --predictions old.csv new.csv --id day\n\n"
        "A .csv file has one row per instance and one column per cost; a header is optional, and if it calls the\n"
        "first column id, rows are matched by instance id. A .npz file holds the array costs, optionally ids.\n"
        "Without ids the rows are those of --part, in order.\n\n"
        "With --program, the tables of forecasts and of true costs have named columns, the variables whose cost they\n"
        "are; of several forecasts, the others are compared with the first, row by row.",
        json_file=True,
    )
    parser.add_argument("predictions", type=Path, nargs="?", help="predicted costs, .csv or .npz")
    parser.add_argument(
        "--predictions",
        dest="forecasts",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="the same; with --program, one or several tables of forecasts, .csv or .parquet",
    )
    parser.add_argument("--data", type=Path, metavar="FILE", help="the data set with the true costs")
    parser.add_argument("--problem", help="which problem it is, for data that do not say so themselves")
    add_problem_options(parser, features=False)
    parser.add_argument(
        "--features",
        metavar="NUMBER|FILE",
        help="number of features (default: as in the paper); with --program, a table whose rows the others must have",
    )
    parser.add_argument(
        "--part",
        choices=PARTS,
        default="all",
        help="judge a part of the paper's split by the problem's seed (default: all)",
    )
    own = parser.add_argument_group("on a program of your own")
    own.add_argument(
        "--program", type=Path, metavar="FILE", help="judge on this program, .mps or .lp (or .gz), instead"
    )
    own.add_argument("--costs", type=Path, metavar="FILE", help="table of true costs, .csv or .parquet")
    add_row_options(parser)
    add_mapping_option(parser)
    add_recourse_options(parser)
    parser.add_argument("--pessimistic", action="store_true", help="also break ties against the prediction (slower)")
    parser.add_argument("--no-floor", action="store_true", help="do not decide with E[y | x] for comparison")
    parser.add_argument("--confidence", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    add_solve_options(parser)


def evaluate(options: argparse.Namespace) -> Answer:
    if isinstance(options.json, Path):
        check_writable(options.json)
    given = [*([] if options.predictions is None else [options.predictions]), *options.forecasts]
    if not given:
        raise OptionError("nothing is there to judge: name a file of predictions")
    if not 0 < options.confidence < 1:
        raise OptionError(f"--confidence lies strictly between 0 and 1, got {options.confidence}")
    answer = _on_own_program(options, given) if options.program is not None else _on_data(options, given)
    if isinstance(options.json, Path):
        write_json(options.json, answer.document)
    return answer


def _on_data(options: argparse.Namespace, given: list[Path]) -> Answer:
    for name in ("costs", "instances", "id", "map"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name} tells about the tables of a program of your own: add --program FILE")
    if options.data is None:
        raise OptionError("nothing tells the true costs: add --data FILE, or --program FILE with --costs FILE")
    if len(given) > 1:
        raise OptionError("several predictions are compared with --program; with --data, name one")
    options.features = count_of(options.features, "--program")
    costs, ids = read_predictions(given[0])
    with open(options.data, "rb"):  # a missing file is told before anything heavy is loaded
        pass

    import torch

    from dflearn import evaluation
    from dflearn.data import DecisionDataset

    dataset = DecisionDataset.load(options.data)
    problem = problem_behind(dataset, options)
    if options.part != "all":
        dataset = getattr(dataset.split(problem.seed), options.part)
    if ids is not None:
        dataset = _rows_with(dataset, ids, given[0])
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
    return Answer(found.summary(), found.as_dict())


def _on_own_program(options: argparse.Namespace, given: list[Path]) -> Answer:
    """Forecasts from anywhere, on a program and true costs of one's own."""
    from dflearn.cli.train import read_program
    from dflearn.tables.tables import Tables, read_table

    for name in ("data", "problem"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name} and --program are two things to judge on: name one")
    if options.costs is None:
        raise OptionError("--program also needs --costs: the table of true costs")
    options.features = None if options.features is None else Path(options.features)
    check_inputs(options, "program", "costs", "features", "instances", "map")
    for path in given:
        check_inputs(argparse.Namespace(predictions=path), "predictions")
    with in_options():
        costs = read_table(options.costs, options.id)
        if options.features is not None:
            costs = costs.aligned_with(read_tables(options, options.id)[0])
        forecasts = {str(path): read_table(path, options.id) for path in given}
        instances = None if options.instances is None else read_table(options.instances, options.id, infinite=True)
        source = read_program(options, None, costs)
        wanted = {"costs": source.coefficients.names}
        true = Tables.of(
            {"features": costs, "costs": costs, "instances": instances}, options.id, wanted, str(options.program)
        )
        judged_tables = {
            name: Tables.of({"features": costs, "costs": one}, options.id, wanted, str(options.costs)).costs
            for name, one in forecasts.items()
        }

        import torch

        from dflearn import evaluation
        from dflearn.data import DecisionDataset
        from dflearn.data.labels import label
        from dflearn.solvers.task import DecisionTask

        program = with_slack(source.program(), options)
        assert true.costs is not None
        y = torch.tensor(true.costs.values)
        data = DecisionDataset(torch.zeros(len(y), 0, dtype=torch.float64), y, instance=true.instance(program))
        solver = spread(DecisionTask.of(program).solver, options)
        data = label(data, solver, cache=cache_of(options))
        predicted = {name: torch.tensor(one.values) for name, one in judged_tables.items() if one is not None}
        predicted["average costs"] = y.mean(0).expand_as(y)
        judged = {
            name: evaluation.evaluate(
                costs,
                program,
                data,
                solver,
                cache=cache_of(options),
                pessimistic=options.pessimistic,
                confidence=options.confidence,
            )
            for name, costs in predicted.items()
        }
    names = list(forecasts)
    compared = {name: evaluation.compare(judged[name], judged[names[0]]) for name in names[1:]}
    lines = [f"{name}\n{one}" for name, one in judged.items()]
    lines[-1] += "\n  (the mean of the true costs of these very rows, for comparison)"
    lines += [f"{name} − {names[0]}: {one}" for name, one in compared.items()]
    document = {
        "program": str(options.program),
        "predictions": {name: judged[name].as_dict() for name in names},
        "average_costs": judged["average costs"].as_dict(),
        "compared_with": names[0],
        "differences": {name: one.as_dict() for name, one in compared.items()},
    }
    return Answer("\n\n".join(lines), document)


def count_of(text: str | None, unless: str) -> int | None:
    """--features as a number."""
    try:
        return None if text is None else int(text)
    except ValueError as error:
        raise OptionError(f"--features is a number, unless {unless} is given; got {text!r}") from error


def read_predictions(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Predicted costs, float64 `(count, p)`, and instance ids, int64 `(count,)`, where the file has them."""
    import numpy as np

    try:
        if path.suffix == ".npz":
            arrays = read_npz(path)
            costs = check_dense(arrays, "costs", "numbers of any kind", (None, None)).astype(np.float64)
            ids = check_dense(arrays, "ids", "whole numbers", (len(costs),)) if "ids" in arrays else None
        elif path.suffix == ".csv":
            costs, ids = _read_csv(path)
        else:
            raise DataError("its name must end in .csv or .npz")
        if costs.ndim != 2 or (ids is not None and ids.shape != costs.shape[:1]):
            raise DataError(f"costs have shape {costs.shape}; one row per instance is wanted, and one id per row")
        return costs, None if ids is None else ids.astype(np.int64)
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
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
