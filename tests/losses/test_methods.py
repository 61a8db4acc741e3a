"""PerturbationGradient, NCE, Ranking, LAVA, PEAR and neighbours' labels: contract, theory, and formulas written anew."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.data import Batch, label_by_neighbours
from dflearn.engine.exact.vertices import Vertex
from dflearn.errors import OptionError, ProgramError, ShapeError
from dflearn.layers import BlackBox
from dflearn.losses import LAVA, NCE, PEAR, SCE, CostSensitive, PerturbationGradient, Ranking, Regret
from dflearn.testing import check_loss

N, P, COUNT = 4, 3, 5
RNG = np.random.RandomState(1)
PROGRAM = dfl.Program(lower=-0.5, upper=1, S=RNG.normal(size=(N, P)), d=RNG.normal(size=N))
SOLVER = dfl.HiGHS(PROGRAM)


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def example(program: dfl.Program = PROGRAM, count: int = COUNT) -> tuple[Tensor, Batch]:
    costs = numbers(2, count, program.p)
    decisions = dfl.HiGHS(program).solve(costs).check().decision
    return numbers(3, count, program.p), Batch(costs, costs, decisions)


def pool(ratio: float = 0.0, count: int = 7) -> dfl.Exact:
    known = SOLVER.solve(numbers(4, count, P)).decision
    return dfl.Exact(dfl.Pooled(SOLVER, ratio, per="batch", initial=known))


def slope(loss: Any, predicted: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    leaf = predicted.clone().requires_grad_()
    value = loss(leaf, batch)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


# -- perturbation gradient ------------------------------------------------------------------------------------------------


def test_differences_enclose_the_cost_of_the_decision() -> None:
    """V is concave, so forward ≤ (S y + d)ᵀw*(ŷ) ≤ backward, for any width; all three agree as it vanishes."""
    predicted, batch = example(count=40)
    layer = dfl.Exact(SOLVER)
    cost = PROGRAM.objective(batch.costs, layer(predicted))
    for width in (1e-6, 0.1, 1.0):
        forward, central, backward = (
            PerturbationGradient(layer, width, difference=difference)(predicted, batch)
            for difference in ("forward", "central", "backward")
        )
        assert bool((forward <= cost + 1e-8).all())
        assert bool((backward >= cost - 1e-8).all())
        torch.testing.assert_close(central, (forward + backward) / 2)
        if width < 1e-3:
            torch.testing.assert_close(central, cost, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(forward, cost, rtol=1e-6, atol=1e-6)
        else:
            assert bool((backward > forward + 1e-3).any())


def test_the_black_box_on_the_regret_is_the_forward_difference() -> None:
    """g = S y + d arrives at the layer, so both look at ĉ + h (S y + d)."""
    predicted, batch = example(count=40)
    forward = slope(PerturbationGradient(dfl.Exact(SOLVER), 0.4, difference="forward"), predicted, batch)[1]
    torch.testing.assert_close(slope(Regret(BlackBox(SOLVER, 0.4)), predicted, batch)[1], forward)
    assert bool(forward.any())


# -- over a pool ----------------------------------------------------------------------------------------------------------

POOLED: dict[str, Any] = {
    "NCE": NCE,
    "NCE, shifted": lambda layer: NCE(layer, variant="shifted"),
    "pointwise": lambda layer: Ranking(layer, "pointwise"),
    "pairwise": lambda layer: Ranking(layer, "pairwise"),
    "pairwise, margin": lambda layer: Ranking(layer, "pairwise", margin=0.3),
    "pairwise-difference": lambda layer: Ranking(layer, "pairwise-difference"),
    "listwise": lambda layer: Ranking(layer, "listwise", temperature=0.7),
}


@pytest.mark.parametrize("name", POOLED)
def test_pool_losses_keep_the_contract(name: str) -> None:
    check_loss(POOLED[name](pool()), *example())
    check_loss(POOLED[name](pool(0.5)), *example(), random=True)


@pytest.mark.parametrize("name", POOLED)
def test_pool_losses_against_their_formulas(name: str) -> None:
    """Member by member, in loops."""
    layer = pool()
    predicted, batch = example()
    members = layer.solver.decisions.numpy()
    values = POOLED[name](layer)(predicted, batch).numpy()
    S, d = PROGRAM.S.toarray(), PROGRAM.d
    for value, guess, y, label in zip(
        values, predicted.numpy(), batch.costs.numpy(), batch.decisions.numpy(), strict=True
    ):
        c, truth = S @ guess + d, S @ y + d
        f, g = [truth @ w for w in members], [c @ w for w in members]
        best = int(np.argmin(f))
        rest = [i for i in range(len(members)) if i != best]
        if name == "NCE":
            wanted = np.mean([c @ label - c @ w for w in members])
        elif name == "NCE, shifted":
            wanted = np.mean([(c - truth) @ (label - w) for w in members])
        elif name == "pointwise":
            wanted = np.mean([(g[i] - f[i]) ** 2 for i in range(len(f))])
        elif name.startswith("pairwise-"):
            wanted = np.mean([((g[i] - g[best]) - (f[i] - f[best])) ** 2 for i in rest])
        elif name.startswith("pairwise"):
            margin = 0.3 if "margin" in name else 0.0
            wanted = np.mean([max(0.0, margin + g[best] - g[i]) for i in rest])
        else:
            p, q = (np.exp(-np.array(v) / 0.7) / np.exp(-np.array(v) / 0.7).sum() for v in (f, g))
            wanted = -(p * np.log(q)).sum()
        assert value == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("name", POOLED)
def test_pool_losses_are_convex(name: str) -> None:
    loss, (one, batch) = POOLED[name](pool()), example()
    other, share = numbers(9, COUNT, P), torch.linspace(0.1, 0.9, COUNT, dtype=torch.float64)
    middle = loss(share[:, None] * one + (1 - share)[:, None] * other, batch)
    assert bool((middle <= share * loss(one, batch) + (1 - share) * loss(other, batch) + 1e-9).all())


def test_a_ranking_is_least_at_the_true_costs() -> None:
    _, batch = example()
    for kind, least in (("pointwise", 0.0), ("pairwise", 0.0), ("pairwise-difference", 0.0), ("listwise", None)):
        value, gradient = slope(Ranking(pool(), kind), batch.costs, batch)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-9, rtol=0)
        if least is not None:
            torch.testing.assert_close(value, torch.full_like(value, least), atol=1e-12, rtol=0)


def test_contrastive_map_is_the_best_of_the_pool() -> None:
    layer, (predicted, batch) = pool(), example()
    c, members = PROGRAM.objective.vector(predicted), layer.solver.decisions
    wanted = (c * batch.decisions).sum(-1) - (c @ members.T).amin(-1)
    torch.testing.assert_close(SCE(layer, variant="plain")(predicted, batch), wanted)


# -- LAVA -----------------------------------------------------------------------------------------------------------------


def vertices_of(program: dfl.Program) -> np.ndarray:
    """All vertices of a small program, by trying every choice of n constraints that hold with equality."""
    rows = np.vstack([program.G.toarray(), -np.eye(program.n), np.eye(program.n)])
    right = np.concatenate([program.h, -program.lower, program.upper])
    A, b = program.A.toarray(), program.b
    found = []
    for chosen in itertools.combinations(range(len(rows)), program.n - len(A)):
        square = np.vstack([A, rows[list(chosen)]])
        if abs(np.linalg.det(square)) < 1e-9:
            continue
        w = np.linalg.solve(square, np.concatenate([b, right[list(chosen)]]))
        if (rows @ w <= right + 1e-9).all() and not any(np.allclose(w, v) for v in found):
            found.append(w)
    return np.array(found)


def neighbours_of(program: dfl.Program, w: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    """Those with which w shares n − 1 independent constraints: the definition."""
    rows = np.vstack([program.G.toarray(), -np.eye(program.n), np.eye(program.n)])
    right = np.concatenate([program.h, -program.lower, program.upper])
    beside = []
    for v in vertices:
        common = (abs(rows @ w - right) < 1e-7) & (abs(rows @ v - right) < 1e-7)
        rank = np.linalg.matrix_rank(np.vstack([program.A.toarray(), rows[common]]))
        if rank == program.n - 1:
            beside.append(v)
    return np.array(beside)


CUBE_CUT = dfl.Program(G=[[1.0, 1, 1], [2, 0.5, 1]], h=[1.7, 2.2], upper=1)
SIMPLEX = dfl.Program(A=np.ones((1, 4)), b=[1], upper=1)  # degenerate: upper bounds are met with the equation
PYRAMID = dfl.Program(G=[[1, 0, 1], [-1, 0, 1], [0, 1, 1], [0, -1, 1.0]], h=np.ones(4), lower=[-1, -1, 0], upper=1)


@pytest.mark.parametrize("program", [CUBE_CUT, SIMPLEX, PYRAMID], ids=["cube", "simplex", "pyramid"])
def test_adjacent_vertices_are_all_of_them(program: dfl.Program) -> None:
    vertices = vertices_of(program)
    for w in vertices:
        found = Vertex(program, w, program.own_sides).by_pivots(100)[0]
        wanted = neighbours_of(program, w, vertices)
        assert len(found) == len(wanted) > 0
        assert all(np.abs(wanted - v).max(1).min() < 1e-9 for v in found)


BIRKHOFF = dfl.Program(
    A=np.vstack([np.kron(np.eye(3), np.ones((1, 3))), np.kron(np.ones((1, 3)), np.eye(3))])[:5], b=np.ones(5), upper=1
)


@pytest.mark.parametrize("program", [SIMPLEX, PYRAMID, BIRKHOFF], ids=["simplex", "pyramid", "matchings"])
def test_directions_of_a_degenerate_vertex_are_its_edges(program: dfl.Program) -> None:
    """From one basis, which is not enough, and random linear programs over the cone: exactly the neighbours by definition."""
    vertices = vertices_of(program)
    loss = LAVA(program, bases=1, directions=60)
    for w in vertices:
        found, wanted = loss._found(w, program.own_sides), neighbours_of(program, w, vertices)
        assert len(found) == len(wanted) > 0
        assert all(np.abs(wanted - v).max(1).min() < 1e-9 for v in found)


def test_lava_keeps_the_contract() -> None:
    predicted, batch = example(CUBE_CUT)
    check_loss(LAVA(CUBE_CUT, 0.1), predicted, batch)
    upper = torch.tensor([[1.0, 1, 1], [0.5, 1, 1], [1, 0.4, 1], [1, 1, 0.3], [0.7, 0.7, 0.7]], dtype=torch.float64)
    instance = dfl.Instance(upper=upper)
    decisions = dfl.HiGHS(CUBE_CUT).solve(batch.costs, instance).check().decision
    check_loss(LAVA(CUBE_CUT), predicted, Batch(batch.costs, batch.costs, decisions, instance))


@pytest.mark.parametrize("program", [CUBE_CUT, SIMPLEX, PYRAMID], ids=["cube", "simplex", "pyramid"])
def test_lava_is_least_exactly_where_the_label_is_optimal(program: dfl.Program) -> None:
    """Without a margin it is zero there, positive elsewhere: the local test of a vertex is a global one."""
    predicted, batch = example(program, 60)
    behind = program.objective(predicted, batch.decisions) - dfl.HiGHS(program).solve(predicted).objective
    value = LAVA(program, 0.0)(predicted, batch)
    assert torch.equal(value > 1e-9, behind > 1e-9)
    assert bool((value > 1e-9).any())
    assert not bool((value > 1e-9).all())


def test_lava_in_closed_form_on_a_box() -> None:
    """The vertices next to w flip one entry: Σ_j max(−|..|…) = −Σ_j min(c_j (1 − 2w_j), ε)."""
    box = dfl.Program(upper=1, n=N)
    predicted, batch = example(box)
    wanted = -(predicted * (1 - 2 * batch.decisions)).clamp(max=0.1).sum(-1)
    torch.testing.assert_close(LAVA(box, 0.1)(predicted, batch), wanted)


def test_lava_refuses_what_is_no_vertex() -> None:
    with pytest.raises(OptionError, match="at least one basis"):
        LAVA(CUBE_CUT, bases=0)
    inside = torch.full((2, 3), 0.4, dtype=torch.float64)
    with pytest.raises(ProgramError, match="instance 0: the decision is no vertex"):
        LAVA(CUBE_CUT)(inside, Batch(inside, decisions=inside))
    with pytest.raises(ProgramError, match="breaks the program's constraints"):
        LAVA(CUBE_CUT)(inside, Batch(inside, decisions=5 * inside))


# -- PEAR -----------------------------------------------------------------------------------------------------------------


def test_pear_keeps_the_contract_and_is_a_gradient() -> None:
    layer = dfl.Smoothed(PROGRAM, 0.7)
    check_loss(PEAR(layer), *example(), differentiable=True)
    check_loss(PEAR(layer, injection=0.5), *example(), differentiable=False)


def test_pear_is_the_error_projected_onto_the_face() -> None:
    """On a box P is diagonal: 1 where the smoothed decision at ŷ is inside its bounds."""
    predicted, batch = example()
    layer, S = dfl.Smoothed(PROGRAM, 0.7), torch.tensor(PROGRAM.S.toarray())
    w = layer(predicted)
    inside = ((w > -0.5) & (w < 1)).double()
    wanted = (inside * ((predicted - batch.costs) @ S.T)) @ S / 0.7
    torch.testing.assert_close(slope(PEAR(layer), predicted, batch)[1], wanted)
    assert bool(wanted.any())
    normal = (predicted - batch.costs) @ S.T @ S / 0.7 - wanted
    sizes = wanted.norm(dim=-1, keepdim=True) / normal.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(slope(PEAR(layer, injection=0.5), predicted, batch)[1], wanted + 0.5 * sizes * normal)


def test_pear_is_one_of_the_two_terms_of_sce() -> None:
    """∇SCE = PEAR + Sᵀ(w* − w)."""
    program = dfl.problems.ShortestPath(3, 3).program
    predicted, batch = example(program, 8)
    layer = dfl.Smoothed(program, 1.0)
    sce, pear = (slope(loss(layer), predicted, batch)[1] for loss in (SCE, PEAR))
    torch.testing.assert_close(sce, pear + program.objective.transpose(batch.decisions - layer(predicted)))


# -- cost-sensitive regression --------------------------------------------------------------------------------------------


def test_cost_sensitive_regression_keeps_the_contract() -> None:
    check_loss(CostSensitive(PROGRAM), *example(), differentiable=True)
    predicted, batch = example()
    lower = torch.linspace(-0.5, 0.9, COUNT * N, dtype=torch.float64).reshape(COUNT, N)
    decisions = SOLVER.solve(batch.costs, dfl.Instance(lower=lower)).decision
    check_loss(
        CostSensitive(PROGRAM, 0.0), predicted, Batch(batch.costs, batch.costs, decisions, dfl.Instance(lower=lower))
    )


def test_harmless_errors_leave_the_label_optimal() -> None:
    """κ = 0: where the loss is zero the label is optimal; harmful errors of the same size are counted in full."""
    program = dfl.problems.ShortestPath(3, 3).program
    costs = numbers(1, 30, program.p).abs()
    label = dfl.HiGHS(program).solve(costs).check().decision
    error = numbers(2, 30, program.p).abs() * (1 - 2 * label)
    for sign, wanted in ((1, torch.zeros(30, dtype=torch.float64)), (-1, error.square().mean(-1))):
        predicted = costs + sign * error
        batch = Batch(costs, costs, label)
        torch.testing.assert_close(CostSensitive(program, 0.0)(predicted, batch), wanted)
        behind = program.objective(predicted, label) - dfl.HiGHS(program).solve(predicted).objective
        assert bool((behind.abs() < 1e-9).all()) == (sign == 1)
    torch.testing.assert_close(CostSensitive(program, 1.0)(predicted, batch), dfl.losses.MSE()(predicted, batch))


# -- neighbours -----------------------------------------------------------------------------------------------------------


def test_neighbours_of_features_far_from_zero() -> None:
    """Dates in seconds, say: distances are those of differences."""
    x, costs = numbers(1, 40, 2), numbers(2, 40, P)
    near, far = (label_by_neighbours(dfl.DecisionDataset(x + by, costs), SOLVER, 3) for by in (0.0, 2.0**31))
    torch.testing.assert_close(far.costs, near.costs)


def test_a_function_may_decide_for_neighbours() -> None:
    data = dfl.DecisionDataset(numbers(1, 6, 2), numbers(2, 6, 3))
    robust = label_by_neighbours(data, lambda c: np.eye(3)[c.argmin()], 2)
    torch.testing.assert_close(robust.decisions.sum(1), torch.ones(6).double())
    with pytest.raises(ShapeError, match=f"the data have {P + 1}"):
        label_by_neighbours(dfl.DecisionDataset(numbers(1, 6, 2), numbers(2, 6, P + 1)), SOLVER, 2)


@pytest.mark.parametrize("kind", ["cost-sensitive", "pear", "pointwise"])
def test_errors_of_predictions_keep_their_digits_beside_a_large_d(kind: str) -> None:
    """With d = 3·10⁶ a float32 number has no digit left behind the point; errors of predictions do not hold d."""
    program = dfl.Program(A=np.ones((1, 4)), b=[1], upper=1, d=np.full(4, 3e6))
    predicted, batch = example(program, 3)
    known = torch.eye(4).double()
    losses: dict[str, dfl.losses.Loss] = {
        "cost-sensitive": CostSensitive(program, 0.1),
        "pear": PEAR(dfl.Smoothed(program, 1.0)),
        "pointwise": Ranking(dfl.Exact(dfl.Pooled(dfl.HiGHS(program), 0.0, initial=known)), "pointwise"),
    }

    def slope(dtype: torch.dtype) -> Tensor:
        at = predicted.float().to(dtype).requires_grad_()
        single = replace(
            batch, costs=batch.require("costs").float().to(dtype), decisions=batch.require("decisions").to(dtype)
        )
        return torch.autograd.grad(losses[kind](at, single).sum(), at)[0].double()

    torch.testing.assert_close(slope(torch.float32), slope(torch.float64), rtol=1e-5, atol=1e-5)
