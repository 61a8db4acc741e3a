"""`NormalCone` by Moreau's theorem: v/‖v‖ = p + t with p in the normal cone, t in the tangent cone, pᵀt = 0."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from dflearn.errors import OptionError, ShapeError
from dflearn.layers.normal_cone import TIGHT, NormalCone
from dflearn.problems import problem_named
from dflearn.program import Instance, Program


@pytest.mark.parametrize("name", ["SP-4", "KP-20", "CFL-6x3"])
def test_moreau(name: str) -> None:
    problem = problem_named(name, seed=3)
    program, y = problem.program, problem.generate(9, dtype=torch.float64).batch().require("costs")
    w = problem.solver().solve(y.flip(0)).check().decision
    layer = NormalCone(program)
    solution = layer.solve(y, layer.at(w)).check()
    v = -program.objective.vector(y)
    unit, p = (v / v.norm(dim=-1, keepdim=True)).numpy(), solution.decision.numpy()
    t = unit - p
    np.testing.assert_allclose((p * t).sum(1), 0.0, atol=1e-8)
    np.testing.assert_allclose(t @ program.A.toarray().T, 0.0, atol=1e-8)
    tight = program.h - w.numpy() @ program.G.toarray().T < 1e-6
    assert (t @ program.G.toarray().T)[tight].max(initial=0.0) < 1e-8
    assert t[w.numpy() <= program.lower + 1e-6].min(initial=0.0) > -1e-8
    assert t[w.numpy() >= program.upper - 1e-6].max(initial=0.0) < 1e-8
    # p is a normal: no feasible direction, the way to another decision among them, has a positive product with it.
    others = problem.solver().solve(y).check().decision.numpy()
    assert (p * (others - w.numpy())).sum(1).max() < 1e-8
    np.testing.assert_allclose(solution.objective, 0.5 * np.square(t).sum(1), atol=1e-12)


def test_known_costs_come_from_the_instance() -> None:
    program = Program(A=np.ones((1, 3)), b=[1.0], upper=1)
    y, w = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    d = torch.tensor([[4.0, -1.0, 0.5]], dtype=torch.float64)
    layer = NormalCone(program)
    moved = layer(y, layer.at(w, Instance(d=d)))
    torch.testing.assert_close(moved, layer(y + d, layer.at(w)))


def test_starts_options_and_copies() -> None:
    problem = problem_named("SP-4", seed=3)
    y = problem.generate(5, dtype=torch.float64).batch().require("costs")
    w = problem.solver().solve(y).check().decision
    exact, inner = NormalCone(problem.program), NormalCone(problem.program, variant="inner")
    cold = exact.solve(-y, exact.at(w), exact.no_start(5))
    warm = exact.solve(-y, exact.at(w), cold.start)
    torch.testing.assert_close(warm.decision, cold.decision, atol=1e-9, rtol=0)
    assert not inner.start_width
    with pytest.raises(ShapeError, match="no start"):
        inner.solve(y, inner.at(w), cold.start)
    for layer in (exact, inner):
        for again in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
            assert torch.equal(again(-y, again.at(w)), layer(-y, layer.at(w)))
    for wrong in ({"variant": "outer"}, {"iterations": 0}):
        with pytest.raises(OptionError):
            NormalCone(problem.program, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("side", "terms"), [("lower", 1), ("upper", 1), ("h", 2)])
@pytest.mark.parametrize("size", [0.5, 40.0])
@pytest.mark.parametrize(("share", "binds"), [(0.9, True), (1.1, False)])
def test_what_binds_is_relative_to_its_own_terms(side: str, terms: int, size: float, share: float, binds: bool) -> None:
    """A bound that w misses by less than TIGHT |w| holds w, a row by less than TIGHT (|w| + |h|); others, far off, do not."""
    miss = {"lower": 1.0, "upper": 1.0, "h": 1.0} | {side: share * TIGHT * terms * size}
    program = Program(G=[[1.0]], h=[size + miss["h"]], lower=size - miss["lower"], upper=size + miss["upper"])
    cone = NormalCone(program).at(torch.tensor([[size]], dtype=torch.float64))
    assert {name: getattr(cone, name).item() == 0 for name in miss} == {name: binds and name == side for name in miss}
