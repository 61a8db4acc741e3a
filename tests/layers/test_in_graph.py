"""`Smoothed` inside `torch.compile`: one graph, the answers and gradients of the plain layer."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.errors import ShapeError, SolverError
from dflearn.layers import Smoothed
from dflearn.layers.in_graph import LAYERS
from dflearn.losses import SCE
from dflearn.program import Instance, Program
from support.emulator import COMPILER, MISSING, Emulator, InBlocks
from support.layer_examples import PROGRAMS

CURVED = Program(A=[[1.0, 1, 1]], b=[1], G=[[1.0, 0, -1]], h=[0.5], Q=[[2.0, 1, 0], [1, 3, 0], [0, 0, 1]], upper=0.7)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def in_one_graph(way: Any) -> Any:
    return torch.compile(way, backend="aot_eager", fullgraph=True)


def slopes(way: Any, y: Tensor, instance: Instance | None = None) -> list[Tensor]:
    """The decision, and its gradients in y and in the instance's fields."""
    given = (
        {} if instance is None else {name: part.clone().requires_grad_() for name, part in instance.present().items()}
    )
    costs = y.clone().requires_grad_()
    decision = way(costs, Instance(**given) if given else None)
    weight = torch.randn(decision.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = torch.autograd.grad(decision, [costs, *given.values()], weight.to(decision))
    return [decision.detach(), *found]


@pytest.mark.parametrize("program", PROGRAMS)
def test_answers_and_gradients_are_those_of_the_plain_layer(program: str) -> None:
    example = PROGRAMS[program]()
    layer = Smoothed(example.program, 0.7)
    for own, wanted in zip(
        slopes(in_one_graph(layer), example.y, example.instance),
        slopes(layer, example.y, example.instance),
        strict=True,
    ):
        torch.testing.assert_close(own, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["norm", "quadratic"])
def test_the_norm_and_quadratic_objectives_are_in_the_graph_too(kind: str) -> None:
    y = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    instance = None
    if kind == "norm":
        layer = Smoothed(Program(A=[[1.0, 1, 1]], b=[1], upper=0.7), 0.5, regularizer="norm")
    else:
        layer = Smoothed(CURVED, 0.5)
        instance = Instance(
            b=torch.linspace(0.8, 1.2, 4, dtype=torch.float64)[:, None],
            h=torch.full((4, 1), 0.2, dtype=torch.float64),
            upper=torch.full((4, 3), 0.6, dtype=torch.float64),
        )
    for own, wanted in zip(slopes(in_one_graph(layer), y, instance), slopes(layer, y, instance), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.skipif(COMPILER is None, reason=MISSING)
@pytest.mark.parametrize("regularizer", ["squared", "norm"])
def test_so_are_those_of_the_kernels_of_a_gpu(regularizer: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    InBlocks.machine = Emulator(tmp_path_factory.getbasetemp())
    example = PROGRAMS["knapsack"]()
    layer, plain = (kind(example.program, 0.7, regularizer=regularizer) for kind in (InBlocks, Smoothed))
    instance = example.instance if regularizer == "squared" else None
    for own, wanted in zip(
        slopes(in_one_graph(layer), example.y, instance), slopes(plain, example.y, instance), strict=True
    ):
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9)


def test_a_whole_step_is_one_graph_and_mu_may_change() -> None:
    """Model, layer and SCE; starts go in and come out; the second call with another μ uses the same graph."""
    program = PROGRAMS["knapsack"]().program
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    torch.manual_seed(0)
    model, loss = nn.Linear(4, program.p, dtype=torch.float64), SCE(Smoothed(program))
    x, costs = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, program.p, dtype=torch.float64)
    decisions = Smoothed(program, 1e-3)(costs)
    start = loss.layer.no_start(6)

    def step(x: Tensor) -> tuple[Tensor, Tensor | None]:
        out = loss.output(model(x), Batch(x, costs=costs, decisions=decisions, start=start))
        return out.value.sum(), out.solution.start if out.solution is not None else None

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for mu in (1.0, 0.3):
        loss.layer.mu = mu  # type: ignore[assignment]
        found = []
        for way in (compiled, step):
            model.zero_grad()
            value, new_start = way(x)
            value.backward()
            assert new_start is not None
            found.append([value.detach(), new_start, *(part.grad.clone() for part in model.parameters())])  # type: ignore[union-attr]
        for own, wanted in zip(*found, strict=True):
            torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-10)
    assert len(graphs) == 1


def test_errors_are_the_layers_own() -> None:
    layer = Smoothed(Program(A=[[1.0, 1, 1]], b=[1], upper=1))
    way = in_one_graph(layer)
    y = torch.zeros(2, 3, dtype=torch.float64)
    with pytest.raises(SolverError, match="instance 1 is INFEASIBLE"):
        way(y, Instance(b=torch.tensor([[1.0], [9.0]], dtype=torch.float64)))
    with pytest.raises(ShapeError, match="NaN"):
        way(y * torch.nan)
    norm = Smoothed(Program(A=[[1.0, 1, 1]], b=[1], upper=1), regularizer="norm")
    with pytest.raises(Exception, match="gives no gradient in the instance's b"):
        in_one_graph(norm)(y, Instance(b=torch.ones(2, 1, dtype=torch.float64, requires_grad=True)))


def test_what_the_operators_do_not_know_is_solved_outside_of_the_graph() -> None:
    layer = Smoothed(Program(A=[[1.0, 1, 1]], b=[1]))
    y = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    instance = Instance(q=torch.ones(2, 3, dtype=torch.float64))
    way = torch.compile(layer, backend="eager")
    torch.testing.assert_close(way(y, instance), layer(y, instance))


def test_the_operators_are_as_torch_wants_them() -> None:
    example = PROGRAMS["simplex"]()
    layer = Smoothed(example.program, 0.7)
    y = example.y.clone().requires_grad_()
    arguments = (y, None, None, None, None, None, None, layer.number, True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    assert set(torch.library.opcheck(torch.ops.dflearn.smoothed.default, arguments, test_utils=tests).values()) == {
        "SUCCESS"
    }


def test_copies_have_numbers_of_their_own_and_none_outlives_its_layer() -> None:
    layer = Smoothed(PROGRAMS["simplex"]().program)
    others = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    numbers = {one.number for one in (layer, *others)}
    assert len(numbers) == 3
    assert all(LAYERS[one.number] is one for one in (layer, *others))
    del others
    gc.collect()
    assert numbers & set(LAYERS) == {layer.number}
