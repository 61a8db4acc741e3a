"""Arguments and small services that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.errors import OptionError
from dflearn.files import write_whole

if TYPE_CHECKING:
    from dflearn.cli.answers import Answer
    from dflearn.data import DecisionDataset
    from dflearn.problems.base import Problem
    from dflearn.solvers.base import Solver


Run = Callable[[argparse.Namespace], "Answer"]


def add_command(
    commands: Any, name: str, run: Run, summary: str, examples: str = "", *, json_file: bool = False
) -> argparse.ArgumentParser:
    """One command: its help shows `summary` and the examples. json_file: whether `--json` may also name a file."""
    parser = commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:],
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if json_file:
        parser.add_argument(
            "--json",
            nargs="?",
            type=Path,
            const=True,
            metavar="FILE",
            help="answer with one JSON document on stdout; with a FILE (after all else), print, and write it there too",
        )
    else:
        parser.add_argument("--json", action="store_true", help="answer with one JSON document on stdout")
    parser.set_defaults(run=run, command=parser.prog)
    return parser


def add_problem_options(parser: argparse.ArgumentParser, *, features: bool = True) -> None:
    """The options that, with its name, say which problem is meant."""
    parser.add_argument("--seed", type=int, help="seed of the problem (default: 1)")
    parser.add_argument("--degree", type=int, help="degree of the true model of the costs (default: as in the paper)")
    parser.add_argument("--noise", type=float, help="half-width of the multiplicative noise (default: as in the paper)")
    if features:
        parser.add_argument("--features", type=int, help="number of features (default: as in the paper)")


def problem_of(options: argparse.Namespace) -> Problem:
    """The problem that the options name."""
    from dflearn.problems import problem_named

    return problem_named(options.problem, **{"seed": 1, **_given(options)})


def problem_behind(dataset: DecisionDataset, options: argparse.Namespace) -> Problem:
    """The problem that a data file says it comes from, or else the one that the options name; they must not disagree."""
    from dflearn.problems import problem_of_origin

    if not dataset.origin:
        if options.problem is None:
            raise OptionError("this file does not say which problem its data come from: add --problem NAME --seed SEED")
        return problem_of(options)
    problem = problem_of_origin(dataset.origin)
    asked = _given(options) | ({} if options.problem is None else {"problem": options.problem})
    wrong = {name: value for name, value in asked.items() if value != dataset.origin.get(name)}
    if wrong:
        raise OptionError(
            f"the data come from {problem.name} with seed {problem.seed}, and the command says "
            + ", ".join(f"{name} {value}" for name, value in wrong.items())
            + ": leave these options out"
        )
    return problem


def _given(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in ("seed", "degree", "noise", "features")}
    return {name: value for name, value in given.items() if value is not None}


def add_solve_options(parser: argparse.ArgumentParser) -> None:
    """How solves are carried out and remembered."""
    add_worker_options(parser)
    add_cache_options(parser)


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Who solves; `spread` reads these."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--workers", type=positive, default=1, help="instances solved side by side (default: 1)")
    add_ray_options(parser, how)


def add_ray_options(parser: argparse.ArgumentParser, instead: Any) -> None:
    """A Ray cluster, instead of the other options of a group: where it is, and what a task there may take."""
    instead.add_argument(
        "--executor", choices=("local", "ray"), default="local", help="this machine (default), or a Ray cluster"
    )
    parser.add_argument("--address", help="of the cluster: host:port, or auto (default: start one on this machine)")
    parser.add_argument(
        "--memory", type=float, default=2.0, metavar="GIB", help="declared for each task on the cluster (default: 2)"
    )


def add_cache_options(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder that remembers exact solves (default: $DFLEARN_CACHE or ~/.cache/dflearn)",
    )
    where.add_argument("--no-cache", action="store_true", help="remember no solves")


def cache_of(options: argparse.Namespace) -> Path | None:
    from dflearn.data.cache import default_cache

    if options.no_cache:
        return None
    return options.cache or default_cache()


def on_ray(options: argparse.Namespace) -> bool:
    """Whether the options of `add_ray_options` ask for a cluster."""
    if options.address is not None and options.executor != "ray":
        raise OptionError("--address is that of a Ray cluster: add --executor ray")
    return options.executor == "ray"


def spread(solver: Solver, options: argparse.Namespace) -> Solver:
    """The solver, on as many workers as the options of `add_worker_options` say."""
    if on_ray(options):
        from dflearn.integrations.ray import GIGABYTE, OnRay

        return OnRay(solver, options.address, options.memory * GIGABYTE)
    if options.workers == 1:
        return solver
    from dflearn.solvers.wrappers import Parallel

    return Parallel(solver, options.workers)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def write_json(path: Path, content: Any) -> None:
    """The file appears whole or not at all."""
    write_whole(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
