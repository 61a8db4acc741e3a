"""Losses of the layer's decision: its regret, its distance to the label, and what it costs once the truth is known; PEAR and PG, whose
gradients are known without going through the layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError, SolverError
from dflearn.layers.base import Layer, one_of, raised, weight
from dflearn.layers.perturbed import repeated
from dflearn.layers.smoothed import Smoothed
from dflearn.losses.base import Field, Loss, LossOutput, one_each, slope_of_optimum, with_slope
from dflearn.program import Instance, Program
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Solution, Status
from dflearn.solvers.recourse import SecondStage, recourse_of


class Regret(Loss):
    """obj(y, w) − obj(y, w*),   w = layer(ŷ);   gradient (∂w/∂ŷ)ᵀ (S y + d + Q w).

    Through `Exact` the gradient is zero everywhere; through a smoothed layer wherever the decision does not move with the costs,
    however large the regret. SCE and SPO+ are there for that reason.

    Examples:
        >>> loss = dfl.losses.Regret(dfl.Exact(problem.solver()))
        >>> values = loss(predicted, batch)
        >>> values.shape, values.min() >= 0
        (torch.Size([40]), tensor(True))
    """

    layer: Layer
    known_rows = True
    by_layer = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        if layer.objective.value is not None:
            remedy = "train with SPO+ or a perturbed Fenchel-Young loss, and judge by the regret"
            raise OptionError(f"the regret as a loss needs a gradient, which the `value` of a solver has not: {remedy}")

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        pair = solution.decision, batch.require("decisions")
        return LossOutput(self.layer.objective.difference(batch.require("costs"), *pair, batch.instance), solution)


class SquaredDecisionError(Loss):
    """‖w* − w‖²,   w = layer(ŷ);   gradient 2 (∂w/∂ŷ)ᵀ (w − w*).

    `reduction="mean"` divides by the n variables, as the published DYS rows do. Needs no true costs. Like `Regret`,
    it has no gradient where the decision does not move with the costs.

    Examples:
        >>> loss = dfl.losses.SquaredDecisionError(dfl.Smoothed(program, mu=1.0))
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    layer: Layer
    by_layer = True
    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, layer: Layer, *, reduction: Literal["sum", "mean"] = "sum") -> None:
        super().__init__(layer)
        self.reduction = one_of("reduction", reduction, "sum", "mean")

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        squares = (batch.require("decisions") - solution.decision).square()
        return LossOutput(squares.sum(-1) if self.reduction == "sum" else squares.mean(-1), solution)


Cost = Callable[[Tensor, Batch], Tensor]


class TaskLoss(Loss):
    """cost(w, y),   w = layer(ŷ): what the decision costs once the truth is known, and recourse variables are decided again.

        cost(w, y) = min over v of obj(y, v)   s.t.   v feasible for y,   v_j = w_j where j is no recourse variable

    Its gradient in w is that of the optimal value, from the prices of the rows: (S y + d + Q v − Mᵀ prices)_j for the variables that
    stay. Recourse is continuous. Without predicted right-hand sides and recourse the loss is obj(y, w): the regret up to a constant.

    Args:
        layer: differentiable in what is predicted, `Smoothed`; where right-hand sides are predicted, through them too.
        cost: a differentiable function of one's own, decisions `(*batch, n)` and their `Batch` → `(*batch,)`, in place of all
            that.
        program: what decisions are judged by, where the layer decides by another one, `program.scenarios(weights)`: its
            variables are the first of the layer's. True costs are then `(*batch, p)` of this program.

    Examples:
        >>> loss = dfl.losses.TaskLoss(dfl.Smoothed(program, mu=1.0))
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    layer: Layer
    by_layer = True
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, cost: Cost | None = None, *, program: Program | None = None) -> None:
        super().__init__(layer)
        self.cost, self.judge = cost, program
        self.needs = ("costs",) if cost is None else ()
        if program is not None and program.n > layer.objective.n:
            remedy = "it must be the program whose `scenarios` the layer decides by"
            raise OptionError(f"{program!r} judges decisions of {layer.objective.n} variables: {remedy}")
        program = layer.program if program is None else program
        self._recourse: _Priced | None = None
        if cost is None and program is not None and (program.predicts_rows or program.recourse is not None):
            self._recourse = _Priced(program.relax())

    def extra_repr(self) -> str:
        return "" if self.cost is None else getattr(self.cost, "__qualname__", repr(self.cost))

    def _costs_shape(self, predicted: Tensor) -> tuple[int, ...]:
        return predicted.shape if self.judge is None else (*predicted.shape[:-1], self.judge.p)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        if self.judge is not None and batch.instance is not None:
            raise OptionError("TaskLoss(layer, program=…) takes no instances: they would differ between the programs")
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        decision = solution.decision if self.judge is None else solution.decision[..., : self.judge.n]
        if self.cost is not None:
            value = one_each(self.cost(decision, batch), decision.shape[:-1], "a cost has one value per instance")
            return LossOutput(value, solution)
        costs = batch.require("costs")
        if self._recourse is None:
            objective = self.layer.objective if self.judge is None else self.judge.objective
            return LossOutput(objective(costs, decision, batch.instance), solution)
        value, slope = (torch.as_tensor(part).to(decision) for part in self._recourse(decision, costs, batch))
        shape, why = decision.shape, "TaskLoss has no second derivatives where recourse decides again"
        return LossOutput(with_slope(decision, value.reshape(shape[:-1]), slope.reshape(shape), why), solution)


class _Priced:
    """What decisions cost after recourse, and the gradient of that, by the prices of the second stage."""

    def __init__(self, program: Program) -> None:
        self.program, self.second, self.settle = program, SecondStage(program), recourse_of(program)
        self.matrix = sp.vstack([program.A, program.G], format="csr")

    def __call__(self, decision: Tensor, costs: Tensor, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The cost of each decision `(count,)`, and its gradient `(count, n)`."""
        count, n = decision.shape[:-1].numel(), self.program.n

        def rows(value: Tensor) -> Tensor:
            return value.detach().cpu().double().reshape(count, value.shape[-1])

        y, w = rows(costs), rows(decision).numpy()
        instance = None if batch.instance is None else batch.instance.map(rows)
        truth = self.program.realize(y, instance)
        q = None if instance is None or instance.q is None else instance.q.numpy()
        c = self.program.objective.vector(y, instance).reshape(count, n).numpy()
        filled = None if self.settle is None else self.settle.filled(y, torch.as_tensor(w), instance)
        if filled is not None:  # slack alone, in closed form
            if not filled.feasible.all():
                raise self._infinite(int(np.argmin(filled.feasible)))
            v, bent = filled.decision, self.second.bend(filled.decision, q)
            steep = c + bent - (self.matrix.T @ filled.prices.T).T
            return (c * v).sum(1) + 0.5 * (v * bent).sum(1), np.where(self.second.mask, 0.0, steep)
        found = self.second.solve(c, w, self.program.sides(truth, count), q)
        if (found.status != int(Status.OPTIMAL)).any():
            i = int(np.argmax(found.status != int(Status.OPTIMAL)))
            if found.status[i] == int(Status.INFEASIBLE):
                raise self._infinite(i)
            why = "for numerical reasons, or because its cost falls without end; check the scales and bounds"
            raise SolverError(f"instance {i}: no prices of its recourse were found, {why}")
        v = found.decision
        return (c * v).sum(1) + 0.5 * (v * self.second.bend(v, q)).sum(1), found.slope

    @staticmethod
    def _infinite(i: int) -> SolverError:
        return SolverError(
            f"instance {i}: no recourse makes this decision feasible for the truth, so its cost is infinite; add priced slack, "
            "program.elastic(rows, price)"
        )


class ScoreFunction(Loss):
    """E[cost(w(ŷ + σ ε), y)],   ε ~ N(0, I);   gradient  E[(cost(w(ŷ + σ ε), y) − baseline) ε/σ].

    Both are means over samples, and unbiased: the baseline of a sample is the mean cost of the others. cost(w, y) is as of `TaskLoss`;
    integers, predicted right-hand sides and any solver are fine.

    Args:
        layer: decides; `Exact(solver)`, usually. Its gradient is not used.
        sigma: σ > 0, in the units of what is predicted: about its error, to begin with.
        samples: how many draws for each instance, at least 2.
        cost: a function of one's own, decisions `(*batch, samples, n)` and the `Batch`, whose costs and instance are repeated
            likewise → `(*batch, samples)`; it need not be differentiable.
        generator: where noise comes from, on the CPU, or a seed for one; part of `state_dict`.

    Examples:
        >>> loss = dfl.losses.ScoreFunction(dfl.Exact(problem.solver()), sigma=0.5, samples=4, generator=0)
        >>> loss(predicted, batch).shape
        torch.Size([40])
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

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        shape = (*predicted.shape[:-1], self.samples, predicted.shape[-1])
        noise = torch.randn(shape, generator=self.generator, dtype=predicted.dtype).to(predicted.device)
        each = partial(repeated, self.samples)
        instance = None if batch.instance is None else batch.instance.map(each)
        with torch.no_grad():
            drawn = predicted.detach().unsqueeze(-2) + self.sigma * noise
            solution = self.layer.solve(drawn, instance).check()
            cost = self._cost(solution.decision, batch, each(batch.require("costs")), instance).to(predicted)
            excess = (cost - cost.mean(-1, keepdim=True)) / (self.sigma * max(self.samples - 1, 1))
            slope = (excess.unsqueeze(-1) * noise).sum(-2)
            value = cost.mean(-1)
        return LossOutput(value + (slope * (predicted - predicted.detach())).sum(-1))

    def _cost(self, decision: Tensor, batch: Batch, costs: Tensor, instance: Instance | None) -> Tensor:
        """`(*batch, samples)`; an error where it is infinite."""
        if self.cost is not None:
            value = self.cost(decision, Batch(batch.features, costs, None, instance))
            value = one_each(value, decision.shape[:-1], "a cost has one value per decision")
        elif self._recourse is not None:
            value = self._recourse.settle(costs, decision, instance).cost
        else:
            value = self.layer.objective.true_cost(costs, decision, instance)
        if not bool(value.isfinite().all()):
            why = "so its cost is infinite: add priced slack, program.elastic(rows, price)"
            raise SolverError(f"a decision is infeasible once the truth is known and no recourse helps, {why}")
        return value


# -- by a gradient that is known without going through the layer ----------------------------------------------------------


class PEAR(Loss):
    """obj(y, w) + Ω(w) − obj(y, w*) − Ω(w*),   w = layer(ŷ),   Ω = (μ/2)‖w‖²;   gradient

        g = (1/μ) Sᵀ P S (ŷ − y),   P the projector onto the face of w, that is, at the *predicted* costs.

    It is the regret of the smoothed problem up to a constant (its optimum is at layer(y), not at w*), and g its exact
    gradient: by optimality of w, P(S ŷ + d + μ w) = 0, so that P(S y + d + μ w) = −P S(ŷ − y).
    The gradient of shifted `SCE` is g + Sᵀ(w* − w): where the decision is a vertex, P = 0 and PEAR, unlike SCE, has no gradient.

    Against that the paper (by a review of it; its full text was not at hand) adds, for linear programs, the part that was projected
    away, n = (1/μ) SᵀS(ŷ − y) − g, at the length of g: g + β n ‖g‖/‖n‖, which is the gradient of nothing.

    Args:
        layer: `Smoothed` with the squared regularizer.
        injection: β ≥ 0.

    Examples:
        >>> loss = dfl.losses.PEAR(dfl.Smoothed(program, mu=1.0))
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    layer: Smoothed
    known_rows = linear = True

    def __init__(self, layer: Smoothed, *, injection: float = 0.0) -> None:
        super().__init__(layer)
        if not isinstance(layer, Smoothed) or layer.regularizer != "squared":
            raise OptionError(f"PEAR projects onto the face of Smoothed(program, mu), squared; got {layer!r}")
        self.injection = weight(injection, "PEAR", "a finite injection >= 0", lambda value: value >= 0)

    def extra_repr(self) -> str:
        return f"injection={self.injection}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, mu, label = self.layer.objective, self.layer.mu, batch.require("decisions")
        truth = batch.require("costs")
        with torch.enable_grad():
            at = predicted.detach().requires_grad_()
            solution = self.layer.solve(at, batch.instance, batch.start).check()
            error = objective.predicted(at.detach() - truth)
            (back,) = torch.autograd.grad(solution.decision, at, error)
        w, slope = solution.decision.detach(), -back
        if self.injection:
            normal = objective.transpose(error) / mu - slope
            length = torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
            size = torch.linalg.vector_norm(slope, dim=-1, keepdim=True)
            slope = slope + self.injection * size / length.where(length > 0, 1.0) * normal
        regularization = self.layer.regularization(w) - self.layer.regularization(label)
        value = objective(truth, w - label, batch.instance) + regularization
        why = "PEAR has no second derivatives: use SCE through Smoothed"
        return LossOutput(with_slope(predicted, value, slope, why), solution)


Difference = Literal["backward", "central", "forward"]
SIDES: dict[Difference, tuple[int, int]] = {"backward": (0, -1), "central": (1, -1), "forward": (1, 0)}


class PerturbationGradient(Loss):
    """With V(c) = min over w of cᵀw (+ Ω(w)), ĉ = S ŷ + d and c = S y + d:

        backward:  [V(ĉ) − V(ĉ − h c)] / h
        central:   [V(ĉ + h c) − V(ĉ − h c)] / 2h
        forward:   [V(ĉ + h c) − V(ĉ)] / h

    All tend to cᵀw*(ĉ), the true cost of the decision, as h → 0; since V is concave, backward ≥ cᵀw*(ĉ) ≥ forward. Gradient
    by Danskin's theorem, Sᵀ(w⁺ − w⁻)/h (central: 2h), not through the layer. Not convex. Two solves per instance, and no optimal
    decisions needed. The value is a cost, not a regret.

    Args:
        width: h > 0, a share of the true costs; may be set later, `loss.width = …`.
        difference: "backward", "central" or "forward".

    Examples:
        >>> loss = dfl.losses.PerturbationGradient(dfl.Exact(problem.solver()), width=0.5)
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    layer: Layer
    known_rows = linear = exact = True
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, width: float = 0.1, *, difference: Difference = "backward") -> None:
        super().__init__(layer)
        self.width = weight(width, "PerturbationGradient", "a finite width > 0", lambda value: value > 0)
        self.difference: Difference = one_of("difference", difference, *SIDES)

    def extra_repr(self) -> str:
        return f"width={self.width}, difference={self.difference!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        above, below = SIDES[self.difference]
        with torch.no_grad():
            high = self._at(above, predicted, batch, batch.start)
            low = self._at(below, predicted, batch, high.start)
            distance = self.width * (above - below)
            value = (high.objective - low.objective) / distance
            slope = (slope_of_optimum(self.layer, high) - slope_of_optimum(self.layer, low)) / distance
        why = "PerturbationGradient has no second derivatives: use FenchelYoung through Smoothed"
        return LossOutput(with_slope(predicted, value, slope, why), replace(high, seconds=high.seconds + low.seconds))

    def _at(self, side: int, predicted: Tensor, batch: Batch, start: Tensor | None) -> Solution:
        """The layer's answer at ĉ + side · h · c."""
        step, instance, objective = side * self.width, batch.instance, self.layer.objective
        known = objective.vector(torch.zeros_like(predicted), instance)  # d
        if step and bool(known.any()):
            instance = raised(objective, instance, step * known)
        return self.layer.solve(predicted + step * batch.require("costs"), instance, start).check()
