"""Losses of predicted and true costs, which solve nothing while training: squared and pinball error, cost-sensitive error, and a learned weighting."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.layers.base import weight
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Program
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Solver


class MSE(Loss):
    """(1/p) ‖ŷ − y‖², the mean over the p predicted costs of an instance.

    Its mean over a batch is the mean over all entries, the same number as `torch.nn.MSELoss()`.

    Examples:
        >>> dfl.losses.MSE()(torch.zeros(2, 3), dfl.Batch(torch.zeros(2, 1), costs=torch.ones(2, 3)))
        tensor([1., 1.])
    """

    by_layer = True  # nothing of an instance enters
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self) -> None:
        super().__init__()

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput((predicted - batch.require("costs")).square().mean(-1))


class Quantile(Loss):
    """Σ_j max(τ_j (y_j − ŷ_j), (τ_j − 1)(y_j − ŷ_j)): least in expectation where ŷ_j is the τ_j-quantile of y_j.

    The two-stage method for right-hand sides that are predicted: what is too little costs more than what is too much, or less,
    and the critical ratio of the two is the quantile to plan for. `estimator.quantiles.critical_ratios` reads it off a program.

    Args:
        level: τ strictly between 0 and 1: a number for all, or one for each predicted number `(p,)`.

    Examples:
        >>> dfl.losses.Quantile(0.9)(torch.tensor([[1.0]]), dfl.Batch(torch.zeros(1, 1), torch.tensor([[3.0]])))
        tensor([1.8000])
    """

    layer: None
    needs: tuple[Field, ...] = ("costs",)
    level: Tensor

    def __init__(self, level: Any = 0.5) -> None:
        super().__init__()
        levels = np.asarray(level, np.float64)
        if levels.ndim > 1 or not levels.size or not ((levels > 0) & (levels < 1)).all():
            got = f"one for all or one for each predicted number; got {level}"
            raise OptionError(f"a level lies strictly between 0 and 1, {got}")
        self.register_buffer("level", torch.tensor(levels))

    def extra_repr(self) -> str:
        return f"level={self.level.tolist()}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        if self.level.ndim and self.level.shape[0] != predicted.shape[-1]:
            raise ShapeError(f"{self.level.shape[0]} levels are given, and {predicted.shape[-1]} numbers are predicted")
        level, short = self.level.to(predicted), batch.require("costs") - predicted
        return LossOutput(torch.maximum(level * short, (level - 1) * short).sum(-1))


AT_BOUND = 1e-6  # distance at which a decision is at a bound, relative to its size


class CostSensitive(Loss):
    """(1/n) Σ_j ρ_j e_j²,   e = S(ŷ − y),   ρ_j = κ where w*_j is at its lower bound and e_j > 0, or at its upper bound
    and e_j < 0; ρ_j = 1 otherwise.

    Those errors are harmless: eᵀ(w − w*) ≥ 0 for every feasible w, so that w* stays optimal under c + e. With κ = 0 a loss of zero
    therefore means no regret; with κ = 1 this is the squared error of the costs of the variables. Convex, and nothing is solved.

    It is the asymmetric part of the paper, without its instance-based costs. Let the model work in units of the costs (`models.Scaled`).

    Args:
        program: its bounds say which errors are harmless.
        harmless: κ in [0, 1].

    Examples:
        >>> loss = dfl.losses.CostSensitive(program, harmless=0.1)
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    known_rows = linear = True

    def __init__(self, program: Program, harmless: float = 0.1) -> None:
        super().__init__()
        self._check_form(program)
        self.program = program
        self.harmless = weight(harmless, "CostSensitive", "harmless from 0 to 1", lambda value: 0 <= value <= 1)

    def extra_repr(self) -> str:
        return f"{self.program!r}, harmless={self.harmless}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, label = self.program.objective, batch.require("decisions")
        error = objective.predicted(predicted - batch.require("costs"))  # without d, which may be much larger
        sides = self.program.sides(batch.instance, label.shape[:-1].numel())
        lower, upper = (
            torch.tensor(bound).to(label).expand(label.shape[:-1].numel(), -1).reshape(label.shape)
            for bound in (sides.lower, sides.upper)
        )
        room = AT_BOUND * label.abs().amax(-1, keepdim=True)
        harmless = ((label - lower <= room) & (error > 0)) | ((upper - label <= room) & (error < 0))
        return LossOutput((torch.where(harmless, self.harmless, 1.0) * error.square()).mean(-1))


SAME = 1e-5  # of the largest: costs that differ by less are the same, in another precision


class LODL(Loss):
    """Σ_j a_ij (ŷ_j − y_ij)²  for instance i, with weights a_i ≥ 0 of its own: convex, and no solves while training.

    `LODL.learn` finds the weights before training (the paper's "weighted MSE", the diagonal of its quadratic form): it draws
    predictions ŷ = y_i + σ z, z ~ N(0, I), solves each of them, and fits  regret_i(ŷ) ≈ Σ_j a_ij (ŷ_j − y_ij)²  by least squares over
    a ≥ 0. A floor keeps costs that mattered in no draw from being free.

    Args:
        ids: of the instances that have weights, int64 `(count,)`.
        weights: a, `(count, p)`.
        costs: y that they were learned at, `(count, p)`. Other data may have the same ids: where these are known, the loss refuses them.

    Examples:
        >>> loss = dfl.losses.LODL.learn(data, problem.solver(), samples=20, sigma=0.5)
        >>> loss(predicted, batch).shape
        torch.Size([40])
    """

    needs: tuple[Field, ...] = ("costs",)
    ids: Tensor
    weights: Tensor

    def __init__(self, ids: Tensor, weights: Tensor, costs: Tensor | None = None) -> None:
        super().__init__()
        if weights.ndim != 2 or ids.shape != weights.shape[:1]:
            got = f"got {tuple(weights.shape)} and {tuple(ids.shape)}"
            raise OptionError(f"LODL takes one row of weights (count, p) per id (count,); {got}")
        if not bool((weights >= 0).all()) or len(torch.unique(ids)) != len(ids):
            raise OptionError("LODL takes weights that are at least 0, and each id once")
        if costs is not None and costs.shape != weights.shape:
            raise OptionError(f"LODL takes costs as many as weights, {tuple(weights.shape)}; got {tuple(costs.shape)}")
        order = torch.argsort(ids)
        self._learned_at = None if costs is None else costs.detach().cpu().double()[order.cpu()].numpy()
        self.register_buffer("ids", ids[order].detach().clone())
        self.register_buffer("weights", weights[order].detach().clone())

    @classmethod
    def untaught(cls, p: int) -> LODL:
        """One that has no weights yet, for programs of p costs: what a saved model is loaded with."""
        return cls(torch.empty(0, dtype=torch.int64), torch.empty(0, p, dtype=torch.float64))

    @classmethod
    def learn(
        cls,
        data: DecisionDataset,
        solver: Solver,
        sigma: float,
        samples: int = 50,
        *,
        floor: float = 0.05,
        generator: Randomness = 0,
    ) -> LODL:
        """Solve `samples` draws around the costs of each instance, and fit its weights.

        Args:
            data: the training data, with costs. Their decisions are not looked at: regret is that of the solver's own.
            solver: of the program or its relaxation; `samples` solves per instance, and one for its optimum.
            sigma: σ > 0 of the draws, in units of the costs.
            floor: the least weight, relative to the mean of all.
        """
        from scipy.optimize import nnls

        sigma = weight(sigma, "LODL", "a finite sigma > 0", lambda value: value > 0)
        if samples < 1 or not 0 <= floor <= 1:
            raise OptionError(f"LODL takes at least one sample and a floor between 0 and 1; got {samples} and {floor}")
        batch = data.batch()
        y = batch.require("costs").detach().cpu().double()
        if solver.program is not None and solver.program.predicts_rows:
            raise OptionError(
                f"LODL learns from regrets at the true costs, and {solver.program!r} has predicted right-hand sides, for which "
                "decisions may not even be feasible: use TaskLoss"
            )
        rng, objective, found = generator_of(generator), solver.objective, np.zeros(tuple(y.shape))
        best = solver.solve(y, data.instance).check().decision
        errors = sigma * torch.randn(samples, *y.shape, generator=rng, dtype=torch.float64)
        decisions = (solver.solve(y + error, data.instance).check().decision for error in errors)
        lost = torch.stack([objective.regret(y, w, best, data.instance) for w in decisions])
        for i in range(len(y)):
            found[i] = nnls(errors[:, i].square().numpy(), lost[:, i].clamp(min=0).numpy())[0]
        if found.size and not found.any():
            raise OptionError(
                f"no draw of sigma = {sigma:g} around the costs has any regret, so that all weights of LODL would be zero: take a "
                f"larger sigma (mean |y| is {float(y.abs().mean()):.3g}) or more samples than {samples}"
            )
        weights = torch.as_tensor(found)
        return cls(data.ids, weights.clamp(min=floor * float(weights.mean()) if weights.numel() else 0.0), y)

    def extra_repr(self) -> str:
        return f"{len(self.ids)} instances"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        ids = batch.require("ids").to(self.ids.device)
        place = torch.searchsorted(self.ids, ids).clamp(max=max(len(self.ids) - 1, 0))
        known = self.ids[place] == ids if len(self.ids) else torch.zeros_like(ids, dtype=torch.bool)
        if not bool(known.all()):
            remedy = "learn them on the data that it trains on, LODL.learn(data, solver, sigma)"
            missing = int(ids[~known].reshape(-1)[0])
            raise DataError(f"LODL has learned no weights for the instance with id {missing}: {remedy}")
        costs = batch.require("costs")
        self._check_costs(costs, ids, place)
        return LossOutput((self.weights[place].to(predicted) * (predicted - costs).square()).sum(-1))

    def _check_costs(self, costs: Tensor, ids: Tensor, place: Tensor) -> None:
        """An error where instances with these ids have other costs than those that the weights were learned at."""
        if self._learned_at is None or len(self._learned_at) != len(self.ids):
            return
        own, given = self._learned_at[place.cpu().numpy()], costs.detach().cpu().double().numpy()
        other = ~np.isclose(own, given, rtol=0, atol=SAME * np.abs(self._learned_at).max(initial=0.0)).all(-1)
        if other.any():
            raise DataError(
                f"the instance with id {int(ids.cpu().numpy()[other].reshape(-1)[0])} has other costs than the one of that id that LODL "
                "learned its weights at: these are other data with the same ids. Split one data set, so that ids differ, and judge "
                "by regret, fit(…, validation=…, problem=…)"
            )
