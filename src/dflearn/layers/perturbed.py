"""Additive perturbation: the average decision under noisy costs, differentiable in the costs (Berthet et al., 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers.base import Layer, refusing, weight
from dflearn.program import Instance
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Solution, Solver


class Perturbed(Layer):
    """w_σ(y) = mean over samples of w*(y + σ Z),  Z ~ N(0, I) drawn anew at each call.

    Jacobian: mean of w*(y + σ Z) Zᵀ / σ, with the mean decision as control variate where there are several samples; second
    derivatives of a decision likewise, mean of w*(y + σ Z) (Z Zᵀ − I) / σ².
    `Solution.objective` is mean of obj(y + σ Z, w*(y + σ Z)), whose gradient in y is Sᵀ w_σ(y): the perturbed optimum
    that the Fenchel-Young loss needs.

    Args:
        solver: any exact solver.
        sigma: scale of the noise, in units of the costs; may be set later, `layer.sigma = …`.
        samples: draws per instance.
        generator: where the noise comes from, on the CPU, or a seed for one; its state is part of `state_dict`.
    """

    annealed = ("sigma",)

    def __init__(self, solver: Solver, sigma: float = 1.0, samples: int = 1, generator: Randomness = 0) -> None:
        super().__init__(solver.objective)
        if samples < 1:
            raise OptionError(f"Perturbed needs samples >= 1; got {samples}")
        self.solver, self.program = solver, solver.program
        self.sigma, self.samples = sigma, int(samples)
        if solver.program is not None and solver.program.predicts_rows:
            raise OptionError(
                f"{solver.program!r} has predicted right-hand sides: a perturbed prediction would move them, and with them "
                "what is feasible; use TaskLoss(Smoothed(program)) or ScoreFunction(Exact(solver), sigma)"
            )
        self.generator = generator_of(generator)
        self.start_width = solver.start_width * self.samples
        self.start_dtype, self.start_blank = solver.start_dtype, solver.start_blank

    @property
    def sigma(self) -> float:
        """σ; it may be set anew between two solves."""
        return self._sigma

    @sigma.setter
    def sigma(self, sigma: float) -> None:
        self._sigma = weight(sigma, "Perturbed", "a finite sigma > 0", lambda value: value > 0)

    def extra_repr(self) -> str:
        return f"{self.solver!r}, sigma={self.sigma}, samples={self.samples}"

    def get_extra_state(self) -> dict[str, Any]:
        """The generator and the solver's state become part of `state_dict`."""
        return {"generator": self.generator.get_state(), "solver": self.solver.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.solver.set_state(state["solver"])

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch = y.shape[:-1]
        noise = torch.randn((*batch, self.samples, y.shape[-1]), generator=self.generator, dtype=y.dtype).to(y.device)
        repeated = None
        if instance is not None:
            repeated = instance.map(lambda v: v.unsqueeze(-2).expand(*v.shape[:-1], self.samples, v.shape[-1]))
        starts = None if start is None else start.reshape(*batch, self.samples, self.solver.start_width)
        solution = self.solver.solve(y.detach().unsqueeze(-2) + self.sigma * noise, repeated, starts)
        return Solution(
            decision=_MonteCarloMean.apply(y, solution.decision, noise, self.sigma),  # type: ignore[no-untyped-call]
            status=solution.status.amax(-1),  # of the sample that went worst
            objective=solution.objective.mean(-1),
            bound=solution.bound.mean(-1),
            start=None if solution.start is None else solution.start.reshape(*batch, self.start_width),
        )


class _MonteCarloMean(torch.autograd.Function):
    """Mean over samples of w; backward through the score-function estimate of its Jacobian in y."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, w: Tensor, noise: Tensor, sigma: float) -> Tensor:
        mean = w.mean(-2)
        ctx.save_for_backward(y, w - mean.unsqueeze(-2) if w.shape[-2] > 1 else w, noise)
        ctx.sigma = sigma
        return mean

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        y, w, noise = ctx.saved_tensors
        return _MonteCarloSlope.apply(y, gradient, w, noise, ctx.sigma), None, None, None  # type: ignore[no-untyped-call]


class _MonteCarloSlope(torch.autograd.Function):
    """mean of Z (wᵀg)/σ for a gradient g; backward through the estimate of its own derivative in y, likewise unbiased:

    mean of (wᵀg) (Z Zᵀ − I)/σ².
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, gradient: Tensor, w: Tensor, noise: Tensor, sigma: float) -> Tensor:
        ctx.save_for_backward(y, gradient, w, noise)
        ctx.sigma, samples = sigma, w.shape[-2]
        score = (w * gradient.unsqueeze(-2)).sum(-1, keepdim=True) / sigma
        return (score * noise).sum(-2) / max(samples - 1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        y, first, w, noise = ctx.saved_tensors
        draws = max(w.shape[-2] - 1, 1)
        along = (noise * gradient.unsqueeze(-2)).sum(-1, keepdim=True)
        score = (w * first.unsqueeze(-2)).sum(-1, keepdim=True)
        in_y = (score * (noise * along - gradient.unsqueeze(-2))).sum(-2) / (draws * ctx.sigma**2)
        in_first = (w * along).sum(-2) / (draws * ctx.sigma)
        if torch.is_grad_enabled():
            in_y, in_first = (refusing(part, y, "Perturbed has no third derivatives") for part in (in_y, in_first))
        return in_y, in_first, None, None, None
