"""Forecasts of rows left out, for every candidate: what all choices of `train` are made on.

The known rows are cut into folds: in order of time, four windows, each forecast from all rows before it; groups stay together;
otherwise at random. A candidate is fitted to the other rows of each fold and forecasts its own. Once one is chosen, it is fitted
to all known rows, with the settings and numbers that the folds told.

Each step is a stage: with a folder, a finished one is read from there.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.tables.combination import Combination, Given
from dflearn.tables.forecasters import YOURS, Fold, Forecaster, Rows
from dflearn.tables.judging import Judge, Progress
from dflearn.tables.linear import ROUNDING
from dflearn.training import checkpoint as files

FOLDS, FIRST = 4, 1 / 3  # parts of the known rows; in order of time, the share that nothing forecasts


def folds_of(
    rows: np.ndarray, *, ordered: bool, gap: int = 0, groups: np.ndarray | None = None, seed: int
) -> list[Fold]:
    """Rows in parts that are forecast from the others; in order of time, from earlier rows, less a gap, so that the first rows
    are in no part. Rows of one group, given by labels of all rows, stay together."""
    labels = np.arange(len(rows)) if groups is None else np.unique(np.asarray(groups)[rows], return_inverse=True)[1]
    if ordered:
        borders = np.append(np.flatnonzero(np.diff(labels)) + 1, len(rows))
        wanted = np.linspace(round(FIRST * len(rows)), len(rows), FOLDS + 1)
        cuts = np.unique([borders[np.abs(borders - cut).argmin()] for cut in wanted])
        return [Fold(rows[: max(1, a - gap)], rows[a:b]) for a, b in pairwise(cuts)]
    order = np.random.RandomState(seed).permutation(labels.max() + 1)
    parts = [np.isin(labels, part) for part in np.array_split(order, min(FOLDS, len(order)))]
    return [Fold(rows[~part], rows[part]) for part in parts if not part.all()]


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
class Candidate:
    """A way to forecast, with its forecasts of rows that it did not see.

    Attributes:
        name: of the model; several candidates may have one, and the best of them stands for it.
        forecasts: `(rows left out, p)`.
        build: rows → the model fitted to them.
        loss: what it was trained for; "mse" of ordinary forecasts.
        trees: whether it forecasts no value beyond those it was fitted to.
        detail: what else a record tells.
        regrets: of its decisions on the rows left out.
    """

    name: str
    forecasts: Tensor
    build: Callable[[np.ndarray], Combination]
    loss: str = "mse"
    trees: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)
    regrets: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def mean(self) -> float:
        return float(self.regrets.mean())


@dataclass(eq=False)
class CrossFit:
    """The known rows in folds, and what was made of them so far.

    Attributes:
        task, solver: what is decided, and the exact solver to judge with.
        data: all rows, labelled; their features, with the columns of a given forecast behind them.
        known: the rows to learn from; the others are to test on.
        features: how many columns are features.
        forecasters: the candidates for ordinary forecasts.
        groups: labels of all rows; rows of one label are never forecast from each other.
        folder: where stages are kept, in a folder of their own for each run (see `key`), or `None`.
    """

    task: DecisionTask
    solver: Solver
    data: DecisionDataset
    known: np.ndarray
    features: int
    forecasters: list[Forecaster]
    settings: Settings
    progress: Progress
    folder: Path | None = None
    cache: str | Path | None = None
    groups: np.ndarray | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        self.folds = folds_of(
            self.known, ordered=settings.ordered, gap=settings.gap, groups=self.groups, seed=settings.seed
        )
        self.left_out = np.concatenate([fold.own for fold in self.folds])
        ends = np.cumsum([0, *(len(fold.own) for fold in self.folds)])
        self.windows = [np.arange(a, b) for a, b in pairwise(ends)]  # of the folds, among the rows left out
        self.held = self.data.subset(self.left_out)
        self.truth = self.held.batch().require("costs")
        self.scale = Scale.of(self.task.objective, self.data.subset(self.known))
        self.judge = Judge(self.solver, self.task.relaxed, self.held, self.cache)
        costs = self.data.batch().require("costs")
        self.rows = Rows(self.data.features[:, : self.features], costs, self.data.weights)
        self.positive = ROUNDING * self.scale.costs if settings.positive else 0.0
        self.key = hashed(
            self._config
        )  # a run with other rows or settings has another; before forecasters learn anything
        self.fits: dict[tuple[str, int], nn.Module] = {}
        self.crossed: dict[str, Tensor] = {}  # forecasts of the rows left out, by forecaster

    @property
    def costs(self) -> int:
        return self.truth.shape[1]

    @property
    def has_forecast(self) -> bool:
        """Whether a given forecast stands behind the features."""
        return self.data.features.shape[1] > self.features

    def combination(self, parts: Mapping[str, nn.Module], weight: Tensor, offset: Tensor | None = None) -> Combination:
        """A model of these parts; those of weight zero are left out. Weights are `(parts,)` or `(parts, p)`."""
        weight = weight[:, None].expand(-1, self.costs) if weight.ndim == 1 else weight
        kept = [i for i, own in enumerate(weight) if bool(own.any())]
        names = list(parts)
        return Combination(
            {names[i]: copy.deepcopy(parts[names[i]]) for i in kept},
            self.features,
            self.costs,
            weight[kept],
            offset,
            positive=self.positive,
        )

    def after(self, forecasts: Tensor) -> Tensor:
        """Forecasts as they are used: positive, where costs are known to be."""
        with torch.no_grad():
            return self.combination({}, torch.zeros(0, self.costs)).after(forecasts)

    def cross_fit(self) -> None:
        """The forecasts of all forecasters, each with the settings that the folds told."""
        if self.has_forecast:
            self.crossed[YOURS] = self.held.features[:, self.features :]
        for place, forecaster in enumerate(self.forecasters):
            self.forecasters[place], self.crossed[forecaster.name] = self.cross(forecaster)

    def cross(self, forecaster: Forecaster) -> tuple[Forecaster, Tensor]:
        """A forecaster with what it learned from the folds, and its forecasts of the rows left out."""

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
        key = forecaster.name, hash(rows.tobytes())
        if key not in self.fits:
            self.progress.pass_by(f"fitting {forecaster.name}")
            self.fits[key] = forecaster.fit(self.rows.of(rows))
        return self.fits[key]

    def parts(self, rows: np.ndarray) -> dict[str, nn.Module]:
        """All forecasts, fitted to these rows, in the order of `crossed`."""
        return ({YOURS: Given()} if self.has_forecast else {}) | {
            one.name: self.fitted(one, rows) for one in self.forecasters
        }

    def weights_of(self, base: Candidate) -> Tensor:
        """The weight of each forecast in an ordinary candidate, in the order of `crossed`."""
        return torch.tensor([base.detail["weights"].get(name, 0.0) for name in self.crossed], dtype=torch.float64)

    def judged(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with their regrets. Of those with one name, where exact decisions cost more than those of the
        relaxation, only the best on the relaxation is judged by the former."""
        some = list(candidates)
        if not self.judge.same and len(some) > 1:
            some = [min(some, key=lambda one: float(self.judge.relaxed_regrets(one.forecasts).mean()))]
        for one in some:
            self.progress.pass_by(f"deciding with {one.name}")
            one.regrets = self.judge.regrets(one.forecasts)
        if some:
            best = min(one.mean for one in some)
            self.progress.tell(f"{some[0].name}: regret {best:.4g} on the validation rows")
        return some

    # -- stages ---------------------------------------------------------------------------------------------------

    def stored(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `compute` gives, computed once: from the folder, where it is there."""
        if self.folder is None:
            return compute()
        path = self.folder / self.key / f"{hashed(name)}.stage"
        held = files.load(path, self._config)
        if held is None:
            held = {"config": self._config, "content": compute()}
            files.save(path, held)
        content: dict[str, Any] = held["content"]
        return content

    @cached_property
    def _config(self) -> dict[str, Any]:
        """What must be the same for a stage to be taken from the folder."""
        return {
            "groups": None if self.groups is None else hashed(self.groups.tolist()),
            "settings": json.dumps(asdict(self.settings)),
            "forecasters": hashed([repr(one) for one in self.forecasters]),
            "data": files.fingerprint(self.data),
            "known": hashed(self.known.tolist()),
            "program": None if self.task.program is None else self.task.program.fingerprint,
            "solver": self.solver.identity,
        }


def hashed(plain: Any) -> str:
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
