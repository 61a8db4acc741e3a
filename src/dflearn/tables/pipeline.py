"""From labelled rows in three parts to trained models and a choice: what `train` does between its tables and its tests.

    1. settings of least squares, ridge, boosting and the blend of the last two, by forecasts of rows left out
    2. decision-focused: with each loss, from ridge and from the blend, in runs of several kinds
    3. the choice, on the validation rows, which none of these models was fitted to: see `dflearn.tables.fine_tuning.choose`
    4. every model again, with the same settings and numbers of steps, on the training and the validation rows

Each run is a stage: with a folder, a finished one is read from there, and an interrupted one goes on where it was.
"""

from __future__ import annotations

import copy
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
from dflearn.losses.contrast import SCE
from dflearn.models import Trees, predict
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.tables import two_stage
from dflearn.tables.fine_tuning import (
    Candidate,
    Choice,
    Clock,
    Judge,
    Progress,
    Tuner,
    choose,
    epochs_for,
    weights_of,
    with_weights,
)
from dflearn.tables.methods import Amount, make_loss
from dflearn.tables.two_stage import Fold, LinearFit, Start
from dflearn.training import checkpoint as files

LEAST_SQUARES, RIDGE, BOOSTING, BLEND = "least squares", "ridge", "boosting", "blend"
QUANTILE = "quantile"  # two-stage too, but at the level that costs least
SHARE, OTHERS = 0.4, (0.0, 0.2, 0.7, 1.0)  # of boosting in the blend, at least; shares that are tried besides
ERRORS = 2.0  # standard errors by which one of these must be better
KIND = {LEAST_SQUARES: RIDGE, RIDGE: RIDGE, BOOSTING: BOOSTING, BLEND: BOOSTING}  # `start` of the estimator
# How far a step moves a forecast, in units of its error: far from ridge, where a linear forecast cannot follow the costs.
RATES = {RIDGE: 0.03, BLEND: 0.01}


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


@dataclass(eq=False)
class Trained:
    """A model, features → costs, with what made it.

    Attributes:
        module: the model.
        loss, start: their names; "mse" of two-stage models.
        regrets: of the model on the validation rows `(rows,)`.
        level: of a quantile.
        candidates, best: those it was chosen among, and the one that it is.
        epochs, trained_on: of the run behind the best: its length, and its number of rows.
    """

    module: nn.Module
    loss: str
    start: str
    regrets: np.ndarray
    level: Any = None
    candidates: list[Candidate] = field(default_factory=list)
    best: Candidate | None = None
    epochs: int = 0
    trained_on: int = 0

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Features `(rows, k)` → costs `(rows, p)`."""
        return predict(self.module, torch.as_tensor(x)).numpy()


class Fitted(NamedTuple):
    """What two-stage models are made of, fitted to some rows."""

    plain: LinearFit
    shrunk: LinearFit
    trees: Trees


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
        models: fitted to the training rows.
        finished: the same, fitted to the validation rows as well.
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
        self.after = two_stage.after_model(self.settings.positive, self.scale.costs)
        self.judge = Judge(self.solver, self.task.relaxed, self.held, self.cache)
        self.tuner = Tuner(self.settings.seed, self.clock, self.progress, self.device)

    def run(self) -> Choice:
        """Fit everything; the choice."""
        starts = self._two_stage()
        losses = self.settings.losses
        self.clock.begun = time.perf_counter()
        self.clock.runs = sum(loss != QUANTILE for loss in losses) * len(starts)
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
        fitted = self._fit(self.known)
        self.finished = {name: self._again(name, fitted, self.known) for name in self.models}
        self._known_trees = fitted.trees
        return choice

    # -- two-stage ------------------------------------------------------------------------------------------------

    def _two_stage(self) -> dict[str, Start]:
        """Fitted to the training rows, with settings by forecasts of rows left out: folds of these, and the validation rows."""
        ordered, gap, seed = self.settings.ordered, self.settings.gap, self.settings.seed
        within = two_stage.folds_of(self.parts.train, ordered=ordered, gap=gap, groups=self.groups, seed=seed)
        folds = [*within, (self.parts.train, self.parts.choose)]
        self._left_out_rows = np.concatenate([own for _, own in folds])
        x, y, weights = self._rows(slice(None))

        def left_out() -> dict[str, Any]:
            self.progress.pass_by("forecasts of rows left out")
            strength, linear = self._ridge(x, y, weights, folds)
            every, boosted = two_stage.boosting_left_out(x, y, weights, folds, seed=seed)
            trees, share = dict(every[-1].state_dict()), self._share(linear, boosted)
            return {"strength": strength, "boosted": boosted, "trees": trees, "share": share}

        found = self._stored("boosting", left_out, dict)
        self.strength, self.share, self._left_out = found["strength"], found["share"], found["boosted"]
        fitted = self._fit(self.parts.train, Trees(y.shape[1], found["trees"]))
        self.number = fitted.trees.root.shape[1]
        starts = {name: self._start(name, fitted, self.parts.train) for name in KIND}
        for name, start in starts.items():
            self._judged(Trained(start.model, "mse", KIND[name], np.empty(0)), name)
        return {name: starts[name] for name in RATES}

    def _judged(self, one: Trained, name: str) -> None:
        """Keep a two-stage model with its regrets."""
        self.progress.pass_by(f"deciding with {name}")
        one.regrets = self.judge.regrets(predict(one.module, self.held.features))
        self.models[name] = one
        self.progress.tell(f"{name}: regret {one.regrets.mean():.4g} on the validation rows")

    def _ridge(self, x: Tensor, y: Tensor, weights: Tensor | None, folds: Sequence[Fold]) -> tuple[float, Tensor]:
        """The strength, and its forecasts of the rows of the folds.

        In order of time, the first folds are fitted to few rows that have not seen every season, and ask for more strength than
        all rows need; leaving one out, where both neighbours are known, asks for less. Their geometric mean is taken.
        """
        strength, linear = two_stage.ridge_left_out(x, y, weights, folds)
        if not self.settings.ordered or self.groups is not None:
            return strength, linear
        between = (strength * two_stage.strength_by_leaving_one_out(*self._rows(self.known))) ** 0.5
        return two_stage.ridge_left_out(x, y, weights, folds, [between])

    def _share(self, linear: Tensor, boosted: Tensor) -> float:
        """That of the trees in the blend: the one of least squared error on rows left out, but `SHARE` at least, since trees gain
        more than lines from the rows that were left out; unless another has less regret there, by more than two standard
        errors. Decisions are those of the relaxation."""
        part = self.data.subset(self._left_out_rows)
        truth, judge = part.batch().require("costs"), Judge(self.task.relaxed, self.task.relaxed, part)
        first = max(SHARE, two_stage.best_share(linear, boosted, truth, two_stage.units_of(truth), part.weights))
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
        costs, weights = self.data.batch().require("costs"), self.data.weights
        return self.data.features[rows], costs[rows], None if weights is None else weights[rows]

    def _fit(self, rows: np.ndarray, trees: Trees | None = None) -> Fitted:
        """With the chosen settings; trees of these rows, by default fitted here."""
        x, y, weights = self._rows(rows)
        plain, shrunk = (two_stage.linear_fit(x, y, strength, weights) for strength in (0.0, self.strength))
        if trees is None:
            self.progress.pass_by("fitting boosted trees again")
            trees = two_stage.boosting(x, y, self.number, weights, seed=self.settings.seed)
        return Fitted(plain, shrunk, trees)

    def _start(self, name: str, fitted: Fitted, rows: np.ndarray) -> Start:
        """A two-stage model, to be trained on these rows; with trees, on those whose forecasts by trees were left out."""
        if KIND[name] == RIDGE:
            fit = fitted.plain if name == LEAST_SQUARES else fitted.shrunk
            return two_stage.start_of(name, self.data.subset(rows), fit, self.after)
        some = np.isin(self._left_out_rows, rows)
        part, forecasts = self.data.subset(self._left_out_rows[some]), self._left_out[some]
        share = 1.0 if name == BOOSTING else self.share
        return two_stage.start_of(name, part, fitted.shrunk, self.after, fitted.trees, forecasts, share)

    def _quantiles(self) -> None:
        """Linear quantile regression, at the critical ratios of the program, or at the level of least validation regret."""
        program = self.task.program
        known = None if program is None else two_stage.critical_ratios(program)
        found = []
        for level in two_stage.LEVELS if known is None else (known.tolist(),):
            module = self._quantile(self.parts.train, level)
            self._judged(Trained(module, QUANTILE, RIDGE, np.empty(0), level), QUANTILE)
            found.append(self.models[QUANTILE])
        self.models[QUANTILE] = min(found, key=lambda one: one.regrets.mean())

    def _quantile(self, rows: np.ndarray, level: Any) -> nn.Module:
        x, y, weights = self._rows(rows)
        fit = two_stage.quantile_fit(x, y, np.asarray(level), weights)
        return two_stage.start_of(QUANTILE, self.data.subset(rows), fit, self.after).model

    # -- decision-focused -----------------------------------------------------------------------------------------

    def _focused(self, starts: Mapping[str, Start], name: str) -> None:
        """The best of the candidates from all starts; the blend itself, where none is better."""
        first = Candidate(weights_of(starts[BLEND].module), self.models[BLEND].regrets, start=BLEND)
        found = [one for kind, start in starts.items() for one in self._candidates(kind, start, name)]
        best = min([first, *found], key=lambda one: one.mean)  # the first of equals
        start = starts[best.start]
        model, module = copy.deepcopy((start.model, start.module))
        with_weights(module, best.weights)
        of_run = {"epochs": self._epochs(start), "trained_on": len(start.train)}
        self.models[name] = Trained(model, name, KIND[best.start], best.regrets, None, found, best, **of_run)

    def _candidates(self, kind: str, start: Start, loss: str) -> list[Candidate]:
        name, lr = f"{loss} from {kind}", self.settings.lr

        def candidates() -> dict[str, Any]:
            made = self._loss(loss, start)
            found = self.tuner.candidates(
                name, start, made, self.judge, RATES[kind] if lr is None else lr, self._epochs(start)
            )
            plain = [{**vars(one), "regrets": torch.tensor(one.regrets)} for one in found]
            return {"candidates": plain, "taken": self.clock.taken[name]}

        def restored(held: Mapping[str, Any]) -> list[Candidate]:
            self.clock.taken[name] = held["taken"]
            return [Candidate(**{**one, "regrets": one["regrets"].numpy()}) for one in held["candidates"]]

        return self._stored(name, candidates, restored)

    def _epochs(self, start: Start) -> int:
        program = self.task.program
        size = 0 if program is None else program.n + sum(len(side) for side in (program.b, program.h))
        return self.settings.epochs or epochs_for(len(start.train), size)

    def _loss(self, name: str, start: Start) -> Loss:
        """The loss, with μ relative to the error of the forecasts where the layer smooths, and SCE with smoothed labels.

        Contrasted with exact decisions, smoothed ones that are far from them pull forecasts away even where these are right:
        docs/notes/choosing.md has the figures of a unit commitment.
        """
        error = start.train.batch().require("costs") - predict(start.module, start.train.features)
        # μ at which smoothing moves a decision by its own size where costs are off by as much as the forecasts are.
        mu = Scale.of(self.task.objective, DecisionDataset(error, error, start.train.decisions)).mu
        noise: Amount = error.abs().mean().item() if name in ("score-function", "lodl") else "auto"
        options = {"mu": mu, "sigma": noise, "seed": self.settings.seed, "data": start.train}
        loss = make_loss(name, self.settings.layer, self.task, self.scale, **options)
        if isinstance(loss, SCE) and "mu" in loss.layer.annealed:
            return SCE(loss.layer, variant=loss.variant, label="smoothed")
        return loss

    # -- again, on more rows --------------------------------------------------------------------------------------

    def _again(self, name: str, fitted: Fitted, rows: np.ndarray) -> Trained:
        """A model on more rows, with its settings and, where it is decision-focused, its number of steps."""
        known = self.models[name]
        if known.loss == QUANTILE:
            return replace(known, module=self._quantile(rows, known.level))
        start = self._start(name if known.best is None else known.best.start, fitted, rows)
        if known.best is not None and known.best.epochs:
            share = known.trained_on / len(start.train)  # more rows make for more steps in an epoch
            self.tuner.again(start, self._loss(known.loss, start), known.best, known.epochs, share)
        return replace(known, module=start.model)

    def refit(self, name: str) -> Trained:
        """The model of this name, fitted again to all rows with its settings and its number of steps."""
        every = np.arange(len(self.data))
        if len(tested := np.setdiff1d(self.parts.test, self._left_out_rows)):
            self._left_out_rows = np.concatenate([self._left_out_rows, tested])
            self._left_out = torch.cat([self._left_out, self._known_trees(self.data.features[tested])])
        return self._again(name, self._fit(every), every)

    # -- stages ---------------------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> str:
        """A hash of all that bears on the stages: a run with other rows or settings has another."""
        return _hash(self._config)

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
        return {
            "groups": None if self.groups is None else _hash(self.groups.tolist()),
            "steps": json.dumps(dict(self.clock.steps)),
            "settings": json.dumps(asdict(self.settings)),
            "data": files.fingerprint(self.data),
            "parts": _hash([part.tolist() for part in self.parts]),
            "program": None if self.task.program is None else self.task.program.fingerprint,
            "solver": self.solver.identity,
        }


def _hash(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def forget(folder: Path, keys: Sequence[str], progress: Progress) -> None:
    """Remove what runs of these keys left, and the folder itself once it is empty; tell where something else is left in it."""
    for key in keys:
        shutil.rmtree(folder / key, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()
    if folder.exists():
        progress.tell(
            f"{folder} still holds what runs with other options or data left unfinished: repeat them, or delete it"
        )
