"""Arguments and small services that several commands share."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.errors import DataError

if TYPE_CHECKING:
    from dflearn.problems.base import Problem
    from dflearn.solvers.base import Solver


def add_command(commands: Any, name: str, run: Any, summary: str, examples: str = "") -> argparse.ArgumentParser:
    """One command: its help shows `summary` and the examples."""
    parser = commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:],
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_problem_options(parser: argparse.ArgumentParser) -> None:
    """The options that, with its name, say which problem is meant."""
    parser.add_argument("--seed", type=int, default=1, help="seed of the problem (default: 1)")
    parser.add_argument("--degree", type=int, help="degree of the true model of the costs (default: as in the paper)")
    parser.add_argument("--noise", type=float, help="half-width of the multiplicative noise (default: as in the paper)")
    parser.add_argument("--features", type=int, help="number of features (default: as in the paper)")


def problem_of(options: argparse.Namespace) -> Problem:
    from dflearn.problems import problem_named

    given = {name: getattr(options, name) for name in ("degree", "noise", "features")}
    return problem_named(options.problem, seed=options.seed, **{name: v for name, v in given.items() if v is not None})


def add_solve_options(parser: argparse.ArgumentParser) -> None:
    """How solves are carried out and remembered."""
    parser.add_argument("--workers", type=positive, default=1, help="instances solved side by side (default: 1)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder that remembers solves (default: $DFLEARN_CACHE or ~/.cache/dflearn)",
    )
    where.add_argument("--no-cache", action="store_true", help="remember no solves")


def cache_of(options: argparse.Namespace) -> Path | None:
    from dflearn.labels import default_cache

    if options.no_cache:
        return None
    return options.cache or default_cache()


def parallel(solver: Solver, workers: int) -> Solver:
    if workers == 1:
        return solver
    from dflearn.solvers.wrappers import Parallel

    return Parallel(solver, workers)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def check_folder(path: Path) -> None:
    """An error now rather than after an hour of solving."""
    if not path.absolute().parent.is_dir():
        raise DataError(f"the folder of {path} does not exist")


def write_json(path: Path, content: Any) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns with aligned text: the first to the left, the others to the right."""
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    line = lambda row: "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()  # noqa: E731
    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])
