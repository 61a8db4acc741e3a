"""Every loss and gradient rule of PyEPO 2.2 beside ours: the same values and gradients, on the same noise and pool.

PyEPO's layers hand out decisions; both are then put under the same loss, the squared distance to the label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import highspy  # noqa: F401  (before PyEPO)
import numpy as np
import pyepo
import pyomo.environ  # noqa: F401  (before PyEPO)
import pytest
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.data import label_by_neighbours
from dflearn.layers import AdaptiveImplicitMLE, BlackBox, ImplicitMLE, NegativeIdentity
from dflearn.layers.gradient_rules import draw
from dflearn.losses import (
    NCE,
    SCE,
    CaVE,
    FenchelYoung,
    Loss,
    PerturbationGradient,
    Ranking,
    SPOPlus,
    SquaredDecisionError,
)
from dflearn.solvers.task import DecisionTask

COUNT, SEED = 5, 135


def path() -> dfl.Program:
    return dfl.problems.ShortestPath(3, 3).program


def knapsack() -> dfl.Program:
    """Values are predicted and maximized, so that PyEPO's sense is the other one."""
    weights = np.random.default_rng(0).uniform(1, 5, (2, 6))
    return dfl.Program(G=weights, h=weights.sum(1) / 2, upper=1, S=-np.eye(6), integer=True, sense="maximize")


def partly_known() -> dfl.Program:
    """Costs of three variables are predicted, one of them twice, and those of the others known."""
    S = [[2, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0, 1], [0, 0, 0]]
    return dfl.Program(A=[[1, 1, 1, 1, 1]], b=[2], upper=1, S=S, d=[0, 0.1, 0, -0.4, 0.3])


PROGRAMS = {"path": path, "knapsack": knapsack, "partly known": partly_known}


class Mirrored:
    """The noise that `ImplicitMLE` draws, as PyEPO adds it: to costs, where ours is added to utilities."""

    def __init__(self, program: dfl.Program, kind: Any, kappa: float = 5.0) -> None:
        self.sign = 1.0 if program.sense == "maximize" else -1.0
        self.kind, self.kappa = kind, kappa
        self.generator = torch.Generator().manual_seed(SEED)

    def sample(self, size: tuple[int, ...], device: Any = None, dtype: Any = torch.float64) -> Tensor:
        return self.sign * draw(self.kind, torch.empty(0, dtype=dtype), size, self.generator, self.kappa)


def squared(layer: Any) -> Loss:
    return SquaredDecisionError(layer, reduction="mean")


def pool(solver: dfl.Solver, data: dfl.DecisionDataset, ratio: float) -> dfl.Exact:
    return dfl.Exact(dfl.Pooled(solver, ratio, per="batch", initial=data.decisions))


@dataclass(frozen=True)
class Given:
    """What both sides are made of."""

    model: Any  # PyEPO's
    dataset: Any
    program: dfl.Program
    solver: dfl.Solver
    data: dfl.DecisionDataset


def theirs(name: str, *arguments: Any, **options: Any) -> Callable[[Given], Any]:
    return lambda given: getattr(pyepo.func, name)(given.model, *arguments, **options)


def mirrored(name: str, *arguments: Any, noise: str, two_sides: bool) -> Callable[[Given], Any]:
    make = getattr(pyepo.func, name)
    return lambda given: make(given.model, 4, 0.7, *arguments, Mirrored(given.program, noise), two_sides)


EACH = {"reduction": "none"}
# Name: PyEPO's module, what it is called with, ours, and whether the program may have S and d of its own.
CASES: dict[str, tuple[Callable[[Given], Any], str, Callable[[Given], Loss], bool]] = {
    "SPOPlus": (theirs("SPOPlus", **EACH), "costs decisions optima", lambda g: SPOPlus(dfl.Exact(g.solver)), True),
    "blackboxOpt": (theirs("blackboxOpt", 5.0), "", lambda g: squared(BlackBox(g.solver, 5.0)), True),
    "negativeIdentity": (theirs("negativeIdentity"), "", lambda g: squared(NegativeIdentity(g.solver)), True),
    "regularizedFrankWolfeOpt": (
        theirs("regularizedFrankWolfeOpt", 0.8, 2000, 1e-8),
        "",
        lambda g: squared(dfl.Smoothed(g.program, 0.8)),
        True,
    ),
    "regularizedFrankWolfeFenchelYoung": (
        theirs("regularizedFrankWolfeFenchelYoung", 0.8, 2000, 1e-8, **EACH),
        "decisions",
        lambda g: FenchelYoung(dfl.Smoothed(g.program, 0.8)),
        True,
    ),
}
for both in (False, True):
    CASES[f"perturbationGradient two_sides={both}"] = (
        theirs("perturbationGradient", 0.3, both, **EACH),
        "costs",
        lambda g, side="central" if both else "backward": PerturbationGradient(
            dfl.Exact(g.solver), 0.3, difference=side
        ),
        True,
    )
    CASES[f"adaptiveImplicitMLE two_sides={both}"] = (
        mirrored("adaptiveImplicitMLE", noise="sum-of-gamma", two_sides=both),
        "",  # PyEPO aims at gradients without zeros: n nonzero entries
        lambda g, both=both: squared(AdaptiveImplicitMLE(g.solver, 0.7, 4, SEED, two_sided=both, target=g.program.n)),
        False,
    )
    CASES[f"perturbedOpt{'Mul' if both else ''}"] = (
        theirs(f"perturbedOpt{'Mul' if both else ''}", 4, 0.7, seed=SEED),
        "",
        lambda g, both=both: squared(dfl.Perturbed(g.solver, 0.7, 4, SEED, multiplicative=both)),
        False,
    )
    CASES[f"perturbedFenchelYoung{'Mul' if both else ''}"] = (
        theirs(f"perturbedFenchelYoung{'Mul' if both else ''}", 4, 0.7, seed=SEED, **EACH),
        "decisions",
        lambda g, both=both: FenchelYoung(dfl.Perturbed(g.solver, 0.7, 4, SEED, multiplicative=both)),
        False,
    )
for noise, both in (("sum-of-gamma", False), ("sum-of-gamma", True), ("gumbel", False)):
    CASES[f"implicitMLE {noise} two_sides={both}"] = (
        mirrored("implicitMLE", 5.0, noise=noise, two_sides=both),
        "",
        lambda g, noise=noise, both=both: squared(
            ImplicitMLE(g.solver, 0.7, 5.0, 4, SEED, noise=noise, two_sided=both)
        ),
        False,
    )
for ratio in (0.0, 1.0):
    for name, function, target, ours in (
        ("noiseContrastiveEstimation", "NCE", "decisions", NCE),
        ("contrastiveMAP", "CMAP", "decisions", lambda layer: SCE(layer, variant="plain")),
        ("listwiseLearningToRank", "lsLTR", "costs", lambda layer: Ranking(layer, "listwise")),
        ("pairwiseLearningToRank", "prLTR", "costs", lambda layer: Ranking(layer, "pairwise")),
        ("pointwiseLearningToRank", "ptLTR", "costs", lambda layer: Ranking(layer, "pointwise")),
    ):
        CASES[f"{name} solve_ratio={ratio:g}"] = (
            lambda g, function=function, ratio=ratio: getattr(pyepo.func, function)(
                g.model, dataset=g.dataset, solve_ratio=ratio, **EACH
            ),
            target,
            lambda g, ours=ours, ratio=ratio: ours(pool(g.solver, g.data, ratio)),
            True,
        )
# With S and d noise differs: PyEPO's is on coefficients, ours on predicted costs.
PAIRS = [
    (name, program) for name, case in CASES.items() for program in PROGRAMS if case[3] or program != "partly known"
]


def test_every_loss_of_pyepo_is_here() -> None:
    names = {name for name in pyepo.func.__all__ if name[0].islower()} - {"lsLTR", "prLTR", "ptLTR"}
    ours = {case.split()[0] for case in CASES}
    assert names - ours == {"smartPredictThenOptimizePlus", "coneAlignedCosine"}  # SPOPlus; below


@pytest.mark.parametrize(("name", "program"), PAIRS)
def test_values_and_gradients_are_pyepos(name: str, program: str) -> None:
    make, target, make_ours, _ = CASES[name]
    own = PROGRAMS[program]()
    if name.startswith("regularized"):
        own = own.relax()
    solver = DecisionTask.of(own).solver
    generator = torch.Generator().manual_seed(1)
    costs, predicted = 0.5 + torch.rand(2, COUNT, own.p, generator=generator, dtype=torch.float64)
    data = dfl.label(dfl.DecisionDataset(torch.zeros(COUNT, 1), costs), solver)
    batch = data.batch()
    decisions, model = batch.require("decisions"), dfl.to_pyepo(solver)
    dataset = pyepo.data.dataset.optDataset(model, np.zeros((COUNT, 1)), costs.numpy())
    dataset.sols = decisions  # in double precision
    sign = -1 if own.sense == "maximize" else 1
    given = {"costs": costs, "decisions": decisions, "optima": sign * own.objective(costs, decisions)[:, None]}
    given_both = Given(model, dataset, own, solver, data)
    other_loss, ours = make(given_both), make_ours(given_both)
    for step in range(1 if name.startswith("regularized") else 3):  # pools, noise and steps go on
        here, there = (predicted + 0.1 * step).requires_grad_(), (predicted + 0.1 * step).requires_grad_()
        value = ours(here, batch)
        other = other_loss(there, *(given[field] for field in target.split()))
        if other.ndim == 2:
            other = (other - decisions).square().mean(-1)
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if name.startswith("regularized") else {"rtol": 1e-6, "atol": 1e-6}
        torch.testing.assert_close(value, other, **tolerance)
        (slope,), (wanted,) = (torch.autograd.grad(v.sum(), y) for v, y in ((value, here), (other, there)))
        torch.testing.assert_close(slope, wanted, **tolerance)


def test_labels_by_neighbours_are_pyepos() -> None:
    program = path()
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    costs = 0.5 + torch.rand(12, program.p, generator=generator, dtype=torch.float64)
    ours = label_by_neighbours(dfl.DecisionDataset(features, costs), program, k=4, share=0.3)
    theirs = pyepo.data.dataset.optDatasetKNN(dfl.to_pyepo(program), features.numpy(), costs.numpy(), k=4, weight=0.3)
    torch.testing.assert_close(ours.costs.float(), theirs.costs)
    torch.testing.assert_close(ours.decisions.float(), theirs.sols)


def normals(program: dfl.Program, w: np.ndarray) -> np.ndarray:
    """The constraints that bind at w, as rows that point outwards; equations in both directions; zeros fill up."""
    A, G, eye = program.A.toarray(), program.G.toarray(), np.eye(program.n)
    rows = [A, -A, G[np.abs(G @ w - program.h) < 1e-7], eye[w > 1 - 1e-7], -eye[w < 1e-7]]
    found = np.vstack(rows)
    return np.vstack([found, np.zeros((2 * len(A) + len(G) + 2 * program.n - len(found), program.n))])


@pytest.mark.parametrize("program", ["path", "knapsack"])
def test_cave_is_pyepos_where_its_projection_is_let_converge(program: str) -> None:
    own = PROGRAMS[program]()
    solver = DecisionTask.of(own).solver
    costs, predicted = 0.5 + torch.rand(2, 12, own.p, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    decisions = solver.solve(costs).check().decision
    tight = torch.tensor(np.stack([normals(own, w) for w in decisions.numpy()]))
    here, there = predicted.clone().requires_grad_(), predicted.clone().requires_grad_()
    value = CaVE(own)(here, dfl.Batch(costs, decisions=decisions))
    other = pyepo.func.coneAlignedCosine(dfl.to_pyepo(solver), max_iter=200, reduction="none")(there, tight)
    torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)
    (slope,), (wanted,) = (torch.autograd.grad(v.sum(), y) for v, y in ((value, here), (other, there)))
    torch.testing.assert_close(slope, wanted, rtol=1e-3, atol=1e-4)
    assert bool((value > 1e-3).any())
