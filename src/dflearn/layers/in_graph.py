"""`Smoothed` inside `torch.compile`: operators of torch's for forward and backward, both with known shapes.

The operators find their layer by its number, so that μ may change without compiling again. An instance without a decision
is an error at once there, on a GPU as docs/how-to/gpu.md says.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.torch_private import outside_of_graphs
from dflearn.layers.base import as_rows, like, norm_gradient
from dflearn.program import Instance
from dflearn.program.sides import SIDES
from dflearn.solvers.base import Solution, check_costs, check_instance, check_start_shape

Smoothed: TypeAlias = Any  # `layers.smoothed` imports this module, which so cannot name its class

LAYERS: weakref.WeakValueDictionary[int, Smoothed] = weakref.WeakValueDictionary()  # by number
_numbers = itertools.count()
GIVEN = "Tensor? d, Tensor? b, Tensor? h, Tensor? lower, Tensor? upper, int layer"
FIELDS = ("d", *SIDES)
# With mode="reduce-overhead", torch captures what is around the operators: their statuses are looked at, which a graph hides.
APART: dict[str, Any] = {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}


def number_of(layer: Smoothed) -> int:
    """A number by which operators find the layer, as long as it lives."""
    number = next(_numbers)
    LAYERS[number] = layer
    return number


def solve_in_graph(layer: Smoothed, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
    """`Smoothed.solve` while torch traces it. What the operators do not know is solved outside of the graph."""
    if (instance is not None and instance.q is not None) or layer.program.predicts_rows:
        outside: Solution = _outside(layer, y, instance, start)
        return outside
    if instance is not None:
        layer._check_instance(instance)
    given = [None if instance is None else getattr(instance, name) for name in FIELDS]
    training = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (y, *given))
    found = torch.ops.dflearn.smoothed(y, start, *given, layer.number, training)
    decision, status, objective, bound, residual, fallback, new_start = found[:7]
    return Solution(
        decision=decision,
        status=status,
        objective=objective,
        bound=bound,
        start=None if start is None else new_start,
        residual=residual,
        fallback=fallback,
        deferred=True,
    )


@outside_of_graphs
def _outside(layer: Smoothed, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
    solution: Solution = layer.solve(y, instance, start)
    return solution


def _instance(given: tuple[Tensor | None, ...]) -> Instance | None:
    if all(part is None for part in given):
        return None
    return Instance(**dict(zip(FIELDS, given, strict=True)))


Tensors = tuple[Tensor, Tensor, Tensor]  # a face: inside, in_force and μ


def _solved(
    layer: Smoothed, costs: Tensor, instance: Instance | None, start: Tensor | None, training: bool, y: Tensor
) -> tuple[Solution, Tensors]:
    """The answer for c `(*batch, n)`, its decision like y, and its face."""
    blocks = layer.blocks(costs.device)
    if blocks is not None:
        from dflearn.layers.gpu import answer_on_gpu

        solution, there = answer_on_gpu(layer, blocks, costs, instance, start, training, y.dtype)
        return solution, (there.inside, there.in_force, -1 / there.factor)
    c = as_rows(costs, y.shape[:-1].numel(), np.float64)
    solution, face = layer.solve_here(c, instance, start, y)
    inside, in_force, mu = map(torch.from_numpy, face.arrays())
    return solution, (inside, in_force, mu)


def _led_back(
    layer: Smoothed, gradient: Tensor, decision: Tensor, tensors: Tensors, instance: Instance | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """A gradient in w `(*batch, n)` as one in c, and by name as those in the sides that the instance has."""
    given = {} if instance is None else instance.present()
    names: list[str] = [name for name in given if name in SIDES]
    inside, in_force, mu = tensors
    blocks, count = layer.blocks(gradient.device), len(inside)
    if blocks is not None:
        from dflearn.layers.gpu import BlockFace

        w = decision.double().reshape(count, decision.shape[-1])
        w = w if blocks.change is None else blocks.change.point(w)
        there = BlockFace(blocks, inside, in_force, -1 / mu, layer.watch, w)
        back = there.backward(gradient)
        if not names or instance is None:
            return back, {}
        return back, dict(zip(names, there.side_gradients(instance, names)(gradient), strict=True))
    points, v = as_rows(decision, count, np.float64), as_rows(gradient, count, np.float64)
    face = layer.backend().face(*(part.cpu().numpy() for part in tensors))
    if layer.regularizer == "norm":
        return norm_gradient(face, gradient, decision), {}
    back = like(face.project(v), gradient)
    if not names:
        return back, {}
    found = face.side_gradients(layer.program.sides(instance, count), points, v)
    return back, {name: like(found[name], given[name]) for name in names}


@torch.library.custom_op(
    "dflearn::smoothed",
    mutates_args=(),
    **APART,
    schema=f"(Tensor y, Tensor? start, {GIVEN}, bool training) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def smoothed(y: Tensor, start: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    """Decision, status, objective, bound, residual, fallback and start as of `Solution`; inside, in_force and μ of its face."""
    *given, number, training = rest
    layer, instance = LAYERS[number], _instance(tuple(given))
    batch = check_costs(y, layer.objective, values=not layer._checks_later(y.device))
    check_instance(instance, batch)
    check_start_shape(start, batch, layer.start_width)
    solution, (inside, in_force, mu) = _solved(
        layer, layer.objective.vector(y.double(), instance), instance, start, training, y
    )
    solution.check()
    residual, fallback = solution.residual, solution.fallback
    assert residual is not None
    assert fallback is not None
    new_start = y.new_empty(0, dtype=torch.float64) if solution.start is None else solution.start
    parts = (solution.decision, solution.status, solution.objective, solution.bound, residual, fallback, new_start)
    # No two answers may share memory.
    return tuple(part.to(y.device).clone() for part in (*parts, inside, in_force, mu))


@smoothed.register_fake
def _(y: Tensor, start: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    layer, batch = LAYERS[rest[-2]], y.shape[:-1]
    program = layer.kernel_program
    inside, in_force = program.n, program.equality_form().matrix.shape[0]
    numbers = [y.new_empty(batch, dtype=torch.float64) for _ in range(3)]
    count = y.new_empty(batch).numel()
    return (
        y.new_empty((*batch, layer.program.n)),
        y.new_empty(batch, dtype=torch.int8),
        *numbers,
        y.new_empty(batch, dtype=torch.bool),
        y.new_empty(0 if start is None else (*batch, layer.start_width), dtype=torch.float64),
        y.new_empty((count, inside), dtype=torch.uint8),
        y.new_empty((count, in_force), dtype=torch.uint8),
        y.new_empty(1, dtype=torch.float64),
    )


@torch.library.custom_op(
    "dflearn::smoothed_back",
    mutates_args=(),
    **APART,
    schema=f"(Tensor gradient, Tensor decision, Tensor inside, Tensor in_force, Tensor mu, {GIVEN}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def smoothed_back(
    gradient: Tensor, decision: Tensor, inside: Tensor, in_force: Tensor, mu: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    """Gradients in y, d, b, h, lower and upper; empty for what is not given."""
    *given, number = rest
    layer, instance = LAYERS[number], _instance(tuple(given))
    back, sides = _led_back(layer, gradient, decision, (inside, in_force, mu), instance)
    toward_y = layer.objective.transpose(back)
    found = {"d": back.clone(), **sides}
    empty = gradient.new_empty(0)
    return toward_y.clone(), *(
        empty.clone() if part is None else found[name].to(part).reshape(part.shape)
        for name, part in zip(FIELDS, given, strict=True)
    )


@smoothed_back.register_fake
def _(gradient: Tensor, decision: Tensor, inside: Tensor, in_force: Tensor, mu: Tensor, *rest: Any) -> Any:
    *given, number = rest
    toward_y = gradient.new_empty((*gradient.shape[:-1], LAYERS[number].objective.p))
    return toward_y, *(gradient.new_empty(0) if part is None else torch.empty_like(part) for part in given)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, *given, number, _ = inputs
    decision, inside, in_force, mu = output[0], *output[-3:]
    ctx.number, ctx.given = number, [part is not None for part in given]
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(decision, inside, in_force, mu, *(part for part in given if part is not None))


def _back(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Any, ...]:
    decision, inside, in_force, mu, *there = ctx.saved_tensors
    parts = iter(there)
    given = [next(parts) if is_there else None for is_there in ctx.given]
    toward_y, *found = torch.ops.dflearn.smoothed_back(gradient, decision, inside, in_force, mu, *given, ctx.number)
    sides = (part if is_there else None for part, is_there in zip(found, ctx.given, strict=True))
    return toward_y, None, *sides, None, None


smoothed.register_autograd(_back, setup_context=_keep)
