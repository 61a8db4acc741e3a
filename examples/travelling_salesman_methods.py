"""Methods of the travelling salesman: a loss through one formulation of the tour problem.

SPO+^MTZ                        SPO+ through the relaxation of a formulation
sSPO+^MTZ, SCE^MTZ              smoothed SPO+ and SCE through the smoothed relaxation, μ = share · mean travel time
SCE^MTZ, u as written           the same without scaling the positions u
"""

from __future__ import annotations

from collections.abc import Callable

import dflearn as dfl
from dflearn.data import DecisionDataset
from dflearn.losses import SCE, SmoothedSPOPlus, SPOPlus
from dflearn.losses.base import Loss
from dflearn.studies import Method, Prepared, RunContext, register
from tours import FORMULATIONS, Tours

AS_WRITTEN = ", u as written"


def posed(context: RunContext, formulation: str, rescaled: bool) -> tuple[dfl.Program, DecisionDataset]:
    """The formulation as a program, and the training days with its labels."""
    tours = context.problem
    assert isinstance(tours, Tours)
    program = tours.formulation(formulation, rescaled)
    labels = tours.directed(context.train.batch().require("decisions"), program, rescaled)
    return program, context.train.with_decisions(labels)


def plain(formulation: str) -> Callable[[RunContext], Prepared]:
    def prepare(context: RunContext) -> Prepared:
        program, train = posed(context, formulation, rescaled=True)
        return Prepared(SPOPlus(dfl.Exact(dfl.HiGHS(program.relax()))), train)

    return prepare


def smoothed(kind: Callable[[dfl.Layer], Loss], formulation: str, rescaled: bool) -> Callable[[RunContext], Prepared]:
    def prepare(context: RunContext) -> Prepared:
        program, train = posed(context, formulation, rescaled)
        scale = float(train.batch().require("costs").mean())
        return Prepared(kind(dfl.Smoothed(program, context.parameters["share"] * scale)), train)

    return prepare


for _formulation in FORMULATIONS:
    register(Method(f"SPO+^{_formulation}", f"SPO+ through {_formulation}", plain(_formulation)))
    for _name, _kind in {"sSPO+": SmoothedSPOPlus, "SCE": SCE}.items():
        for _end in ("", AS_WRITTEN) if _name == "SCE" and "MTZ" in _formulation else ("",):
            _prepare = smoothed(_kind, _formulation, rescaled=not _end)
            _about = f"{_name} through smoothed {_formulation}"
            register(Method(f"{_name}^{_formulation}{_end}", _about, _prepare, lambda problem: {"share": 1.0}))
