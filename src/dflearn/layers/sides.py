"""The way back from a smoothed solution to the right-hand sides and bounds of its instance.

With M the rows in force, D the variables inside their bounds and v a gradient in w, the prices z = (M D Mᵀ)⁺ M D v are the
gradient in the right-hand sides, and v − Mᵀz that in the bounds of variables that lie at them. Rows that are not in force, and
bounds that are not met, get zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dflearn.layers.base import as_rows
from dflearn.program.sides import Sides

if TYPE_CHECKING:
    from dflearn.layers.rows import SmoothedRows


def with_sides(
    decision: Tensor, wanted: dict[str, Tensor], slopes: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
) -> Tensor:
    """The decision `(*batch, n)`, differentiable in those sides of its instance too.

    slopes: decisions and gradients in them, `(count, n)` → by name, gradients in the sides.
    """
    count = decision.shape[:-1].numel()
    w = as_rows(decision, count, np.float64)

    def way_back(gradient: Tensor) -> tuple[Tensor, ...]:
        found = slopes(w, as_rows(gradient, count, np.float64))
        return tuple(torch.as_tensor(found[name]).reshape(value.shape).to(value) for name, value in wanted.items())

    return moved_by(decision, way_back, *wanted.values())


def moved_by(decision: Tensor, way_back: Callable[[Tensor], tuple[Tensor, ...]], *sides: Tensor) -> Tensor:
    """The decision, differentiable in the sides too: `way_back` turns a gradient in it into those in the sides."""
    moved: Tensor = _WithSides.apply(decision, way_back, *sides)  # type: ignore[no-untyped-call]
    return moved


def gradients(
    rows: SmoothedRows, inside: np.ndarray, in_force: np.ndarray, sides: Sides, w: np.ndarray, v: np.ndarray
) -> dict[str, np.ndarray]:
    """By name, (dw/d side)ᵀ v for each instance: v and w `(count, n)` → `(count, k)` each."""
    z, form = rows.prices(inside, in_force, v), rows.form
    b = np.zeros((len(v), rows.program.A.shape[0]))
    b[:, form.kept] = z[:, : len(form.kept)]
    pressed = np.where(inside, 0.0, v - (form.rows_without_slacks().T @ z.T).T)
    with np.errstate(invalid="ignore"):
        low, high = np.abs(w - sides.lower), np.abs(w - sides.upper)
    share = np.where(low < high, 1.0, np.where(low > high, 0.0, 0.5))  # a fixed variable is at both: half to each
    return {"b": b, "h": z[:, len(form.kept) :], "lower": share * pressed, "upper": (1 - share) * pressed}


class _WithSides(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decision: Tensor, way_back: Callable[[Tensor], tuple[Tensor, ...]], *sides: Tensor) -> Tensor:
        ctx.way_back = way_back
        return decision.view_as(decision)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return gradient, None, *ctx.way_back(gradient)
