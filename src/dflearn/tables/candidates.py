"""The candidates of `train`: ordinary forecasts and their blends, the decision-focused stack, linear model and boosting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dflearn.data import DecisionDataset
from dflearn.losses.base import Loss
from dflearn.program import Program
from dflearn.tables import linear, stack
from dflearn.tables.cross_fitting import Candidate, CrossFit
from dflearn.tables.demand import LEVELS, Scenarios, critical_ratios, scenario_count, typical
from dflearn.tables.forecasters import BLEND, YOURS, Boosting, Combination, LinearQuantile
from dflearn.tables.linear import after_model, corrected, ridge_start, units_of
from dflearn.tables.methods import Amount, make_loss

STACK, TREES, QUANTILE, SHIFTED, SCENARIOS = "stack", "focused boosting", "quantile", "shifted", "scenarios"
SHARES = (0.25, 0.5, 0.75)  # of trees in a blend with a linear forecast
CONVEX = ("smoothed-spo+", "smoothed-spo+mse")  # from whose end SCE goes on
HALF = 0.5  # of the way from the base to a decision-focused model, tried too
Parts = dict[str, nn.Module]
SMOOTHING = 0.3  # μ of the linear model and of boosting, relative to that at which errors move a decision by its size


def judged_often(program: Program, losses: Sequence[str], forecasters: int) -> int:
    """About how many candidates are decided with exactly on all rows left out."""
    several = 1 if program.is_integer else 3  # variants of a model
    return forecasters + 1 + several * (4 + 2 * len(losses))


class Candidates:
    """The candidates that cross-fitted forecasts allow."""

    def __init__(self, fit: CrossFit, program: Program) -> None:
        self.fit, self.program = fit, program
        self.settled = program.predicts_rows or program.recourse is not None
        self.size = program.n + len(program.b) + len(program.h)

    def ordinary(self) -> list[Candidate]:
        """Each forecast by itself, and the best blend of them."""
        fit = self.fit
        fit.cross_fit()
        names, forecasts = list(fit.crossed), torch.stack(list(fit.crossed.values()))
        trees = [name != YOURS and next(one for one in fit.forecasters if one.name == name).trees for name in names]

        def blend(name: str, weight: Tensor) -> Candidate:
            left_out = fit.after(torch.einsum("m,mrp->rp", weight, forecasts))
            detail = {"weights": {one: share for one, share in zip(names, weight.tolist(), strict=True) if share}}
            return Candidate(name, left_out, fit.builder(weight), trees=bool(weight[trees].any()), detail=detail)

        alone = torch.eye(len(names), dtype=torch.float64)
        found = [one for i, name in enumerate(names) for one in fit.judged([blend(name, alone[i])])]
        if len(names) > 1:
            blends = fit.judged([blend(BLEND, weight) for weight in self._weights(forecasts, trees)])
            found.append(min(blends, key=lambda one: one.mean))
        return found

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
        if any(trees) and not all(trees):
            best = [int(np.where(np.array(trees) == kind, np.diag(gram), np.inf).argmin()) for kind in (False, True)]
            linear, boosted = torch.eye(count, dtype=torch.float64)[best]
            yield from ((1 - share) * linear + share * boosted for share in SHARES)

    def quantiles(self, ordinary: list[Candidate]) -> list[Candidate]:
        """Forecasts of the level that costs least: shifted by a quantile of their errors, linear, and boosted."""
        fit, known = self.fit, critical_ratios(self.program)
        levels: list[Any] = list(LEVELS) if known is None else [known.tolist()]
        found = [one for base in ordinary for one in fit.judged(list(self._shifted(base, levels)))]
        level = min(found, key=lambda one: one.mean).detail["level"]
        found += fit.judged([self._level(LinearQuantile(level))])
        return found + fit.judged([self._level(Boosting("boosted quantile", fit.settings.seed, level=level))])

    def scenarios(self, ordinary: list[Candidate]) -> list[Candidate]:
        """Decisions for typical errors of the other windows, around the ordinary forecast of the least error."""
        fit, count = self.fit, min(scenario_count(self.program), *(len(own) for own in self.fit.windows))
        if not count or len(fit.windows) < 2:
            return []
        unit = units_of(fit.truth)
        base = min(ordinary, key=lambda one: float(((one.forecasts - fit.truth) / unit).square().mean()))
        errors, detail = fit.truth - base.forecasts, {"of": base.name, "scenarios": count}
        regrets = np.empty(len(errors))
        for own, others in fit.apart():
            fit.progress.pass_by(f"deciding with {SCENARIOS}")
            solver = Scenarios(fit.solver, typical(errors[others], count))
            regrets[own] = fit.judge.regrets_in(own, base.forecasts, solver, fit.judge.best)
        build = fit.builder(fit.weights_of(base), errors=typical(errors, count))
        return [Candidate(SCENARIOS, base.forecasts, build, "task", base.trees, detail, regrets)]

    def _level(self, forecaster: LinearQuantile | Boosting) -> Candidate:
        """A forecast of quantiles by itself."""
        fit, name, detail = self.fit, forecaster.name, {"level": forecaster.level}
        one, left_out = torch.ones(1, dtype=torch.float64), fit.after(fit.cross(forecaster)[1])
        build = lambda rows: fit.combination({name: forecaster.fit(fit.rows.of(rows))}, one)  # noqa: E731
        return Candidate(name, left_out, build, QUANTILE, forecaster.trees, detail)

    def _shifted(self, base: Candidate, levels: list[Any]) -> Iterator[Candidate]:
        """A forecast plus the quantile of its errors on rows left out; for a row, of the other windows' errors."""
        fit = self.fit
        errors = (fit.truth - base.forecasts).numpy()

        def offset(errors: np.ndarray, level: Any) -> Tensor:
            each = np.broadcast_to(level, (fit.costs,))
            return torch.tensor([np.quantile(column, own) for column, own in zip(errors.T, each, strict=True)])

        for level in levels:
            shifted, name = base.forecasts.clone(), f"{base.name}, {SHIFTED}"
            for own, others in fit.apart():
                shifted[own] += offset(errors[others], level)
            build = fit.builder(fit.weights_of(base), offset(errors, level))
            yield Candidate(name, fit.after(shifted), build, QUANTILE, base.trees, {"level": level})

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
                windows = fit.apart()
                left_out, numbers = stack.crossed(forecasts, first, fit.held, loss, windows, groups, offsets=offsets)
                return {"forecasts": left_out, **numbers._asdict()}

            found = fit.stored(f"{STACK} {groups.max() + 1} {offsets}", compute)
            build, left_out = fit.builder(found["weight"], found["offset"]), fit.after(found["forecasts"])
            detail = {"groups": int(groups.max() + 1), "offsets": offsets}
            return Candidate(STACK, left_out, build, type(loss).__name__, base.trees, detail)

        return fit.judged([candidate(*level) for level in levels])

    def linear(self, name: str, base: Candidate) -> list[Candidate]:
        """A linear model trained with a loss from ridge, after each phase, and the middle between it and the base."""
        convex = next((one for one in CONVEX if name == "sce" and one in self.fit.settings.losses), None)
        count, variant = self._variants(name, lambda rows: self._trained(name, convex, rows), base, name, base.trees)
        whole = self.fit.judged([variant(phase, 1.0) for phase in range(count)])
        best = min(whole, key=lambda one: one.mean, default=None)
        return whole if best is None else whole + self.fit.judged([variant(best.detail["phase"], HALF)])

    def _variants(
        self, name: str, trained: Callable[[np.ndarray], list[Parts]], base: Candidate, loss: str, trees: bool
    ) -> tuple[int, Callable[[int, float], Candidate]]:
        """The number of phases of a training, whose models are sums of parts; and the candidate way · model + (1 − way) · base."""
        fit = self.fit

        def compute() -> dict[str, Any]:
            by_fold = []
            for number, fold in enumerate(fit.folds):
                fit.progress.pass_by(f"{name}, fold {number + 1} of {len(fit.folds)}")
                x, models = fit.rows.x[fold.own], trained(fold.fit)
                with torch.no_grad():
                    by_fold.append([torch.stack([part(x) for part in parts.values()]).sum(0) for parts in models])
            count = min(map(len, by_fold))
            return {"forecasts": [torch.cat([fold[i] for fold in by_fold]) for i in range(count)]}

        found = fit.stored(f"focused {name}", compute)["forecasts"]

        def build(rows: np.ndarray, phase: int, way: float) -> Combination:
            models = fit.once(f"training {name}", rows, lambda: trained(rows))
            parts = models[min(phase, len(models) - 1)]
            weight = torch.cat([torch.full((len(parts),), way).double(), (1 - way) * fit.weights_of(base)])
            rest = fit.parts(rows) if way < 1 else dict.fromkeys(fit.crossed, nn.Identity())
            return fit.combination({**parts, **rest}, weight)

        def variant(phase: int, way: float) -> Candidate:
            left_out = way * fit.after(found[phase]) + (1 - way) * base.forecasts
            of, make = {"phase": phase, "way": way}, partial(build, phase=phase, way=way)
            return Candidate(name, left_out, make, loss, trees and (way < 1 or name == TREES), of)

        return len(found), variant

    def _trained(self, name: str, after: str | None, rows: np.ndarray) -> list[Parts]:
        """Snapshots as linear maps of the features: from ridge, or from the end of a run with another loss."""
        fit, settings = self.fit, self.fit.settings
        own = fit.rows.of(rows)
        part = fit.data.subset(rows).with_features(own.x)
        start = ridge_start(part, after_model(settings.positive, fit.scale.costs), each=True)
        ridge, first = corrected(start)(own.x), parameters_to_vector(start.module.parameters()).detach()
        epochs = settings.epochs or linear.epochs_for(len(rows), self.size)
        rate = linear.RATE if settings.lr is None else settings.lr

        def run(name: str, before: list[Tensor]) -> list[Tensor]:
            linear.with_weights(start.module, [first, *before][-1])
            tell = lambda line: fit.progress.pass_by(f"{name}: {line}")  # noqa: E731
            options: dict[str, Any] = {"seed": settings.seed, "device": fit.device, "tell": tell}
            return linear.snapshots(start, self._loss(name, part, ridge), epochs, rate, **options)

        before = [] if after is None else fit.once(f"a run with {after}", rows, lambda: run(after, []))
        models: list[Parts] = []
        for weights in fit.once(f"a run with {name}", rows, lambda: run(name, before)):
            linear.with_weights(start.module, weights)
            models.append({name: corrected(start).module()})
        return models

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
        rounds = max(4, round(stack.ROUNDS * linear.shortened(self.size)))

        def trained(rows: np.ndarray) -> list[Parts]:
            part, own = fit.data.subset(rows), fit.rows.of(rows)
            ridge = corrected(ridge_start(part.with_features(own.x), each=True))
            mu = SMOOTHING * stack.smoothing(fit.task, part, ridge(own.x))
            objective = stack.Objective(stack.stack_loss(self.program, mu), part)
            trees = stack.on_gradient(own.x, ridge(own.x), objective, rounds, fit.settings.seed)
            return [{"ridge beneath": ridge.module(), f"{TREES} beneath": trees}]

        _, variant = self._variants(TREES, trained, base, "SmoothedSPOPlus", True)
        return fit.judged([variant(0, way) for way in (1.0, HALF)])
