"""A run of `fit` in MLflow, TensorBoard or Weights & Biases: one callback each."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from abc import ABC, abstractmethod
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from dflearn.errors import MissingExtraError, optional
from dflearn.training import Callback, Run


class Tracker(Callback, ABC):
    """Logs each epoch once, also when a run continues from a checkpoint, and always closes the log.

    Subclasses write `_open`, `_log` and `_close`. Values that other callbacks add to a row are logged if these callbacks come
    before this one. At the end the metrics of the kept weights are logged as `final_loss`, …, `final_epoch`, with the reason of
    the end (`stopped`) and the notes.
    """

    log: Any = None  # the open log: set by `_open`

    def on_start(self, run: Run) -> None:
        self._logged = self._open(run)
        for row in run.history.rows:
            self.on_epoch_end(run, row)

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        if row["epoch"] > self._logged:
            self._log(row["epoch"], numbers(row))
            self._logged = row["epoch"]

    def on_end(self, run: Run) -> None:
        self._end(run, "FINISHED")

    def on_error(self, run: Run, error: BaseException) -> None:
        self._end(run, "FAILED" if isinstance(error, Exception) else "KILLED")

    def _end(self, run: Run, status: str) -> None:
        if self.log is not None:  # otherwise `_open` failed
            self._close(run, status)
            self.log = None

    @abstractmethod
    def _open(self, run: Run) -> int:
        """Open the log, describe the run, and return the last epoch in the log (0: none)."""

    @abstractmethod
    def _log(self, epoch: int, values: dict[str, float]) -> None: ...

    @abstractmethod
    def _close(self, run: Run, status: str) -> None:
        """End the log. The status is "FINISHED", "FAILED" or "KILLED"."""


def numbers(row: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if name != "epoch" and isinstance(value, int | float)}


def parameters(run: Run) -> dict[str, Any]:
    """The settings of the run, short enough for a table, without `epochs`, which may grow when the run continues."""
    settings = {name: value for name, value in asdict(run.settings).items() if name != "epochs"}
    things = {"model": run.model, "loss": run.loss, "layer": run.loss.layer, "optimizer": run.optimizer}
    named = {name: None if thing is None else type(thing).__name__ for name, thing in things.items()}
    described = {name: run.config[name] for name in ("scheduler", "train", "validation", "problem")}
    return {**named, **settings, **described, "instances": len(run.train)}


def final(run: Run) -> dict[str, float]:
    """The row of the weights that the model keeps, as `final_loss` and so on, with `final_epoch`."""
    row = run.history.best if run.settings.keep == "best" else run.history.rows[-1] if run.history.rows else None
    return {} if row is None else {"final_epoch": row["epoch"], **{f"final_{k}": v for k, v in numbers(row).items()}}


ALLOW_FOLDER = "MLFLOW_ALLOW_FILE_STORE"
LONGEST = 500  # characters: every store of MLflow takes parameters and tags of this length


class MLflowCallback(Tracker):
    """Logs every epoch's numbers as metrics (step = epoch), the run's settings as parameters and `config.json`.

        fit(model, loss, train, callbacks=[MLflowCallback("runs", experiment="shortest path")])

    At the end the run becomes finished, failed (`fit` raised an error) or killed (an interruption). If `fit` continues from a
    checkpoint, the MLflow run of the same configuration continues too.

    Args:
        uri: a folder for the runs, or the address of a server or database; default: MLflow's setting.
        experiment: the experiment of the run; a missing one is made.
        name: of the run; default: MLflow makes one up.
    """

    def __init__(
        self, uri: str | os.PathLike[str] | None = None, *, experiment: str = "dflearn", name: str | None = None
    ) -> None:
        self.uri, self.experiment, self.name = uri, experiment, name
        self.client = _mlflow_client(uri)

    def _open(self, run: Run) -> int:
        known = self.client.get_experiment_by_name(self.experiment)
        place = self.client.create_experiment(self.experiment) if known is None else known.experiment_id
        key = hashlib.sha256(json.dumps(run.config, default=str, sort_keys=True).encode()).hexdigest()[:16]
        if run.epoch:  # it continues from a checkpoint
            query = f"tags.`dflearn.config` = '{key}'"
            found = self.client.search_runs([place], query, max_results=1, order_by=["attributes.start_time DESC"])
            if found:
                self.log = found[0].info.run_id
                self.client.update_run(self.log, status="RUNNING")
                return max((metric.step for metric in self.client.get_metric_history(self.log, "loss")), default=0)
        self.log = self.client.create_run(place, run_name=self.name, tags={"dflearn.config": key}).info.run_id
        for name, value in parameters(run).items():
            self.client.log_param(self.log, name, str(value)[:LONGEST])
        self.client.log_dict(self.log, run.config, "config.json")
        return 0

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        Metric, now = import_module("mlflow.entities").Metric, int(time.time() * 1000)
        self.client.log_batch(self.log, metrics=[Metric(name, value, now, epoch) for name, value in values.items()])

    def _close(self, run: Run, status: str) -> None:
        if status == "FINISHED":
            values = final(run)
            if self.client.get_run(self.log).data.metrics.get("final_epoch") != values.get("final_epoch"):
                self._log(run.epoch, values)
            self.client.set_tag(self.log, "stopped", run.history.stopped)
        if run.history.notes:
            self.client.set_tag(self.log, "notes", "\n".join(run.history.notes))
        self.client.set_terminated(self.log, status)


def _mlflow_client(uri: str | os.PathLike[str] | None) -> Any:
    MlflowClient = optional("mlflow", "mlflow", "MLflowCallback").MlflowClient
    if uri is None or re.match(r"databricks|(?!file:)[\w+-]{2,}:", str(uri)):
        return MlflowClient(tracking_uri=None if uri is None else str(uri))
    address = str(uri) if str(uri).startswith("file:") else Path(uri).absolute().as_uri()
    # MLflow 3 opens a plain folder only if a variable allows it. The user has named the folder here.
    meant = ALLOW_FOLDER in os.environ
    os.environ.setdefault(ALLOW_FOLDER, "true")
    try:
        return MlflowClient(tracking_uri=address)
    finally:
        if not meant:
            del os.environ[ALLOW_FOLDER]


class TensorBoardCallback(Tracker):
    """Logs every epoch's numbers as scalars (step = epoch), and the run's settings as the text `parameters`.

        fit(model, loss, train, callbacks=[TensorBoardCallback("runs/spo+")])

    The text `outcome` has the reason of the end and the notes. The file is flushed after each epoch. If `fit` continues from a
    checkpoint, the curves continue too. A new run in a used folder replaces the old one.

    Args:
        folder: of this run; TensorBoard compares the runs in the folders of `tensorboard --logdir`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        _writer_class()  # so that a missing package is known before training begins
        self.folder = Path(folder)

    def _open(self, run: Run) -> int:
        held = [int(path.name.split(".")[3]) for path in self.folder.glob("events.out.tfevents.*")]
        # TensorBoard reads files in the order of their names, which begin with the second: the new file must be the last.
        time.sleep(min(max(max(held, default=0) + 1 - time.time(), 0.0), 1.0))
        goes_on = run.epoch > 0 and bool(held)
        # TensorBoard drops this step and later ones: epochs after the last checkpoint, or all.
        self.log = _writer_class()(str(self.folder), purge_step=run.epoch + 1 if goes_on else 0)
        if not goes_on:
            table = "".join(f"| {name} | {value} |\n" for name, value in parameters(run).items())
            self.log.add_text("parameters", f"| | |\n|---|---|\n{table}", 0)
        self.new = not goes_on
        return run.epoch if goes_on else 0

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        self.new = True
        for name, value in values.items():
            self.log.add_scalar(name, value, epoch)
        self.log.flush()

    def _close(self, run: Run, status: str) -> None:
        if status != "FINISHED":
            self.log.add_text("outcome", status.lower(), run.epoch)
        elif self.new:  # otherwise the run had finished before, and its log is complete
            self._log(run.epoch, final(run))
            text = "\n\n".join([f"stopped: {run.history.stopped}", *run.history.notes])
            self.log.add_text("outcome", text, run.epoch)
        self.log.close()


def _writer_class() -> Any:
    optional("tensorboard", "tensorboard", "TensorBoardCallback")
    return import_module("torch.utils.tensorboard").SummaryWriter


class WandbCallback(Tracker):
    """Logs every epoch's numbers (step = epoch), the run's settings as its config, and how it ended as its summary.

        fit(model, loss, train, callbacks=[WandbCallback("shortest path", mode="offline")])

    The run ends with exit code 0, 1 (`fit` raised an error) or 255 (an interruption). If `fit` continues from a checkpoint, which
    has the id of its run, that run is resumed.

    Args:
        project: of the run.
        name: of the run; default: W&B makes one up.
        options: of `wandb.init`, such as `mode="offline"`, `dir`, `group` or `tags`.
    """

    def __init__(self, project: str = "dflearn", *, name: str | None = None, **options: Any) -> None:
        self.project, self.name, self.options = project, name, options
        try:
            self.wandb = import_module("wandb")
        except ImportError as error:
            raise MissingExtraError("WandbCallback needs the package wandb: pip install wandb") from error
        self.id: str | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"id": self.id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.id = state["id"]

    def _open(self, run: Run) -> int:
        goes_on = run.epoch > 0 and self.id is not None
        self.log = self.wandb.init(
            project=self.project,
            name=self.name,
            config=json.loads(json.dumps({**parameters(run), "config": run.config}, default=str)),
            **({"id": self.id, "resume": "allow"} if goes_on else {}),
            **self.options,
        )
        self.id = self.log.id
        return run.epoch if goes_on else 0

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        self.log.log(values, step=epoch)

    def _close(self, run: Run, status: str) -> None:
        if status == "FINISHED":
            self.log.summary.update({**final(run), "stopped": run.history.stopped})
        if run.history.notes:
            self.log.summary.update({"notes": "\n".join(run.history.notes)})
        self.log.finish(exit_code={"FINISHED": 0, "FAILED": 1}.get(status, 255))
