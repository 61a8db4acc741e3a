"""The command `dfl`. Each subcommand is a dataclass of its options with a method `run`; cyclopts parses the words into it."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

from cyclopts import App, CycloptsError, Parameter

from dflearn._version import __version__
from dflearn.cli.answers import error_document, error_text, is_unicode, print_document, warnings_as_notes
from dflearn.cli.options import Command
from dflearn.errors import DflearnError

HELP = """\
Decision-focused learning for linear and mixed-integer programs.

examples:
  dfl demo
  dfl train --program model.mps --features x.csv --costs y.csv --out model.dfl
  dfl decide --model model.dfl --features new.csv --out decisions.csv
  dfl run experiment.toml

With --json, a command prints one JSON document in place of text; notes and progress
go to stderr.
Exit status: 0 done; 1 error (one line on stderr); 2 wrong usage; 130 interrupted."""

# The commands of each module, which is imported when one of them is called; a command is the class of its name.
COMMANDS = {
    "tools": ("demo", "compile", "bench", "completion"),
    "train": ("train", "decide"),
    "data": ("problems", "generate", "label", "methods"),
    "evaluate": ("evaluate",),
    "doctor": ("doctor",),
    "studies": ("run", "status", "export", "report"),
    "paper": ("list", "table", "summary", "all", "cost", "figure", "report"),
}


def application() -> App:
    """All commands and their options."""
    app = App(
        name="dfl",
        help=HELP,
        help_format="plaintext",
        version=f"dfl {__version__}",
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        default_parameter=Parameter(negative=(), allow_repeating=True, show_default=False),
    )
    app.command(App(name="paper", help="Reproduce the paper's tables and figures."))
    for module, names in COMMANDS.items():
        for name in names:
            place = app["paper"] if module == "paper" else app
            place.command(f"dflearn.cli.{module}:{name.capitalize()}", name=name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not is_unicode(stream):
            stream.reconfigure(errors="replace")  # a question mark for what PYTHONIOENCODING=ascii, say, lacks
    words, app = list(sys.argv[1:] if arguments is None else arguments), application()
    if words[:1] == ["--debug"]:
        words = [*words[1:], "--debug"]
    if (helping := {"--help", "-h"} & {*words}) or len(words) < 2:
        for shown in (app, app["paper"]):
            shown.resolved_commands()  # a help page shows the first line of each
    called = " ".join(["dfl", *(word for word in app.parse_commands(words)[0] if not word.startswith("-"))])
    try:
        command = app(words)
    except CycloptsError as error:
        message = re.sub(r'^Command ".*?" parameter ', "", error_text(error))
        message = message.replace("requires an argument", "is missing, or has no value")
        remedy = f"{called} --help"
        if "--json" in words:
            print_document(called, {"error": {"type": "UsageError", "message": message, "remedy": remedy}})
        print(f"{called}: error: {message} See {remedy}.", file=sys.stderr)
        return 2
    if not isinstance(command, Command):  # a help page or the version was printed
        return 0 if helping or "--version" in words else 2
    try:
        status = answer(command, called)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def answer(command: Command, called: str) -> int:
    """Run the command, print its answer, and return the exit status."""
    alone = command.json is True  # nothing but the document on stdout
    error: BaseException | None
    try:
        with redirect_stdout(sys.stderr) if alone else nullcontext(), warnings_as_notes():
            text, document, error = command.run()
    except BrokenPipeError:
        raise
    except (DflearnError, OSError, KeyboardInterrupt) as stop:
        text, document, error = "", {}, stop
    if alone:
        print_document(called, document if error is None else {**document, **error_document(error)})
    elif text:
        print(text)
    if error is None:
        return 0
    if command.debug:
        raise error
    interrupted = isinstance(error, KeyboardInterrupt)
    print("dfl: interrupted" if interrupted else f"dfl: error: {error_text(error)}", file=sys.stderr)
    return 130 if interrupted else 1
