"""What differs between instances, sides, d and q: decisions and gradients against exact programs, differences, prices by hand, cvxpylayers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


COUNT = 3
Y = torch.randn(4, 8, generator=GENERATOR, dtype=torch.float64)[:COUNT]
FIELDS = {
    "b": torch.linspace(0.5, 1, 4, dtype=torch.float64)[:COUNT, None],
    "h": torch.full((COUNT, 1), 0.3, dtype=torch.float64),
    "lower": -0.1 * rand(4, 8)[:COUNT],
    "upper": 0.2 + 0.4 * rand(4, 8)[:COUNT],
    "d": rand(4, 8)[:COUNT],
    "q": rand(4, 8)[[0, 1, 0]],  # two instances have the same
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
        assert found.status.tolist() == [int(Status.OPTIMAL)] * COUNT
        for i in range(COUNT):
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


@pytest.mark.parametrize(("program", "mu"), [(LINEAR, 0.5), (PORTFOLIO, 0.1), (PORTFOLIO, 0.0)])
def test_gradients_without_q(program: Program, mu: float) -> None:
    layer, names = Smoothed(program, mu), [name for name in FIELDS if name != "q"]

    def decide(y: Tensor, *sides: Tensor) -> Tensor:
        return layer(y, Instance(**dict(zip(names, sides, strict=True))))

    arguments = [value.clone().requires_grad_() for value in (Y, *(FIELDS[name] for name in names))]
    assert torch.autograd.gradcheck(decide, arguments, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_row_in_force_and_one_that_is_not(unit: float) -> None:
    """min ½μ‖w‖² over w_0 + w_1 = b, w_2 ≥ −h: w_0 = w_1 = b/2, and h changes nothing."""
    program = Program(A=[[unit, unit, 0]], b=[unit], G=[[0, 0, -1.0]], h=[1], lower=-np.inf)
    b, h = torch.tensor([unit], requires_grad=True), torch.tensor([1.0], requires_grad=True)
    w = Smoothed(program, 1.0)(torch.zeros(3, dtype=torch.float64), Instance(b=b.double(), h=h.double()))
    slope_b, slope_h = torch.autograd.grad(w @ torch.tensor([1.0, 0, 1], dtype=torch.float64), (b, h))
    assert float(slope_b) == pytest.approx(0.5 / unit)
    assert float(slope_h) == 0


def test_dependent_rows() -> None:
    """Rows that say the same twice: exact along directions that move both consistently."""
    A = np.array([[1.0, 1, 0], [2, 2, 0], [0, 0, 1]])
    layer = Smoothed(Program(A=A, b=A @ [1.0, 1, 1], lower=-np.inf), 1.0)
    y = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    direction, v = A @ np.array([0.7, 0.1, -0.4]), torch.tensor([1.0, 3, -2], dtype=torch.float64)
    b = torch.tensor(A @ np.ones(3), requires_grad=True)
    (slope,) = torch.autograd.grad(layer(y, Instance(b=b)) @ v, b)
    step = 1e-6
    ends = [layer(y, Instance(b=b.detach() + sign * step * torch.tensor(direction))) @ v for sign in (1, -1)]
    assert float(slope.numpy() @ direction) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_rows_that_depend_within_the_face() -> None:
    """Two inequalities in force that coincide once a variable is fixed."""
    program = Program(G=[[-1.0, -1, 0], [-1, -1, 1]], h=[-1, -1], upper=[np.inf, np.inf, 0])
    h = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    w = Smoothed(program, 1.0)(torch.ones(3, dtype=torch.float64), Instance(h=h))
    (slope,) = torch.autograd.grad(w.sum(), h)
    assert float(slope.sum()) == pytest.approx(-1)  # both right-hand sides down by one: one more to bring


def test_predicted_rows() -> None:
    program = programs.predicted_demand()
    y = rand(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(Smoothed(program, 0.3), (y,), eps=1e-6, atol=1e-6)
    curved = replace(program, Q=np.eye(3) + 0.5 * np.ones((3, 3)))
    assert torch.autograd.gradcheck(Smoothed(curved, 0.0), (y,), eps=1e-6, atol=1e-6)
    check_layer(Smoothed(program, 0.3), program)
    layer = DavisYin(program, 0.3, iterations=20_000, tolerance=1e-12, gradient="implicit")
    torch.testing.assert_close(layer(y), Smoothed(program, 0.3)(y), rtol=1e-8, atol=1e-9)
    v = rand(3, 3)
    one, other = (torch.autograd.grad((part(y) * v).sum(), y)[0] for part in (layer, Smoothed(program, 0.3)))
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)
    exact = HiGHS(program).solve(y)
    torch.testing.assert_close(Exact(HiGHS(program))(y), exact.decision)
    assert bool(program.is_feasible(exact.decision, program.realize(y.detach())).all())
    for refuses in (DavisYin(program, 0.3), CvxpySmoothed(program, 0.3)):
        with pytest.raises(OptionError, match="no gradient through those: use Smoothed, or DavisYin"):
            refuses(y)
        assert refuses(y.detach()).shape == (3, 3)


def test_the_contract() -> None:
    instance = Instance(q=FIELDS["q"], b=FIELDS["b"])
    for layer in layers(PORTFOLIO, 0.5):
        check_layer(layer, PORTFOLIO, y=Y, instance=instance, exact_gradient=True)
        zero = layer(Y, Instance(q=torch.zeros(COUNT, 8)))
        torch.testing.assert_close(zero, layer(Y), rtol=1e-6, atol=1e-7)


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


def test_solvers_and_losses() -> None:
    instance = Instance(q=FIELDS["q"] + 1)
    found = HiGHS(LINEAR).solve(Y, instance).check((Status.OPTIMAL,))
    torch.testing.assert_close(found.decision, Smoothed(LINEAR, 1e-9)(Y, instance), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.objective, LINEAR.objective(Y, found.decision, instance))
    assert HiGHS(LINEAR).solve(Y[:0], instance[:0]).decision.shape == (0, 8)
    loss = SPOPlus(Exact(HiGHS(LINEAR)))
    batch = Batch(Y, Y, found.decision, instance)
    torch.testing.assert_close(loss(Y, batch), torch.zeros(COUNT, dtype=torch.float64), rtol=0, atol=1e-7)
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
    sides = Instance(b=FIELDS["b"].clone().requires_grad_())
    with pytest.raises(OptionError, match="no gradient in the instance's b"):
        Smoothed(LINEAR, 0.5, regularizer="norm")(Y, sides)
    with pytest.raises(OptionError, match="takes no q"):
        CvxpySmoothed(LINEAR, 0.5)(Y, Instance(q=q))
    with pytest.raises(ProgramError, match="use Gurobi"):
        TopK(Program(A=np.ones((1, 8)), b=[3], upper=1, integer=True)).solve(Y, Instance(q=FIELDS["q"]))
    for field in ("q", "b", "upper"):
        wanted = Instance(**{field: FIELDS[field].clone().requires_grad_()})
        with pytest.raises(OptionError, match=f"no gradient in the instance's {field}"):
            DavisYin(LINEAR, 0.5)(Y, wanted)
    with pytest.raises(OptionError, match="with the instances' q"):
        DavisYin(LINEAR, 0.5, 1.0)(Y, Instance(q=torch.full((COUNT, 8), 2.0)))
    for given, leaf in ((Instance(q=q), q), (sides, sides.b)):
        w = Smoothed(LINEAR, 0.5)(Y, given)
        (slope,) = torch.autograd.grad(w.square().sum(), leaf, create_graph=True)
        with pytest.raises(OptionError, match="no second derivatives"):
            torch.autograd.grad(slope.sum(), leaf)


def test_columns() -> None:
    program = Program(n=2, upper=1, variable_names=["x", "y"])
    found = program.instance({"q:y": np.array([1.0, 2.0])})
    assert found.q is not None
    assert found.q.tolist() == [[0, 1], [0, 2]]
    with pytest.raises(DataError, match="must be ≥ 0"):
        program.instance({"q:y": np.array([1.0, -2.0])})
