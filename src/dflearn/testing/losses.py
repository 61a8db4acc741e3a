"""`check_loss`: what every loss must do, whatever it computes."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import DataError, ShapeError
from dflearn.losses.base import Loss
from dflearn.testing.solvers import check_refused, close, copies, refusal, slope_of


def check_loss(
    loss: Loss,
    predicted: Tensor,
    batch: Batch,
    *,
    random: bool = False,
    differentiable: bool | None = None,
    flat: bool = False,
    tolerance: float = 1e-5,
) -> None:
    """Raise an `AssertionError` that says which part of the contract the loss breaks.

    Args:
        predicted: predicted costs ŷ, `(count, p)` with count ≥ 2, in float32 or float64.
        batch: the same instances, with all that the loss needs, in the dtype of ŷ.
        random: the loss draws random numbers, so that an instance's value depends on the batch it sits in.
        differentiable: `True`: the loss is differentiable around ŷ, and its gradient is compared with finite differences in
            float64. By default it may have kinks, where the gradient must lie between the slopes on either side; a loss
            with `random` is not compared. `False`: its gradient is meant to be something else than its slope.
        flat: the loss has no gradient almost everywhere, as `Regret` through `Exact`; otherwise that is an error.
        tolerance: relative and absolute, between numbers that must agree.

    Examples:
        >>> loss = dfl.losses.SPOPlus(dfl.Exact(problem.solver()))
        >>> dfl.testing.check_loss(loss, predicted[:3], data[range(3)])
    """
    assert predicted.ndim == 2, f"check_loss needs predicted costs (count, p); got {tuple(predicted.shape)}"
    assert len(predicted) >= 2, "check_loss needs at least two instances"
    value, slope = _value_and_gradient(loss, predicted, batch)
    _check_output(loss, predicted, batch, value)
    _check_needs(loss, predicted, batch)
    _check_shapes(loss, predicted, batch)
    for how, other in copies(loss):
        close(other(predicted, batch), loss(predicted, batch), tolerance, f"{how} changes the loss")
    _check_sizes(loss, predicted, batch)
    if not random:
        _check_loop(loss, predicted, batch, value, slope, tolerance)
        _check_start(loss, predicted, batch, value, tolerance)
    assert flat or bool(slope.any()), (
        "every gradient is zero, so that nothing was learnt about it, nor would a model learn anything from it: pass "
        "predictions at which the loss has a slope, or flat=True if it is meant to have none"
    )
    if differentiable or (differentiable is None and not random):
        _check_gradient(loss, predicted, batch, kinks=differentiable is None)


def _check_output(loss: Loss, predicted: Tensor, batch: Batch, value: Tensor) -> None:
    wanted = predicted.shape[:-1]
    assert value.shape == wanted, f"a loss is not reduced: value {tuple(value.shape)}, wanted {tuple(wanted)}"
    assert value.dtype == predicted.dtype, f"value is {value.dtype}, predicted costs are {predicted.dtype}"
    assert value.device == predicted.device, f"value is on {value.device}, predicted costs on {predicted.device}"
    assert bool(torch.isfinite(value).all()), "the value is not finite"
    dtype = torch.float32 if predicted.dtype == torch.float64 else torch.float64
    other = loss(predicted.to(dtype), batch.to(dtype))
    assert other.dtype == dtype, f"predicted costs and data in {dtype} give a value in {other.dtype}"


def _check_needs(loss: Loss, predicted: Tensor, batch: Batch) -> None:
    """What the loss needs it refuses to go without; what it does not need may be missing."""
    for field, without in (("costs", replace(batch, costs=None)), ("decisions", replace(batch, decisions=None))):
        if field not in loss.needs:
            loss(predicted, without)
            continue
        check_refused(
            DataError, f"a batch without {field}, though the loss needs {field},", field, loss, predicted, without
        )


def _check_shapes(loss: Loss, predicted: Tensor, batch: Batch) -> None:
    """A shape that would broadcast is an error."""
    for field in loss.needs:
        wrong = batch.require(field)[:, :1] if field == "costs" else batch.require(field)[:1]
        changes: dict[str, Any] = {field: wrong}
        message = refusal(ShapeError, loss, predicted, replace(batch, **changes))
        assert message, f"{field} of shape {tuple(wrong.shape)} are taken for {tuple(predicted.shape)} predictions"


def _check_sizes(loss: Loss, predicted: Tensor, batch: Batch) -> None:
    """No instance, one instance, an instance without batch, and a grid of instances."""
    for index in (slice(0, 0), slice(0, 1), 0):
        part = predicted[index]
        value, slope = _value_and_gradient(loss, part, _rows(batch, index))
        assert value.shape == part.shape[:-1], f"costs {tuple(part.shape)} give a value of shape {tuple(value.shape)}"
        assert slope.shape == part.shape
    grid = torch.arange(2).reshape(2, 1)
    value = loss(predicted[grid], _rows(batch, grid))
    assert value.shape == (2, 1), f"a batch of shape (2, 1) gives a value of shape {tuple(value.shape)}"


def _check_loop(loss: Loss, predicted: Tensor, batch: Batch, value: Tensor, slope: Tensor, tolerance: float) -> None:
    """An instance's value and gradient are its own: neither depends on, nor is divided by, the batch around it."""
    again, _ = _value_and_gradient(loss, predicted, batch)
    close(again, value, tolerance, "the same input gives another value")
    for i in range(len(predicted)):
        alone, alone_slope = _value_and_gradient(loss, predicted[i : i + 1], _rows(batch, slice(i, i + 1)))
        close(alone[0], value[i], tolerance, f"instance {i} has another value when it is alone")
        close(alone_slope[0], slope[i], tolerance, f"instance {i} has another gradient when it is alone")


def _check_start(loss: Loss, predicted: Tensor, batch: Batch, value: Tensor, tolerance: float) -> None:
    """A layer that takes starts gets the batch's start, and the loss hands on the new one."""
    if loss.layer is None or not loss.layer.start_width:
        return
    start = loss.layer.no_start(len(predicted))
    for _ in range(2):
        output = loss.output(predicted, replace(batch, start=start))
        assert output.solution is not None, "the loss solves something and does not hand on the solution"
        assert output.solution.start is not None, "the loss does not pass the batch's start to its layer"
        close(output.value, value, tolerance, "a warm start changes the value")
        start = output.solution.start


def _check_gradient(loss: Loss, predicted: Tensor, batch: Batch, kinks: bool) -> None:
    """Differences in float64, with the loss in the same state at each point: central ones, or one on either side."""
    y, data, state = predicted.double(), batch.to(torch.float64), copy.deepcopy(loss.state_dict())

    def value(y: Tensor) -> Tensor:
        loss.load_state_dict(state)
        return loss(y, data)

    here, slope = _value_and_gradient(value, y)
    step = 1e-5
    for j in range(y.shape[-1]):
        shift = torch.zeros_like(y)
        shift[:, j] = step
        above, below = value(y + shift).detach(), value(y - shift).detach()
        wanted = (above - below) / (2 * step)
        if kinks:
            sides = torch.stack([(above - here) / step, (here - below) / step])
            wanted = torch.maximum(torch.minimum(slope[:, j], sides.amax(0)), sides.amin(0))
        # One-sided differences see the curvature.
        close(slope[:, j], wanted, 1e-3 if kinks else 1e-5, f"gradient in cost {j} against finite differences")


def _value_and_gradient(loss: Any, predicted: Tensor, *batch: Batch) -> tuple[Tensor, Tensor]:
    """The value, and the gradient of its sum; zero where the value does not depend on ŷ."""
    y = predicted.detach().clone().requires_grad_()
    value = loss(y, *batch)
    return value.detach(), slope_of(value, y, torch.ones_like(value))


def _rows(batch: Batch, index: Any) -> Batch:
    held = {f.name: value for f in fields(batch) if (value := getattr(batch, f.name)) is not None}
    return Batch(**{name: value[index] for name, value in held.items()})
