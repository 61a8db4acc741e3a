"""`MLflowCallback`: a run of `fit` as a run of MLflow."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from dflearn.errors import MissingExtraError
from dflearn.integrations.tracking import Tracker, final, parameters
from dflearn.training import Run

ALLOW_FOLDER = "MLFLOW_ALLOW_FILE_STORE"
LONGEST = 500  # characters of a parameter or tag that every store of MLflow takes


class MLflowCallback(Tracker):
    """Logs every epoch's numbers as metrics (step = epoch), what the run was made with as parameters and `config.json`.

        fit(model, loss, train, callbacks=[MLflowCallback("runs", experiment="shortest path")])

    In the end there are the metrics of the weights that are kept (`final_loss`, …, `final_epoch`), the tags `stopped` and
    `notes`, and the run is finished; failed where `fit` raised an error; killed where it was interrupted. Where `fit` goes
    on from a checkpoint, so does the MLflow run of the same configuration, and no epoch is logged twice.

    Args:
        uri: a folder for the runs, or the address of a server or database; default: what MLflow is set to.
        experiment: the experiment that the run belongs to; made where there is none of this name.
        name: of the run; default: one that MLflow makes up.
    """

    def __init__(
        self, uri: str | os.PathLike[str] | None = None, *, experiment: str = "dflearn", name: str | None = None
    ) -> None:
        self.uri, self.experiment, self.name = uri, experiment, name
        self.client = _client(uri)
        self.run_id: str | None = None

    def _open(self, run: Run) -> int:
        known = self.client.get_experiment_by_name(self.experiment)
        place = self.client.create_experiment(self.experiment) if known is None else known.experiment_id
        key = hashlib.sha256(json.dumps(run.config, default=str, sort_keys=True).encode()).hexdigest()[:16]
        if run.epoch:  # it goes on from a checkpoint
            query = f"tags.`dflearn.config` = '{key}'"
            found = self.client.search_runs([place], query, max_results=1, order_by=["attributes.start_time DESC"])
            if found:
                self.run_id = found[0].info.run_id
                self.client.update_run(self.run_id, status="RUNNING")
                steps = [metric.step for metric in self.client.get_metric_history(self.run_id, "loss")]
                return max(steps, default=0)
        self.run_id = self.client.create_run(place, run_name=self.name, tags={"dflearn.config": key}).info.run_id
        for name, value in parameters(run).items():
            self.client.log_param(self.run_id, name, str(value)[:LONGEST])
        self.client.log_dict(self.run_id, run.config, "config.json")
        return 0

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, epoch) for name, value in values.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def _close(self, run: Run, status: str) -> None:
        if self.run_id is None:
            return
        if status == "FINISHED":
            values = final(run)
            held = self.client.get_run(self.run_id).data.metrics
            if held.get("final_epoch") != values.get("final_epoch"):
                self._log(run.epoch, values)
            self.client.set_tag(self.run_id, "stopped", run.history.stopped)
        if run.history.notes:
            self.client.set_tag(self.run_id, "notes", "\n".join(run.history.notes))
        self.client.set_terminated(self.run_id, status)
        self.run_id = None


def _client(uri: str | os.PathLike[str] | None) -> Any:
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtraError("MLflowCallback needs the package mlflow: pip install 'dflearn[mlflow]'") from error
    address = None if uri is None else str(uri)
    if address is not None and not re.match(r"databricks|[\w+-]{2,}:", address):
        address = Path(address).absolute().as_uri()
    if address is None or not address.startswith("file:"):
        return MlflowClient(tracking_uri=address)
    # MLflow 3 opens a plain folder only where a variable says that it is meant. Who names one here means it.
    meant = ALLOW_FOLDER in os.environ
    os.environ.setdefault(ALLOW_FOLDER, "true")
    try:
        return MlflowClient(tracking_uri=address)
    finally:
        if not meant:
            del os.environ[ALLOW_FOLDER]
