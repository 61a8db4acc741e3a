"""The candidates of `train`: ordinary forecasts and their blends, the decision-focused stack, linear model and boosting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.losses.base import Loss
from dflearn.program import Program
from dflearn.tables import boosting, stack, tuning
from dflearn.tables.combination import Combination
from dflearn.tables.cross_fitting import Candidate, CrossFit
from dflearn.tables.demand import LEVELS, critical_ratios
from dflearn.tables.forecasters import BLEND, YOURS, Boosting, LinearQuantile
from dflearn.tables.linear import after_model, corrected, ridge_start, units_of
from dflearn.tables.methods import Amount, make_loss

STACK, TREES, QUANTILE, SHIFTED = "stack", "focused boosting", "quantile", "shifted"
SHARES = (0.25, 0.5, 0.75)  # of trees in a blend with a linear forecast
HALF = 0.5  # of the way from the base to a decision-focused model, tried too
SMOOTHING = 0.3  # μ of the linear model and of boosting, relative to that at which errors move a decision by its size


class Candidates:
    """What can be made of cross-fitted forecasts."""

    def __init__(self, fit: CrossFit, program: Program) -> None:
        self.fit, self.program = fit, program
        self.settled = program.predicts_rows or program.recourse is not None
        self.size = program.n + len(program.b) + len(program.h)

    # -- ordinary -------------------------------------------------------------------------------------------------

    def ordinary(self) -> list[Candidate]:
        """Each forecast by itself, and the best blend of them."""
        fit = self.fit
        fit.cross_fit()
        names, forecasts = list(fit.crossed), torch.stack(list(fit.crossed.values()))
        trees = [name != YOURS and next(one for one in fit.forecasters if one.name == name).trees for name in names]
        found = []
        for i, name in enumerate(names):
            alone = torch.zeros(len(names), dtype=torch.float64)
            alone[i] = 1.0
            found += fit.judged([self._blend(name, alone, forecasts, trees[i])])
        if len(names) > 1:
            weights = self._weights(forecasts, trees)
            blends = [self._blend(BLEND, weight, forecasts, bool(weight[trees].any())) for weight in weights]
            kept = fit.judged(blends)
            found.append(min(kept, key=lambda one: one.mean))
        return found

    def _blend(self, name: str, weight: Tensor, forecasts: Tensor, trees: bool) -> Candidate:
        fit = self.fit
        left_out = fit.after(torch.einsum("m,mrp->rp", weight, forecasts))
        shares = {one: share for one, share in zip(fit.crossed, weight.tolist(), strict=True) if share}
        return Candidate(
            name,
            left_out,
            lambda rows: fit.combination(fit.parts(rows), weight),
            trees=trees,
            detail={"weights": shares},
        )

    def _weights(self, forecasts: Tensor, trees: list[bool]) -> Iterator[Tensor]:
        """Weights of blends: those of least squared error, and shares of the best trees beside the best other forecast."""
        from scipy.optimize import nnls

        fit, count = self.fit, len(forecasts)
        unit, truth = units_of(fit.truth), fit.truth
        counts = torch.ones(len(truth)) if fit.held.weights is None else fit.held.weights
        root = (counts / counts.mean()).sqrt().double()[:, None]
        rows = ((forecasts - truth) / unit * root).reshape(count, -1)
        gram = (rows @ rows.T).numpy() / rows.shape[1]
        factor = np.linalg.cholesky(gram + 1e-9 * np.trace(gram) * np.eye(count) + np.ones((count, count)))
        least = nnls(factor.T, np.linalg.solve(factor, np.ones(count)))[0]  # min aᵀ gram a + (Σ a − 1)², up to scale
        yield torch.tensor(least / least.sum())
        errors = np.diag(gram)
        if any(trees) and not all(trees):
            best = [
                min((i for i in range(count) if trees[i] is kind), key=lambda i: errors[i]) for kind in (False, True)
            ]
            for share in SHARES:
                weight = torch.zeros(count, dtype=torch.float64)
                weight[best[0]], weight[best[1]] = 1 - share, share
                yield weight

    # -- predicted right-hand sides -------------------------------------------------------------------------------

    def quantiles(self, ordinary: list[Candidate]) -> list[Candidate]:
        """Forecasts of the level that costs least: linear, boosted, and ordinary ones shifted by a quantile of their errors."""
        fit, known = self.fit, critical_ratios(self.program)
        levels: list[Any] = list(LEVELS) if known is None else [known.tolist()]
        found = [one for base in ordinary for one in fit.judged(list(self._shifted(base, levels)))]
        linear = fit.judged([self._level(LinearQuantile(level)) for level in levels])
        found += linear
        best = float(np.mean(min(linear, key=lambda one: one.mean).detail["level"]))
        found += fit.judged([self._level(Boosting("boosted quantile", fit.settings.seed, level=best))])
        return found

    def _level(self, forecaster: LinearQuantile | Boosting) -> Candidate:
        fit = self.fit
        _, forecasts = fit.cross(forecaster)
        one = torch.ones(1, dtype=torch.float64)
        build = lambda rows: fit.combination({forecaster.name: forecaster.fit(fit.rows.of(rows))}, one)  # noqa: E731
        trees = isinstance(forecaster, Boosting)
        return Candidate(forecaster.name, fit.after(forecasts), build, QUANTILE, trees, {"level": forecaster.level})

    def _shifted(self, base: Candidate, levels: list[Any]) -> Iterator[Candidate]:
        """A forecast plus the quantile of its errors on rows left out, of each cost; for a row, of the other windows' errors."""
        fit = self.fit
        errors, every = (fit.truth - base.forecasts).numpy(), np.arange(len(fit.truth))
        weight = fit.weights_of(base)

        def offset(rows: np.ndarray, level: Any) -> Tensor:
            each = np.broadcast_to(level, (fit.costs,))
            return torch.tensor([np.quantile(errors[rows, j], each[j]) for j in range(fit.costs)])

        for level in levels:
            shifted = base.forecasts.clone()
            for own in fit.windows:
                shifted[own] += offset(np.setdiff1d(every, own), level)
            whole = offset(every, level)
            build = lambda rows, whole=whole: fit.combination(fit.parts(rows), weight, whole)  # noqa: E731
            detail = {"level": level}
            yield Candidate(f"{base.name}, {SHIFTED}", fit.after(shifted), build, QUANTILE, base.trees, detail)

    # -- decision-focused -----------------------------------------------------------------------------------------

    def stacks(self, base: Candidate) -> list[Candidate]:
        """The decision-focused stack on the best ordinary one: weights; weights and offsets; the same by groups of costs."""
        fit = self.fit
        forecasts = torch.stack(list(fit.crossed.values()))
        first = fit.weights_of(base)
        mu = stack.SMOOTHING * stack.smoothing(fit.task, fit.held, torch.einsum("m,mrp->rp", first, forecasts))
        loss = stack.stack_loss(self.program, mu)
        one, own = np.zeros(fit.costs, int), stack.groups_of(self.program, fit.costs)
        levels = [(one, False), (one, True)] + [(own, True)] * bool(own.max() > 0)

        def candidate(groups: np.ndarray, offsets: bool) -> Candidate:
            def compute() -> dict[str, Any]:
                fit.progress.pass_by("learning the stack on rows left out")
                left_out, numbers = stack.crossed(
                    forecasts, first, fit.held, loss, fit.windows, groups, offsets=offsets
                )
                return {"forecasts": left_out, "weight": numbers.weight, "offset": numbers.offset}

            found = fit.stored(f"{STACK} {groups.max() + 1} {offsets}", compute)
            build = lambda rows: fit.combination(fit.parts(rows), found["weight"], found["offset"])  # noqa: E731
            detail = {"groups": int(groups.max() + 1), "offsets": offsets}
            return Candidate(STACK, fit.after(found["forecasts"]), build, type(loss).__name__, base.trees, detail)

        return fit.judged([candidate(*level) for level in levels])

    def linear(self, name: str, base: Candidate) -> list[Candidate]:
        """A linear model trained with a loss from ridge, after each phase, and the middle between it and the base."""
        fit, settings = self.fit, self.fit.settings
        after_convex = name == "sce" and "smoothed-spo+" in settings.losses

        def trained(rows: np.ndarray) -> list[tuple[Tensor, Tensor]]:
            return self._trained("smoothed-spo+" if after_convex else name, name if after_convex else None, rows)

        def compute() -> dict[str, Any]:
            by_fold = []
            for number, fold in enumerate(fit.folds):
                fit.progress.pass_by(f"{name}, fold {number + 1} of {len(fit.folds)}")
                x = fit.rows.x[fold.own]
                by_fold.append([x @ weight.T + bias for weight, bias in trained(fold.fit)])
            count = min(map(len, by_fold))
            return {"forecasts": [torch.cat([fold[i] for fold in by_fold]) for i in range(count)]}

        found = fit.stored(f"linear {name}", compute)["forecasts"]
        made: dict[bytes, list[tuple[Tensor, Tensor]]] = {}

        def build(rows: np.ndarray, phase: int, way: float) -> Combination:
            key = rows.tobytes()
            made[key] = made.get(key) or trained(rows)
            weight, bias = made[key][min(phase, len(made[key]) - 1)]
            return self._mixed({name: _as_module(weight, bias)}, way, base, rows)

        def variant(phase: int, way: float) -> Candidate:
            left_out = way * fit.after(found[phase]) + (1 - way) * base.forecasts
            of = {"phase": phase, "way": way}
            return Candidate(name, left_out, partial(build, phase=phase, way=way), name, base.trees and way < 1, of)

        whole = fit.judged([variant(phase, 1.0) for phase in range(len(found))])
        best = min(whole, key=lambda one: one.mean, default=None)
        return whole if best is None else whole + fit.judged([variant(best.detail["phase"], HALF)])

    def _mixed(self, own: Mapping[str, nn.Module], way: float, base: Candidate, rows: np.ndarray) -> Combination:
        """The sum of these parts beside the base, way · parts + (1 − way) · base."""
        weight = torch.cat([torch.full((len(own),), way).double(), (1 - way) * self.fit.weights_of(base)])
        rest = self.fit.parts(rows) if way < 1 else dict.fromkeys(self.fit.crossed, nn.Identity())
        return self.fit.combination({**own, **rest}, weight)

    def _trained(self, first: str, then: str | None, rows: np.ndarray) -> list[tuple[Tensor, Tensor]]:
        """Snapshots as linear maps of the features: with one loss from ridge, or with a second one from its end."""
        fit, settings = self.fit, self.fit.settings
        own = fit.rows.of(rows)
        part = fit.data.subset(rows).with_features(own.x)
        start, found = ridge_start(part, after_model(settings.positive, fit.scale.costs)), []
        ridge = corrected(start)
        for name in (first, *([] if then is None else [then])):
            epochs = settings.epochs or tuning.epochs_for(len(rows), self.size)
            tell = lambda line, name=name: fit.progress.pass_by(f"{name}: {line}")  # noqa: E731
            rate = tuning.RATE if settings.lr is None else settings.lr
            options: dict[str, Any] = {"seed": settings.seed, "device": fit.device, "tell": tell}
            found = tuning.snapshots(start, self._loss(name, part, ridge(own.x)), epochs, rate, **options)
        maps = []
        for weights in found:
            tuning.with_weights(start.module, weights)
            line = corrected(start)
            weight = line.weight / line.standardize.deviation
            maps.append((weight, line.bias - weight @ line.standardize.mean))
        return maps

    def _loss(self, name: str, part: DecisionDataset, forecasts: Tensor) -> Loss:
        """The loss, with μ relative to the error of the forecasts; SCE with the smoothed program's own label."""
        fit = self.fit
        mu = SMOOTHING * stack.smoothing(fit.task, part, forecasts)
        error = part.batch().require("costs") - forecasts
        noise: Amount = error.abs().mean().item() if name in ("score-function", "lodl") else "auto"
        options = {"mu": mu, "sigma": noise, "seed": fit.settings.seed, "data": part}
        return make_loss("sce-own" if name == "sce" else name, fit.settings.layer, fit.task, fit.scale, **options)

    def boosted(self, base: Candidate) -> list[Candidate]:
        """Trees on the gradient of the loss, from ridge; and the middle between them and the base."""
        fit = self.fit
        rounds = max(4, round(boosting.ROUNDS * tuning.shortened(self.size)))

        def trained(rows: np.ndarray) -> dict[str, nn.Module]:
            part, own = fit.data.subset(rows), fit.rows.of(rows)
            ridge = corrected(ridge_start(part.with_features(own.x)))
            mu = SMOOTHING * stack.smoothing(fit.task, part, ridge(own.x))
            objective = stack.Objective(stack.stack_loss(self.program, mu), part)
            trees = boosting.on_gradient(own.x, ridge(own.x), objective, rounds, fit.settings.seed)
            return {"ridge": ridge.module(), TREES: boosting.together(trees, fit.costs)}

        def compute() -> dict[str, Any]:
            found = []
            for number, fold in enumerate(fit.folds):
                fit.progress.pass_by(f"{TREES}, fold {number + 1} of {len(fit.folds)}")
                x, parts = fit.rows.x[fold.own], trained(fold.fit)
                with torch.no_grad():
                    found.append(torch.stack([part(x) for part in parts.values()]).sum(0))
            return {"forecasts": torch.cat(found)}

        forecasts = fit.after(fit.stored(TREES, compute)["forecasts"])

        def build(rows: np.ndarray, way: float) -> Combination:
            return self._mixed({f"{name} beneath": part for name, part in trained(rows).items()}, way, base, rows)

        def variant(way: float) -> Candidate:
            left_out = way * forecasts + (1 - way) * base.forecasts
            return Candidate(TREES, left_out, partial(build, way=way), "SmoothedSPOPlus", True, {"way": way})

        return fit.judged([variant(way) for way in (1.0, HALF)])


def _as_module(weight: Tensor, bias: Tensor) -> nn.Module:
    """ŷ = weight x + bias as a part of a combination."""
    from dflearn.models import Standardize
    from dflearn.tables.linear import LinearFit

    plain = Standardize(weight.shape[1])
    plain.deviation.fill_(1.0)
    return LinearFit(plain, weight, bias).module()
