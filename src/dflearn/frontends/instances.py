"""Several programs of one structure → one program and its instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dflearn.errors import ProgramError
from dflearn.program import Instance, Program


def as_instances(programs: Sequence[Program]) -> tuple[Program, Instance]:
    """The first program, and an `Instance` `(len(programs), …)` that holds what the others have otherwise.

    For models whose data change from day to day: read the model of each day, then put the days together. Right-hand
    sides, bounds and d may differ; the matrices A, G, S and the integer variables must be the same.
    """
    if not programs:
        raise ProgramError("as_instances needs at least one program")
    first = programs[0]
    for number, program in enumerate(programs):
        for field in ("A", "G", "S", "integer", "sense", "B", "H", "recourse"):
            if not _same(getattr(first, field), getattr(program, field)):
                raise ProgramError(
                    f"programs 0 and {number} differ in {field}; instances may differ in b, h, lower, upper and d only"
                )
        parts = [{} if one.Q is None else one.Q.parts() for one in (first, program)]
        if parts[0].keys() != parts[1].keys() or not all(_same(parts[0][key], parts[1][key]) for key in parts[0]):
            raise ProgramError(f"programs 0 and {number} differ in Q; Instance(q=…) adds to its diagonal")
    values = {
        name: np.stack([getattr(program, name) for program in programs]) for name in ("b", "h", "lower", "upper", "d")
    }
    return first, Instance(**{name: torch.tensor(rows) for name, rows in values.items() if (rows != rows[:1]).any()})


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str):
        return one is other or one == other
    if one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else (one != other).nnz == 0
