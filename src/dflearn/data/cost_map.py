"""Files that say which variables a cost enters, and times what: an hourly price of three units, say.

    cost,variable,factor            {"price_{t}": {"gen_*_{t}": 1.0}, "toll": {"ship_a": 2}}
    price_{t},gen_*_{t},1.0
    toll,ship_a,2

`dflearn.frontends.costs` says what the names may be.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflearn.data.cells import is_missing, number_of
from dflearn.data.table_files import read_columns
from dflearn.errors import DataError
from dflearn.program.names import closest

COLUMNS = ("cost", "variable", "factor")


def read_cost_map(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """{cost: {variable: factor}}, as `costs` of the front ends takes it, from a .csv, .parquet or .json file."""
    path = Path(path)
    rows = _from_json(path) if path.suffix == ".json" else _from_table(path)
    found: dict[str, dict[str, float]] = {}
    for place, cost, variable, factor in rows:
        where = f"{path}, {place}"
        for name, cell in (("cost", cost), ("variable", variable)):
            if is_missing(cell):
                raise DataError(f"{where}, column {name!r} is empty: each row names a cost, a variable, and a factor")
        try:
            number = 1.0 if is_missing(factor) else number_of(factor, lambda: True)
        except ValueError as error:
            raise DataError(f"{where}, column 'factor' {error}: the factor of {variable!r} is a number") from error
        factors = found.setdefault(str(cost).strip(), {})
        if variable in factors:
            raise DataError(f"{where}: {variable!r} stands twice for {cost!r}; name it once, with one factor")
        factors[str(variable).strip()] = number
    return found


def _from_table(path: Path) -> list[tuple[str, Any, Any, Any]]:
    names, columns, places = read_columns(path)
    held = dict(zip(names, columns, strict=True))
    unknown = [name for name in names if name not in COLUMNS]
    lacking = [name for name in COLUMNS[:2] if name not in held]
    if unknown or lacking:
        wrong = f"lacks {lacking[0]!r}" if lacking else f"has {unknown[0]!r}"
        hint = closest(lacking[0], unknown) if lacking and unknown else ""
        raise DataError(f"{path} {wrong}: its columns are cost, variable and, if it is not 1, factor{hint}")
    factors = held.get("factor", [None] * len(places))
    return list(zip(places, held["cost"], held["variable"], factors, strict=True))


def _from_json(path: Path) -> list[tuple[str, Any, Any, Any]]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(held, Mapping) or not all(isinstance(factors, Mapping) for factors in held.values()):
        raise DataError(f'{path} should hold {{"cost": {{"variable": factor, …}}, …}}')
    return [
        (repr(cost), cost, variable, factor) for cost, factors in held.items() for variable, factor in factors.items()
    ]
