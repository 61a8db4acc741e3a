"""Layers that average decisions over noisy costs: what they have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers.base import AroundSolver, PositiveWeight
from dflearn.program import Instance
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Solution, Solver


class Sampled(AroundSolver):
    """mean over samples of w*(noisy costs).

    Args:
        solver: any exact solver.
        sigma: scale of the noise; may be set later, `layer.sigma = …`.
        samples: draws per instance.
        generator: where the noise comes from, on the CPU, or a seed for one; its state is part of `state_dict`.
    """

    annealed: ClassVar[tuple[str, ...]] = ("sigma",)
    sigma = PositiveWeight("σ")

    def __init__(self, solver: Solver, sigma: float, samples: int, generator: Randomness) -> None:
        super().__init__(solver)
        if samples < 1:
            raise OptionError(f"{type(self).__name__} needs samples >= 1; got {samples}")
        self.sigma, self.samples = sigma, int(samples)
        self.generator = generator_of(generator)
        self.start_width = solver.start_width * self.samples

    def extra_repr(self) -> str:
        return f"{self.solver!r}, sigma={self.sigma}, samples={self.samples}"

    def get_extra_state(self) -> dict[str, Any]:
        """The generator and the solver's state become part of `state_dict`."""
        return {"generator": self.generator.get_state(), "solver": self.solver.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.solver.set_state(state["solver"])

    def _solve_samples(self, noisy: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        """One answer per sample, `(*batch, samples)`.  noisy `(*batch, samples, p)`; start `(*batch, start_width)`."""
        starts = None if start is None else start.reshape(*noisy.shape[:-1], self.solver.start_width)
        return self.solver.solve(noisy, self._repeated(instance), starts)

    def _repeated(self, instance: Instance | None) -> Instance | None:
        if instance is None:
            return None
        return instance.map(lambda v: v.unsqueeze(-2).expand(*v.shape[:-1], self.samples, v.shape[-1]))

    def _mean(self, solution: Solution, decision: Tensor, slope: Tensor | None = None) -> Solution:
        """The answers of the samples as one per instance, with this decision."""
        batch = decision.shape[:-1]
        return Solution(
            decision=decision,
            status=solution.status.amax(-1),  # of the sample that went worst
            objective=solution.objective.mean(-1),
            bound=solution.bound.mean(-1),
            start=None if solution.start is None else solution.start.reshape(*batch, self.start_width),
            slope=slope,
        )
