"""One instance alone is solved by kernels of its own: the answer, its face and its gradient are those of the batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from dflearn import Program
from dflearn.errors import OptionError
from dflearn.layers import Smoothed
from dflearn.layers.alone import Lone, answer_alone
from dflearn.problems import problem_named


def programs() -> list[Program]:
    """Equalities alone, rows of "≤" alone, both; fixed variables, missing bounds, and costs in another order."""
    generator = np.random.default_rng(0)
    named = [problem_named(name, seed=1).program.relax() for name in ("SP-4", "KP-20", "CFL-10x3")]
    G, w = generator.normal(size=(6, 21)), generator.uniform(size=21)
    lower, upper = np.zeros(21), np.full(21, 2.0)
    lower[:4], upper[3:6], lower[9], upper[9] = -np.inf, np.inf, 0.5, 0.5
    w[9] = 0.5
    S = np.zeros((21, 20))
    S[np.delete(np.arange(21), 9), generator.permutation(20)] = generator.uniform(0.5, 2.0, 20)
    A = generator.normal(size=(3, 21))
    mixed = Program(A=A, b=A @ w, G=G, h=G @ w + 0.1, lower=lower, upper=upper, S=S, d=generator.normal(size=21))
    return [*named, mixed]


def lone_of(layer: Smoothed, y: torch.Tensor) -> bool:
    assert layer.short is not None
    assert layer.short.one is not None
    return answer_alone(y, layer.short) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mu", [1.0, 0.05])
@pytest.mark.parametrize("place", range(4))
def test_alone_is_as_in_a_batch(place: int, mu: float, dtype: torch.dtype) -> None:
    program = programs()[place]
    layer, count = Smoothed(program, mu), 8
    y = torch.randn(count, program.p, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    incoming = torch.randn(count, program.n, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    whole, apart = y.clone().requires_grad_(), y.clone().requires_grad_()
    together, alone = layer.solve(whole), [layer.solve(apart[i : i + 1]) for i in range(count)]
    assert sum(lone_of(layer, y[i : i + 1]) for i in range(count)) >= count - 1  # the way is taken, not passed by
    decision = torch.cat([one.decision for one in alone])
    together.decision.backward(incoming)
    decision.backward(incoming)
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(decision, together.decision, **tolerance)
    torch.testing.assert_close(
        apart.grad, whole.grad, **({"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else tolerance)
    )
    torch.testing.assert_close(torch.cat([one.objective for one in alone]), together.objective, rtol=1e-9, atol=1e-9)
    for one in alone:
        assert one.residual is not None
        assert one.residual.item() <= 1e-9
        assert one.status.tolist() == [0]
        assert one.fallback is not None
        assert one.fallback.tolist() == [False]


def test_repeats_have_the_same_bits_in_any_order_and_thread() -> None:
    program = problem_named("CFL-10x3", seed=1).program.relax()
    layer, y = Smoothed(program), torch.rand(4, program.p, generator=torch.Generator().manual_seed(0))
    first = [layer(y[i : i + 1]) for i in range(4)]
    found: dict[int, torch.Tensor] = {}

    def work() -> None:
        for i in reversed(range(4)):
            found[i] = layer(y[i : i + 1])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for i in range(4):
        assert torch.equal(first[i], found[i])
        assert torch.equal(first[i], layer(y[i : i + 1]))


def test_gradients_of_every_layout_and_the_second_derivative() -> None:
    program = problem_named("KP-20", seed=1).program.relax()
    layer, y = Smoothed(program), torch.linspace(1, 2, program.p, dtype=torch.float64)[None].requires_grad_()
    assert torch.autograd.gradcheck(layer, (y,))
    decision = layer(y)
    weights = torch.linspace(-1, 1, 2 * program.n, dtype=torch.float64)[::2][None]  # not contiguous
    (strided,) = torch.autograd.grad(decision, y, weights, retain_graph=True)
    (dense,) = torch.autograd.grad(decision, y, weights.contiguous(), retain_graph=True)
    assert torch.equal(strided, dense)
    (again,) = torch.autograd.grad(decision, y, weights, create_graph=True)
    torch.testing.assert_close(again, dense, rtol=1e-12, atol=1e-12)
    assert torch.equal(layer(torch.stack([y[0], y[0]], 1).mT[:1]), layer(y))  # costs that lie otherwise


def test_what_is_no_usual_case_goes_the_other_way() -> None:
    program = Program(A=[[1.0, 1.0]], b=[3.0], lower=0.0, upper=1.0)
    assert Smoothed(program).solve(torch.zeros(1, 2)).status.tolist() != [0]
    relaxed = problem_named("KP-20", seed=1).program.relax()
    layer = Smoothed(relaxed)
    assert not lone_of(layer, torch.full((1, relaxed.p), torch.nan))
    lifted = Smoothed(Program(G=[[1.0, 1.0]], h=[1.0], S=[[1.0], [2.0]]))  # one cost, two variables
    assert lifted.short is not None
    assert lifted.short.one is None


def test_where_the_projection_is_off_the_face_the_batch_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = problem_named("SP-4", seed=1).program.relax()
    layer, y = Smoothed(program), torch.rand(1, program.p, generator=torch.Generator().manual_seed(0))
    assert layer.short is not None
    found = answer_alone(y, layer.short)
    assert found is not None
    assert isinstance(found.face, Lone)
    gradient = torch.linspace(-1, 1, program.n)[None]
    usual = found.face.way_back(gradient)
    monkeypatch.setattr("dflearn.layers.alone.project_alone", lambda *arguments: False)
    torch.testing.assert_close(found.face.way_back(gradient), usual, rtol=1e-6, atol=1e-7)


def test_numbers_that_do_not_lie_where_the_address_says() -> None:
    program = problem_named("KP-20", seed=1).program.relax()
    layer, y = Smoothed(program), torch.linspace(1, 2, program.p, dtype=torch.float64)[None]
    zeros = torch._efficientzerotensor((1, program.p), dtype=torch.float64)  # without memory
    assert torch.equal(layer(zeros), layer(torch.zeros_like(y)))
    negated = torch.complex(torch.zeros_like(y), -y).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(layer(negated), layer(y), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer(negated.expand(2, -1)), layer(y.expand(2, -1)), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer(negated[0]), layer(y[0]), rtol=1e-12, atol=1e-12)
    with pytest.raises(TypeError, match="to_dense"):
        layer(y.to_sparse())
    costs = y.clone().requires_grad_()
    decision, weights = layer(costs), torch.linspace(-1, 1, program.n, dtype=torch.float64)[None]
    (nothing,) = torch.autograd.grad(decision, costs, 0.0 * weights, retain_graph=True)
    assert layer.short is not None
    found = answer_alone(y, layer.short)
    assert found is not None
    assert torch.equal(found.face.way_back(torch._efficientzerotensor((1, program.n), dtype=torch.float64)), nothing)
    (wanted,) = torch.autograd.grad(decision, costs, weights)
    back = found.face.way_back(torch.complex(torch.zeros_like(weights), -weights).conj().imag)
    torch.testing.assert_close(back, wanted, rtol=1e-12, atol=1e-12)


def test_where_torch_makes_tensors_without_memory() -> None:
    program = problem_named("KP-20", seed=1).program.relax()
    layer, y = Smoothed(program), torch.linspace(1, 2, program.p, dtype=torch.float64)[None]
    assert layer.short is not None
    found, gradient = answer_alone(y, layer.short), torch.ones(1, program.n, dtype=torch.float64)
    assert found is not None
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert answer_alone(y, layer.short) is None
        for refused in (lambda: layer(y), lambda: found.face.way_back(gradient)):
            with pytest.raises(OptionError, match="needs numbers"):
                refused()


def test_a_program_in_which_nothing_is_predicted() -> None:
    layer = Smoothed(Program(A=[[1.0, 1.0]], b=[1.0], S=np.zeros((2, 0)), d=[1.0, 1.5]))
    y = torch.zeros(1, 0, requires_grad=True)
    decision = layer(y)
    torch.testing.assert_close(decision, torch.tensor([[0.75, 0.25]]))
    decision.sum().backward()
    assert y.grad is not None
    assert y.grad.shape == (1, 0)


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script.:DeprecationWarning"
)  # of torch's own, when a first tangent is made
@pytest.mark.parametrize("count", [1, 2])
def test_derivatives_in_forward_mode_are_refused(count: int) -> None:
    program = problem_named("KP-20", seed=1).program.relax()
    layer, y = Smoothed(program), torch.ones(count, program.p)
    with forward_ad.dual_level(), pytest.raises(OptionError, match="forward mode"):
        layer(forward_ad.make_dual(y, y))


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")
@pytest.mark.parametrize("count", [1, 2])
def test_tensors_without_numbers_are_refused(count: int) -> None:
    program = problem_named("KP-20", seed=1).program.relax()
    layer, y = Smoothed(program), torch.ones(count, program.p, dtype=torch.float64)
    for under in (
        lambda: torch.func.vmap(layer)(y[None]),
        lambda: torch.func.jacrev(layer)(y),
        lambda: torch.func.jvp(layer, (y,), (y,)),
        lambda: torch.autograd.functional.jacobian(layer, y, vectorize=True),
    ):
        with pytest.raises(OptionError, match="needs numbers"):
            under()
