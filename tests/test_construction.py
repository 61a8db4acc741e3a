"""What solvers, layers and losses make of a program, a problem, a solver or a layer in place of their first argument."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import dflearn as dfl
from dflearn import layers, losses, solvers
from dflearn.errors import DataError, DflearnError, OptionError
from dflearn.layers import BlackBox, Exact, Perturbed, Smoothed
from dflearn.losses import Regret, SPOPlus
from dflearn.problems import ShortestPath
from dflearn.solvers import HiGHS
from dflearn.solvers.construction import _parameters

PROBLEM = ShortestPath(3, 3, seed=1)
PROGRAM = PROBLEM.program
GIVEN = {
    "program": PROGRAM,
    "problem": PROBLEM,
    "solver": HiGHS(PROGRAM),
    "exact": Exact(HiGHS(PROGRAM)),
    "smoothed": Smoothed(PROGRAM, mu=1.0),
    "number": 5,
    "class": Exact,
}
PUBLIC = {
    name: one
    for module in (layers, losses, solvers)
    for name in module.__all__
    if inspect.isclass(one := getattr(module, name))
    and issubclass(one, layers.Layer | losses.Loss | dfl.Solver)
    and not inspect.isabstract(one)
    and next(iter(_parameters(one)), "") in one.conversions
}


@pytest.mark.parametrize("given", GIVEN)
def test_every_class_takes_it_or_says_what_to_write(given: str) -> None:
    """What is missing beside the first argument is Python's to tell."""
    for name, cls in PUBLIC.items():
        needed = {
            one.name: 1.0 if one.name in ("mu", "sigma") else 0.5
            for one in list(_parameters(cls).values())[1:]
            if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        }
        if given in ("number", "class"):
            with pytest.raises(OptionError, match=rf"write {name}\("):
                cls(GIVEN[given], **needed)
        else:
            with contextlib.suppress(DflearnError):  # which says what to write; nobody else's error
                cls(GIVEN[given], **needed)


def test_they_solve_the_program_that_was_meant() -> None:
    y = torch.rand(4, PROGRAM.p, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = HiGHS(PROGRAM).solve(y).decision
    for made in (Exact(PROGRAM), Exact(PROBLEM), Exact(Perturbed(HiGHS(PROGRAM), sigma=1.0))):  # type: ignore[arg-type]
        assert torch.equal(made(y), expected)
    assert torch.equal(HiGHS(PROBLEM).solve(y).decision, expected)  # type: ignore[arg-type]
    assert torch.equal(Smoothed(PROBLEM, mu=0.5)(y), Smoothed(PROGRAM, mu=0.5)(y))  # type: ignore[arg-type]
    batch = dfl.Batch(torch.zeros(4, 1), y, expected)
    for given in (PROGRAM, PROBLEM, HiGHS(PROGRAM)):
        found = SPOPlus(given)(y + 1, batch)  # type: ignore[arg-type]
        assert torch.equal(found, SPOPlus(Exact(HiGHS(PROGRAM)))(y + 1, batch))


def test_a_loss_that_needs_a_jacobian_gets_no_exact_layer() -> None:
    with pytest.raises(OptionError, match=r"Regret takes a Layer, and got a HiGHS: write Regret\(Smoothed\(program\)"):
        Regret(HiGHS(PROGRAM))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [(BlackBox, {"lambd": 10}, "called step here"), (Perturbed, {"n_samples": 3}, "called samples here")],
)
def test_names_of_pyepo_are_translated(cls: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        cls(HiGHS(PROGRAM), **options)


def test_a_loader_of_torch_gives_batches() -> None:
    data = PROBLEM.generate(10)
    for loader in (DataLoader(data, batch_size=4), DataLoader(data, batch_size=4, num_workers=1)):
        found = list(loader)
        assert [type(batch) for batch in found] == [dfl.Batch] * 3
        assert torch.equal(torch.cat([batch.features for batch in found]), data.features)
        assert torch.equal(torch.cat([batch.require("ids") for batch in found]), data.ids)
    with pytest.raises(DataError, match=r"write batch\.features, batch\.costs"):
        _, _ = found[0]


def test_a_share_is_no_seed() -> None:
    with pytest.raises(DataError, match=r"write split\(0, test=0.2\)"):
        PROBLEM.generate(10).split(0.2)  # type: ignore[arg-type]
