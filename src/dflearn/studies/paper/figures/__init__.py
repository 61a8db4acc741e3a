"""The paper's figures: computed with the package's own layers and losses, or drawn from a study's records."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from dflearn.errors import OptionError

if TYPE_CHECKING:
    from dflearn.studies.paper.figures.base import Plot
    from dflearn.studies.record import Record

# Name → the file that makes it, and what it shows; those computed by the package, then those drawn from runs.
COMPUTED = {
    "one-dimension": ("descent", "regret and SCE of one variable, with and without smoothing"),
    "gradients": ("sampled", "best of M items: gradients of regret and SCE, and the table of Manhattan distances"),
    "two-items": ("descent", "two items and room for one: regret training stands still, SCE moves"),
    "geometry": ("polygons", "solutions of an LP and of the smoothed LP as the costs turn"),
    "cave": ("polygons", "why CaVE fails on knapsacks"),
    "generalization": ("sampled", "the generalization bound of SCE on 50 linear maps"),
}
FROM_RECORDS = {
    "surrogates": ("records", "surrogate losses against decision losses through differentiable layers"),
    "solvers": ("records", "SPO+ and SCE with differentiable and other solvers: regret and time"),
    "state-of-the-art": ("records", "regret against time, with the best trade-offs"),
}


def figure_names() -> list[str]:
    return [*COMPUTED, *FROM_RECORDS]


def make_figure(
    name: str, *, quick: bool = False, records: Iterable[Record] = (), metric: str = "published_style"
) -> Plot:
    """The figure of that name.

    quick: fewer draws and points, for a first look. records, metric: what the figures of FROM_RECORDS show.
    """
    if name not in figure_names():
        near = difflib.get_close_matches(name, figure_names(), 1, 0.4)
        hint = f"; perhaps {near[0]!r}" if near else ""
        raise OptionError(f"no figure is named {name!r}{hint}; the figures are {', '.join(figure_names())}")
    file, _ = (COMPUTED | FROM_RECORDS)[name]
    make = getattr(import_module(f"{__name__}.{file}"), name.replace("-", "_"))
    plot: Plot = make(quick=quick) if name in COMPUTED else make(list(records), metric)
    return plot
