"""The error family: every error of dflearn is a `DflearnError` and also the builtin a caller would expect."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any


class DflearnError(Exception):
    """Base class of every error that dflearn raises on purpose."""


class ProgramError(DflearnError, ValueError):
    """A program that cannot be: wrong shapes, crossed bounds, empty or inconsistent rows, NaN."""


class OptionError(DflearnError, ValueError):
    """An argument, a setting or a name that is none of those on offer; the message lists them."""


class ShapeError(DflearnError, ValueError):
    """A tensor whose shape or values do not fit; the message says what came and what was wanted."""


class SolverError(DflearnError, RuntimeError):
    """A solve that did not end in a usable decision; the message names the instance and the remedy.

    `status` holds the codes of all instances of that solve, in their order, where they are known.
    """

    status: Sequence[int] = ()


class DataError(DflearnError, ValueError):
    """Data that lack what was asked for, or a file that is not what it should be."""


class StorageError(DflearnError, OSError):
    """A file that could not be written for want of room; the message names the file and the remedy."""


class MissingExtraError(DflearnError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class DivergenceError(DflearnError, FloatingPointError):
    """A training run whose loss, gradient or weights stopped being finite; the message says where and why."""


class CheckpointError(DflearnError, ValueError):
    """A checkpoint that is not one, or that belongs to another run; the message names the difference."""


def optional(module: str, extra: str, user: str) -> Any:
    """The module; where its package is missing, an error that says which extra of dflearn brings it to `user`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{user} needs the package {package}: pip install 'dflearn[{extra}]'") from error
