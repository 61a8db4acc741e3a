"""dfl demo: what decision-focused training buys, on the smallest shortest-path problem, with the paper's settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command, positive
from dflearn.errors import MissingExtraError


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "demo",
        demo,
        "train on a small shortest-path problem and show what it buys",
        "  dfl demo\n  dfl demo --epochs 5 --out somewhere",
    )
    parser.add_argument("--epochs", type=positive, default=25, help="default: 25, as in the paper")
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="folder of the page (default: demo)"
    )


def demo(options: argparse.Namespace) -> Answer:
    from dflearn.report.demo import NOTES, comparisons, demo_page, results
    from dflearn.report.render import render
    from dflearn.studies.demo import BATCH, LEARNING_RATE, run_demo

    print("Compiling, training and judging four methods takes half a minute, the first time a minute or two.\n")
    done = run_demo(options.epochs)
    problem = done.problem
    lines = [
        f"{problem.name}: paths through a grid, whose {problem.program.p} edge costs are predicted from 10 features.",
        f"{len(done.train)} instances to train on, {len(done.validation)} to validate, {len(done.test)} to test.",
        f"A linear model, Adam at {LEARNING_RATE}, batches of {BATCH}, {options.epochs} epochs.\n",
        render(*results(done)),
        "\n" + "\n".join(NOTES),
        "\nAgainst MSE, instance by instance (below zero: less regret):\n",
        render(*comparisons(done)),
    ]
    written = None
    try:
        written = demo_page(done).write(options.out / "index.html")
    except MissingExtraError:
        lines.append("\nFor a page with plots: pip install 'dflearn[plot]'")
    else:
        lines.append(f"\nThe page with the plots: {written}")
    methods = {
        name: {**method.judged.as_dict(), "seconds_per_epoch": method.seconds} for name, method in done.methods.items()
    }
    document = {"epochs": options.epochs, "methods": methods, "floor": done.floor.as_dict(), "page": written}
    return Answer("\n".join(lines), document)
