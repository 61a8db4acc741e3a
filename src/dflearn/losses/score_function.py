"""The score-function estimate of what decisions cost: no gradient of any program is needed (Silvestri et al., 2024, SFGE)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError, ShapeError, SolverError
from dflearn.layers.base import Layer, weight
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.losses.task import Cost
from dflearn.program import Instance
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.recourse import recourse_of


class ScoreFunction(Loss):
    """E[cost(w(ŷ + σ ε), y)],   ε ~ N(0, I);   gradient  E[(cost(w(ŷ + σ ε), y) − baseline) ε/σ].

    Both are means over samples, and unbiased: the baseline of a sample is the mean cost of the others. cost(w, y) is what a
    decision costs once the truth is known, recourse included: integers, predicted right-hand sides and any solver are fine.

    Args:
        layer: decides; `Exact(solver)`, usually. Its gradient is not used.
        sigma: σ > 0, in the units of what is predicted: about its error, to begin with.
        samples: how many draws for each instance, at least 2.
        cost: a function of one's own, decisions `(*batch, samples, n)` and the `Batch`, whose costs and instance are repeated
            likewise → `(*batch, samples)`; it need not be differentiable.
        generator: where noise comes from, on the CPU, or a seed for one; part of `state_dict`.
    """

    layer: Layer
    exact = True
    needs: tuple[Field, ...] = ("costs",)

    def __init__(
        self, layer: Layer, sigma: float, *, samples: int = 8, cost: Cost | None = None, generator: Randomness = 0
    ) -> None:
        super().__init__(layer)
        if samples < 2:
            raise OptionError(f"samples must be at least 2, one to compare with; got {samples}")
        self.sigma = weight(sigma, "ScoreFunction", "a finite sigma > 0", lambda value: value > 0)
        self.samples, self.cost, self.generator = int(samples), cost, generator_of(generator)
        self._recourse = None if layer.program is None else recourse_of(layer.program)

    def extra_repr(self) -> str:
        return f"sigma={self.sigma}, samples={self.samples}"

    def get_extra_state(self) -> dict[str, Any]:
        """The generator becomes part of `state_dict`."""
        return {"generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "generator": self.generator.get_state(), "_recourse": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        generator = torch.Generator()
        generator.set_state(state["generator"])
        super().__setstate__({**state, "generator": generator})  # type: ignore[no-untyped-call]
        self._recourse = None if self.layer.program is None else recourse_of(self.layer.program)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        shape = (*predicted.shape[:-1], self.samples, predicted.shape[-1])
        noise = torch.randn(shape, generator=self.generator, dtype=predicted.dtype).to(predicted.device)

        def repeated(value: Tensor) -> Tensor:
            return value.unsqueeze(-2).expand(*value.shape[:-1], self.samples, value.shape[-1])

        instance = None if batch.instance is None else batch.instance.map(repeated)
        with torch.no_grad():
            drawn = predicted.detach().unsqueeze(-2) + self.sigma * noise
            solution = self.layer.solve(drawn, instance).check()
            cost = self._cost(solution.decision, batch, repeated(batch.require("costs")), instance).to(predicted)
            excess = (cost - cost.mean(-1, keepdim=True)) / (self.sigma * max(self.samples - 1, 1))
            slope = (excess.unsqueeze(-1) * noise).sum(-2)
            value = cost.mean(-1)
        return LossOutput(value + (slope * (predicted - predicted.detach())).sum(-1))

    def _cost(self, decision: Tensor, batch: Batch, costs: Tensor, instance: Instance | None) -> Tensor:
        """`(*batch, samples)`; an error where it is infinite."""
        if self.cost is not None:
            value = self.cost(decision, Batch(batch.features, costs, None, instance))
            if not isinstance(value, Tensor) or value.shape != decision.shape[:-1]:
                raise ShapeError(f"a cost has one value per decision, shape {tuple(decision.shape[:-1])}")
        elif self._recourse is not None:
            value = self._recourse.settle(costs, decision, instance).cost
        else:
            value = self.layer.objective.true_cost(costs, decision, instance)
        if not bool(value.isfinite().all()):
            raise SolverError(
                "a decision is infeasible once the truth is known and no recourse helps, so its cost is infinite: add priced slack, "
                "program.elastic(rows, price)"
            )
        return value
