"""A learned loss: squared error with weights that regret taught, instance by instance (LODL; Shah et al., 2022)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, OptionError
from dflearn.layers.base import weight
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Solver

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
    """

    needs: tuple[Field, ...] = ("costs",)

    ids: Tensor
    weights: Tensor
    _learned_at: np.ndarray | None = None  # costs; older files hold none

    def __init__(self, ids: Tensor, weights: Tensor, costs: Tensor | None = None) -> None:
        super().__init__()
        if weights.ndim != 2 or ids.shape != weights.shape[:1]:
            raise OptionError(
                f"LODL takes one row of weights (count, p) per id (count,); got {tuple(weights.shape)} and {tuple(ids.shape)}"
            )
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
        lost = torch.stack(
            [
                objective.regret(y, solver.solve(y + error, data.instance).check().decision, best, data.instance)
                for error in errors
            ]
        )
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
            missing = int(ids[~known].reshape(-1)[0])
            raise DataError(
                f"LODL has learned no weights for the instance with id {missing}: learn them on the data that it trains on, "
                "LODL.learn(data, solver, sigma)"
            )
        self._check_costs(batch.require("costs"), ids, place)
        error = predicted - batch.require("costs")
        return LossOutput((self.weights[place].to(predicted) * error.square()).sum(-1))

    def _check_costs(self, costs: Tensor, ids: Tensor, place: Tensor) -> None:
        """An error where instances with these ids have other costs than those that the weights were learned at."""
        if self._learned_at is None or len(self._learned_at) != len(self.ids):
            return
        own, told = self._learned_at[place.cpu().numpy()], costs.detach().cpu().double().numpy()
        other = ~np.isclose(own, told, rtol=0, atol=SAME * np.abs(self._learned_at).max(initial=0.0)).all(-1)
        if other.any():
            raise DataError(
                f"the instance with id {int(ids.cpu().numpy()[other].reshape(-1)[0])} has other costs than the one of that id that LODL "
                "learned its weights at: these are other data with the same ids. Split one data set, so that ids differ, and judge "
                "by regret, fit(…, validation=…, problem=…)"
            )
