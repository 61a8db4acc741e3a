"""The command `dfl`: thin wrappers around the library, one module per group of commands."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dflearn._version import __version__
from dflearn.cli.answers import document_text, only_the_answer
from dflearn.errors import DflearnError

EPILOG = """\
examples:
  dfl demo                                    what decision-focused training buys, in half a minute
  dfl train --program model.mps --features x.csv --costs y.csv --out model.dfl
  dfl decide --model model.dfl --features new.csv --out decisions.csv
  dfl problems                                the named problems and their sizes
  dfl methods                                 the losses by name, with what each needs and costs
  dfl generate SP-5 --seed 1 --out data.npz
  dfl label data.npz --out labelled.npz
  dfl evaluate predictions.csv --data labelled.npz
  dfl doctor SP-5 --loss regret --mu 0.01     why training does not move, and what to change
  dfl run experiment.toml                     a grid of runs, kept in a store and never repeated
  dfl paper table sp --sizes 5 --seeds 1      the paper's tables, made anew
  dfl report experiment.toml -o report.html   what a study shows, as one page
  dfl bench epochs --quick                    how fast, against its peers (in a checkout)
  dfl compile                                 compile the kernels now, so that no first call waits for it
  dfl completion bash                         the Tab key knows all of this

every command takes --json: one JSON document on stdout instead of its text, and everything else on stderr
exit status: 0 done; 1 an error, said in one line on stderr; 2 wrong usage; 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = parser().parse_args(arguments)
    alone = options.json is True
    try:
        with only_the_answer(alone), _plain_notes():
            answer = options.run(options)
        if alone or answer.text:
            print(document_text(options.command, answer.document) if alone else answer.text)
        sys.stdout.flush()
        if answer.error is not None:
            raise answer.error
        return 0
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (DflearnError, OSError) as error:
        if options.debug:
            raise
        print(f"dfl: error: {' '.join(_said(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if options.debug:
            raise
        print("dfl: interrupted", file=sys.stderr)
        return 130


@contextmanager
def _plain_notes() -> Iterator[None]:
    """Warnings of the library, that would come with a line of its source, as a note each, and once."""
    told: set[str] = set()

    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        from dflearn.cli.inputs import as_options

        text = as_options(" ".join(str(message).split()))
        if text not in told:
            told.add(text)
            print(f"note: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = note
        yield


def _said(error: Exception) -> str:
    """An error of the system begins with its file."""
    if isinstance(error, OSError) and not isinstance(error, DflearnError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from dflearn.cli import (
        bench,
        compile,
        completion,
        data,
        decide,
        demo,
        doctor,
        judge,
        methods,
        paper,
        report,
        studies,
        train,
    )

    whole = argparse.ArgumentParser(
        prog="dfl",
        description="Decision-focused learning for linear and mixed-integer programs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"dfl {__version__}")
    whole.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        demo,
        train,
        decide,
        data,
        methods,
        judge,
        doctor,
        studies,
        paper,
        report,
        bench,
        compile,
        completion,
    ):
        module.add_commands(commands)
    return whole
