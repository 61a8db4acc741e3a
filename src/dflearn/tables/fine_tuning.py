"""Decision-focused training that starts at a two-stage forecast: short, in phases, and watched on the rows to choose by.

A run trains a narrow correction of the forecast or a wide one (see `starts`), at one learning rate, in four phases, each twice as long as the one before. Where the layer smooths, μ falls from phase
to phase. The mean of the weights over a phase is a snapshot, which is steadier than the last of them. Snapshots, and half the
way to them, are candidates, judged by the regret of exact decisions.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.errors import DivergenceError
from dflearn.evaluation import regrets_of
from dflearn.evaluation.estimates import Estimate
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.solvers.base import Solver, Status
from dflearn.tables.starts import Start
from dflearn.training import Callback, Run, fit

EVERY = 10.0  # seconds between passing lines, where each stays


class Progress:
    """`tell` for what is worth a line of its own, `pass_by` for what the next line replaces."""

    def __init__(self, show: bool) -> None:
        self.show, self.last, self.begun = show, time.perf_counter(), time.perf_counter()
        self.passing = 0  # length of the line to replace

    def tell(self, line: str) -> None:
        self._write(f"[{time.perf_counter() - self.begun:4.0f} s] {line}", "\n")
        self.passing = 0

    def pass_by(self, line: str) -> None:
        now = time.perf_counter()
        if sys.stderr.isatty():
            self._write(line[:100], "")
            self.passing = len(line[:100])
        elif now - self.last > EVERY:
            self.tell(line)

    def done(self) -> None:
        if self.passing:
            self._write("", "")
            self.passing = 0

    def _write(self, line: str, end: str) -> None:
        if self.show:
            before = "\r" + " " * self.passing + "\r" if self.passing else ""
            sys.stderr.write(before + line + end)
            sys.stderr.flush()
            self.last = time.perf_counter()


class Report(Callback):
    """A line per epoch of `fit`, printed."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        monitored = run.history.monitored
        judged = "" if monitored is None else f", {monitored.replace('_', ' ')} {row[monitored]:.4g}"
        print(f"epoch {row['epoch']}: loss {row['loss']:.4g}{judged}, {row['seconds']:.2f} s")


LENGTHS = (1, 2, 4, 8)  # of the phases, relative to each other
SMOOTHING = (1.0, 0.3, 0.1, 0.03)  # μ in each phase, relative to the automatic one
NARROW, WIDE = "narrow", "wide"
EPOCHS, STEPS, BATCH = 4, 160, 32  # epochs at least; steps of a run; rows in a step
SIZE = 300  # of a program beyond which there are fewer steps
SHORTENED = 0.5  # of the way to a snapshot

State = dict[str, Tensor]


@dataclass(eq=False)
class Judge:
    """The regret of predictions on the rows to choose by: on the true program, and on its relaxation, which costs less."""

    solver: Solver
    relaxed: Solver
    data: DecisionDataset
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        self.same = self.solver is self.relaxed or self.solver.program is None or not self.solver.program.is_integer
        if not self.same:
            self._relaxed_best = self.relaxed.solve(self._costs, self.data.instance).check().decision

    @property
    def _costs(self) -> Tensor:
        return self.data.batch().require("costs")

    def regrets(self, predicted: Tensor) -> np.ndarray:
        """`(rows, p)` → `(rows,)`, infinite where the predictions leave no decision; times weights of mean one, so that their
        plain mean is the weighted one."""
        return self._of(self.solver, predicted, self.data.batch().require("decisions"))

    def relaxed_regret(self, predicted: Tensor) -> float:
        if self.same:
            return float(self.regrets(predicted).mean())
        return float(self._of(self.relaxed, predicted, self._relaxed_best).mean())

    def _of(self, solver: Solver, predicted: Tensor, best: Tensor) -> np.ndarray:
        cache = self.cache if solver is self.solver else None
        solution = solve_cached(solver, predicted, self.data.instance, cache=cache, progress=False)
        found = (solution.status == int(Status.OPTIMAL)) | (solution.status == int(Status.FEASIBLE))
        decided = torch.where(found[:, None], solution.decision, best)
        regret = regrets_of(solver, self._costs, decided, best, self.data.instance).regret.numpy()
        if self.data.weights is not None:
            regret = regret * (self.data.weights / self.data.weights.mean()).numpy()
        return np.where(found.numpy(), regret, np.inf)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Weights of a start's module, how they came about, and their regrets on the rows to choose by `(rows,)`."""

    weights: State
    regrets: np.ndarray
    kind: str = WIDE
    rate: float = 0.0
    phase: int = 0
    epochs: int = 0
    way: float = 0.0
    start: str = ""

    @property
    def mean(self) -> float:
        return float(self.regrets.mean())

    def said(self) -> dict[str, Any]:
        names = ("start", "kind", "rate", "phase", "epochs", "way")
        return {name: getattr(self, name) for name in names} | {"regret": self.mean}


@dataclass(eq=False)
class Clock:
    """How long runs may take, and how many epochs they took: by name, what reproduces them."""

    minutes: float | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    runs: int = 1  # that are still to come
    begun: float = field(default_factory=time.perf_counter)

    def share(self) -> float:
        """How many seconds the run that begins now may take."""
        if self.minutes is None:
            return math.inf
        left = self.begun + 60 * self.minutes - time.perf_counter()
        return max(0.0, left) / max(1, self.runs)


def epochs_for(rows: int, size: int = 0) -> int:
    """As many as make for `STEPS` steps, or for fewer where the program is large: size is its variables and constraints.

    Counted, not timed, so that a busy machine trains the same model.
    """
    steps = STEPS * min(1.0, (SIZE / max(1, size)) ** 2)
    return max(EPOCHS, math.ceil(steps * BATCH / rows))


def phases_of(epochs: int) -> list[int]:
    """The epochs after which the phases end."""
    ends = np.cumsum(LENGTHS) * epochs / sum(LENGTHS)
    return sorted({max(1, round(end)) for end in ends} & set(range(1, epochs + 1)))


def fine_tune(
    start: Start,
    loss: Loss,
    judge: Judge,
    *,
    name: str,
    runs: Sequence[tuple[str, float]],
    epochs: int,
    seed: int,
    clock: Clock,
    folder: Path | None = None,
    device: str | None = None,
    progress: Progress,
) -> list[Candidate]:
    """Candidates from runs of all rates, those with the least regret last judged; the start itself is not among them."""
    rows, candidates = start.rows(judge.data.features), []
    first = weights_of(start.module)
    for kind, rate in runs:
        run = f"{name}, {kind}, rate {rate:g}"
        with_weights(start.module, first)
        snapshots = one_run(start, loss, kind, rate, epochs, seed, clock, run, folder, device, progress)
        clock.runs -= 1
        found = [
            Candidate(_between(first, weights, way), np.empty(0), kind, rate, phase, after, way, start.name)
            for phase, (after, weights) in enumerate(snapshots)
            for way in (SHORTENED, 1.0)
        ]
        candidates += [_judged(one, start, judge, rows) for one in _promising(found, start, judge, rows)]
        if candidates:
            progress.tell(f"{run}: regret {min(one.mean for one in candidates):.4g} on the rows to choose by")
    with_weights(start.module, first)
    return candidates


PROMISING = 1  # candidates of a run that are judged on the true program, where its relaxation is another


def _promising(found: Sequence[Candidate], start: Start, judge: Judge, rows: Tensor) -> list[Candidate]:
    """Those to judge: all of them, or the best on the relaxation where exact decisions cost more."""
    if judge.same or len(found) <= PROMISING:
        return list(found)
    regrets = [judge.relaxed_regret(_predicted(start, one.weights, rows)) for one in found]
    kept = sorted(np.argsort(regrets, kind="stable")[:PROMISING].tolist())
    return [found[i] for i in kept]


def _judged(one: Candidate, start: Start, judge: Judge, rows: Tensor) -> Candidate:
    return replace(one, regrets=judge.regrets(_predicted(start, one.weights, rows)))


def _predicted(start: Start, weights: State, rows: Tensor) -> Tensor:
    return predict(with_weights(start.module, weights), rows)


def _between(first: State, last: State, way: float) -> State:
    return {name: value + way * (last[name] - value) for name, value in first.items()}


def weights_of(module: nn.Module) -> State:
    return {name: weight.detach().cpu().clone() for name, weight in module.named_parameters()}


def with_weights(module: nn.Module, weights: State) -> nn.Module:
    """The module itself, with these weights."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(weights[name])
    return module


def one_run(
    start: Start,
    loss: Loss,
    kind: str,
    rate: float,
    epochs: int,
    seed: int,
    clock: Clock,
    name: str,
    folder: Path | None,
    device: str | None,
    progress: Progress,
) -> list[tuple[int, State]]:
    """One run of `fit`, on that device: its snapshots, each after so many epochs."""
    asked = clock.steps.get(name, epochs)
    phases = Phases(phases_of(epochs), clock.share(), loss, lambda line: progress.pass_by(f"{name}: {line}"))
    path = None if folder is None else folder / f"{name.replace(' ', '_').replace(',', '')}.pt"
    for weight, parameter in start.module.named_parameters():
        parameter.requires_grad_(kind == WIDE or weight != "weight")
    try:
        fit(
            start.module,
            loss,
            start.train,
            epochs=min(asked, epochs),
            batch_size=BATCH,
            lr=rate * (start.reach if kind == WIDE else 1.0),
            seed=seed,
            callbacks=[phases],
            checkpoint=path,
            device=device,
            progress=False,
        )
    except DivergenceError as error:
        progress.tell(f"{name}: ended early, {error}")
    finally:
        phases.restore()
        start.module.cpu()
    clock.taken[name] = phases.epochs
    return phases.all()


def again_as(
    start: Start,
    loss: Loss,
    settings: Mapping[str, Any],
    share: float,
    seed: int,
    device: str | None,
    progress: Progress,
) -> None:
    """Train the start's module as a candidate was, given what it `said` and `of` how many epochs its run was.

    share: of the epochs; the phases keep their proportions.
    """
    whole = max(1, round(settings["of"] * share))
    ends = phases_of(whole)
    cut_short = settings["epochs"] not in phases_of(settings["of"])
    asked = max(1, round(settings["epochs"] * share)) if cut_short else ends[min(settings["phase"], len(ends) - 1)]
    name, first = "training again on all rows", weights_of(start.module)
    clock = Clock(steps={name: asked})
    snapshots = one_run(
        start, loss, settings["kind"], settings["rate"], whole, seed, clock, name, None, device, progress
    )
    with_weights(start.module, _between(first, snapshots[-1][1], settings["way"]))


class Phases(Callback):
    """Averages weights over each phase, sets μ, and ends the run when its time is up."""

    def __init__(self, ends: Sequence[int], seconds: float, loss: Loss, tell: Callable[[str], None]) -> None:
        self.ends, self.seconds, self.tell = list(ends), seconds, tell
        self.layers: list[Any] = [part for part in loss.modules() if isinstance(part, Layer) and "mu" in part.annealed]
        self.mu: list[float] = [part.mu for part in self.layers]
        self.epochs, self.count, self.begun = 0, 0, time.perf_counter()
        self.total: State = {}
        self.snapshots: list[Any] = []

    def _smooth(self) -> None:
        phase = min(sum(end <= self.epochs for end in self.ends), len(SMOOTHING) - 1)
        for layer, mu in zip(self.layers, self.mu, strict=True):
            layer.mu = mu * SMOOTHING[phase]

    def restore(self) -> None:
        for layer, mu in zip(self.layers, self.mu, strict=True):
            layer.mu = mu

    def on_start(self, run: Run) -> None:
        self.begun = time.perf_counter()  # what was compiled before does not count
        self._smooth()

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> bool:
        self.epochs, self.count = run.epoch, self.count + 1
        for name, weight in weights_of(run.model).items():
            self.total[name] = self.total[name] + weight if self.count > 1 else weight
        if self.epochs in self.ends:
            self.snapshots.append([self.epochs, self._mean()])
            self.total, self.count = {}, 0
        self._smooth()
        spent = time.perf_counter() - self.begun
        left = min(spent / self.epochs * (self.ends[-1] - self.epochs), self.seconds - spent)
        self.tell(f"epoch {self.epochs} of {self.ends[-1]}, loss {row['loss']:.4g}, {max(0.0, left):.0f} s left")
        return spent > self.seconds

    def _mean(self) -> State:
        return {name: weight / self.count for name, weight in self.total.items()}

    def all(self) -> list[tuple[int, State]]:
        """The snapshots, that of a phase which was cut short included."""
        last = [(self.epochs, self._mean())] if self.count else []
        return [(after, weights) for after, weights in self.snapshots] + last

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "count": self.count, "total": self.total, "snapshots": self.snapshots}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


# -- the choice --------------------------------------------------------------------------------------------------------


HALVINGS, ERRORS = 20, 2.0
LEAST_ROWS = 20  # below it two-stage is kept in any case


class Choice(NamedTuple):
    """Names of the two-stage and the best decision-focused model, and the cross-fitted gain of the latter."""

    baseline: str
    focused: str | None
    gain: Estimate  # mean difference of regrets, focused − two-stage, ± two standard errors: negative is a gain
    chosen: str


def choose(baseline: str, two_stage: np.ndarray, focused: dict[str, list[np.ndarray]], *, seed: int) -> Choice:
    """The choice, given the regrets of the two-stage model `(rows,)` and of the candidates behind each decision-focused one.

    The two-stage model is kept, unless a decision-focused one is better beyond chance on the rows to choose by. The best of many
    candidates looks better on the rows that chose it than it is, so the gain is cross-fitted.

    Beyond chance is by more than two standard errors. One, the usual rule of choosing by cross-validation, kept models that the
    rows to choose by liked and later rows did not: in order of time, these rows are one season. For the same reason no other
    two-stage model is taken in place of the blend: which is best on a hundred rows tells little about the next hundred.
    """
    named = [(name, regrets) for name, candidates in focused.items() for regrets in candidates]
    if not named:
        return Choice(baseline, None, Estimate(np.nan), baseline)
    best = min(named, key=lambda one: one[1].mean())[0]
    difference = cross_fitted(np.array([regrets for _, regrets in named]), two_stage[None], seed=seed)
    value, error = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))
    gain = Estimate(value, value - ERRORS * error, value + ERRORS * error)
    beyond = len(two_stage) >= LEAST_ROWS and gain.high < 0
    return Choice(baseline, best, gain, best if beyond else baseline)


def cross_fitted(ours: np.ndarray, theirs: np.ndarray, *, seed: int) -> np.ndarray:
    """Paired differences `(rows,)` of our best and their best, `(candidates, rows)` each, chosen without the row's own half.

    The candidates that are best on one half of the rows are compared on the other half, and the other way round, over twenty
    random halvings. (Of more parts, the larger ones that choose share rows, and their choices their luck.)
    """
    count, random = ours.shape[1], np.random.RandomState(seed)
    difference = np.zeros(count)
    for _ in range(HALVINGS):
        halves = np.array_split(random.permutation(count), 2)
        for others, part in (halves, halves[::-1]):
            our, their = (side[:, others].mean(1).argmin() for side in (ours, theirs))
            difference[part] += (ours[our, part] - theirs[their, part]) / HALVINGS
    return difference
