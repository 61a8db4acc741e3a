"""The `Instance` that columns describe, each called like a constraint, or after a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dflearn.errors import DataError
from dflearn.program.names import Columns, check_unique, closest, matched
from dflearn.program.sides import integer_bounds

if TYPE_CHECKING:  # tables are read and checked before torch is loaded
    from dflearn.program.instance import Instance
    from dflearn.program.objective import Parts


class Place(NamedTuple):
    """Where a column's numbers belong in an `Instance`: field[…, position] = sign · number."""

    field: str
    position: int
    sign: float


def places_of(program: Parts, names: Iterable[str], source: str = "") -> dict[str, Place]:
    """Where each column of this name belongs; an error, which begins with `source`, for a name that is unknown to the program."""
    begin = f"{source}: " if source else ""
    found = {name: _place_of(program, name, begin) for name in names}
    first: dict[tuple[str, int], str] = {}
    for name, (field, position, _) in found.items():
        other = first.setdefault((field, position), name)
        if other != name:
            raise DataError(f"{begin}the columns {other!r} and {name!r} hold the same number of the program: drop one")
    return found


def _place_of(program: Parts, name: str, source: str) -> Place:
    rows, variables = program.constraint_names or {}, program.variable_names or ()
    field, _, variable = name.partition(":")
    about_variable = field in ("lower", "upper", "d", "q") and bool(variable)
    row = name if name in rows else None if about_variable else matched(name, rows, f"{source}the column")
    if row is not None:
        holder, position, sign = rows[row]
        if holder == "bound":
            bounded = variables[position] if variables else position
            remedy = f"call the column lower:{bounded} or upper:{bounded}"
            raise DataError(f"{source}the constraint {row!r} holds {bounded!r} alone, so it is a bound: {remedy}")
        if holder == "none":
            raise DataError(f"{source}the constraint {row!r} has two limits or none: write it as two constraints")
        moves = program.B if holder == "b" else program.H
        if moves is not None and moves.indptr[position + 1] > moves.indptr[position]:
            raise DataError(
                f"{source}the right-hand side of {row!r} is predicted, so that no column holds it: drop the column; what is to "
                f"be added to the prediction is Instance({holder}=…)"
            )
        return Place(holder, position, sign)
    known = matched(variable, variables, f"{source}the column") if about_variable else None
    if known is not None:
        sign = -1.0 if field == "d" and program.sense == "maximize" else 1.0
        return Place(field, variables.index(known), sign)
    sides = [name for name, held in rows.items() if held.field in ("b", "h")]
    hint = closest(variable, variables) if about_variable else closest(name, sides)
    raise DataError(
        f"{source}the column {name!r} is neither a constraint of {program.name} nor lower:x, upper:x, d:x or q:x "
        f"of a variable x{hint}"
    )


def _keep_rows(program: Parts, field: str, position: int, column: np.ndarray, name: str) -> None:
    """An error where a bound of an instance is looser than a constraint of the model that holds this variable alone."""
    rows = [row for row, held in (program.constraint_names or {}).items() if held == ("bound", position, held.sign)]
    loose = column > program.upper[position] if field == "upper" else column < program.lower[position]
    if rows and loose.any():
        raise DataError(
            f"the column {name!r} would lift the constraint {rows[0]!r}, which holds this variable alone and so became its "
            f"bound ({field} {getattr(program, field)[position]:g}): keep to it, or take the constraint out of the model"
        )


def read_instance(
    program: Parts, columns: Columns, source: str = "", where: Callable[[int], str] = "row {}".format
) -> Instance:
    """The `Instance` `(*batch, …)` that columns `(*batch,)` describe; what has no column is as in the program.

    Args:
        columns: by the names of constraints (their right-hand sides), or `lower:x`, `upper:x`, `d:x`, `q:x` of a variable x.
        source: what messages about columns begin with.
        where: what messages call a row, by its number.
    """
    held = _read_columns(columns, f"{source}: " if source else "")
    fields: dict[str, np.ndarray] = {}
    for name, (field, position, sign) in places_of(program, held, source).items():
        column = held[name]
        is_bound = field in ("lower", "upper")
        wrong = np.flatnonzero(np.isnan(column) if is_bound else ~np.isfinite(column))
        if wrong.size:
            number = column.reshape(-1)[wrong[0]]
            why = f"holds {number}: fill it in" if np.isnan(number) else "only bounds may be infinite"
            raise DataError(f"{where(int(wrong[0]))}, column {name!r}: {why}")
        if is_bound:
            _keep_rows(program, field, position, column, name)
        if field == "q" and (column < 0).any():
            first = where(int(np.argmax(column.reshape(-1) < 0)))
            raise DataError(f"{first}, column {name!r}: q must be ≥ 0, to be convex")
        own = np.zeros(program.n) if field == "q" else getattr(program, field)
        values = fields.setdefault(field, np.tile(own, (*column.shape, 1)))
        values[..., position] = sign * column
    lower, upper = (fields.get(side, getattr(program, side)) for side in ("lower", "upper"))
    low, high = integer_bounds(lower, upper, program.integer)
    fields |= {side: value for side, value in (("lower", low), ("upper", high)) if side in fields}
    crossed = np.argwhere((low > high).reshape(-1, program.n))
    if crossed.size:
        row, k = map(int, crossed[0])
        name = program.variable_names[k] if program.variable_names else str(k)
        raise DataError(f"{where(row)}: the bounds of {name!r} leave nothing: check lower:{name} and upper:{name}")
    import torch

    from dflearn.program.instance import Instance

    return Instance(**{field: torch.tensor(value) for field, value in fields.items()})


def _read_columns(columns: Columns, source: str) -> dict[str, np.ndarray]:
    """The columns as float64 arrays of one shape."""
    keys = list(columns.keys())
    names = list(map(str, keys))
    check_unique(names, source or "the table ")
    held = {}
    for name, key in zip(names, keys, strict=True):
        try:
            held[name] = _as_numbers(columns[key])
        except (TypeError, ValueError) as error:
            raise DataError(f"{source}the column {name!r} holds what is no number: {error}") from error
    shapes = {name: column.shape for name, column in held.items()}
    if len(set(shapes.values())) > 1:
        raise DataError(f"{source}the columns differ in length: {shapes}")
    return held


def _as_numbers(column: Any) -> np.ndarray:
    cells = np.asarray(column)
    for cell in cells.flat if cells.dtype.kind in "OSU" else ():
        if isinstance(cell, str | bytes) and "_" in str(cell):  # Python reads 1_5 as 15
            raise ValueError(f"could not convert {cell!r}")
    return np.asarray(column, np.float64)
