"""`Instance.q`, a diagonal of Q for each instance: solvers, layers and gradients against exact programs, differences, cvxpylayers."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import cvxpy
import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import DataError, OptionError, ProgramError, ShapeError
from dflearn.layers import CvxpySmoothed, DavisYin, Exact, Smoothed
from dflearn.losses import SPOPlus
from dflearn.program import Instance, Program, Quadratic
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import TopK
from dflearn.testing.layers import check_layer
from support import programs

PORTFOLIO = programs.portfolio()
LINEAR = replace(PORTFOLIO, Q=None)
GENERATOR = torch.Generator().manual_seed(0)


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


Y = torch.randn(4, 8, generator=GENERATOR, dtype=torch.float64)
FIELDS = {
    "b": torch.linspace(0.5, 1, 4, dtype=torch.float64)[:, None],
    "h": torch.full((4, 1), 0.3, dtype=torch.float64),
    "lower": -0.1 * rand(4, 8),
    "upper": 0.2 + 0.4 * rand(4, 8),
    "d": rand(4, 8),
    "q": rand(4, 8)[[0, 1, 0, 2]],  # two instances have the same
}


def bent(program: Program, q: Tensor, mu: float) -> Program:
    """The program of one instance, its q and μ in Q."""
    Q = Quadratic(diagonal=np.zeros(program.n)) if program.Q is None else program.Q
    return replace(program, Q=Quadratic(Q.factor, Q.diagonal + q.numpy() + mu))


def layers(program: Program, mu: float) -> list[Any]:
    return [Smoothed(program, mu), DavisYin(program, mu, iterations=20_000, tolerance=1e-12, gradient="implicit")]


@pytest.mark.parametrize(("program", "mu"), [(LINEAR, 0.5), (PORTFOLIO, 0.1), (PORTFOLIO, 0.0)])
def test_decisions_and_all_gradients(program: Program, mu: float) -> None:
    """Each instance against its own program, solved exactly; gradients in everything known against differences."""
    instance = Instance(**FIELDS)
    for layer in layers(program, mu):
        found = layer.solve(Y, instance)
        assert found.status.tolist() == [int(Status.OPTIMAL)] * 4
        for i in range(4):
            alone = Instance(**{name: value[i] for name, value in FIELDS.items() if name != "q"})
            wanted = HiGHS(bent(program, FIELDS["q"][i], mu)).solve(Y[i], alone).check((Status.OPTIMAL,))
            torch.testing.assert_close(found.decision[i], wanted.decision, rtol=1e-7, atol=1e-8)
            torch.testing.assert_close(found.objective[i], wanted.objective, rtol=1e-8, atol=1e-9)
        value = program.objective(Y, found.decision, instance) + layer.regularization(found.decision)
        torch.testing.assert_close(found.objective, value, rtol=1e-9, atol=1e-10)

        def decide(y: Tensor, *sides: Tensor, layer: Any = layer) -> Tensor:
            return layer(y, Instance(**dict(zip(FIELDS, sides, strict=True))))

        arguments = [value.clone().requires_grad_() for value in (Y, *FIELDS.values())]
        assert torch.autograd.gradcheck(decide, arguments, eps=1e-6, atol=1e-5)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # cvxpylayers copies tensors so
def test_against_cvxpylayers() -> None:
    from cvxpylayers.torch import CvxpyLayer

    w, c, roots, b = cvxpy.Variable(8), cvxpy.Parameter(8), cvxpy.Parameter(8), cvxpy.Parameter(1)
    rows = [cvxpy.sum(w) == b, w >= 0, cvxpy.sum(w[:3]) <= 0.5]
    curved = 0.5 * cvxpy.sum_squares(cvxpy.multiply(roots, w))  # √q is what disciplined parameters allow
    problem = cvxpy.Problem(cvxpy.Minimize(c @ w + curved + 0.25 * cvxpy.sum_squares(w)), rows)
    y, q, right = (value[:2].clone().requires_grad_() for value in (Y, FIELDS["q"], FIELDS["b"]))
    precise = {"solve_method": "Clarabel", **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)}
    (theirs,) = CvxpyLayer(problem, parameters=[c, roots, b], variables=[w])(-y, q.sqrt(), right, solver_args=precise)
    v = torch.linspace(-1, 2, 8, dtype=torch.float64)
    wanted = torch.autograd.grad((theirs * v).sum(), (y, q, right))
    for layer in layers(LINEAR, 0.5):
        ours = layer(y, Instance(b=right, q=q))
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
        for one, other in zip(torch.autograd.grad((ours * v).sum(), (y, q, right)), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_predicted_rows_through_davis_yin() -> None:
    program = programs.predicted_demand()
    y = rand(3, 5).requires_grad_()
    layer = DavisYin(program, 0.3, iterations=20_000, tolerance=1e-12, gradient="implicit")
    exact = Smoothed(program, 0.3)
    torch.testing.assert_close(layer(y), exact(y), rtol=1e-8, atol=1e-9)
    v = rand(3, 3)
    one, other = (torch.autograd.grad((part(y) * v).sum(), y)[0] for part in (layer, exact))
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_the_contract() -> None:
    instance = Instance(q=FIELDS["q"], b=FIELDS["b"])
    for layer in layers(PORTFOLIO, 0.5):
        check_layer(layer, PORTFOLIO, y=Y, instance=instance, exact_gradient=True)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units(unit: float) -> None:
    """Decisions in another unit: q divides by its square; the gradient in q follows."""
    scaled = replace(LINEAR, b=LINEAR.b * unit, h=LINEAR.h * unit)
    results = []
    for program, size in ((LINEAR, 1.0), (scaled, unit)):
        q = (FIELDS["q"] / size**2).requires_grad_()
        w = Smoothed(program, 0.5 / size**2)(Y / size, Instance(q=q)) / size
        (slope,) = torch.autograd.grad((w * torch.arange(8)).sum(), q)
        results.append((w.detach(), slope / size**2))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_shapes_starts_and_dtypes() -> None:
    for layer in layers(LINEAR, 0.5):
        assert layer(Y[:0], Instance(q=FIELDS["q"][:0])).shape == (0, 8)
        w = layer(Y, Instance(q=FIELDS["q"]))
        torch.testing.assert_close(layer(Y[1], Instance(q=FIELDS["q"][1])), w[1], rtol=1e-7, atol=1e-9)
        grid = layer(Y.reshape(2, 2, 8), Instance(q=FIELDS["q"].reshape(2, 2, 8)))
        torch.testing.assert_close(grid.reshape(4, 8), w, rtol=1e-7, atol=1e-9)
        start = layer.no_start(4)
        for _ in range(2):
            again = layer.solve(Y, Instance(q=FIELDS["q"]), start)
            start = again.start
            torch.testing.assert_close(again.decision, w, rtol=1e-6, atol=1e-7)
        layer.mu = 0.7
        torch.testing.assert_close(
            pickle.loads(pickle.dumps(layer))(Y, Instance(q=FIELDS["q"])).sum(), FIELDS["b"].sum() * 0 + 4
        )
        zero = layer(Y, Instance(q=torch.zeros(4, 8)))
        torch.testing.assert_close(zero, layer(Y), rtol=1e-6, atol=1e-7)
    single = torch.rand(4, 8, generator=GENERATOR).requires_grad_()
    w = Smoothed(LINEAR, 0.5)(Y.float(), Instance(q=single))
    assert w.dtype == torch.float32
    assert torch.autograd.grad(w.square().sum(), single)[0].dtype == torch.float32


def test_solvers_and_losses() -> None:
    instance = Instance(q=FIELDS["q"] + 1)
    found = HiGHS(LINEAR).solve(Y, instance).check((Status.OPTIMAL,))
    torch.testing.assert_close(found.decision, Smoothed(LINEAR, 1e-9)(Y, instance), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.objective, LINEAR.objective(Y, found.decision, instance))
    assert HiGHS(LINEAR).solve(Y[:0], instance[:0]).decision.shape == (0, 8)
    loss = SPOPlus(Exact(HiGHS(LINEAR)))
    batch = Batch(Y, Y, found.decision, instance)
    torch.testing.assert_close(loss(Y, batch), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-7)
    guess = Y.flip(0)
    regret = LINEAR.objective.difference(Y, HiGHS(LINEAR).solve(guess, instance).decision, found.decision, instance)
    assert bool((loss(guess, batch) >= regret - 1e-9).all())
    assert bool((regret >= -1e-9).all())


def test_refusals() -> None:
    q = FIELDS["q"].clone().requires_grad_()
    wrong = FIELDS["q"].clone()
    wrong[1, 2] = -1
    with pytest.raises(ShapeError, match=r"instance 1: q\[2\] is -1"):
        Smoothed(LINEAR, 0.5)(Y, Instance(q=wrong))
    with pytest.raises(OptionError, match="regularizer='norm'"):
        Smoothed(LINEAR, 0.5, regularizer="norm")(Y, Instance(q=q))
    with pytest.raises(OptionError, match="takes no q"):
        CvxpySmoothed(LINEAR, 0.5)(Y, Instance(q=q))
    with pytest.raises(ProgramError, match="use Gurobi"):
        TopK(8, 3).solve(Y, Instance(q=FIELDS["q"]))
    for field in ("q", "b", "upper"):
        wanted = Instance(**{field: FIELDS[field].clone().requires_grad_()})
        with pytest.raises(OptionError, match=f"no gradient in the instance's {field}"):
            DavisYin(LINEAR, 0.5)(Y, wanted)
    with pytest.raises(OptionError, match="with the instances' q"):
        DavisYin(LINEAR, 0.5, 1.0)(Y, Instance(q=torch.full((4, 8), 2.0)))
    w = Smoothed(LINEAR, 0.5)(Y, Instance(q=q))
    (slope,) = torch.autograd.grad(w.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(slope.sum(), q)


def test_columns() -> None:
    program = Program(n=2, upper=1, variable_names=["x", "y"])
    found = program.instance({"q:y": np.array([1.0, 2.0])})
    assert found.q is not None
    assert found.q.tolist() == [[0, 1], [0, 2]]
    with pytest.raises(DataError, match="must be ≥ 0"):
        program.instance({"q:y": np.array([1.0, -2.0])})
