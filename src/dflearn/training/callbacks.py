"""The callback interface, what `fit` does with callbacks, and `Anneal`: numbers of layers that change from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch import Tensor

from dflearn.errors import CheckpointError, DataError, OptionError
from dflearn.layers.base import Layer
from dflearn.reading import UNREADABLE
from dflearn.training.checkpoint import PLAIN
from dflearn.training.run import Run


class Callback:
    """Override what you need. `run` gives access to the model, the loss, the optimizer, the data and the history.

    Attributes:
        scheduled: names of numbers of layers that it sets as a function of the epoch alone ("mu"). A run goes on from a checkpoint
            whatever they are in the loss that is given.

    Examples:
        >>> class Stop(dfl.Callback):
        ...     def on_epoch_end(self, run, row):
        ...         return run.epoch == 2
        >>> dfl.fit(dfl.models.Linear(10, 12), dfl.losses.MSE(), data, epochs=9, callbacks=[Stop()]).stopped
        'callback'
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


Schedule = Callable[[int], float] | Sequence[float]


class Anneal(Callback):
    """Sets μ, σ or λ of the loss's layers before each epoch: `Anneal(mu=lambda epoch: 10 * 0.8**epoch)`.

    The value goes into the epoch's row under its name. It depends on the number of epochs done alone.

    Args:
        schedules: by the name of a number that a layer lists in `annealed` ("mu", "sigma", "step"): a function of the
            epoch, counted from 0, or a list of values, of which the last stays.

    Examples:
        >>> loss = dfl.losses.SCE(dfl.Smoothed(program, mu=1.0))
        >>> anneal = dfl.training.Anneal(mu=[2.0, 1.0, 0.5])
        >>> [row["mu"] for row in dfl.fit(dfl.models.Linear(10, 12), loss, data, epochs=3, callbacks=[anneal]).rows]
        [2.0, 1.0, 0.5]
    """

    def __init__(self, **schedules: Schedule) -> None:
        empty = [name for name, schedule in schedules.items() if not callable(schedule) and not len(schedule)]
        if not schedules or empty:
            raise OptionError("Anneal needs a schedule, and a list in it some value: Anneal(mu=[10, 3, 1])")
        self.schedules, self.scheduled = schedules, tuple(schedules)

    def on_start(self, run: Run) -> None:
        known = {number for module in run.losses.modules() if isinstance(module, Layer) for number in module.annealed}
        for name in self.schedules:
            if name not in known:
                held = ", ".join(sorted(known)) or "none"
                raise OptionError(f"no layer of this loss has a {name!r} to anneal; they have: {held}")
        self._set(run)

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        row.update({name: self._value(name, run.epoch - 1) for name in self.schedules})
        self._set(run)

    def _value(self, name: str, epoch: int) -> float:
        schedule = self.schedules[name]
        return float(schedule(epoch) if callable(schedule) else schedule[min(epoch, len(schedule) - 1)])

    def _set(self, run: Run) -> None:
        for module in run.losses.modules():
            if isinstance(module, Layer):
                for name in set(self.schedules) & set(module.annealed):
                    setattr(module, name, self._value(name, run.epoch))


def check_callbacks(callbacks: Any) -> None:
    """An error where it is no list of callbacks."""
    if isinstance(callbacks, Callback):
        raise OptionError("callbacks is a list: write callbacks=[…]")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            remedy = "write a class with on_epoch_end(run, row), and pass one of it"
            raise OptionError(f"callbacks is a list of dflearn.Callback objects; it holds {callback!r}: {remedy}")


def end_epoch(callbacks: Sequence[Callback], run: Run, row: dict[str, Any]) -> bool:
    """Let the callbacks see the row and add to it; whether one of them ends the run."""
    stop = False
    for callback in callbacks:
        before = dict(row)
        stop = bool(callback.on_epoch_end(run, row)) or stop
        changed = [name for name, value in before.items() if name not in row or row[name] is not value]
        if changed:
            what = f"{type(callback).__name__} changed what the epoch's row holds already: {', '.join(changed)}"
            raise DataError(f"{what}. A callback may add values, under names of its own")
    return stop


def states_of(callbacks: Sequence[Callback]) -> dict[str, Any]:
    """What callbacks remember, by place and class."""
    return {key: _plain(key, callback.state_dict()) for key, callback in _keyed(callbacks).items()}


def restore(callbacks: Sequence[Callback], run: Run, states: dict[str, Any]) -> None:
    """Give the callbacks what `states_of` took from those of a checkpoint; a note where some are not there now."""
    keyed = _keyed(callbacks)
    try:
        for key, state in states.items():
            if key in keyed:
                keyed[key].load_state_dict(state)
        lost = sorted(key for key, state in states.items() if state and key not in keyed)
    except UNREADABLE as error:
        raise CheckpointError(f"the checkpoint's callbacks do not fit: {error}; delete it to start afresh") from error
    if lost:
        run.note(f"the checkpoint holds the state of callbacks that are not there now: {', '.join(lost)}")


def _keyed(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    return {f"{place} {type(one).__name__}": one for place, one in enumerate(callbacks)}


def _plain(name: str, state: Any) -> Any:
    """The state, where a checkpoint can hold it; an error otherwise."""
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    for part in parts:
        _plain(name, part)
    if not isinstance(state, (dict, list, tuple, Tensor)) and type(state) not in PLAIN:
        remedy = "a checkpoint holds tensors, numbers and text only: convert it in state_dict"
        raise DataError(f"callback {name}: its state holds a {type(state).__name__}, and {remedy}")
    return state
