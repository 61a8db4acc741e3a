"""Implicit maximum likelihood: finite differences of noisy decisions (Niepert et al., 2021), with a step that adapts
(Minervini et al., 2023)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers.base import PositiveWeight, raised, weight, with_gradient
from dflearn.layers.noise import Noise, check_noise, draw
from dflearn.layers.sampled import Sampled
from dflearn.program import Instance
from dflearn.randomness import Randomness
from dflearn.solvers.base import Solution, Solver

ZERO = 1e-8  # an entry of a gradient below this, beside the largest, counts as zero
NO_MORE = "implicit MLE has no second derivatives: use Perturbed"


class _Implicit(Sampled):
    """What both have in common; a subclass says how long the step is."""

    def __init__(
        self,
        solver: Solver,
        sigma: float,
        samples: int,
        generator: Randomness,
        noise: Noise,
        kappa: float,
        two_sided: bool,
    ) -> None:
        super().__init__(solver, sigma, samples, generator)
        check_noise(noise, type(self).__name__)
        self.noise, self.two_sided = noise, bool(two_sided)
        self.kappa = weight(kappa, type(self).__name__, "a finite kappa > 0", lambda value: value > 0)

    def extra_repr(self) -> str:
        sides = ", two_sided=True" if self.two_sided else ""
        return f"{super().extra_repr()}, noise={self.noise!r}{sides}"

    @abstractmethod
    def _step_of(self, c: Tensor, gradient: Tensor) -> float:
        """λ, for this gradient at these costs, both `(*batch, n)`."""

    def _learn(self, slope: Tensor) -> None:
        """Called with each gradient in c that was handed back."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        shape = (*y.shape[:-1], self.samples, y.shape[-1])
        z = draw(self.noise, y, shape, self.generator, self.kappa)
        upwards = 1.0 if self.objective.sense == "maximize" else -1.0  # in y, where utilities rise
        noisy = y.detach().unsqueeze(-2) + upwards * self.sigma * z
        solution, c = self._solve_samples(noisy, instance, start), self.objective.vector(y, instance)
        at, w, here = c.detach(), solution.decision.mean(-2), solution.start
        from_here = None if here is None else here.reshape(*y.shape[:-1], self.start_width)

        def shifted(by: Tensor) -> Tensor:
            there = raised(self.objective, instance, by)
            return self._solve_samples(noisy, there, from_here).check().decision.mean(-2)

        def way_back(gradient: Tensor) -> Tensor:
            step = self._step_of(at, gradient)
            if not step:
                slope = torch.zeros_like(gradient)
            elif self.two_sided:
                slope = (shifted(step * gradient) - shifted(-step * gradient)) / (2 * step)
            else:
                slope = (shifted(step * gradient) - w) / step
            self._learn(slope)
            return slope

        return self._mean(solution, with_gradient(c, w, way_back, NO_MORE))


class ImplicitMLE(_Implicit):
    """w̄(c) = mean over samples of w*(c − σ Z), c = S y + d;   gradient g in w  ↦  (w̄(c + λ g) − w̄(c)) / λ in c.

    The same noise in both; `two_sided`: (w̄(c + λ g) − w̄(c − λ g)) / 2λ. λ is relative to the g that arrives, as in
    `BlackBox`, which this is without noise.

    Z is on the predicted costs and is added to utilities: to y where the program maximizes, to −y where it minimizes,
    so that Gumbel noise of scale σ on a choice of one item gives the softmax of utilities/σ.

    Args:
        solver: any exact solver.
        sigma: scale of the noise, in units of the costs; may be set later, `layer.sigma = …`.
        step: λ > 0; may be set later, `layer.step = …`.
        samples: draws per instance.
        generator: where the noise comes from, on the CPU, or a seed for one; its state is part of `state_dict`.
        noise: "sum-of-gamma", "gumbel" or "gaussian": see `layers.noise`.
        kappa: κ of the sum of gammas: about how many entries of a decision are 1.
        two_sided: central differences, for one more solve per sample.
    """

    annealed = ("sigma", "step")
    step = PositiveWeight("λ")

    def __init__(
        self,
        solver: Solver,
        sigma: float = 1.0,
        step: float = 10.0,
        samples: int = 1,
        generator: Randomness = 0,
        *,
        noise: Noise = "sum-of-gamma",
        kappa: float = 5.0,
        two_sided: bool = False,
    ) -> None:
        super().__init__(solver, sigma, samples, generator, noise, kappa, two_sided)
        self.step = step

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, step={self.step}"

    def _step_of(self, c: Tensor, gradient: Tensor) -> float:
        return self.step


class AdaptiveImplicitMLE(_Implicit):
    """As `ImplicitMLE`, with λ = α ‖c‖ / ‖g‖, norms over the batch: nothing to tune, whatever the unit of the loss.

    After each way back α grows by `rate` while gradients are sparser than `target`, and shrinks otherwise: what is held
    against the target is a moving average of the nonzero entries of a gradient per instance, of weight 0.9 on the past.

    Args:
        solver, sigma, samples, generator, noise, kappa, two_sided: as of `ImplicitMLE`.
        target: nonzero entries of a gradient, per instance, to aim at.
        rate: how much α moves; α and the average are part of `state_dict`.
    """

    def __init__(
        self,
        solver: Solver,
        sigma: float = 1.0,
        samples: int = 1,
        generator: Randomness = 0,
        *,
        noise: Noise = "sum-of-gamma",
        kappa: float = 5.0,
        two_sided: bool = False,
        target: float = 1.0,
        rate: float = 1e-3,
    ) -> None:
        super().__init__(solver, sigma, samples, generator, noise, kappa, two_sided)
        if not target > 0 or not rate >= 0:
            raise OptionError(f"AdaptiveImplicitMLE needs target > 0 and rate >= 0; got {target}, {rate}")
        self.target, self.rate = float(target), float(rate)
        self.alpha, self.nonzeros = 1.0, self.target

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, target={self.target}, rate={self.rate}"

    def get_extra_state(self) -> dict[str, Any]:
        """The generator, the solver's state, α and the average become part of `state_dict`."""
        return {**super().get_extra_state(), "alpha": self.alpha, "nonzeros": self.nonzeros}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.alpha, self.nonzeros = state["alpha"], state["nonzeros"]

    def _step_of(self, c: Tensor, gradient: Tensor) -> float:
        size = float(torch.linalg.vector_norm(gradient))
        return self.alpha * float(torch.linalg.vector_norm(c)) / size if size > 0 else 0.0

    def _learn(self, slope: Tensor) -> None:
        count = slope.shape[:-1].numel()
        if not count:
            return
        size = slope.abs()
        self.nonzeros = 0.9 * self.nonzeros + 0.1 * int((size > ZERO * size.amax()).sum()) / count
        self.alpha = self.alpha + self.rate if self.nonzeros < self.target else max(0.0, self.alpha - self.rate)
