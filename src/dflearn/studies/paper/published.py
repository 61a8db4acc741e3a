"""The published tables: 131 rows of regret and seconds per epoch, shipped with the package."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from dflearn.errors import OptionError
from dflearn.problems import PROBLEMS
from dflearn.studies.builtin import THROUGH_LAYERS
from dflearn.studies.driver import Prior
from dflearn.studies.methods import method_named
from dflearn.studies.paper.methods import SCALED, dys_in_code, dys_printed


class PublishedRow(NamedTuple):
    """The regret in the published style, rounded to two digits, and seconds per epoch on an i7-13800H."""

    regret: float
    seconds: float


@cache
def published_rows() -> dict[tuple[str, str], PublishedRow]:
    """Problem and method → row."""
    text = (files("dflearn.studies.paper") / "published_results.csv").read_text()
    return {
        (f"{row['problem']}-{row['size']}", row["method"]): PublishedRow(
            float(row["normalized_regret_as_published"]), float(row["seconds_per_epoch_i7_13800H"])
        )
        for row in csv.DictReader(text.splitlines())
    }


# Rough guesses where nothing was measured: seconds of an exact solve of one instance by the problem's own solver.
SOLVE = {
    "SP-5": 1e-4, "SP-10": 1e-4, "SP-15": 1e-4, "SP-25": 2e-4,
    "KP-100": 2e-4, "KP-200": 3e-4, "KP-400": 0.01, "KP-500": 0.01,
    "CFL-50": 0.02, "CFL-100": 0.05, "CFL-200": 0.08, "CFL-250": 0.1,
}  # fmt: skip


def published_costs() -> Prior:
    """The seconds of the authors' runs, to estimate those of ours."""
    return Prior({key: row.seconds for key, row in published_rows().items()}, SOLVE)


def problems_of(table: str, sizes: Iterable[int] = ()) -> list[str]:
    """The problems of a table (sp, kp or cfl), smallest first, or those of these sizes."""
    known = [name for name in PROBLEMS if name.startswith(f"{table.upper()}-")]
    wanted = [f"{table.upper()}-{size}" for size in sizes] or known
    if strangers := [problem for problem in wanted if problem not in known]:
        raise OptionError(f"the paper has no {', '.join(strangers)}; its sizes are {', '.join(known)}")
    return wanted


# Our rows beside the published ones of every problem, in the order of the tables.
_OWN = ["CaVE clean", "CaVE exact", "SCE^relax", "SCE^smoothed", "sSPO+"]
_OWN += [f"{loss}^DYS {version}" for version in ("clean", "unrolled") for loss in THROUGH_LAYERS]
_OWN += [f"{method} scaled" for method in SCALED]


def methods_of(problem: str) -> list[str]:
    """The methods of a problem's table: the published rows, then ours; "printed" ones if text and code differ."""
    published = sorted((method for name, method in published_rows() if name == problem), key=_order)
    # SPO+^relax of facility location already is HiGHS with warm starts: we have no faster solver for it.
    timed = ["SPO+^relax cold"] + ([] if problem.startswith("CFL") else ["SPO+^relax warm"])
    integer = [] if problem.startswith("SP") else ["PFY^relax", "SCE^ILP"]
    printed = [f"{loss}^DYS printed" for loss in THROUGH_LAYERS if dys_printed(problem) != dys_in_code(problem, loss)]
    return [*published, *timed, *printed, *integer, *_OWN]


_LOSSES = ("MSE", "Regret", "SqDE", "SPO+", "SCE", "PFY", "CaVE")
_SOLVERS = ("", "CVX", "DYS", "relax", "ILP", "p=5%")


def methods_named(problem: str, words: Iterable[str]) -> list[str]:
    """Methods by name; `published`, `own` and `all` stand for rows of the problem's table: the paper's, ours, both."""
    rows = methods_of(problem)
    published = [method for method in rows if (problem, method) in published_rows()]
    groups = {"all": rows, "published": published, "own": [method for method in rows if method not in published]}
    asked = [name for word in words for name in groups.get(word, [word])]
    return [method_named(name).name for name in dict.fromkeys(asked)]


def _order(method: str) -> tuple[int, int]:
    loss, _, solver = method.partition("^")
    return _LOSSES.index(loss), _SOLVERS.index(solver)
