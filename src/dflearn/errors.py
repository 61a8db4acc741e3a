"""The error family: every error of dflearn is a `DflearnError` and also the builtin a caller would expect."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any


class DflearnError(Exception):
    """Base class of every error that dflearn raises on purpose.

    Examples:
        >>> issubclass(dfl.errors.SolverError, dfl.errors.DflearnError)
        True
    """


class ProgramError(DflearnError, ValueError):
    """A program that cannot be: wrong shapes, crossed bounds, empty or inconsistent rows, NaN.

    Examples:
        >>> dfl.Program(n=1, lower=2.0, upper=1.0)
        Traceback (most recent call last):
            ...
        dflearn.errors.ProgramError: the bounds of variable 0 cross: lower 2.0, upper 1.0
    """


class OptionError(DflearnError, ValueError):
    """An argument, a setting or a name that is none of those on offer; the message lists them.

    Examples:
        >>> dfl.Smoothed(program, mu=1.0, regularizer="cubed")
        Traceback (most recent call last):
            ...
        dflearn.errors.OptionError: regularizer is 'squared' or 'norm', got 'cubed'
    """


class ShapeError(DflearnError, ValueError):
    """A tensor whose shape or values do not fit; the message says what came and what was wanted.

    Examples:
        >>> dfl.HiGHS(program).solve(torch.ones(2, 5))
        Traceback (most recent call last):
            ...
        dflearn.errors.ShapeError: costs must have shape (*batch, 12); got (2, 5)
    """


class SolverError(DflearnError, RuntimeError):
    """A solve that did not end in a usable decision; the message names the instance and the remedy.

    `status` holds the codes of all instances of that solve, in their order, where they are known.

    Examples:
        >>> dfl.HiGHS(dfl.Program(n=1)).solve(torch.tensor([-1.0])).check()
        Traceback (most recent call last):
            ...
        dflearn.errors.SolverError: 1 of 1 instances have no acceptable decision. instance 0 is UNBOUNDED: ...
    """

    status: Sequence[int] = ()


class DataError(DflearnError, ValueError):
    """Data that lack what was asked for, or a file that is not what it should be.

    Examples:
        >>> dfl.losses.MSE()(predicted, dfl.Batch(data.features))
        Traceback (most recent call last):
            ...
        dflearn.errors.DataError: MSE needs costs, and the data hold none. ...
    """


class StorageError(DflearnError, OSError):
    """A file that could not be written for want of room; the message names the file and the remedy.

    Examples:
        >>> issubclass(dfl.errors.StorageError, OSError)
        True
    """


class MissingExtraError(DflearnError, ImportError):
    """An optional package is not installed; the message names the extra that brings it.

    Examples:
        >>> issubclass(dfl.errors.MissingExtraError, ImportError)
        True
    """


class DivergenceError(DflearnError, FloatingPointError):
    """A training run whose loss, gradient or weights stopped being finite; the message says where and why.

    Examples:
        >>> issubclass(dfl.errors.DivergenceError, ArithmeticError)
        True
    """


class CheckpointError(DflearnError, ValueError):
    """A checkpoint that is not one, or that belongs to another run; the message names the difference.

    Examples:
        >>> issubclass(dfl.errors.CheckpointError, ValueError)
        True
    """


def optional(module: str, extra: str, user: str) -> Any:
    """The module; where its package is missing, an error that says which extra of dflearn brings it to `user`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{user} needs the package {package}: pip install 'dflearn[{extra}]'") from error
