"""Losses over a pool of feasible decisions that grows while training: what they have in common."""

from __future__ import annotations

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.solvers.base import Solution
from dflearn.solvers.wrappers import Pooled


class PoolLoss(Loss):
    """A loss over the decisions that `Exact(Pooled(solver, ratio, initial=…))` knows.

    Each batch asks the layer at ŷ first, which solves it with probability `ratio` (per="batch": all of it or nothing) and
    puts what it found into the pool; with ratio 0 nothing is ever solved.
    """

    layer: Layer
    known_rows = linear = exact = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        if not isinstance(layer.solver, Pooled):
            raise OptionError(
                f"{type(self).__name__} compares with a pool of decisions, and {layer!r} has none: pass "
                'Exact(Pooled(solver, ratio, per="batch", initial=data.decisions))'
            )
        self._pool = layer.solver

    def _pooled(self, predicted: Tensor, batch: Batch) -> tuple[Tensor, Solution]:
        """The pool `(size, n)` after this batch, in the dtype and on the device of ŷ, and the layer's answer."""
        solution = self.layer.solve(predicted.detach(), batch.instance, batch.start).check()
        return self._pool.decisions.to(predicted), solution
