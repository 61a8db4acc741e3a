"""What a command answers: a text for people, and the same for programs as one JSON document (`--json`)."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from dflearn._version import __version__
from dflearn.errors import DflearnError


class Answer(NamedTuple):
    """The end of a command.

    Attributes:
        text: what it prints.
        document: the same as JSON holds it: what `--json` prints instead.
        error: what keeps the whole from being done, told after the text.
    """

    text: str
    document: Mapping[str, Any]
    error: DflearnError | None = None


@contextmanager
def only_the_answer(wanted: bool) -> Iterator[None]:
    """Where the answer must stand alone on stdout, what else is printed meanwhile goes to stderr."""
    if wanted:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield


def said(error: BaseException) -> str:
    """An error of the system begins with its file."""
    if isinstance(error, OSError) and not isinstance(error, DflearnError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def error_document(error: BaseException) -> dict[str, Any]:
    """What `--json` tells of an error. Our messages are "cause: remedy" or "cause; remedy"; others name no remedy."""
    message, remedy = " ".join(said(error).split()), None
    if isinstance(error, DflearnError) and (parts := re.split(r"(?<=[^:;]{3})[:;] (?=[a-z])", message))[1:]:
        remedy = parts[-1]
    return {"error": {"type": type(error).__name__, "message": message, "remedy": remedy}}


def document_text(command: str, content: Mapping[str, Any], *, ascii_only: bool = False) -> str:
    """One JSON document: what was asked, by which version, and the answer."""
    whole = {"command": command, "dflearn": __version__, **content}
    return json.dumps(as_json(whole), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def as_json(value: Any) -> Any:
    """The value as JSON holds it: `null` for what is no finite number, text for a path."""
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Path):
        return str(value)
    return as_json(value.tolist())  # a number or an array of numpy
