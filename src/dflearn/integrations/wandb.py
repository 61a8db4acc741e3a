"""`WandbCallback`: a run of `fit` as a run of Weights & Biases."""

from __future__ import annotations

import json
from typing import Any

from dflearn.errors import MissingExtraError
from dflearn.integrations.tracking import Tracker, final, parameters
from dflearn.training import Run


class WandbCallback(Tracker):
    """Logs every epoch's numbers (step = epoch), what the run was made with as its config, and how it ended as its summary.

        fit(model, loss, train, callbacks=[WandbCallback("shortest path", mode="offline")])

    In the end the summary has the metrics of the weights that are kept (`final_loss`, …, `final_epoch`), `stopped` and `notes`,
    and the run is finished: with exit code 1 where `fit` raised an error, 255 where it was interrupted. Where `fit` goes on
    from a checkpoint, which holds the id of its run, that run is resumed, and no epoch is logged twice.

    Args:
        project: that the run belongs to.
        name: of the run; default: one that W&B makes up.
        options: of `wandb.init`, such as `mode="offline"`, `dir`, `group` or `tags`.
    """

    def __init__(self, project: str = "dflearn", *, name: str | None = None, **options: Any) -> None:
        self.project, self.name, self.options = project, name, options
        self.wandb = _wandb()
        self.run: Any = None
        self.id: str | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"id": self.id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.id = state["id"]

    def _open(self, run: Run) -> int:
        goes_on = run.epoch > 0 and self.id is not None
        self.run = self.wandb.init(
            project=self.project,
            name=self.name,
            config=json.loads(json.dumps({**parameters(run), "config": run.config}, default=str)),
            **({"id": self.id, "resume": "allow"} if goes_on else {}),
            **self.options,
        )
        self.id = self.run.id
        return run.epoch if goes_on else 0

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        self.run.log(values, step=epoch)

    def _close(self, run: Run, status: str) -> None:
        if self.run is None:
            return
        if status == "FINISHED":
            self.run.summary.update({**final(run), "stopped": run.history.stopped})
        if run.history.notes:
            self.run.summary.update({"notes": "\n".join(run.history.notes)})
        self.run.finish(exit_code={"FINISHED": 0, "FAILED": 1}.get(status, 255))
        self.run = None


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("WandbCallback needs the package wandb: pip install wandb") from error
    return wandb
