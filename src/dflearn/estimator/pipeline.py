"""From labelled rows in three parts to trained models and a choice: what `train` does between its tables and its tests.

    1. two-stage: least squares, ridge, boosting, fitted to the rows to train on, and a blend of the last two
    2. decision-focused: from ridge and from the blend, with each loss, in runs of several learning rates
    3. the choice, on the rows to choose by: see `dflearn.estimator.verdict`

Each run is a stage: with a folder, a finished one is read from there, and an interrupted one goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.data.split import Parts
from dflearn.estimator import starts as kinds
from dflearn.estimator.choices import make_loss
from dflearn.estimator.fine_tuning import (
    RUNS,
    Candidate,
    Clock,
    Judge,
    again_as,
    epochs_for,
    fine_tune,
    weights_of,
    with_weights,
)
from dflearn.estimator.progress import Progress
from dflearn.estimator.starts import Start
from dflearn.estimator.two_stage import best_share, boosting, least_squares, linear_fits, ridge, units_of
from dflearn.estimator.verdict import Choice, choose
from dflearn.losses.base import Loss
from dflearn.losses.sce import SCE
from dflearn.models import Trees, predict
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.training import checkpoint as files

LEAST_SQUARES, RIDGE, BOOSTING, BLEND = "least squares", "ridge", "boosting", "blend"
ON_BLEND = " on blend"
KIND = {RIDGE: RIDGE, BLEND: BOOSTING}  # of estimator that a start makes
HOPELESS = 1.5  # boosting with so many times the regret of ridge is not trained on


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

    @property
    def runs(self) -> tuple[tuple[str, float], ...]:
        return RUNS if self.lr is None else tuple(dict.fromkeys((kind, self.lr) for kind, _ in RUNS))


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


@dataclass(eq=False)
class Pipeline:
    """The models of one division of the rows.

    Attributes:
        task, solver: what is decided, and the exact solver to judge with.
        data, parts: labelled rows, and their division.
        folder: where stages are kept, or `None`.
        cache: a folder that remembers exact solves, or `None`.
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
    models: dict[str, Trained] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.train, self.held = self.data.subset(self.parts.train), self.data.subset(self.parts.choose)
        self.scale = Scale.of(self.task.objective, self.train)
        self.after = kinds.after_model(self.settings.positive, self.scale.costs)
        self.judge = Judge(self.solver, self.task.relaxed, self.held, self.cache)

    def run(self) -> Choice:
        """Fit everything; the choice."""
        fit, trees, share = self._two_stage()
        begun = self._worthwhile()
        losses = self.settings.losses
        self.clock.begun = time.perf_counter()
        self.clock.runs = len(begun) * len(losses) * len(self.settings.runs)
        for kind in begun:
            start = self._start(kind, fit, trees, share)
            for loss in losses:
                self._focused(start, loss)
        two_stage = {name: one.regrets for name, one in self.models.items() if one.loss == "mse"}
        focused = {
            name: [one.regrets, *(candidate.regrets for candidate in one.candidates)]
            for name, one in self.models.items()
            if one.loss != "mse"
        }
        return choose(two_stage, focused, seed=self.settings.seed)

    # -- two-stage ------------------------------------------------------------------------------------------------

    def _two_stage(self) -> tuple[kinds.LinearFit, Trees, float]:
        x, y = self.train.features, self.train.batch().require("costs")
        chosen_by = (self.held.features, self.held.batch().require("costs"))
        weights = self.train.weights
        plain, shrunk = least_squares(x, y, weights), ridge(x, y, weights, choose=chosen_by)
        self._keep(LEAST_SQUARES, kinds.as_linear(plain, self.scale.costs, self.after), "ridge", {"strength": 0.0})
        self._keep(RIDGE, kinds.as_linear(shrunk, self.scale.costs, self.after), "ridge", {"strength": shrunk.strength})
        self.progress.pass_by("fitting boosted trees")
        trees = self._stored(
            "boosting",
            lambda: dict(boosting(x, y, weights, choose=chosen_by, seed=self.settings.seed).state_dict()),
            lambda held: Trees(y.shape[1], held),
        )
        whole = kinds.as_boosted(trees, None, x.shape[-1], self.after)
        self._keep(BOOSTING, whole, "boosting", {"trees": trees.root.shape[1]})
        share = best_share(shrunk(chosen_by[0]), trees(chosen_by[0]), chosen_by[1], units_of(y))
        settings = {"trees": trees.root.shape[1], "strength": shrunk.strength, "share": share}
        self._keep(BLEND, kinds.as_blend(trees, shrunk, share, self.after), "boosting", settings)
        return shrunk, trees, share

    def _keep(self, name: str, module: nn.Module, start: str, settings: dict[str, Any]) -> None:
        self.progress.pass_by(f"deciding with {name}")
        regrets = self.judge.regrets(predict(module, self.held.features))
        self.models[name] = Trained(module, "mse", start, regrets, settings=settings)
        self.progress.tell(f"{name}: regret {regrets.mean():.4g} on the rows to choose by")

    def _worthwhile(self) -> list[str]:
        """The starts to train on: ridge always, since a model that cannot follow the costs has the most to gain."""
        regret = {name: self.models[name].regrets.mean() for name in (RIDGE, BLEND)}
        return [RIDGE, BLEND] if regret[BLEND] <= HOPELESS * regret[RIDGE] else [RIDGE]

    def _start(self, kind: str, fit: kinds.LinearFit, trees: Trees, share: float) -> Start:
        if kind == RIDGE:
            return kinds.linear_start(self.train, fit, self.scale.costs, self.after)
        self.progress.pass_by("boosted forecasts of rows left out")
        ordered, gap, seed = self.settings.ordered, self.settings.gap, self.settings.seed
        return self._stored(
            "out of fold",
            lambda: kinds.forecasts_left_out(self.train, trees, ordered=ordered, gap=gap, seed=seed),
            lambda held: kinds.boosted_start(self.train, trees, held, self.after, (fit, share)),
        )

    # -- decision-focused -----------------------------------------------------------------------------------------

    def _focused(self, start: Start, loss: str) -> None:
        name = loss + (ON_BLEND if start.name == BLEND else "")
        epochs = self.settings.epochs or epochs_for(len(start.train))
        first = Candidate(weights_of(start.module), self.models[start.name].regrets)

        def candidates() -> dict[str, Any]:
            found = fine_tune(
                start,
                self._loss(loss, start),
                self.judge,
                name=name,
                runs=self.settings.runs,
                epochs=epochs,
                seed=self.settings.seed,
                clock=self.clock,
                folder=self.folder,
                progress=self.progress,
            )
            plain = [{**vars(one), "regrets": torch.tensor(one.regrets)} for one in found]
            taken = {run: number for run, number in self.clock.taken.items() if run.startswith(f"{name}, ")}
            return {"candidates": plain, "taken": taken}

        def restored(held: Mapping[str, Any]) -> list[Candidate]:
            self.clock.taken.update(held["taken"])
            return [Candidate(**{**one, "regrets": one["regrets"].numpy()}) for one in held["candidates"]]

        found = self._stored(name, candidates, restored)
        best = min(
            [first, *found], key=lambda one: one.mean
        )  # the first of equals, so the start where nothing is better
        module = start.finish(with_weights(start.module, best.weights))
        with_weights(start.module, first.weights)
        settings = {**self.models[start.name].settings, **best.said(), "of": epochs}
        self.models[name] = Trained(module, loss, KIND[start.name], best.regrets, found, settings, len(start.train))

    def _loss(self, name: str, start: Start) -> Loss:
        """The loss, with μ relative to the error of the forecasts where the layer smooths, and SCE with smoothed labels.

        Contrasted with exact decisions, smoothed ones that are far from them pull forecasts away even where these are right:
        docs/choosing.md has the figures of a unit commitment.
        """
        seed = self.settings.seed
        loss = make_loss(name, self.settings.layer, self.task, self.scale, mu=self._mu(start), seed=seed)
        if isinstance(loss, SCE) and "mu" in loss.layer.annealed:
            return SCE(loss.layer, variant=loss.variant, label="smoothed")
        return loss

    def _mu(self, start: Start) -> float:
        """μ at which smoothing moves a decision by its own size where costs are off by as much as the forecasts are."""
        error = start.train.batch().require("costs") - predict(start.module, start.train.features)
        return Scale.of(self.task.objective, DecisionDataset(error, error, start.train.decisions)).mu

    # -- again, on all rows ---------------------------------------------------------------------------------------

    def refit(self, name: str) -> Trained:
        """The model of this name, fitted again to all rows with its settings and its number of steps."""
        known, everything = self.models[name], self.data
        settings, seed = known.settings, self.settings.seed
        x, y, weights = everything.features, everything.batch().require("costs"), everything.weights
        if known.start == RIDGE:
            fit = linear_fits(x, y, [settings["strength"]], weights)[0]
            start = kinds.linear_start(everything, fit, self.scale.costs, self.after)
        else:
            self.progress.pass_by("fitting boosted trees to all rows")
            trees = boosting(x, y, weights, trees=settings["trees"], seed=seed)
            if "share" not in settings:
                return replace(known, module=kinds.as_boosted(trees, None, x.shape[-1], self.after))
            fit, share = linear_fits(x, y, [settings["strength"]], weights)[0], settings["share"]
            if known.loss == "mse":
                return replace(known, module=kinds.as_blend(trees, fit, share, self.after))
            ordered, gap = self.settings.ordered, self.settings.gap
            left_out = kinds.forecasts_left_out(everything, trees, ordered=ordered, gap=gap, seed=seed)
            start = kinds.boosted_start(everything, trees, left_out, self.after, (fit, share))
        if known.loss != "mse" and settings["epochs"]:
            share = known.trained_on / len(start.train)  # more rows make for more steps in an epoch
            again_as(start, self._loss(known.loss, start), settings, share, seed, self.progress)
        return replace(known, module=start.finish(start.module))

    # -- stages ---------------------------------------------------------------------------------------------------

    def _stored(self, name: str, compute: Any, restore: Any) -> Any:
        """`restore(compute())`, computed once: from the folder, where it is there."""
        if self.folder is None:
            return restore(compute())
        path = self.folder / f"{name.replace(' ', '_')}.stage"
        held = files.load(path, self._config)
        if held is None:
            held = {"config": self._config, "content": compute()}
            files.save(path, held)
        return restore(held["content"])

    @property
    def _config(self) -> dict[str, Any]:
        """What must be the same for a stage to be taken from the folder."""
        rows = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in self.parts)).hexdigest()[:16]
        return {
            "settings": json.dumps(asdict(self.settings)),
            "data": files.fingerprint(self.data),
            "parts": rows,
            "program": None if self.task.program is None else self.task.program.fingerprint,
            "solver": self.solver.identity,
        }
