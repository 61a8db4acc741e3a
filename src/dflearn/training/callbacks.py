"""The callback interface: four moments of a run, and a state that checkpoints keep."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dflearn.training.run import Run


class Callback:
    """Override what you need. `run` gives access to the model, the loss, the optimizer, the data and the history.

    Attributes:
        scheduled: names of numbers of layers that it sets as a function of the epoch alone ("mu"). A run goes on from a checkpoint
            whatever they are in the loss that is given.
    """

    scheduled: Collection[str] = ()

    def on_start(self, run: Run) -> None:
        """Before the first epoch of this call (a resumed run has a history already)."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> bool | None:
        """After each epoch; may add plain values to its row, under names that are not there yet. `True` ends the run."""
        return None

    def on_end(self, run: Run) -> None:
        """After the last epoch, when the weights that are kept are in place."""

    def on_error(self, run: Run, error: BaseException) -> None:
        """When the run ends in an error or is interrupted (`KeyboardInterrupt`), which is raised again afterwards."""

    def state_dict(self) -> dict[str, Any]:
        """What the callback remembers, for checkpoints: tensors and plain values, in lists and dictionaries too."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to what `state_dict` gave; called before `on_start` where a run goes on from a checkpoint that holds it."""
