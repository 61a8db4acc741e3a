"""`Smoothed` inside `torch.compile`: operators of torch's for forward and backward, both with known shapes.

The operators find their layer by its number, so that μ may change without compiling again. An instance without a decision
is an error at once there, on a GPU as docs/how-to/gpu.md says.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dflearn.engine.torch_private import outside_of_graphs
from dflearn.layers.base import FaceGradient
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


def _face(layer: Smoothed, tensors: tuple[Tensor, ...], decision: Tensor, instance: Instance | None) -> Any:
    """The face of inside, in_force and μ, as of `Smoothed.answer`."""
    inside, in_force, mu = tensors
    if (blocks := layer.blocks(decision.device)) is not None:
        from dflearn.layers.gpu import BlockFace

        w = decision.double().reshape(len(inside), decision.shape[-1])
        w = w if blocks.change is None else blocks.change.point(w)
        return BlockFace(blocks, inside, in_force, -1 / mu, layer.watch, w, instance)
    face = layer.backend().face(*(part.cpu().numpy() for part in tensors))
    return FaceGradient(face, layer.program.sides(instance, len(inside)), layer.regularizer == "norm")


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
    solution, face = layer.answer(y, layer.objective.vector(y.double(), instance), instance, start, training)
    solution.check()
    residual, fallback = solution.residual, solution.fallback
    assert residual is not None
    assert fallback is not None
    new_start = y.new_empty(0, dtype=torch.float64) if solution.start is None else solution.start
    parts = (solution.decision, solution.status, solution.objective, solution.bound, residual, fallback, new_start)
    # No two answers may share memory.
    return tuple(part.to(y.device).clone() for part in (*parts, *face.tensors()))


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
    face = _face(layer, (inside, in_force, mu), decision, instance)
    back = face.backward(gradient, decision)
    toward_y, found = layer.objective.transpose(back), {"d": back.clone()}
    if instance is not None and set(SIDES) & set(instance.present()):
        found |= {name: torch.as_tensor(part) for name, part in face.side_gradients(gradient, decision).items()}
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
