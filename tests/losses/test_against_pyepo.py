"""Every loss and gradient rule of PyEPO 2.2 beside ours: the same values and gradients, on the same noise and pool.

PyEPO's layers hand out decisions; both are then put under the same loss, the squared distance to the label.
"""

from __future__ import annotations

from collections.abc import Callable
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
from dflearn.layers.noise import draw
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


# Name: PyEPO's module, what it is called with, ours, and whether the program may have S and d of its own.
Ours = Callable[[dfl.Program, dfl.Solver, dfl.DecisionDataset], Loss]
CASES: dict[str, tuple[Callable[[Any, Any, dfl.Program], Any], str, Ours, bool]] = {
    "SPOPlus": (
        lambda model, dataset, program: pyepo.func.SPOPlus(model, reduction="none"),
        "costs decisions optima",
        lambda program, solver, data: SPOPlus(dfl.Exact(solver)),
        True,
    ),
    **{
        f"perturbationGradient two_sides={two_sides}": (
            lambda model, dataset, program, two_sides=two_sides: pyepo.func.perturbationGradient(
                model, 0.3, two_sides, reduction="none"
            ),
            "costs",
            lambda program, solver, data, two_sides=two_sides: PerturbationGradient(
                dfl.Exact(solver), 0.3, difference="central" if two_sides else "backward"
            ),
            True,
        )
        for two_sides in (False, True)
    },
    "blackboxOpt": (
        lambda model, dataset, program: pyepo.func.blackboxOpt(model, 5.0),
        "",
        lambda program, solver, data: squared(BlackBox(solver, 5.0)),
        True,
    ),
    "negativeIdentity": (
        lambda model, dataset, program: pyepo.func.negativeIdentity(model),
        "",
        lambda program, solver, data: squared(NegativeIdentity(solver)),
        True,
    ),
    "perturbedOpt": (
        lambda model, dataset, program: pyepo.func.perturbedOpt(model, 4, 0.7, seed=SEED),
        "",
        lambda program, solver, data: squared(dfl.Perturbed(solver, 0.7, 4, SEED)),
        False,
    ),
    "perturbedOptMul": (
        lambda model, dataset, program: pyepo.func.perturbedOptMul(model, 4, 0.7, seed=SEED),
        "",
        lambda program, solver, data: squared(dfl.Perturbed(solver, 0.7, 4, SEED, multiplicative=True)),
        False,
    ),
    "perturbedFenchelYoung": (
        lambda model, dataset, program: pyepo.func.perturbedFenchelYoung(model, 4, 0.7, seed=SEED, reduction="none"),
        "decisions",
        lambda program, solver, data: FenchelYoung(dfl.Perturbed(solver, 0.7, 4, SEED)),
        False,
    ),
    "perturbedFenchelYoungMul": (
        lambda model, dataset, program: pyepo.func.perturbedFenchelYoungMul(model, 4, 0.7, seed=SEED, reduction="none"),
        "decisions",
        lambda program, solver, data: FenchelYoung(dfl.Perturbed(solver, 0.7, 4, SEED, multiplicative=True)),
        False,
    ),
    **{
        f"implicitMLE {noise} two_sides={two_sides}": (
            lambda model, dataset, program, noise=noise, two_sides=two_sides: pyepo.func.implicitMLE(
                model, 4, 0.7, 5.0, Mirrored(program, noise), two_sides
            ),
            "",
            lambda program, solver, data, noise=noise, two_sides=two_sides: squared(
                ImplicitMLE(solver, 0.7, 5.0, 4, SEED, noise=noise, two_sided=two_sides)
            ),
            False,
        )
        for noise, two_sides in (("sum-of-gamma", False), ("sum-of-gamma", True), ("gumbel", False))
    },
    **{
        f"adaptiveImplicitMLE two_sides={two_sides}": (
            lambda model, dataset, program, two_sides=two_sides: pyepo.func.adaptiveImplicitMLE(
                model, 4, 0.7, Mirrored(program, "sum-of-gamma"), two_sides
            ),
            "",
            # PyEPO aims at gradients without zeros: n nonzero entries.
            lambda program, solver, data, two_sides=two_sides: squared(
                AdaptiveImplicitMLE(solver, 0.7, 4, SEED, two_sided=two_sides, target=program.n)
            ),
            False,
        )
        for two_sides in (False, True)
    },
    "regularizedFrankWolfeOpt": (
        lambda model, dataset, program: pyepo.func.regularizedFrankWolfeOpt(model, 0.8, 2000, 1e-8),
        "",
        lambda program, solver, data: squared(dfl.Smoothed(program, 0.8)),
        True,
    ),
    "regularizedFrankWolfeFenchelYoung": (
        lambda model, dataset, program: pyepo.func.regularizedFrankWolfeFenchelYoung(
            model, 0.8, 2000, 1e-8, reduction="none"
        ),
        "decisions",
        lambda program, solver, data: FenchelYoung(dfl.Smoothed(program, 0.8)),
        True,
    ),
}
for ratio in (0.0, 1.0):
    arguments = {"solve_ratio": ratio, "reduction": "none"}
    for name, theirs, target, ours in (
        ("noiseContrastiveEstimation", pyepo.func.NCE, "decisions", NCE),
        ("contrastiveMAP", pyepo.func.CMAP, "decisions", lambda layer: SCE(layer, variant="plain")),
        ("listwiseLearningToRank", pyepo.func.lsLTR, "costs", lambda layer: Ranking(layer, "listwise")),
        ("pairwiseLearningToRank", pyepo.func.prLTR, "costs", lambda layer: Ranking(layer, "pairwise")),
        ("pointwiseLearningToRank", pyepo.func.ptLTR, "costs", lambda layer: Ranking(layer, "pointwise")),
    ):
        CASES[f"{name} solve_ratio={ratio:g}"] = (
            lambda model, dataset, program, theirs=theirs, arguments=arguments: theirs(
                model, dataset=dataset, **arguments
            ),
            target,
            lambda program, solver, data, ours=ours, ratio=ratio: ours(pool(solver, data, ratio)),
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
    theirs, ours = make(model, dataset, own), make_ours(own, solver, data)
    for step in range(1 if name.startswith("regularized") else 3):  # pools, noise and steps go on
        here, there = (predicted + 0.1 * step).requires_grad_(), (predicted + 0.1 * step).requires_grad_()
        value = ours(here, batch)
        other = theirs(there, *(given[field] for field in target.split()))
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
