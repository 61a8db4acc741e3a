"""`DecisionModule`: decision-focused training under a Lightning `Trainer`, in one process or in many (DDP)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dflearn.data import Batch, Data, as_dataset
from dflearn.errors import MissingExtraError, OptionError
from dflearn.solvers.task import Decided
from dflearn.training.run import FitOptions
from dflearn.training.step import (
    AnyLoss,
    MakeOptimizer,
    MakeScheduler,
    Starts,
    check_parts,
    copy_weights,
    counted_rows,
    loss_of,
    make_optimizer,
    measure,
    weights_are_finite,
)
from dflearn.training.validation import CHUNK, History, Validation, prepare, rows_to_try

try:
    from lightning.pytorch import LightningModule
except ModuleNotFoundError as error:
    raise MissingExtraError("DecisionModule needs the package lightning: pip install 'dflearn[lightning]'") from error


class Share(NamedTuple):
    """A process's part of one batch: its instances, and the mean number (or weight) of instances per process."""

    rows: Tensor
    size: float


class Shares:
    """The batches of each epoch in the order of `fit`: R · `batch_size` instances, of which each of R processes takes its share.

    The last batch has the remaining instances, so a share of it may be empty.
    """

    def __init__(self, module: DecisionModule) -> None:
        self.module, self.world = module, module.trainer.world_size
        self.rows, self.whole = counted_rows(module.data), module.batch_size * self.world
        self._begin()

    def _begin(self) -> None:
        self.generator, self.drawn = torch.Generator().manual_seed(self.module.seed), 0

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.whole)

    def __iter__(self) -> Iterator[Share]:
        for batch in self._order(self.module.current_epoch).split(self.whole):
            weights = self.module.data.batch(batch).weights
            size = len(batch) if weights is None else float(weights.sum())
            yield Share(batch.tensor_split(self.world)[self.module.global_rank], size / self.world)

    def _order(self, epoch: int) -> Tensor:
        """The permutation of this epoch. One is drawn for each epoch, so a resumed run draws the earlier ones first."""
        if self.drawn > epoch:
            self._begin()
        while self.drawn <= epoch:
            order = torch.randperm(len(self.rows), generator=self.generator)
            self.drawn += 1
        return self.rows[order]


class Chunks:
    """Numbers of instances, some at a time. (Lightning takes a bare tuple of tensors for several data loaders.)"""

    def __init__(self, rows: Tensor) -> None:
        self.parts = rows.split(CHUNK)

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.parts)


class DecisionModule(LightningModule):
    """Model, loss and data, trained by a Lightning `Trainer` as `fit` trains them.

        module = DecisionModule(model, loss, train, validation=validation, problem=problem)
        Trainer(max_epochs=25, accelerator="cpu", devices=2, strategy="ddp").fit(module)
        module.history.rows    # one row per epoch, as from `fit`

    In one process, the same arguments give the weights and the losses of `fit`. With R processes, each step is a step of
    `fit` with a batch of R · `batch_size` instances, of which each process takes its rows. With N instances in a batch, a
    process's loss is (R/N) Σ loss over its own instances, so the mean gradient of the processes is that of the batch's mean, also
    for an uneven last batch. With weights, N is the weight of the batch. The processes share the validation too. Its metrics,
    `loss` and `gradient` are logged under their names in the history, for `EarlyStopping`, `ModelCheckpoint` and any logger.

    Warm starts stay in their process: a start may be that of an older visit, or blank, which changes the decision only within
    the layer's tolerance. A checkpoint has the history, the state of the loss, and the starts of the first process.

    Give a layer that draws noise another seed in each process, as in `Perturbed(solver, generator=rank)`. A gradient that is
    not finite ends the run, so gradient scaling (`precision="16-mixed"`) does not work with this module; "bf16-mixed" does.

    Args:
        model, loss, train, validation, problem, optimizer, lr, scheduler, seed, warm_start, warm_start_bytes: as of `fit`.
        batch_size: instances per step and process.

    Attributes:
        history: as from `fit`, with the total seconds only.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss,
        train: Data,
        *,
        validation: Data | None = None,
        problem: Decided | None = None,
        batch_size: int = 32,
        optimizer: str | MakeOptimizer = "adam",
        lr: float = 0.005,
        scheduler: MakeScheduler | None = None,
        seed: int = 0,
        warm_start: bool = True,
        warm_start_bytes: int = 2**30,
    ) -> None:
        super().__init__()
        FitOptions(0, batch_size, lr, seed, None, warm_start, warm_start_bytes, "last")  # checks the numbers
        (loss, *others), train = check_parts(model, loss, train, validation, problem)
        if others:
            raise OptionError("DecisionModule trains with one loss: train with several in turn by `fit`")
        self.save_hyperparameters("batch_size", "lr", "seed", "warm_start")
        self.model, self.loss, self.data = model, loss, train
        self.batch_size, self.seed = batch_size, seed
        self.lr, self._make_optimizer, self._make_scheduler = lr, optimizer, scheduler
        self.history = History()
        self.validation: Validation | None = None
        if validation is not None:
            self.validation = Validation(as_dataset(validation, "validation"), loss, problem)
            self.history.monitored = self.validation.monitored
            self.history.note(self.validation.take_note())
        self.starts, note = Starts.of(loss.layer if warm_start else None, len(train), warm_start_bytes)
        self.history.note(note)

    def forward(self, features: Tensor) -> Tensor:
        """Features `(*batch, k)` or `(*batch, p, k)` → predicted costs `(*batch, p)`."""
        return self.model(features)

    def configure_optimizers(self) -> Any:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = make_optimizer(self._make_optimizer, trained, self.lr)
        if self._make_scheduler is None:
            return optimizer
        schedule = {"scheduler": self._make_scheduler(optimizer), "monitor": self.history.monitored or "loss"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    # -- data ---------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> Shares:
        return Shares(self)

    def val_dataloader(self) -> Chunks:
        """This process's part of the validation set, as numbers of instances in chunks, at least one (empty) chunk."""
        rows = torch.arange(0 if self.validation is None else len(self.validation.data))
        return Chunks(rows.tensor_split(self.trainer.world_size)[self.global_rank])

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Numbers of instances stay on the CPU, as in `fit`; the data that they pick are on the device."""
        return batch

    # -- one epoch ----------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        if self.data.features.device != self.device:
            self.data = self.data.to(self.device)
        batch = self._batch(rows_to_try(self.loss, self.batch_size, len(self.data)))
        self.history.seconds_compile = prepare(self.model, self.loss, batch)

    def _batch(self, rows: Tensor) -> Batch:
        batch = self.data.batch(rows)
        return batch if self.starts is None else replace(batch, start=self.starts.get(rows))

    def on_train_epoch_start(self) -> None:
        self._last_finite = copy_weights(self.model)
        self._sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # of losses and instances
        self._gradients: list[float] = []
        self._metrics: dict[str, float] = {}
        self._lr = float(self.trainer.optimizers[0].param_groups[0]["lr"])  # at the end, the scheduler has changed it
        self._begun = perf_counter()

    def training_step(self, share: Share, step: int) -> Tensor:
        """(R/N) Σ loss over this process's instances of the batch; with weights, (R / Σ weight) Σ weight · loss."""
        rows, size = share
        batch = self._batch(rows)
        place = (self.current_epoch + 1, step + 1)
        with self._keeping_finite_weights():
            predicted, output = loss_of(self.model, self.loss, batch, *place)
        if self.starts is not None and output.solution is not None and output.solution.start is not None:
            self.starts.put(rows, output.solution.start)
        value = output.value if batch.weights is None else output.value * batch.weights.to(output.value)
        mean = value.sum() / size
        # A value that is not finite spoils the shared gradient, so all processes stop together.
        mean = mean * torch.where(mean.detach().isfinite(), 1.0, torch.nan)
        self._sums += size * torch.stack([mean.detach(), torch.ones_like(mean)]).double()
        self._step = (mean.detach(), batch, predicted.detach(), output.value.detach(), *place)
        return mean

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """By now the gradient is the average over processes."""
        with self._keeping_finite_weights():
            self._gradients.append(measure(self.model, *self._step)[1])

    @contextmanager
    def _keeping_finite_weights(self) -> Iterator[None]:
        try:
            yield
        except FloatingPointError as error:
            if not weights_are_finite(self.model):
                self.model.load_state_dict(self._last_finite)
            if self.trainer.world_size > 1:
                error.add_note(f"in process {self.global_rank}; the cause may lie in another, which names it")
            raise

    def on_train_epoch_end(self) -> None:
        total, count = self._over_processes(self._sums).tolist()
        row = {
            "epoch": self.current_epoch + 1,
            "loss": total / count,
            "gradient": sum(self._gradients) / max(len(self._gradients), 1),
            "lr": self._lr,
            "seconds": perf_counter() - self._begun,
        }
        self.log_dict({name: row[name] for name in ("loss", "gradient")}, prog_bar=True, sync_dist=True)
        if self.history.monitored is not None:
            row |= self._metrics or {self.history.monitored: math.nan}  # no validation in this epoch
        self.history.rows.append(row)

    def _over_processes(self, value: Tensor) -> Tensor:
        """The sum over all processes, known to each."""
        return self.trainer.strategy.reduce(value, reduce_op="sum")

    # -- validation ---------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._totals = torch.zeros(3, dtype=torch.float64, device=self.device)
        if self.validation is not None:
            self.validation.move(self.device)

    def validation_step(self, rows: Tensor, step: int) -> None:
        if self.validation is not None:
            self._totals += self.validation.totals(self.model, rows)

    def on_validation_epoch_end(self) -> None:
        if self.validation is not None:
            self._metrics = self.validation.metrics(self._over_processes(self._totals))
            self.history.note(self.validation.take_note())
            self.log_dict(self._metrics, prog_bar=True, sync_dist=True)

    # -- checkpoints --------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        starts = None if self.starts is None else self.starts.rows
        checkpoint["dflearn"] = {"rows": [dict(row) for row in self.history.rows], "starts": starts}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.history.rows[:] = checkpoint["dflearn"]["rows"]
        if self.starts is not None and checkpoint["dflearn"]["starts"] is not None:
            self.starts.rows = checkpoint["dflearn"]["starts"]
