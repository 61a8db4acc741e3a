"""`Anneal`: numbers of layers that change from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.training.callbacks import Callback

if TYPE_CHECKING:
    from dflearn.training.run import Run

Schedule = Callable[[int], float] | Sequence[float]


class Anneal(Callback):
    """Sets μ, σ or λ of the loss's layers before each epoch: `Anneal(mu=lambda epoch: 10 * 0.8**epoch)`.

    The value goes into the epoch's row under its name. It depends on the number of epochs done alone, so that a run that
    goes on from a checkpoint has the values it would have had.

    Args:
        schedules: by the name of a number that a layer lists in `annealed` ("mu", "sigma", "step"): a function of the
            epoch, counted from 0, or a list of values, of which the last stays.
    """

    def __init__(self, **schedules: Schedule) -> None:
        empty = [name for name, schedule in schedules.items() if not callable(schedule) and not len(schedule)]
        if not schedules or empty:
            raise OptionError("Anneal needs a schedule, and a list in it some value: Anneal(mu=[10, 3, 1])")
        self.schedules, self.scheduled = schedules, tuple(schedules)

    def on_start(self, run: Run) -> None:
        layers = [module for module in run.loss.modules() if isinstance(module, Layer)]
        for name in self.schedules:
            if not any(name in layer.annealed for layer in layers):
                known = sorted({number for layer in layers for number in layer.annealed})
                raise OptionError(
                    f"no layer of this loss has a {name!r} to anneal; they have: {', '.join(known) or 'none'}"
                )
        self._set(run)

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        row.update({name: self._value(name, run.epoch - 1) for name in self.schedules})
        self._set(run)

    def _value(self, name: str, epoch: int) -> float:
        schedule = self.schedules[name]
        return float(schedule(epoch) if callable(schedule) else schedule[min(epoch, len(schedule) - 1)])

    def _set(self, run: Run) -> None:
        for module in run.loss.modules():
            if isinstance(module, Layer):
                for name in set(self.schedules) & set(module.annealed):
                    setattr(module, name, self._value(name, run.epoch))
