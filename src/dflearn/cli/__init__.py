"""The command `dfl`: thin wrappers around the library, one module per group of commands."""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from dflearn._version import __version__
from dflearn.cli.answers import document_text, error_document, only_the_answer, said
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

every command takes --json: one JSON document on stdout instead of its text (after an error, with the key error), and
everything else on stderr
exit status: 0 done; 1 an error, said in one line on stderr; 2 wrong usage; 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    _print_what_can_be()
    options = parser().parse_args(arguments)
    alone = options.json is True
    try:
        with only_the_answer(alone), _plain_notes():
            answer = options.run(options)
        if alone:
            content = answer.document if answer.error is None else {**answer.document, **error_document(answer.error)}
            _print_document(options, content)
        elif answer.text:
            print(answer.text)
        sys.stdout.flush()
        if answer.error is not None:
            return _failed(options, answer.error, told=True)
        return 0
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (DflearnError, OSError) as error:
        return _failed(options, error, told=not alone)
    except KeyboardInterrupt as error:
        if options.debug:
            raise
        if alone:
            _print_document(options, error_document(error))
        print("dfl: interrupted", file=sys.stderr)
        return 130


def _failed(options: argparse.Namespace, error: Exception, told: bool) -> int:
    """The exit status of an error, which is said on stderr, and in the document where it is not told there yet."""
    if options.debug:
        raise error
    if not told:
        _print_document(options, error_document(error))
    print(f"dfl: error: {' '.join(said(error).split())}", file=sys.stderr)
    return 1


def _print_document(options: argparse.Namespace, content: Mapping[str, Any]) -> None:
    print(document_text(options.command, content, ascii_only=not _any_character(sys.stdout)))


def _print_what_can_be() -> None:
    """Where an encoding lacks a character (PYTHONIOENCODING=ascii), a question mark takes its place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _any_character(stream):
            stream.reconfigure(errors="replace")


def _any_character(stream: TextIO) -> bool:
    return (stream.encoding or "utf-8").lower().startswith("utf")


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


class _Parser(argparse.ArgumentParser):
    """Wrong usage (exit status 2) is a document too, where `--json` asks for one."""

    json_wanted = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        _Parser.json_wanted = "--json" in (sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if _Parser.json_wanted:
            told = {"type": "UsageError", "message": message, "remedy": f"{self.prog} --help"}
            print(document_text(self.prog, {"error": told}, ascii_only=not _any_character(sys.stdout)))
        super().error(message)


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

    whole = _Parser(
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
