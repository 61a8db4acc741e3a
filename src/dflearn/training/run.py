"""One run of `fit`: its state, its epochs, its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from dflearn.data import Batch, Data, as_dataset
from dflearn.errors import CheckpointError, DataError, DivergenceError, OptionError, SolverError
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.reading import UNREADABLE
from dflearn.solvers.task import Decided
from dflearn.training import checkpoint as files
from dflearn.training.step import (
    AnyLoss,
    MakeOptimizer,
    MakeScheduler,
    Starts,
    as_device,
    check_parts,
    copy_weights,
    counted_rows,
    exploded,
    failed_rows,
    loss_of,
    make_optimizer,
    make_scheduler,
    mean_of,
    measure,
    weights_are_finite,
)
from dflearn.training.validation import History, Validation, prepare, rows_to_try

EPSILON = 1e-6  # of the first gradient: the most that Adam may add to the size of a step's gradients
FAILED_SHARE = 0.01  # of the instances, that a layer may fail to solve in an epoch; one always may


@dataclass(frozen=True)
class FitOptions:
    """The numbers of a run."""

    epochs: int
    batch_size: int
    lr: float
    seed: int
    early_stopping: int | None
    warm_start: bool
    warm_start_bytes: int
    keep: Literal["last", "best"]

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch_size < 1 or not self.lr > 0:
            raise OptionError(f"epochs >= 0, batch_size >= 1, lr > 0; got {self.epochs}, {self.batch_size}, {self.lr}")
        if self.early_stopping is not None and self.early_stopping < 1:
            raise OptionError(f"early_stopping is a number of epochs, at least 1; got {self.early_stopping}")
        if self.keep not in ("last", "best"):
            raise OptionError(f"keep is 'last' or 'best', got {self.keep!r}")


class Run:
    """One run of `fit`, as callbacks see it.

    Attributes:
        model, optimizer, scheduler, train, validation, problem, device: as of `fit`.
        settings, history: the other options of `fit`, and what it returns.
        losses, phase, loss: all losses of the run, which of them is trained with now, and that one.
        begun: how many epochs were done when this phase began.
        epoch: how many epochs are done.
        starts: the warm starts, or `None`.
        best_weights: the weights of the best epoch so far, or `None` where none are kept.

    Examples:
        >>> class Watch(dfl.Callback):
        ...     def on_epoch_end(self, run, row):
        ...         print(run.epoch, type(run.loss).__name__)
        >>> _ = dfl.fit(dfl.models.Linear(10, 12), dfl.losses.MSE(), data, epochs=2, callbacks=[Watch()])
        1 MSE
        2 MSE
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss | Sequence[AnyLoss],
        train: Data,
        validation: Data | None,
        problem: Decided | None,
        settings: FitOptions,
        optimizer: str | MakeOptimizer,
        scheduler: MakeScheduler | None,
        device: str | torch.device | None,
    ) -> None:
        losses, train = check_parts(model, loss, train, validation, problem)
        if len(losses) > 1 and validation is not None and problem is None:
            raise OptionError("values of different losses cannot be compared: pass `problem`, so that regret is")
        if validation is None and (settings.early_stopping or settings.keep == "best"):
            raise OptionError("early_stopping and keep='best' choose by validation data: pass `validation`")
        first = next(model.parameters(), torch.zeros(0))
        self.device = first.device if device is None else as_device(device)
        self.model, self.losses = model.to(self.device), nn.ModuleList(losses).to(self.device)
        self.train = train.to(self.device)
        self.rows = counted_rows(self.train)
        self.settings, self.epoch, self.history = settings, 0, History()
        for parameter in self._trained():
            if not settings.lr <= torch.finfo(parameter.dtype).max:
                raise OptionError(f"lr = {settings.lr:g} is no number in {parameter.dtype}, the model's: lower lr")
        self._by_name = isinstance(optimizer, str)
        self._recipe = optimizer, scheduler
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.best_weights: dict[str, Tensor] | None = None
        self.validation: Validation | None = None
        if validation is not None:
            self.validation = Validation(as_dataset(validation, "validation").to(self.device), losses[0], problem)
            self.history.monitored = self.validation.monitored
            self.note(self.validation.take_note())
        self.begin(0)

    def begin(self, phase: int) -> None:
        """Train with the loss number `phase` from here on, with an optimizer, a scheduler and warm starts of its own."""
        optimizer, scheduler = self._recipe
        self.phase, self.begun = phase, self.epoch
        self.optimizer = make_optimizer(optimizer, self._trained(), self.settings.lr)
        self.scheduler = make_scheduler(scheduler, self.optimizer)
        self.starts: Starts | None = None
        if self.settings.warm_start:
            self.starts, note = Starts.of(self.loss.layer, len(self.train), self.settings.warm_start_bytes)
            self.note(note)

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def loss(self) -> Loss:
        return cast(Loss, self.losses[self.phase])

    def note(self, text: str) -> None:
        self.history.note(text)

    @property
    def cuda_devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    def prepare(self) -> None:
        """Compile what this run will call, so that no epoch's seconds hold it."""
        for loss in cast(list[Loss], self.losses):
            rows = rows_to_try(loss, self.settings.batch_size, len(self.train))
            batch = self.train.batch(rows)
            if self.starts is not None and loss is self.loss:
                batch = replace(batch, start=self.starts.get(rows))
            self.history.seconds_compile += prepare(self.model, loss, batch, self.validation)

    def judge_start(self) -> None:
        """The weights that training begins with are candidates too, where the best are kept."""
        if self.settings.keep == "best" and self.validation is not None and not self.epoch:
            self.history.start = {"epoch": 0, **self.validation(self.model)}
            self.best_weights = copy_weights(self.model)

    def train_epoch(self, tick: Callable[[], Any]) -> dict[str, Any]:
        """One pass over the training data; the epoch's row. `tick` is called after each step."""
        self.model.train()
        self._moving = self._trained()
        self._asked = [layer for _, layer in self._layers()]
        order = self.rows[torch.randperm(len(self.rows), generator=self.generator)]
        last_finite = copy_weights(self.model)
        seconds, total, counted, gradients = dict.fromkeys(("predict", "solve", "backward"), 0.0), 0.0, 0.0, 0.0
        failed: list[int] = []  # places of instances that the layer could not solve
        if self.cuda_devices:
            order = order.pin_memory()  # so that its copies do not wait for the GPU
        steps = order.split(self.settings.batch_size)
        self._batches = self.train.batches(order, self.settings.batch_size)
        self._ahead: Batch | None = None  # the next one, gathered before its step
        for step, index in enumerate(steps, 1):
            begun = perf_counter()
            batch, self._ahead = self._ahead or next(self._batches), None
            seconds["predict"] += perf_counter() - begun
            try:
                value, weight, gradient = self._step_without_failed(index, batch, step, seconds, failed)
            except FloatingPointError:
                if not weights_are_finite(self.model):
                    self.model.load_state_dict(last_finite)
                raise
            total += value * weight
            counted += weight
            gradients += gradient
            tick()
        if not weights_are_finite(self.model):  # since the last step, which no other follows to tell
            self.model.load_state_dict(last_finite)
            why = f"The last step was too long: lower lr (now {self.settings.lr:g}), or scale the costs."
            place = f"epoch {self.epoch + 1}, step {len(steps)}: the weights are no longer finite."
            raise DivergenceError(f"{place} {why} The model holds the last weights that were finite.")
        self.epoch += 1
        skipped = {"failed": len(failed), "failed_ids": ", ".join(map(str, self.train.ids[failed].tolist()))}
        return {
            "epoch": self.epoch,
            **({"phase": self.phase + 1} if len(self.losses) > 1 else {}),
            "loss": total / counted if counted else float("nan"),
            "gradient": gradients / len(steps),
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "seconds": sum(seconds.values()),
            **{f"seconds_{name}": spent for name, spent in seconds.items()},
            "seconds_validation": 0.0,
            **(skipped if failed else {}),
        }

    def _step_without_failed(
        self, index: Tensor, batch: Batch, step: int, seconds: dict[str, float], failed: list[int]
    ) -> tuple[float, float, float]:
        """A step without the few instances that the layer cannot solve; their places are added to `failed`."""
        try:
            return self._step(index, batch, step, seconds)
        except SolverError as error:
            missing = failed_rows(error, len(index))
            if missing is None or len(failed) + int(missing.sum()) > max(1, int(FAILED_SHARE * len(self.rows))):
                raise
        failed += index[missing].tolist()
        rest = index[~missing]
        nothing = 0.0, 0.0, 0.0
        return self._step_without_failed(rest, self.train.batch(rest), step, seconds, failed) if len(rest) else nothing

    def _step(self, index: Tensor, batch: Batch, step: int, seconds: dict[str, float]) -> tuple[float, float, float]:
        """One step on the batch of the instances at `index`; mean loss, what they weigh, and norm of the gradient."""
        begun = perf_counter()
        if self.starts is not None:
            batch = replace(batch, start=self.starts.get(index))
        predicted, output = loss_of(self.model, self.loss, batch, self.epoch + 1, step)
        evaluated = perf_counter()
        mean = mean_of(output.value, batch.weights)
        self.optimizer.zero_grad()
        mean.backward()
        if self.cuda_devices and self._ahead is None:  # while the GPU works
            self._ahead = next(self._batches, None)
        value, gradient = measure(self.model, mean, batch, predicted, output.value, self.epoch + 1, step, self._moving)
        # Each layer is asked, which waits for its last solve.
        if [layer for layer in self._asked if layer.unsettled()]:
            # These layers wait now, and the CPU finishes what a GPU left; the model may have written to the batch.
            return self._step(index, self.train.batch(index), step, seconds)
        if self.epoch == self.begun and step == 1 and self._by_name:
            self._fit_epsilon(gradient)
        self.optimizer.step()
        solve, answer = 0.0, output.solution
        if answer is not None:
            solve = answer.seconds
            if self.starts is not None and answer.start is not None:
                self.starts.put(index, answer.start)
        seconds["predict"] += evaluated - begun - solve
        seconds["solve"] += solve
        seconds["backward"] += perf_counter() - evaluated
        weight = index.shape[0] if batch.weights is None else float(batch.weights.sum())
        return value, weight, gradient

    def _fit_epsilon(self, gradient: float) -> None:
        """Adam's ε, a number without a unit, at most a small part of the first gradient: in any units of the objective it learns."""
        for group in self.optimizer.param_groups:
            if gradient > 0 and "eps" in group:
                group["eps"] = min(group["eps"], EPSILON * gradient)

    def judge(self, row: dict[str, Any]) -> None:
        """Add the validation metrics to the row and the row to the history; remember the weights if they are the best."""
        begun = perf_counter()
        if self.validation is not None:
            row.update(self.validation(self.model))
            self.note(self.validation.take_note())
        row["seconds_validation"] = perf_counter() - begun
        row["seconds"] += row["seconds_validation"]
        self.history.rows.append(row)
        if self.settings.keep == "best" and self.history.best is row:
            self.best_weights = copy_weights(self.model)

    def end_epoch(self, row: dict[str, Any], stop: bool) -> None:
        """Step the scheduler and decide whether this epoch was the last, of its phase or of the run."""
        odd = [f"{name} ({type(value).__name__})" for name, value in row.items() if type(value) not in files.PLAIN]
        if odd:
            raise DataError(f"a row holds plain numbers and text only; convert what a callback added: {', '.join(odd)}")
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(row[self.history.monitored or "loss"])
        elif self.scheduler is not None:
            self.scheduler.step()
        patience = self.settings.early_stopping
        waited = min(self.history.epochs_since_best, self.epoch - self.begun)
        enough = patience is not None and waited >= patience
        if stop:
            self.history.stopped = "callback"
        elif self.phase + 1 < len(self.losses):
            if enough or self.epoch * len(self.losses) >= self.settings.epochs * (self.phase + 1):
                self.begin(self.phase + 1)
        elif enough:
            self.history.stopped = "early stopping"

    def finish(self) -> None:
        """Put the weights in place that are kept."""
        self.history.stopped = self.history.stopped or "epochs"
        if self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
        if self.history.rows:
            batch = self.train.batch(torch.arange(min(self.settings.batch_size, len(self.train))))
            predicted = predict(self.model, batch.features)
            if exploded(batch, predicted):
                size = f"costs up to {float(predicted.abs().max()):.3g}, out of all proportion to the data"
                remedy = f"lower lr (now {self.settings.lr:g}), or scale features and costs"
                self.note(f"the run diverged: its model predicts {size}: {remedy}")

    @cached_property
    def config(self) -> dict[str, Any]:
        """All that must be the same for a run to go on from a checkpoint."""
        numbers = {name: value for name, value in asdict(self.settings).items() if name != "epochs"}
        judge = None if self.validation is None else self.validation.solver
        programs = [*(layer.program for _, layer in self._layers()), None if judge is None else judge.program]
        return {
            **numbers,
            "model": files.describe(self.model),
            "weights": ", ".join(f"{k} {tuple(v.shape)} {v.dtype}" for k, v in self.model.named_parameters()),
            "loss": "\n".join(map(files.describe, self.losses)),
            "epochs": None if len(self.losses) == 1 else self.settings.epochs,  # which say when the next loss begins
            "optimizer": f"{type(self.optimizer).__name__} {self.optimizer.defaults}",
            "scheduler": type(self.scheduler).__name__,
            "train": files.fingerprint(self.train),
            "validation": None if self.validation is None else files.fingerprint(self.validation.data),
            "problem": None if judge is None else judge.identity,
            "programs": [None if program is None else program.fingerprint for program in programs],
            "loss_parts": [part for module in self.losses.modules() for part in files.parts_of(module)],
            "schedule": None if self.scheduler is None else files.plain_numbers(self.scheduler.state_dict()),
        }

    def save(self, path: str | os.PathLike[str], callbacks: dict[str, Any]) -> None:
        """Write a checkpoint, the states of the callbacks in it."""
        history, cuda = self.history, [torch.cuda.get_rng_state(device) for device in self.cuda_devices]
        files.save(
            path,
            {
                "config": self.config,
                "epoch": self.epoch,
                "phase": [self.phase, self.begun],
                "model": self.model.state_dict(),
                "loss": self.losses.state_dict(),
                "annealed": {name: {one: getattr(own, one) for one in own.annealed} for name, own in self._layers()},
                "optimizer": self.optimizer.state_dict(),
                "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
                "starts": None if self.starts is None else self.starts.rows,
                "best_weights": self.best_weights,
                "history": {"start": history.start, "rows": history.rows, "stopped": history.stopped},
                "callbacks": callbacks,
                "generators": [self.generator.get_state(), torch.get_rng_state(), *cuda],
            },
        )

    def resume(self, path: str | os.PathLike[str], scheduled: Collection[str]) -> dict[str, Any]:
        """Go on from the checkpoint, if there is one, up to `scheduled` numbers of layers; the states of callbacks in it."""
        content = files.load(path, self.config, scheduled)
        if content is None:
            return {}
        try:
            self._go_back(path, content)
        except CheckpointError:
            raise
        except UNREADABLE as error:
            raise CheckpointError(f"{path} does not fit this run: {error}; delete it to start afresh") from error
        return dict(content["callbacks"])

    def _go_back(self, path: str | os.PathLike[str], content: dict[str, Any]) -> None:
        """Take the state of the run from what a checkpoint holds."""
        if content["epoch"] > self.settings.epochs:
            raise CheckpointError(f"{path} has {content['epoch']} epochs, more than these {self.settings.epochs}")
        self.epoch = content["epoch"]
        phase, begun = content["phase"]
        if phase:
            self.begin(phase)
        self.begun = begun
        self.model.load_state_dict(content["model"])
        self.losses.load_state_dict(content["loss"])
        for name, layer in self._layers():
            for number, value in content["annealed"][name].items():
                setattr(layer, number, value)
        self.optimizer.load_state_dict(content["optimizer"])
        for weight, state in self.optimizer.state.items():
            for name in files.MOMENTS & set(state):
                files.check_like(name, state[name], weight)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(content["scheduler"])
        if self.starts is not None:
            files.check_like("starts", content["starts"], self.starts.rows)
            self.starts.rows = content["starts"]
        for name, weight in (content["best_weights"] or {}).items():
            files.check_like(name, weight, self.model.state_dict()[name])
        self.best_weights = content["best_weights"]
        held = content["history"]
        self.history.rows[:], self.history.start, self.history.stopped = held["rows"], held["start"], held["stopped"]
        if not isinstance(self.epoch, int) or not isinstance(self.history.stopped, str | None):
            raise CheckpointError(f"{path} does not say how far its run came; delete it to start afresh")
        if self.history.stopped == "callback" and self.epoch < self.settings.epochs:
            self.note(f"a callback ended this run after epoch {self.epoch}: to go on, name another file")
        own, torchs, *cuda = content["generators"]
        self.generator.set_state(own)
        torch.set_rng_state(torchs)
        for device, state in zip(self.cuda_devices, cuda, strict=False):  # none for a run that moves to a GPU
            torch.cuda.set_rng_state(state, device)

    def _layers(self) -> list[tuple[str, Layer]]:
        return [(name, part) for name, part in self.losses.named_modules() if isinstance(part, Layer)]
