"""One batch of Davis-Yin iterations: what is solved, what comes out, and what a backend must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.davis_yin.data import SplittingRows
from dflearn.program.sides import Sides

STEP = 0.3  # of the default step; a third or three times as much converges more slowly on the paper's problems
CURVED_STEP = 1.5  # of the largest default step with Q, beside 1/(‖Q‖ + μ); twice that is the end of convergence


class Lines(NamedTuple):
    """`SideNumbers` as tensors on a device. shift: r, or (M Mᵀ)⁻¹ r where a backend multiplies by that inverse.

    named: whether every `smallest` is finite.
    """

    shift: Tensor
    lower: Tensor
    upper: Tensor
    reach: Tensor
    largest: Tensor
    smallest: Tensor
    named: bool


@dataclass(frozen=True)
class Batch:
    """min over w of cᵀw + ½ wᵀQ w + (μ/2)‖w‖² for each instance: c `(count, n)` in the dtype and on the device of the iterations.

    norm: ‖Q‖, of all or of each instance. q `(count, n)` is added to Q's diagonal. step: α, or `None` for the default.
    """

    c: Tensor
    sides: Sides
    mu: float
    norm: np.ndarray
    q: np.ndarray | None
    step: float | None
    quadratic: bool

    def stiffness(self) -> Tensor:
        """‖Q‖ + μ in float64, `(count or 1,)`."""
        if self.norm.ndim:
            return torch.from_numpy(self.mu + self.norm).to(self.c.device)
        return torch.full((1,), self.mu + float(self.norm), dtype=torch.float64, device=self.c.device)

    def steps(self, lines: Lines) -> Tensor:
        """α `(count,)`, as of `DavisYin`; the costs of fixed variables do not count."""
        c, count = self.c, len(self.c)
        if self.step is not None:
            return c.new_full((count,), self.step)
        size = torch.where(lines.reach > 0, c.abs(), 0.0)
        reach = torch.minimum(lines.reach, size / self.mu) if self.mu else lines.reach
        moved, pull = (torch.linalg.vector_norm(part, dim=-1, dtype=torch.float64) for part in (reach, size))
        # Without costs any will do.
        steps = torch.where(pull > 0, STEP * moved / pull, STEP / self.mu if self.mu else 1.0)
        if self.quadratic:
            steps = torch.minimum(steps, CURVED_STEP / self.stiffness())
        return steps.to(c.dtype)

    def least(self, lines: Lines) -> Tensor:
        """The smallest length that sides name, or else how far costs pull, or else one; `(count,)`."""
        if lines.named:
            return lines.smallest.to(self.c.dtype).expand(len(self.c))
        stiffness = self.stiffness()
        most = largest_of(self.c.abs()).double()
        pull = torch.where(stiffness > 0, most / stiffness, 0.0)
        pull = torch.where((pull > 0) & torch.isfinite(pull), pull, 1.0)
        return torch.where(torch.isfinite(lines.smallest), lines.smallest, pull).to(self.c.dtype)


class Answer(NamedTuple):
    """One row per instance.

    z: the last one `(count, N)`. inside: where it lies strictly within its bounds (1 or 0). w: clip(z) on the decision variables
    `(count, n)`. value: cᵀw + (μ/2)‖w‖², and ½ wᵀQ w if the batch is quadratic; residual; α, `(count,)`. masks: where each z lies
    inside, if that was recorded, as the backend keeps it. With a tolerance: prices of the program's rows `(count, rows)`, and
    how far z moved last and after how many iterations `(count,)`.
    """

    z: Tensor
    inside: Tensor
    w: Tensor
    value: Tensor
    residual: Tensor
    alpha: Tensor
    masks: Any = None
    iterations: Tensor | None = None
    prices: Tensor | None = None
    moved: Tensor | None = None


class Backend(ABC):
    """What iterates the batches of one program in one dtype on one device. Subclasses are final."""

    def __init__(self, rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> None:
        self.rows, self.dtype, self.device = rows, dtype, device
        self.numbers = np.dtype(np.float64 if dtype == torch.float64 else np.float32)
        self._own: Lines | None = None

    @classmethod
    def of(cls, rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> Self:
        """Made once for a program, a dtype and a device."""
        key = cls, dtype, device
        if key not in rows.backends:
            rows.backends[key] = cls(rows, dtype, device)
        backend: Self = rows.backends[key]
        return backend

    def lines(self, sides: Sides) -> Lines:
        """Those of the program are made once."""
        own = sides is self.rows.program.own_sides
        if own and self._own is not None:
            return self._own
        found = self.rows.numbers(sides, self.numbers)
        right, lower, upper, reach = (self.there(part) for part in found[:4])
        largest, smallest = (torch.from_numpy(part).to(self.device, torch.float64) for part in found[4:])
        named = bool(np.isfinite(found.smallest).all())
        lines = Lines(self.shifted(right), lower, upper, reach, largest, smallest, named)
        if own:
            self._own = lines
        return lines

    def shifted(self, right: Tensor) -> Tensor:
        """`Lines.shift` of r."""
        return right

    def there(self, part: np.ndarray) -> Tensor:
        """A copy of an array on the device, in the dtype of the iterations, or as int32."""
        tensor = torch.from_numpy(np.array(part, order="C"))
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else torch.int32)

    @abstractmethod
    def iterate(self, batch: Batch, limit: int, *, record: bool) -> Answer:
        """`limit` iterations from zero, their masks recorded if so asked."""

    @abstractmethod
    def back(self, gradient: Tensor, batch: Batch, answer: Answer) -> Tensor:
        """(dw/dc)ᵀ gradient `(count, n)`: through every iteration if masks were recorded, through the last alone otherwise."""


def largest_of(parts: Tensor) -> Tensor:
    """The largest of each row of numbers ≥ 0; zero where a row is empty."""
    return parts.amax(1) if parts.shape[1] else parts.new_zeros(len(parts))
