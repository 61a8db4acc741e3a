"""Forecasts of rows left out, for every candidate: all choices of `train` are made on these.

The known rows are cut into folds: in order of time, four windows, each forecast from all rows before it; groups stay together;
otherwise at random. A candidate is fitted to the other rows of each fold and forecasts its own. The chosen one is fitted to all
known rows, with the settings and numbers learned from the folds. Each step is a stage, which a folder can keep.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.data.scale import Scale
from dflearn.evaluation import regrets_of
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.task import DecisionTask
from dflearn.tables.forecasters import YOURS, Combination, Fold, Forecaster, Given, Rows
from dflearn.tables.linear import ROUNDING
from dflearn.training import checkpoint as files

Made = TypeVar("Made")
EVERY = 10.0  # seconds between passing lines, where each stays
FOLDS, FIRST = 4, 0.4  # parts of the known rows; in order of time, the share that nothing forecasts


def folds_of(
    rows: np.ndarray, *, ordered: bool, gap: int = 0, groups: np.ndarray | None = None, seed: int
) -> list[Fold]:
    """Rows in parts, each forecast from the others; in order of time, from earlier rows, less a gap. Groups stay together."""
    labels = np.arange(len(rows)) if groups is None else np.unique(np.asarray(groups)[rows], return_inverse=True)[1]
    if ordered:
        borders = np.append(np.flatnonzero(np.diff(labels)) + 1, len(rows))
        wanted = np.linspace(round(FIRST * len(rows)), len(rows), FOLDS + 1)
        cuts = np.unique([borders[np.abs(borders - cut).argmin()] for cut in wanted])
        return [Fold(rows[: max(1, a - gap)], rows[a:b]) for a, b in pairwise(cuts)]
    order = np.random.RandomState(seed).permutation(labels.max() + 1)
    parts = [np.isin(labels, part) for part in np.array_split(order, min(FOLDS, len(order)))]
    return [Fold(rows[~part], rows[part]) for part in parts if not part.all()]


def thinned(rows: np.ndarray, count: int) -> np.ndarray:
    """So many of the rows, at equal steps; all where there are no more."""
    return rows if count >= len(rows) else rows[((np.arange(count) + 0.5) * len(rows) / count).astype(int)]


@dataclass(frozen=True)
class Settings:
    """The options of `train` that bear on the models."""

    losses: tuple[str, ...]
    layer: str = "auto"
    positive: bool = False
    epochs: int | None = None
    lr: float | None = None
    ordered: bool = False
    gap: int = 0
    seed: int = 0


@dataclass(eq=False)
class Candidate:
    """A way to forecast, with its forecasts of rows that it did not see."""

    name: str  # of the model; the best of several candidates with one name stands for it
    forecasts: Tensor  # `(rows left out, p)`
    build: Callable[[np.ndarray], Combination]  # rows → the model fitted to them
    loss: str = "mse"
    trees: bool = False  # it forecasts no value beyond those it was fitted to
    detail: Mapping[str, Any] = field(default_factory=dict)  # for the record
    regrets: np.ndarray = field(default_factory=lambda: np.empty(0))  # of its decisions on the rows left out

    @property
    def mean(self) -> float:
        return float(self.regrets.mean())


@dataclass(eq=False)
class CrossFit:
    """The known rows in folds, and the stages so far."""

    task: DecisionTask
    solver: Solver  # the exact one, which judges
    data: DecisionDataset  # all rows, labelled; behind their features, the columns of a given forecast
    known: np.ndarray  # the rows to learn from; the others are test rows
    features: int  # the number of columns that are features
    forecasters: list[Forecaster]  # candidates for ordinary forecasts
    settings: Settings
    progress: Progress
    folder: Path | None = None  # of stages, one inside for each run (see `key`)
    cache: str | Path | None = None
    groups: np.ndarray | None = None  # labels of all rows; rows of one label are never forecast from each other
    device: str | None = None
    most: int = 10**9  # rows left out that are forecast and decided

    def __post_init__(self) -> None:
        settings = self.settings
        folds = folds_of(self.known, ordered=settings.ordered, gap=settings.gap, groups=self.groups, seed=settings.seed)
        self.all_left_out = sum(len(fold.own) for fold in folds)
        share = min(1.0, self.most / self.all_left_out)
        self.folds = [Fold(fold.fit, thinned(fold.own, max(1, round(share * len(fold.own))))) for fold in folds]
        self.left_out = np.concatenate([fold.own for fold in self.folds])
        ends = np.cumsum([0, *(len(fold.own) for fold in self.folds)])
        self.windows = [np.arange(a, b) for a, b in pairwise(ends)]  # of the folds, among the rows left out
        self.held = self.data.subset(self.left_out)
        self.truth = self.held.batch().require("costs")
        self.scale = Scale.of(self.task.objective, self.data.subset(self.known))
        self.judge = Judge(self.solver, self.task.relaxed, self.held, self.cache)
        y = self.data.batch().require("costs")
        self.rows = Rows(self.data.features[:, : self.features], y, self.data.weights)
        self.positive = ROUNDING * self.scale.costs if settings.positive else 0.0
        self.has_forecast = self.data.features.shape[1] > self.features  # a given one, behind the features
        self.costs = self.truth.shape[1]
        self.key = hashed(self._config)  # of a run with these rows and settings, before forecasters learn anything
        self.made: dict[tuple[str, bytes], Any] = {}
        self.crossed: dict[str, Tensor] = {}  # forecasts of the rows left out, by forecaster

    def combination(
        self, parts: Mapping[str, nn.Module], weight: Tensor, offset: Tensor | None = None, errors: Tensor | None = None
    ) -> Combination:
        """A model of these parts without those of weight zero. Weights are `(parts,)` or `(parts, p)`."""
        weight = weight[:, None].expand(-1, self.costs) if weight.ndim == 1 else weight
        kept = {name: i for i, name in enumerate(parts) if bool(weight[i].any())}
        own = {name: parts[name] for name in kept}
        of = {"weight": weight[list(kept.values())], "offset": offset, "errors": errors}
        return Combination(own, self.features, self.costs, positive=self.positive, **of)

    def builder(
        self, weight: Tensor, offset: Tensor | None = None, errors: Tensor | None = None
    ) -> Callable[[np.ndarray], Combination]:
        """Rows → the combination of all forecasts, fitted to them, with these numbers."""
        return lambda rows: self.combination(self.parts(rows), weight, offset, errors)

    def apart(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Each window, and the rows of the other windows."""
        every = np.arange(len(self.truth))
        return ((own, np.setdiff1d(every, own)) for own in self.windows)

    def after(self, forecasts: Tensor) -> Tensor:
        """Forecasts made positive, if costs are known to be."""
        with torch.no_grad():
            return self.combination({}, torch.zeros(0, self.costs)).after(forecasts)

    def cross_fit(self) -> None:
        """The forecasts of all forecasters, each with the settings learned from the folds."""
        if self.has_forecast:
            self.crossed[YOURS] = self.held.features[:, self.features :]
        for place, forecaster in enumerate(self.forecasters):
            self.forecasters[place], self.crossed[forecaster.name] = self.cross(forecaster)

    def cross(self, forecaster: Forecaster) -> tuple[Forecaster, Tensor]:
        """A forecaster with the settings learned from the folds, and its forecasts of the rows left out."""

        def compute() -> dict[str, Any]:
            self.progress.pass_by(f"forecasts of rows left out by {forecaster.name}")
            learned, forecasts = forecaster.cross_fit(self.rows, self.folds)
            return {"forecasts": forecasts, "number": getattr(learned, "number", None)}

        found = self.stored(forecaster.name, compute)
        if found["number"] is not None:
            forecaster = copy.copy(forecaster)
            object.__setattr__(forecaster, "number", found["number"])
        return forecaster, found["forecasts"]

    def fitted(self, forecaster: Forecaster, rows: np.ndarray) -> nn.Module:
        """A forecaster fitted to these rows."""
        return self.once(f"fitting {forecaster.name}", rows, lambda: forecaster.fit(self.rows.of(rows)))

    def once(self, name: str, rows: np.ndarray, make: Callable[[], Made]) -> Made:
        """What is made of these rows, the same each time."""
        if (key := (name, rows.tobytes())) not in self.made:
            self.progress.pass_by(name)
            self.made[key] = make()
        return self.made[key]

    def parts(self, rows: np.ndarray) -> dict[str, nn.Module]:
        """All forecasts, fitted to these rows, in the order of `crossed`."""
        given: dict[str, nn.Module] = {YOURS: Given()} if self.has_forecast else {}
        return given | {one.name: self.fitted(one, rows) for one in self.forecasters}

    def weights_of(self, base: Candidate) -> Tensor:
        """The weight of each forecast in an ordinary candidate, in the order of `crossed`."""
        return torch.tensor([base.detail["weights"].get(name, 0.0) for name in self.crossed], dtype=torch.float64)

    def judged(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with their regrets: of an integer program, only the one that is best on the relaxation."""
        some = list(candidates)
        if not self.judge.same and len(some) > 1:
            some = [min(some, key=lambda one: float(self.judge.relaxed_regrets(one.forecasts).mean()))]
        for one in some:
            self.progress.pass_by(f"deciding with {one.name}")
            one.regrets = self.judge.regrets(one.forecasts)
        if some:
            self.progress.tell(f"{some[0].name}: regret {min(one.mean for one in some):.4g} on the validation rows")
        return some

    def stored(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of `compute`; from the folder, if it is there."""
        if self.folder is None:
            return compute()
        path = self.folder / self.key / f"{hashed(name)}.stage"
        held = files.load(path, self._config)
        if held is None:
            held = {"config": self._config, "content": compute()}
            files.save(path, held)
        return dict(held["content"])

    @cached_property
    def _config(self) -> dict[str, Any]:
        """The inputs of a stage, which must be equal for it to be taken from the folder."""
        return {
            "groups": None if self.groups is None else hashed(self.groups.tolist()),
            "settings": json.dumps(asdict(self.settings)),
            "forecasters": hashed([repr(one) for one in self.forecasters]),
            "data": files.fingerprint(self.data),
            "known": hashed([self.known.tolist(), self.left_out.tolist()]),
            "program": None if self.task.program is None else self.task.program.fingerprint,
            "solver": self.solver.identity,
        }


def hashed(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def forget(folder: Path, keys: Sequence[str], progress: Progress) -> None:
    """Remove the stages of runs with these keys, and the folder once it is empty; tell what else is left in it."""
    for key in keys:
        shutil.rmtree(folder / key, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()
    if folder.exists():
        what = "still holds what runs with other options or data left unfinished"
        progress.tell(f"{folder} {what}: repeat them, or delete it")


class Progress:
    """Lines on stderr: one of `tell` stays, one of `pass_by` is replaced by the next."""

    def __init__(self, show: bool) -> None:
        self.show, self.begun, self.last = show, time.perf_counter(), time.perf_counter()

    def tell(self, line: str) -> None:
        self._write(f"[{time.perf_counter() - self.begun:4.0f} s] {line}\n")

    def pass_by(self, line: str) -> None:
        if sys.stderr.isatty():
            self._write(line[:100])
        elif time.perf_counter() - self.last > EVERY:
            self.tell(line)

    def done(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        if self.show:
            print("\r\033[K" * sys.stderr.isatty() + text, end="", file=sys.stderr, flush=True)
            self.last = time.perf_counter()


class Judge:
    """The regret of predictions on labelled rows: on the true program, and on its relaxation, which costs less."""

    def __init__(self, solver: Solver, relaxed: Solver, data: DecisionDataset, cache: str | Path | None = None) -> None:
        self.solver, self.relaxed, self.data, self.cache = solver, relaxed, data, cache
        self.costs, self.best = data.batch().require("costs"), data.batch().require("decisions")
        self.same = solver is relaxed or solver.program is None or not solver.program.is_integer
        if not self.same:
            self.best_relaxed = relaxed.solve(self.costs, data.instance).check().decision

    def regrets(self, predicted: Tensor) -> np.ndarray:
        """`(rows, p)` → `(rows,)`, infinite without a decision; times weights of mean one, for a weighted mean."""
        return self.regrets_in(slice(None), predicted, self.solver, self.best, self.cache)

    def relaxed_regrets(self, predicted: Tensor) -> np.ndarray:
        """The same on the relaxation, if that is another program."""
        if self.same:
            return self.regrets(predicted)
        return self.regrets_in(slice(None), predicted, self.relaxed, self.best_relaxed)

    def regrets_in(
        self, rows: Any, predicted: Tensor, solver: Solver, best: Tensor, cache: str | Path | None = None
    ) -> np.ndarray:
        """The same of some rows, by another solver, against these decisions."""
        costs, instance = self.costs[rows], None if self.data.instance is None else self.data.instance[rows]
        best = best[rows]
        solution = solve_cached(solver, predicted[rows], instance, cache=cache, progress=False)
        decided = (solution.status == int(Status.OPTIMAL)) | (solution.status == int(Status.FEASIBLE))
        decision = torch.where(decided[:, None], solution.decision, best)
        regret = regrets_of(solver, costs, decision, best, instance).regret.numpy()
        if self.data.weights is not None:
            regret = regret * (self.data.weights / self.data.weights.mean()).numpy()[rows]
        return np.where(decided.numpy(), regret, np.inf)
