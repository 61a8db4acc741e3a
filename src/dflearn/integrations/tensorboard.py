"""`TensorBoardCallback`: a run of `fit` as curves in TensorBoard."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from dflearn.errors import MissingExtraError
from dflearn.integrations.tracking import Tracker, final, parameters
from dflearn.training import Run


class TensorBoardCallback(Tracker):
    """Logs every epoch's numbers as scalars (step = epoch), and what the run was made with as the text `parameters`.

        fit(model, loss, train, callbacks=[TensorBoardCallback("runs/spo+")])

    In the end there are the scalars of the weights that are kept (`final_loss`, …, `final_epoch`) and the text `outcome`,
    with what ended the run and its notes. The file is flushed after each epoch, and closed however the run ends. Where
    `fit` goes on from a checkpoint, so do the curves, and no epoch is shown twice. A new run in a used folder takes the
    place of the one before.

    Args:
        folder: of this run; TensorBoard compares the runs in the folders of `tensorboard --logdir`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        _writer_class()  # so that a missing package is known before training begins
        self.folder = Path(folder)
        self.writer: Any = None

    def _open(self, run: Run) -> int:
        held = [int(path.name.split(".")[3]) for path in self.folder.glob("events.out.tfevents.*")]
        # TensorBoard reads files in the order of their names, which begin with the second: ours is to be the last.
        time.sleep(min(max(max(held, default=0) + 1 - time.time(), 0.0), 1.0))
        goes_on = run.epoch > 0 and bool(held)
        # TensorBoard forgets what it has read of this step and later ones: epochs after the last checkpoint, or all.
        self.writer = _writer_class()(str(self.folder), purge_step=run.epoch + 1 if goes_on else 0)
        if not goes_on:
            table = "".join(f"| {name} | {value} |\n" for name, value in parameters(run).items())
            self.writer.add_text("parameters", f"| | |\n|---|---|\n{table}", 0)
        self.new = not goes_on
        return run.epoch if goes_on else 0

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        self.new = True
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def _close(self, run: Run, status: str) -> None:
        if self.writer is None:
            return
        if status != "FINISHED":
            self.writer.add_text("outcome", status.lower(), run.epoch)
        elif self.new:  # else a finished run was called again, and all is there
            for name, value in final(run).items():
                self.writer.add_scalar(name, value, run.epoch)
            self.writer.add_text(
                "outcome", "\n\n".join([f"stopped: {run.history.stopped}", *run.history.notes]), run.epoch
            )
        self.writer.close()
        self.writer = None


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError(
            "TensorBoardCallback needs the package tensorboard: pip install 'dflearn[tensorboard]'"
        ) from error
    return SummaryWriter
