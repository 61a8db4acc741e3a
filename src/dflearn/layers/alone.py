"""One instance alone, there and back: `short_way` without arrays in between, on the kernels whose vectors go over variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor, float32, nn, strided

from dflearn.kernels.alone import solve_alone
from dflearn.kernels.alone_back import project_alone
from dflearn.layers.base import NUMBERS
from dflearn.layers.rows import INTERIOR_TOLERANCE
from dflearn.layers.way_back import Face

if TYPE_CHECKING:
    from dflearn.layers.short_way import ShortWay

PLAIN = (Tensor, nn.Parameter)  # not subclasses, which may keep their numbers otherwise


class Lone(NamedTuple):
    """The face of one instance's solution: a `Face`, found sooner. inside: its variables, then its rows in force, `(n + m,)`."""

    short: ShortWay
    inside: np.ndarray

    def way_back(self, gradient: Tensor) -> Tensor:
        """As of `Face`, `(1, n)` → `(1, p)`."""
        short = self.short
        plain = lies_plain(gradient) if gradient.dtype in NUMBERS else None
        if plain is not None:
            out, single = plain.new_empty((1, short.p)), plain.dtype is float32
            numbers = short.rows.ledger().numbers
            if type(out) is Tensor and project_alone(
                numbers, plain.data_ptr(), out.data_ptr(), single, short.minus, self.inside
            ):
                return out
        return self.whole().way_back(gradient)

    def way_back_again(self, gradient: Tensor, decision: Tensor) -> Tensor:
        return self.whole().way_back_again(gradient, decision)

    def whole(self) -> Face:
        short = self.short
        inside, in_force = np.split(self.inside[None], [short.n], axis=1)
        inside, in_force = np.ascontiguousarray(inside), np.ascontiguousarray(in_force)
        return Face(short.rows, inside, in_force, short.kappa, short.mu, short.objective, None, short)


class LoneAnswer(NamedTuple):
    """decision `(1, n)`, in the dtype of the costs; objective and residual `(1,)`."""

    decision: Tensor
    face: Lone
    objective: np.ndarray
    residual: np.ndarray


def lies_plain(x: Tensor) -> Tensor | None:
    """The tensor with its numbers one after the other in memory; `None` where its address does not lead to them: sparse ones, views that
    torch negates when it reads them, zeros that it only knows of, whose address is 0, and what stands for other tensors."""
    if type(x) not in PLAIN or x.layout is not strided or x.is_neg():
        return None
    try:
        x = x if x.is_contiguous() else x.detach().contiguous()
        return x if x.data_ptr() else None
    except RuntimeError:  # under torch.func
        return None


def answer_alone(y: Tensor, short: ShortWay) -> LoneAnswer | None:
    """The answer to costs `(1, p)` on the CPU, float32 or float64; `None` where it is not found so."""
    plain = lies_plain(y)
    if plain is None:
        return None
    y, decision = plain, plain.new_empty((1, short.n))
    if type(decision) is not Tensor:  # a mode of torch makes tensors of its own, without memory
        return None
    inside, objective, residual = np.empty(short.n + short.m, np.uint8), np.empty(1), np.empty(1)
    found = solve_alone(
        short.rows.ledger().numbers, y.data_ptr(), decision.data_ptr(), y.dtype is float32,
        short.mu, short.tolerance, INTERIOR_TOLERANCE, inside, objective, residual,
    )  # fmt: skip
    return LoneAnswer(decision, Lone(short, inside), objective, residual) if found else None
