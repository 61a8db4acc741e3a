"""The answer of a command: a text for people, and the same as one JSON document for programs (`--json`)."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dflearn._version import __version__
from dflearn.errors import DflearnError
from dflearn.files import as_json

# How the library names an argument, and the option that stands for it.
OPTIONS = {
    r"pass id_column='([^']*)'": r"add --id \1",
    r"with id_column$": "with --id COLUMN",
    r"\(id_column\)": "(--id)",
    r"^(loss|layer) is one of": r"--\1 is one of",
    r"^test=": "--test ",
    r"^(gap|folds|groups|weights)(?:=| )": r"--\1 ",
    r"^groups:": "--groups:",
    r"pass ordered=True": "add --ordered",
    r"pass ordered='([^']*)'": r"add --ordered \1",
    r"leave out ordered or groups": "leave out --ordered or --groups",
    r"^forecasters are": "--forecasters are",
    r"see (minutes|solves)=": r"see --\1",
    r"positive=True": "--positive",
    r"trained (with|without) instances": r"trained \1 --instances",
    r"trust=True": "--trust-code",
    r"give instances with a column": "give --instances with a column",
    r"program\.elastic\(rows, price\)": "--elastic PRICE",
}


class Answer(NamedTuple):
    """The end of a command: its text, the same for programs (`--json`), and an error if the answer is incomplete."""

    text: str
    document: Mapping[str, Any]
    error: DflearnError | None = None


def as_options(text: str) -> str:
    """A text of the library, which names arguments, with the options of the command instead."""
    for argument, option in OPTIONS.items():
        text = re.sub(argument, option, text)
    return text


@contextmanager
def in_options(model: Path | None = None) -> Iterator[None]:
    """Errors name options instead of arguments, and the model's file instead of "the model"."""
    try:
        yield
    except DflearnError as error:
        text = as_options(str(error))
        raise type(error)(text if model is None else text.replace("the model was", f"{model} was")) from error


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Each warning of the library is one line on stderr, once, without its place in the source."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = as_options(" ".join(str(message).split()))
        if text not in shown:
            shown.add(text)
            print(f"note: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module="dflearn")
        warnings.showwarning = show
        yield


def error_text(error: BaseException) -> str:
    """The message in one line. An error of the operating system begins with its file."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, DflearnError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


def error_document(error: BaseException) -> dict[str, Any]:
    """The key `error` of a document. Our messages are "cause: remedy" or "cause; remedy"; others name no remedy."""
    message, remedy = error_text(error), None
    if isinstance(error, DflearnError) and (parts := re.split(r"(?<=[^:;]{3})[:;] (?=[a-z])", message))[1:]:
        remedy = parts[-1]
    return {"error": {"type": type(error).__name__, "message": message, "remedy": remedy}}


def print_document(command: str, content: Mapping[str, Any]) -> None:
    """The one JSON document on stdout: the command, the version and the answer."""
    whole = as_json({"command": command, "dflearn": __version__, **content})
    print(json.dumps(whole, indent=2, ensure_ascii=not is_unicode(sys.stdout), allow_nan=False))


def is_unicode(stream: Any) -> bool:
    """Whether a stream can hold any character."""
    return (stream.encoding or "utf-8").lower().startswith("utf")
