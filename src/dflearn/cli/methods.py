"""dfl methods."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command
from dflearn.report.render import render


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "methods",
        methods,
        "list the losses by name, with what each needs and costs",
        "  dfl methods                  one line each\n"
        "  dfl methods pg lava          these, with paper, line of code, and their names in PyEPO and in studies\n\n"
        "dfl train --loss NAME and DecisionFocusedRegressor(loss=NAME) take the names.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods to tell more about, by any of their names")


def methods(options: argparse.Namespace) -> Answer:
    from dflearn.errors import OptionError
    from dflearn.tables.methods import METHODS, MethodEntry

    def called(entry: MethodEntry) -> set[str]:
        return {name.lower() for name in (entry.name, entry.study, entry.pyepo) if name}

    if not options.names:
        rows = [
            [entry.name, entry.title, ", ".join(entry.needs), entry.solves, "yes" if entry.convex else "no", entry.tune]
            for entry in METHODS
        ]
        text = render(["name", "method", "needs", "solves", "convex", "to tune"], rows)
        return Answer(text, {"methods": [asdict(entry) for entry in METHODS]})
    chosen = []
    for name in options.names:
        found = [entry for entry in METHODS if name.lower() in called(entry)]
        if not found:
            raise OptionError(f"no method is named {name!r}; dfl methods lists them")
        chosen += found
    return Answer("\n\n".join(map(_told, chosen)), {"methods": [asdict(entry) for entry in chosen]})


def _told(entry: Any) -> str:
    lines = {
        "paper": entry.paper,
        "needs": ", ".join(entry.needs),
        "solves": f"{entry.solves} per instance and step",
        "convex": "yes" if entry.convex else "no",
        "to tune": entry.tune,
        "code": entry.code,
        "PyEPO": entry.pyepo or "–",
        "studies": entry.study or "–",
    }
    return "\n".join([f"{entry.name}: {entry.title}", *(f"  {name:<8} {value}" for name, value in lines.items())])
