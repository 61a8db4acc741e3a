"""Decision-focused training that starts at a two-stage forecast: short, in phases, and watched on the validation rows.

A run trains a narrow correction of the forecast or a wide one (see `dflearn.models.Correction`), at one learning rate, in four
phases, each twice as long as the one before. Where the layer smooths, μ falls from phase to phase. The mean of the weights over
a phase is a snapshot, which is steadier than the last of them. Snapshots, and half the way to them, are candidates, judged by
the regret of exact decisions.
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
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.errors import DivergenceError
from dflearn.evaluation import regrets_of
from dflearn.evaluation.estimates import Estimate
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.solvers.base import Solver, Status
from dflearn.tables.two_stage import Start
from dflearn.training import Callback, Run, fit

EVERY = 10.0  # seconds between passing lines, where each stays


class Progress:
    """Lines on stderr: `tell` for one that stays, `pass_by` for one that the next line replaces."""

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


class Report(Callback):
    """A line per epoch of `fit`, printed."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        monitored = run.history.monitored
        judged = "" if monitored is None else f", {monitored.replace('_', ' ')} {row[monitored]:.4g}"
        print(f"epoch {row['epoch']}: loss {row['loss']:.4g}{judged}, {row['seconds']:.2f} s")


LENGTHS = (1, 2, 4, 8)  # of the phases, relative to each other
SMOOTHING = (1.0, 0.3, 0.1, 0.03)  # μ in each phase, relative to the automatic one
EPOCHS, STEPS, BATCH = 4, 160, 32  # epochs at least; steps of a run; rows in a step
SIZE = 300  # of a program beyond which there are fewer steps
SHORTENED = 0.5  # of the way to a snapshot


class Judge:
    """The regret of predictions on labelled rows: on the true program, and on its relaxation, which costs less."""

    def __init__(self, solver: Solver, relaxed: Solver, data: DecisionDataset, cache: str | Path | None = None) -> None:
        self.solver, self.relaxed, self.data, self.cache = solver, relaxed, data, cache
        self.costs, self.best = data.batch().require("costs"), data.batch().require("decisions")
        self.same = solver is relaxed or solver.program is None or not solver.program.is_integer
        if not self.same:
            self.best_relaxed = relaxed.solve(self.costs, data.instance).check().decision

    def regrets(self, predicted: Tensor) -> np.ndarray:
        """`(rows, p)` → `(rows,)`, infinite where the predictions leave no decision; times weights of mean one, so that their
        plain mean is the weighted one."""
        return self._of(self.solver, predicted, self.best, self.cache)

    def relaxed_regret(self, predicted: Tensor) -> float:
        """Their mean on the relaxation, where that is another program."""
        return float(self._of(self.relaxed, predicted, self.best_relaxed, None).mean())

    def _of(self, solver: Solver, predicted: Tensor, best: Tensor, cache: str | Path | None) -> np.ndarray:
        solution = solve_cached(solver, predicted, self.data.instance, cache=cache, progress=False)
        decided = (solution.status == int(Status.OPTIMAL)) | (solution.status == int(Status.FEASIBLE))
        decision = torch.where(decided[:, None], solution.decision, best)
        regret = regrets_of(solver, self.costs, decision, best, self.data.instance).regret.numpy()
        if self.data.weights is not None:
            regret = regret * (self.data.weights / self.data.weights.mean()).numpy()
        return np.where(decided.numpy(), regret, np.inf)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Weights of a start's module in one vector, how they came about, and their regrets on the validation rows `(rows,)`."""

    weights: Tensor
    regrets: np.ndarray
    rate: float = 0.0
    phase: int = 0
    epochs: int = 0
    way: float = 0.0
    start: str = ""

    @property
    def mean(self) -> float:
        return float(self.regrets.mean())

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values: what a record tells."""
        names = ("start", "rate", "phase", "epochs", "way")
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


@dataclass(eq=False)
class Tuner:
    """Short runs of `fit` from a start, on a device."""

    seed: int
    clock: Clock
    progress: Progress
    device: str | None = None

    def candidates(
        self, name: str, start: Start, loss: Loss, judge: Judge, rate: float, epochs: int
    ) -> list[Candidate]:
        """Snapshots of a run, and half the way to them; the start itself is not among them.

        Where exact decisions cost more than those of the relaxation, only the best on the relaxation is judged by the former.
        """
        rows, first = start.rows(judge.data.features), weights_of(start.module)
        snapshots = self.run(name, start, loss, rate, epochs)
        self.clock.runs -= 1

        def predicted(one: Candidate) -> Tensor:
            return predict(with_weights(start.module, one.weights), rows)

        found = [
            Candidate(torch.lerp(first, weights, way), np.empty(0), rate, phase, after, way, start.name)
            for phase, (after, weights) in enumerate(snapshots)
            for way in (SHORTENED, 1.0)
        ]
        if found and not judge.same:
            found = [min(found, key=lambda one: judge.relaxed_regret(predicted(one)))]
        found = [replace(one, regrets=judge.regrets(predicted(one))) for one in found]
        with_weights(start.module, first)
        if found:
            self.progress.tell(f"{name}: regret {min(one.mean for one in found):.4g} on the validation rows")
        return found

    def run(self, name: str, start: Start, loss: Loss, rate: float, epochs: int) -> list[tuple[int, Tensor]]:
        """One run of `fit`: its snapshots, each after so many epochs."""
        tell = lambda line: self.progress.pass_by(f"{name}: {line}")  # noqa: E731
        phases = Phases(phases_of(epochs), self.clock.share(), loss, tell)
        for weight, parameter in start.module.named_parameters():
            parameter.requires_grad_(start.wide or weight != "weight")
        try:
            fit(
                start.module,
                loss,
                start.train,
                epochs=min(self.clock.steps.get(name, epochs), epochs),
                batch_size=BATCH,
                lr=rate * start.reach,
                seed=self.seed,
                callbacks=[phases],
                device=self.device,
                progress=False,
            )
        except DivergenceError as error:
            self.progress.tell(f"{name}: ended early, {error}")
        finally:
            snapshots = phases.end()
            start.module.cpu()
        self.clock.taken[name] = phases.epochs
        return snapshots

    def again(self, start: Start, loss: Loss, one: Candidate, of: int, share: float) -> None:
        """Train the start's module as a candidate was, whose run had so many epochs.

        share: of the epochs; the phases keep their proportions.
        """
        whole = max(1, round(of * share))
        ends = phases_of(whole)
        cut_short = one.epochs not in phases_of(of)
        asked = max(1, round(one.epochs * share)) if cut_short else ends[min(one.phase, len(ends) - 1)]
        name, first = "training again on all rows", weights_of(start.module)
        once = replace(self, clock=Clock(steps={name: asked}))
        snapshots = once.run(name, start, loss, one.rate, whole)
        with_weights(start.module, torch.lerp(first, snapshots[-1][1], one.way))


def weights_of(module: nn.Module) -> Tensor:
    """All weights in one vector."""
    return parameters_to_vector(module.parameters()).detach().cpu()


def with_weights(module: nn.Module, weights: Tensor) -> nn.Module:
    """The module itself, with these weights."""
    vector_to_parameters(weights.clone(), module.parameters())
    return module


class Phases(Callback):
    """Averages weights over each phase, sets μ, and ends the run when its time is up."""

    def __init__(self, ends: Sequence[int], seconds: float, loss: Loss, tell: Callable[[str], None]) -> None:
        self.ends, self.seconds, self.tell = list(ends), seconds, tell
        self.layers: list[Any] = [part for part in loss.modules() if isinstance(part, Layer) and "mu" in part.annealed]
        self.mu: list[float] = [part.mu for part in self.layers]
        self.epochs, self.begun = 0, time.perf_counter()
        self.seen: list[Tensor] = []  # after each epoch of this phase
        self.snapshots: list[tuple[int, Tensor]] = []

    def _smooth(self, share: float) -> None:
        for layer, mu in zip(self.layers, self.mu, strict=True):
            layer.mu = mu * share

    def on_start(self, run: Run) -> None:
        self.begun = time.perf_counter()  # what was compiled before does not count
        self._smooth(SMOOTHING[0])

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> bool:
        self.epochs = run.epoch
        self.seen.append(weights_of(run.model))
        if self.epochs in self.ends:
            self._snapshot()
        self._smooth(SMOOTHING[min(sum(end <= self.epochs for end in self.ends), len(SMOOTHING) - 1)])
        spent = time.perf_counter() - self.begun
        left = min(spent / self.epochs * (self.ends[-1] - self.epochs), self.seconds - spent)
        self.tell(f"epoch {self.epochs} of {self.ends[-1]}, loss {row['loss']:.4g}, {max(0.0, left):.0f} s left")
        return spent > self.seconds

    def _snapshot(self) -> None:
        self.snapshots.append((self.epochs, torch.stack(self.seen).mean(0)))
        self.seen = []

    def end(self) -> list[tuple[int, Tensor]]:
        """The snapshots, that of a phase which was cut short included; μ is what it was."""
        self._smooth(1.0)
        if self.seen:
            self._snapshot()
        return self.snapshots


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

    The two-stage model is kept, unless a decision-focused one is better beyond chance on the validation rows. The best of many
    candidates looks better on the rows that chose it than it is, so the gain is cross-fitted.

    Beyond chance is by more than two standard errors. One, the usual rule of choosing by cross-validation, kept models that the
    validation rows liked and later rows did not: in order of time, these rows are one season. For the same reason no other
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
