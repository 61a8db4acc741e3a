"""Perturbation: the average decision under noisy costs, differentiable in the costs.

Additive noise: Berthet et al. (2020). Multiplicative noise, which keeps the sign of each cost: Dalle et al. (2022).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers.base import AroundSolver, PositiveWeight, attached, refusing
from dflearn.program import Instance
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Solution, Solver


class Sampled(AroundSolver):
    """mean over samples of w*(noisy costs). Arguments as of `Perturbed`."""

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
        instances = None if instance is None else instance.map(partial(repeated, self.samples))
        return self.solver.solve(noisy, instances, starts)

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


def repeated(samples: int, value: Tensor) -> Tensor:
    """`(*batch, k)` as `(*batch, samples, k)`, on the same memory."""
    return value.unsqueeze(-2).expand(*value.shape[:-1], samples, value.shape[-1])


class Perturbed(Sampled):
    """w_σ(y) = mean over samples of w*(y + σ Z),  Z ~ N(0, I) drawn anew at each call.

    Jacobian: mean of w*(y + σ Z) Zᵀ / σ, with the mean decision as control variate where there are several samples; second
    derivatives of a decision likewise, mean of w*(y + σ Z) (Z Zᵀ − I) / σ². `Solution.objective` is mean of obj(y + σ Z, w*(y + σ Z)),
    the perturbed optimum that the Fenchel-Young loss needs, whose gradient in y is Sᵀ w_σ(y).

    Multiplicative: costs y ⊙ η, η = exp(σ Z − σ²/2), of mean y: additive noise on log |y|, so that the Jacobian is
    mean of w*(y ⊙ η) Zᵀ / σ · diag(1/y), and the perturbed optimum has the gradient mean of η ⊙ Sᵀ w*(y ⊙ η), which is
    `Solution.slope`. A cost of zero stays zero, without a gradient in the decision.

    Args:
        solver: any exact solver.
        sigma: scale of the noise, in units of the costs (multiplicative: of their logarithm); may be set later, `layer.sigma = …`.
        samples: draws per instance.
        generator: where the noise comes from, on the CPU, or a seed for one; its state is part of `state_dict`.
        multiplicative: for oracles that need costs of one sign, such as Dijkstra's; predict with `models.Positive`.

    Examples:
        >>> layer = dfl.Perturbed(problem.solver(), sigma=0.5, samples=10, generator=0)
        >>> layer(predicted).shape
        torch.Size([40, 12])
    """

    def __init__(
        self,
        solver: Solver,
        sigma: float = 1.0,
        samples: int = 1,
        generator: Randomness = 0,
        *,
        multiplicative: bool = False,
    ) -> None:
        super().__init__(solver, sigma, samples, generator)
        self.multiplicative = bool(multiplicative)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", multiplicative=True" if self.multiplicative else "")

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        shape = (*y.shape[:-1], self.samples, y.shape[-1])
        noise = torch.randn(shape, generator=self.generator, dtype=y.dtype).to(y.device)
        costs, moved, slope = y.detach().unsqueeze(-2), y, None
        if self.multiplicative:
            factor = (self.sigma * noise - self.sigma**2 / 2).exp()
            solution = self._solve_samples(costs * factor, instance, start)
            slope = (factor * self.objective.transpose(solution.decision)).mean(-2)
            moved = y.abs().where(y != 0, 1.0).log()
        else:
            solution = self._solve_samples(costs + self.sigma * noise, instance, start)
        return self._mean(solution, score_mean(moved, solution.decision, noise, self.sigma), slope)


def score_mean(y: Tensor, w: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Mean over samples of w `(*batch, samples, n)`, differentiable in y `(*batch, p)` by score-function estimates:

    mean of Z (wᵀg)/σ for a gradient g, and for its own derivative in y, likewise unbiased, mean of (wᵀg) (Z Zᵀ − I)/σ².
    """
    mean, draws = w.mean(-2), max(w.shape[-2] - 1, 1)
    centred = w - mean.unsqueeze(-2) if w.shape[-2] > 1 else w

    def slope(g: Tensor) -> Tensor:
        score = (centred * g.unsqueeze(-2)).sum(-1, keepdim=True) / sigma
        return (score * noise).sum(-2) / draws

    def backward(g: Tensor, _: Tensor) -> tuple[Tensor]:
        if not torch.is_grad_enabled():  # no second derivatives are wanted
            return (slope(g),)

        def double_backward(gradient: Tensor, _: Tensor) -> tuple[Tensor, ...]:
            along = (noise * gradient.unsqueeze(-2)).sum(-1, keepdim=True)
            score = (centred * g.unsqueeze(-2)).sum(-1, keepdim=True)
            in_y = (score * (noise * along - gradient.unsqueeze(-2))).sum(-2) / (draws * sigma**2)
            found = in_y, (centred * along).sum(-2) / (draws * sigma)
            if torch.is_grad_enabled():
                return tuple(refusing(part, y, "Perturbed has no third derivatives") for part in found)
            return found

        return (attached(slope(g.detach()), double_backward, y, g),)

    return attached(mean, backward, y)
