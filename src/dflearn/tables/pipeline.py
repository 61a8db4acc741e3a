"""From labelled rows in three parts to trained models and a choice: what `train` does between its tables and its tests.

    1. settings of least squares, ridge, boosting and the blend of the last two, by forecasts of rows left out
    2. decision-focused: with each loss, from ridge and from the blend, in runs of several kinds
    3. the choice, on the rows to choose by, which none of these models was fitted to: see `dflearn.tables.fine_tuning.choose`
    4. every model again, with the same settings and numbers of steps, on the rows to train on and to choose by

Each run is a stage: with a folder, a finished one is read from there, and an interrupted one goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.data.split import Parts
from dflearn.losses.base import Loss
from dflearn.losses.sce import SCE
from dflearn.models import Trees, predict
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.tables import starts as kinds
from dflearn.tables.choices import Amount, make_loss
from dflearn.tables.fine_tuning import (
    NARROW,
    WIDE,
    Candidate,
    Choice,
    Clock,
    Judge,
    Progress,
    again_as,
    choose,
    epochs_for,
    fine_tune,
    weights_of,
    with_weights,
)
from dflearn.tables.starts import Start
from dflearn.tables.two_stage import (
    LEVELS,
    Fold,
    LinearFit,
    best_share,
    boosting,
    boosting_left_out,
    critical_ratios,
    folds_of,
    linear_fits,
    quantile_fit,
    ridge_left_out,
    strength_by_leaving_one_out,
    units_of,
)
from dflearn.training import checkpoint as files

LEAST_SQUARES, RIDGE, BOOSTING, BLEND = "least squares", "ridge", "boosting", "blend"
QUANTILE = "quantile"  # two-stage too, but at the level that costs least
SHARE, OTHERS = 0.4, (0.0, 0.2, 0.7, 1.0)  # of boosting in the blend, at least; shares that are tried besides
ERRORS = 2.0  # standard errors by which one of these must be better
KIND = {RIDGE: RIDGE, BLEND: BOOSTING}  # of estimator that a start makes
RUNS = {  # of each start; the learning rate is how far a step moves a forecast, in units of its error
    RIDGE: ((WIDE, 0.03),),  # far, where a linear forecast cannot follow the costs
    BLEND: ((NARROW, 0.01),),  # near, with few numbers to learn, since it is a good forecast already
}


@dataclass(frozen=True)
class Settings:
    """What `train` was told, as far as it bears on the models."""

    losses: tuple[str, ...]
    layer: str = "auto"
    positive: bool = False
    epochs: int | None = None
    lr: float | None = None
    ordered: bool = False
    gap: int = 0
    seed: int = 0

    def runs(self, start: str) -> tuple[tuple[str, float], ...]:
        """Kinds and learning rates of the runs from this start."""
        return tuple((kind, rate if self.lr is None else self.lr) for kind, rate in RUNS[start])


@dataclass(eq=False)
class Trained:
    """A model, features → costs, with what made it.

    Attributes:
        module: the model.
        loss, start: their names; "mse" of two-stage models.
        regrets: of the model on the rows to choose by `(rows,)`.
        candidates: those it was chosen among; the start is none of them.
        settings: what to train it again with.
        trained_on: how many rows the correction was trained on.
    """

    module: nn.Module
    loss: str
    start: str
    regrets: np.ndarray
    candidates: list[Candidate] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    trained_on: int = 0

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Features `(rows, k)` → costs `(rows, p)`."""
        return predict(self.module, torch.as_tensor(x)).numpy()


class Fitted(NamedTuple):
    """What two-stage models are made of, fitted to some rows; `share` is that of the trees in the blend."""

    plain: LinearFit
    shrunk: LinearFit
    trees: Trees
    share: float


@dataclass(eq=False)
class Pipeline:
    """The models of one division of the rows.

    Attributes:
        task, solver: what is decided, and the exact solver to judge with.
        data, parts: labelled rows, and their division.
        folder: where stages are kept, in a folder of their own for each run (see `key`), or `None`.
        cache: a folder that remembers exact solves, or `None`.
        groups: labels of all rows; rows of one label are never forecast from each other.
        device: where decision-focused models are trained.
        models: fitted to the rows to train on.
        finished: the same, fitted to the rows to choose by as well.
    """

    task: DecisionTask
    solver: Solver
    data: DecisionDataset
    parts: Parts
    settings: Settings
    clock: Clock
    progress: Progress
    folder: Path | None = None
    cache: str | Path | None = None
    groups: np.ndarray | None = None
    device: str | None = None
    models: dict[str, Trained] = field(default_factory=dict)
    finished: dict[str, Trained] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.train, self.held = self.data.subset(self.parts.train), self.data.subset(self.parts.choose)
        self.known = np.sort(np.concatenate(self.parts[:2]))
        self.scale = Scale.of(self.task.objective, self.train)
        self.after = kinds.after_model(self.settings.positive, self.scale.costs)
        self.judge = Judge(self.solver, self.task.relaxed, self.held, self.cache)

    def run(self) -> Choice:
        """Fit everything; the choice."""
        fitted = self._two_stage()
        starts = {kind: self._start(kind, fitted, self.parts.train) for kind in RUNS}
        losses = self.settings.losses
        self.clock.begun = time.perf_counter()
        self.clock.runs = sum(loss != QUANTILE for loss in losses) * sum(
            len(self.settings.runs(kind)) for kind in starts
        )
        for loss in losses:
            if loss == QUANTILE:
                self._quantiles()
            else:
                self._focused(starts, loss)
        focused = {
            name: [one.regrets, *(candidate.regrets for candidate in one.candidates)]
            for name, one in self.models.items()
            if one.loss != "mse"
        }
        choice = choose(BLEND, self.models[BLEND].regrets, focused, seed=self.settings.seed)
        self._finish()
        return choice

    # -- two-stage ------------------------------------------------------------------------------------------------

    def _two_stage(self) -> Fitted:
        """Fitted to the rows to train on, with settings by forecasts of rows left out: folds of these, and those to choose by."""
        ordered, gap, seed = self.settings.ordered, self.settings.gap, self.settings.seed
        within = folds_of(self.parts.train, ordered=ordered, gap=gap, groups=self.groups, seed=seed)
        folds = [*within, (self.parts.train, self.parts.choose)]
        self._left_out_rows = np.concatenate([own for _, own in folds])
        x, y, weights = self._rows(slice(None))

        def left_out() -> dict[str, Any]:
            self.progress.pass_by("forecasts of rows left out")
            strength, linear = self._ridge(x, y, weights, folds)
            every, boosted = boosting_left_out(x, y, weights, folds, seed=seed)
            return {"strength": strength, "linear": linear, "boosted": boosted, "trees": dict(every[-1].state_dict())}

        found = self._stored("boosting", left_out, dict)
        self._left_out = found["boosted"]
        self.strength, trees = found["strength"], Trees(y.shape[1], found["trees"])
        self.share = self._stored("share", lambda: self._share(found["linear"], found["boosted"]), float)
        fitted = self._fit(self.parts.train, trees)
        for name, module in self._modules(fitted).items():
            self.progress.pass_by(f"deciding with {name}")
            regrets = self.judge.regrets(predict(module, self.held.features))
            self.models[name] = self._trained(name, module, fitted, regrets)
            self.progress.tell(f"{name}: regret {regrets.mean():.4g} on the rows to choose by")
        return fitted

    def _ridge(self, x: Tensor, y: Tensor, weights: Tensor | None, folds: Sequence[Fold]) -> tuple[float, Tensor]:
        """The strength, and its forecasts of the rows of the folds.

        In order of time, the first folds are fitted to few rows that have not seen every season, and ask for more strength than
        all rows need; leaving one out, where both neighbours are known, asks for less. Their geometric mean is taken.
        """
        strength, linear = ridge_left_out(x, y, weights, folds)
        if not self.settings.ordered or self.groups is not None:
            return strength, linear
        between = (strength * strength_by_leaving_one_out(*self._rows(self.known))) ** 0.5
        return ridge_left_out(x, y, weights, folds, [between])

    def _share(self, linear: Tensor, boosted: Tensor) -> float:
        """That of the trees in the blend: the one of least squared error on rows left out, but `SHARE` at least, since trees gain
        more than lines from the rows that were left out; unless another has less regret there, by more than two standard
        errors. Decisions are those of the relaxation."""
        part = self.data.subset(self._left_out_rows)
        truth, judge = part.batch().require("costs"), Judge(self.task.relaxed, self.task.relaxed, part)
        first = max(SHARE, best_share(linear, boosted, truth, units_of(truth), part.weights))
        regrets = []
        for share in (first, *OTHERS):
            self.progress.pass_by(f"deciding with {share:.0%} of boosting")
            blend = (1 - share) * linear + share * boosted
            regrets.append(judge.regrets(blend if self.after is None else self.after(blend)))
        best = int(np.argmin([one.mean() for one in regrets]))
        if np.isfinite(regrets[0]).all():  # otherwise forecasts by the first leave no decision
            gain = regrets[0] - regrets[best]
            best = best if gain.mean() > ERRORS * gain.std() / np.sqrt(len(gain)) else 0
        return (first, *OTHERS)[best]

    def _rows(self, rows: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features, costs and weights."""
        part = self.data.weights
        return self.data.features[rows], self.data.batch().require("costs")[rows], None if part is None else part[rows]

    def _fit(self, rows: np.ndarray, trees: Trees | int) -> Fitted:
        """With the chosen settings; trees that were fitted before, or how many."""
        x, y, weights = self._rows(rows)
        if isinstance(trees, int):
            self.progress.pass_by("fitting boosted trees again")
            trees = boosting(x, y, weights, trees=trees, seed=self.settings.seed)
        plain, shrunk = linear_fits(x, y, [0.0, self.strength], weights)
        return Fitted(plain, shrunk, trees, self.share)

    def _modules(self, fitted: Fitted) -> dict[str, nn.Module]:
        plain, shrunk, trees, share = fitted
        return {
            LEAST_SQUARES: kinds.as_linear(plain, self.scale.costs, self.after),
            RIDGE: kinds.as_linear(shrunk, self.scale.costs, self.after),
            BOOSTING: kinds.as_boosted(trees, None, self.data.features.shape[-1], self.after),
            BLEND: kinds.as_blend(trees, shrunk, share, self.after),
        }

    def _trained(self, name: str, module: nn.Module, fitted: Fitted, regrets: np.ndarray) -> Trained:
        linear, number = name in (LEAST_SQUARES, RIDGE), fitted.trees.root.shape[1]
        settings: dict[str, Any] = {} if linear else {"trees": number}
        if name != BOOSTING:
            settings["strength"] = 0.0 if name == LEAST_SQUARES else self.strength
        if name == BLEND:
            settings["share"] = self.share
        return Trained(module, "mse", "ridge" if linear else "boosting", regrets, settings=settings)

    def _start(self, kind: str, fitted: Fitted, rows: np.ndarray) -> Start:
        """Ridge, or the blend, to be trained on those of the rows whose forecasts by trees were left out."""
        if kind == RIDGE:
            return kinds.linear_start(self.data.subset(rows), fitted.shrunk, self.scale.costs, self.after)
        some = np.isin(self._left_out_rows, rows)
        left_out = {"rows": torch.tensor(self._left_out_rows[some]), "forecasts": self._left_out[some]}
        return kinds.boosted_start(self.data, fitted.trees, left_out, self.after, (fitted.shrunk, fitted.share))

    def _quantiles(self) -> None:
        """Linear quantile regression, at the critical ratios of the program, or at the level of least regret on the rows to
        choose by."""
        x, y, weights = self._rows(self.parts.train)
        program = self.task.program
        known = None if program is None else critical_ratios(program)
        found = []
        for level in LEVELS if known is None else (known,):
            self.progress.pass_by("deciding with quantiles")
            module = self._quantile_module(x, y, level, weights)
            found.append((level, module, self.judge.regrets(predict(module, self.held.features))))
        level, module, regrets = min(found, key=lambda one: one[2].mean())
        settings = {"level": np.asarray(level).tolist()}
        self.models[QUANTILE] = Trained(module, QUANTILE, RIDGE, regrets, settings=settings)
        self.progress.tell(f"{QUANTILE}: regret {regrets.mean():.4g} on the rows to choose by")

    def _quantile_module(self, x: Tensor, y: Tensor, level: Any, weights: Tensor | None) -> nn.Module:
        return kinds.as_linear(quantile_fit(x, y, np.asarray(level), weights), self.scale.costs, self.after)

    # -- decision-focused -----------------------------------------------------------------------------------------

    def _focused(self, starts: Mapping[str, Start], name: str) -> None:
        """The best of the candidates from all starts; the blend itself, where none is better."""
        first = Candidate(weights_of(starts[BLEND].module), self.models[BLEND].regrets, start=BLEND)
        found = [one for kind, start in starts.items() for one in self._candidates(kind, start, name)]
        best = min([first, *found], key=lambda one: one.mean)  # the first of equals
        start = starts[best.start]
        untouched = weights_of(start.module)
        module = start.finish(with_weights(start.module, best.weights))
        with_weights(start.module, untouched)
        settings = {**self.models[best.start].settings, **best.said(), "of": self._epochs(start)}
        self.models[name] = Trained(module, name, KIND[best.start], best.regrets, found, settings, len(start.train))

    def _candidates(self, kind: str, start: Start, loss: str) -> list[Candidate]:
        name = f"{loss} from {kind}"

        def candidates() -> dict[str, Any]:
            found = fine_tune(
                start,
                self._loss(loss, start),
                self.judge,
                name=name,
                runs=self.settings.runs(kind),
                epochs=self._epochs(start),
                seed=self.settings.seed,
                clock=self.clock,
                folder=self._stages,
                device=self.device,
                progress=self.progress,
            )
            plain = [{**vars(one), "regrets": torch.tensor(one.regrets)} for one in found]
            taken = {run: number for run, number in self.clock.taken.items() if run.startswith(f"{name}, ")}
            return {"candidates": plain, "taken": taken}

        def restored(held: Mapping[str, Any]) -> list[Candidate]:
            self.clock.taken.update(held["taken"])
            return [Candidate(**{**one, "regrets": one["regrets"].numpy()}) for one in held["candidates"]]

        return self._stored(name, candidates, restored)

    def _epochs(self, start: Start) -> int:
        program = self.task.program
        size = 0 if program is None else program.n + sum(len(side) for side in (program.b, program.h))
        return self.settings.epochs or epochs_for(len(start.train), size)

    def _loss(self, name: str, start: Start) -> Loss:
        """The loss, with μ relative to the error of the forecasts where the layer smooths, and SCE with smoothed labels.

        Contrasted with exact decisions, smoothed ones that are far from them pull forecasts away even where these are right:
        docs/choosing.md has the figures of a unit commitment.
        """
        seed = self.settings.seed
        noise: Amount = self._error(start).abs().mean().item() if name in ("score-function", "lodl") else "auto"
        loss = make_loss(
            name,
            self.settings.layer,
            self.task,
            self.scale,
            mu=self._mu(start),
            sigma=noise,
            seed=seed,
            data=start.train,
        )
        if isinstance(loss, SCE) and "mu" in loss.layer.annealed:
            return SCE(loss.layer, variant=loss.variant, label="smoothed")
        return loss

    def _mu(self, start: Start) -> float:
        """μ at which smoothing moves a decision by its own size where costs are off by as much as the forecasts are."""
        error = self._error(start)
        return Scale.of(self.task.objective, DecisionDataset(error, error, start.train.decisions)).mu

    @staticmethod
    def _error(start: Start) -> Tensor:
        """Of its forecasts `(rows, p)`."""
        return start.train.batch().require("costs") - predict(start.module, start.train.features)

    # -- again, on more rows --------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Every model again, fitted to the rows to train on and to choose by."""
        number = self.models[BLEND].settings["trees"]
        fitted = self._stored(
            "boosting again",
            lambda: dict(self._fit(self.known, number).trees.state_dict()),
            lambda held: self._fit(self.known, Trees(self.data.batch().require("costs").shape[1], held)),
        )
        modules = self._modules(fitted)
        for name, known in self.models.items():
            module = modules[name] if known.loss == "mse" else self._once_more(known, fitted, self.known)
            self.finished[name] = replace(known, module=module)
        self._known_trees = fitted.trees

    def _once_more(self, known: Trained, fitted: Fitted, rows: np.ndarray) -> nn.Module:
        if known.loss == QUANTILE:
            x, y, weights = self._rows(rows)
            return self._quantile_module(x, y, known.settings["level"], weights)
        return self._again(known, fitted, rows)

    def _again(self, known: Trained, fitted: Fitted, rows: np.ndarray) -> nn.Module:
        """A decision-focused model on more rows, with its settings and its number of steps."""
        start = self._start(known.settings["start"], fitted, rows)
        if known.settings["epochs"]:
            share = known.trained_on / len(start.train)  # more rows make for more steps in an epoch
            loss, seed = self._loss(known.loss, start), self.settings.seed
            again_as(start, loss, known.settings, share, seed, self.device, self.progress)
        return start.finish(start.module)

    def refit(self, name: str) -> Trained:
        """The model of this name, fitted again to all rows with its settings and its number of steps."""
        known, every = self.models[name], np.arange(len(self.data))
        fitted = self._fit(every, self.models[BLEND].settings["trees"])
        if known.loss == "mse":
            return replace(known, module=self._modules(fitted)[name])
        if known.loss == QUANTILE:
            return replace(known, module=self._once_more(known, fitted, every))
        if len(tested := np.setdiff1d(self.parts.test, self._left_out_rows)):
            self._left_out_rows = np.concatenate([self._left_out_rows, tested])
            self._left_out = torch.cat([self._left_out, self._known_trees(self.data.features[tested])])
        return replace(known, module=self._again(known, fitted, every))

    # -- stages ---------------------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> str:
        """A hash of all that bears on the stages: a run with other rows or settings has another."""
        return hashlib.sha256(json.dumps(self._config, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def _stages(self) -> Path | None:
        return None if self.folder is None else self.folder / self.key

    def _stored(self, name: str, compute: Any, restore: Any) -> Any:
        """`restore(compute())`, computed once: from the folder, where it is there."""
        if self._stages is None:
            return restore(compute())
        path = self._stages / f"{name.replace(' ', '_')}.stage"
        held = files.load(path, self._config)
        if held is None:
            held = {"config": self._config, "content": compute()}
            files.save(path, held)
        return restore(held["content"])

    @property
    def _config(self) -> dict[str, Any]:
        """What must be the same for a stage to be taken from the folder."""
        rows = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in self.parts)).hexdigest()[:16]
        groups = (
            None if self.groups is None else hashlib.sha256(json.dumps(self.groups.tolist()).encode()).hexdigest()[:16]
        )
        return {
            "groups": groups,
            "steps": json.dumps(dict(self.clock.steps)),
            "settings": json.dumps(asdict(self.settings)),
            "data": files.fingerprint(self.data),
            "parts": rows,
            "program": None if self.task.program is None else self.task.program.fingerprint,
            "solver": self.solver.identity,
        }


def forget(folder: Path, keys: Sequence[str]) -> bool:
    """Remove what runs of these keys left, and the folder itself once it is empty; whether something else is left in it."""
    for key in keys:
        shutil.rmtree(folder / key, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()
    return folder.exists()
