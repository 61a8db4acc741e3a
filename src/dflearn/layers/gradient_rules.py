"""Gradients for exact solvers that are no derivatives: one more solve at costs that the gradient has moved, or none.

`BlackBox`: interpolation (Vlastelica et al., 2020). `NegativeIdentity`: Sahoo et al. (2023). `ImplicitMLE`: finite differences of noisy
decisions (Niepert et al., 2021), with a step that adapts (Minervini et al., 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from dflearn.engine.torch_private import gamma
from dflearn.errors import OptionError
from dflearn.layers.base import AroundSolver, PositiveWeight, one_of, raised, weight, with_gradient
from dflearn.layers.perturbed import Sampled
from dflearn.program import Instance, Objective
from dflearn.randomness import Randomness
from dflearn.solvers.base import Solution, Solver

Projection = Literal["none", "mean", "norm", "std"]
Noise = Literal["gaussian", "gumbel", "sum-of-gamma"]
TERMS = 10  # of the sum of gammas, in place of infinitely many
ZERO = 1e-8  # an entry of a gradient below this, beside the largest, counts as zero
NO_MORE = "{} has no second derivatives: use Perturbed"


def difference_gradient(
    solve: Callable[[Instance], Tensor],
    objective: Objective,
    instance: Instance | None,
    w: Tensor,
    step_of: Callable[[Tensor], float],
    *,
    two_sided: bool = False,
) -> Callable[[Tensor, Tensor], Tensor]:
    """gradient g in w ↦ (w(c + λ g) − w(c)) / λ, or (w(c + λ g) − w(c − λ g)) / 2λ, in c; zero where λ is.

    solve: the decisions `(*batch, n)` for an instance whose d is raised. step_of: λ for a gradient.
    """
    own = None if instance is None else instance.map(lambda part: part.detach().clone())

    def backward(gradient: Tensor, _: Tensor) -> Tensor:
        step = step_of(gradient)
        if not step:
            return torch.zeros_like(gradient)
        above = solve(raised(objective, own, step * gradient))
        below = solve(raised(objective, own, -step * gradient)) if two_sided else w
        return (above - below) / (2 * step if two_sided else step)

    return backward


class BlackBox(AroundSolver):
    """w*(c), c = S y + d;   gradient g in w  ↦  (w*(c + λ g) − w*(c)) / λ in c: one more solve in backward.

    That is the derivative of the piecewise linear interpolation of gᵀw*(·) between c and c + λ g. The larger λ, the more decisions it
    sees; below a threshold the gradient is zero. The mean over a batch of B instances divides g by B, so λ goes with B.

    Args:
        solver: any exact solver.
        step: λ > 0, in units of the costs per unit of g; may be set later, `layer.step = …`.

    Examples:
        >>> layer = dfl.layers.BlackBox(problem.solver(), step=5.0)
        >>> costs = predicted.clone().requires_grad_()
        >>> dfl.losses.SquaredDecisionError(layer)(costs, batch).sum().backward()
        >>> costs.grad.shape
        torch.Size([40, 12])
    """

    annealed = ("step",)
    step = PositiveWeight("λ")

    def __init__(self, solver: Solver, step: float = 10.0) -> None:
        super().__init__(solver)
        self.step = step

    def extra_repr(self) -> str:
        return f"{self.solver!r}, step={self.step}"

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution, step, costs = self.solver.solve(y.detach(), instance, start), self.step, y.detach().clone()
        w, from_here, c = solution.decision, solution.start, self.objective.vector(y, instance)
        solve = lambda there: self.solver.solve(costs, there, from_here).check().decision  # noqa: E731
        backward = difference_gradient(solve, self.objective, instance, w, lambda gradient: step)
        return replace(solution, decision=with_gradient(c, w, backward, NO_MORE.format("BlackBox")))


class NegativeIdentity(AroundSolver):
    """w*(c), c = S y + d;   gradient g in w  ↦  −Jᵀ g in c, J the Jacobian at c of a projection of the costs:

        none:  c              J = I
        mean:  c − c̄          J = I − 11ᵀ/n:               where all decisions have the same sum, c̄ does not matter
        norm:  c / ‖c‖        J = (I − ĉĉᵀ)/‖c‖, ĉ = c/‖c‖: the size of the costs never matters
        std:   norm of mean   both

    Costs that do not matter get no gradient, so that they do not drift. The paper solves at the projected costs; here w* is at c.

    Args:
        solver: any exact solver; there is no second solve.

    Examples:
        >>> layer = dfl.layers.NegativeIdentity(problem.solver(), projection="mean")
        >>> layer(predicted).shape
        torch.Size([40, 12])
    """

    def __init__(self, solver: Solver, projection: Projection = "none") -> None:
        super().__init__(solver)
        self.projection = one_of("projection", projection, *get_args(Projection))

    def extra_repr(self) -> str:
        return f"{self.solver!r}, projection={self.projection!r}"

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution, c = self.solver.solve(y.detach(), instance, start), self.objective.vector(y, instance)
        at = c.detach().clone()  # whoever writes to y later does not move where the Jacobian is

        why = NO_MORE.format("NegativeIdentity")
        w = with_gradient(c, solution.decision, lambda gradient, _: -self._pulled_back(at, gradient), why)
        return replace(solution, decision=w)

    def _pulled_back(self, c: Tensor, g: Tensor) -> Tensor:
        """Jᵀ g."""
        if self.projection in ("mean", "std"):
            c = c - c.mean(-1, keepdim=True)
        if self.projection in ("norm", "std"):
            length = torch.linalg.vector_norm(c, dim=-1, keepdim=True)
            length = length.where(length > 0, 1.0)
            unit = c / length
            g = (g - (g * unit).sum(-1, keepdim=True) * unit) / length
        if self.projection in ("mean", "std"):
            g = g - g.mean(-1, keepdim=True)
        return g


def draw(noise: Noise, like: Tensor, shape: tuple[int, ...], generator: torch.Generator, kappa: float) -> Tensor:
    """Z of the given shape, independent entries, in the dtype and on the device of `like`.

    gaussian:      N(0, 1)
    gumbel:        −log E, E ~ Exp(1): a choice of one item then has the probabilities of a softmax
    sum-of-gamma:  (1/κ) [Σ_{i ≤ s} Γ(1/κ, κ/i) − log s]: the sum of κ of these is Gumbel as s → ∞, so that a choice
                   of κ items is approximately one by their total utility (Niepert et al., 2021, theorem 1)
    """
    if noise == "gaussian":
        z = torch.randn(shape, generator=generator, dtype=like.dtype)
    elif noise == "gumbel":
        z = -torch.empty(shape, dtype=like.dtype).exponential_(generator=generator).log()
    else:
        draws = gamma(torch.full((TERMS, *shape), 1 / kappa, dtype=like.dtype), generator)
        scale = kappa / torch.arange(1, TERMS + 1, dtype=like.dtype)
        z = ((draws * scale.view(-1, *[1] * len(shape))).sum(0) - math.log(TERMS)) / kappa
    return z.to(like.device)


class ImplicitMLE(Sampled):
    """w̄(c) = mean over samples of w*(c − σ Z), c = S y + d;   gradient g in w  ↦  (w̄(c + λ g) − w̄(c)) / λ in c.

    The same noise in both; `two_sided`: (w̄(c + λ g) − w̄(c − λ g)) / 2λ. λ is as in `BlackBox`, which this is without noise.

    Z is on the predicted costs and is added to utilities: to y where the program maximizes, to −y where it minimizes,
    so that Gumbel noise of scale σ on a choice of one item gives the softmax of utilities/σ.

    Args:
        solver, sigma, samples, generator: as of `Perturbed`.
        step: λ > 0; may be set later, `layer.step = …`.
        noise: "sum-of-gamma", "gumbel" or "gaussian": see `draw`.
        kappa: κ of the sum of gammas: about how many entries of a decision are 1.
        two_sided: central differences, for one more solve per sample.

    Examples:
        >>> layer = dfl.layers.ImplicitMLE(problem.solver(), sigma=0.5, step=5.0, samples=3, generator=0)
        >>> layer(predicted).shape
        torch.Size([40, 12])
    """

    annealed: ClassVar[tuple[str, ...]] = ("sigma", "step")
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
        super().__init__(solver, sigma, samples, generator)
        self.step, self.two_sided = step, bool(two_sided)
        self.noise: Noise = one_of("noise", noise, *get_args(Noise))
        self.kappa = weight(kappa, type(self).__name__, "a finite kappa > 0", lambda value: value > 0)

    def extra_repr(self) -> str:
        sides = ", two_sided=True" if self.two_sided else ""
        return f"{super().extra_repr()}, noise={self.noise!r}{sides}, step={self.step}"

    def _steps(self, c: Tensor) -> Callable[[Tensor], float]:
        """λ as a function of the gradient in backward, for these costs; both `(*batch, n)`."""
        step = self.step  # as it is in forward
        return lambda gradient: step

    def _learn(self, slope: Tensor) -> None:
        """Called with each gradient in c that was handed back."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        shape = (*y.shape[:-1], self.samples, y.shape[-1])
        z = draw(self.noise, y, shape, self.generator, self.kappa)
        upwards = 1.0 if self.objective.sense == "maximize" else -1.0  # in y, where utilities rise
        noisy = y.detach().unsqueeze(-2) + upwards * self.sigma * z
        solution, c = self._solve_samples(noisy, instance, start), self.objective.vector(y, instance)
        w, here = solution.decision.mean(-2), solution.start
        from_here = None if here is None else here.reshape(*y.shape[:-1], self.start_width)

        def solve(there: Instance) -> Tensor:
            return self._solve_samples(noisy, there, from_here).check().decision.mean(-2)

        how = self.objective, instance, w, self._steps(c.detach())
        difference = difference_gradient(solve, *how, two_sided=self.two_sided)

        def backward(gradient: Tensor, decision: Tensor) -> Tensor:
            slope = difference(gradient, decision)
            self._learn(slope)
            return slope

        return self._mean(solution, with_gradient(c, w, backward, NO_MORE.format(type(self).__name__)))


class AdaptiveImplicitMLE(ImplicitMLE):
    """As `ImplicitMLE`, with λ = α ‖c‖ / ‖g‖, norms over the batch: nothing to tune, whatever the unit of the loss.

    After each backward α grows by `rate` while gradients are sparser than `target`, by a moving average of their nonzero entries per
    instance, of weight 0.9 on the past; and shrinks otherwise.

    Args:
        solver, sigma, samples, generator, noise, kappa, two_sided: as of `ImplicitMLE`.
        target: nonzero entries of a gradient, per instance, to aim at.
        rate: how much α moves; α and the average are part of `state_dict`.

    Examples:
        >>> layer = dfl.layers.AdaptiveImplicitMLE(problem.solver(), sigma=0.5, generator=0)
        >>> layer(predicted).shape
        torch.Size([40, 12])
    """

    annealed = ("sigma",)

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
        super().__init__(solver, sigma, 1.0, samples, generator, noise=noise, kappa=kappa, two_sided=two_sided)
        if not target > 0 or not rate >= 0:
            raise OptionError(f"AdaptiveImplicitMLE needs target > 0 and rate >= 0; got {target}, {rate}")
        self.target, self.rate = float(target), float(rate)
        self.alpha, self.nonzeros = 1.0, self.target

    def extra_repr(self) -> str:
        common = super().extra_repr().rpartition(", step=")[0]
        return f"{common}, target={self.target}, rate={self.rate}"

    def get_extra_state(self) -> dict[str, Any]:
        """The generator, the solver's state, α and the average become part of `state_dict`."""
        return {**super().get_extra_state(), "alpha": self.alpha, "nonzeros": self.nonzeros}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.alpha, self.nonzeros = state["alpha"], state["nonzeros"]

    def _steps(self, c: Tensor) -> Callable[[Tensor], float]:
        length = float(torch.linalg.vector_norm(c))

        def step(gradient: Tensor) -> float:
            size = float(torch.linalg.vector_norm(gradient))
            return self.alpha * length / size if size > 0 else 0.0

        return step

    def _learn(self, slope: Tensor) -> None:
        count = slope.shape[:-1].numel()
        if not count:
            return
        size = slope.abs()
        self.nonzeros = 0.9 * self.nonzeros + 0.1 * int((size > ZERO * size.amax()).sum()) / count
        self.alpha = self.alpha + self.rate if self.nonzeros < self.target else max(0.0, self.alpha - self.rate)
