"""The names of losses and layers on offer: known before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from dflearn.errors import OptionError
from dflearn.estimator.methods import LOSSES, WITH_PREDICTED_ROWS

LAYERS = {
    "smoothed": "the LP relaxation with (μ/2)‖w‖² added, solved exactly, with its exact gradient",
    "davis-yin": "the same by 100 iterations of Davis-Yin splitting, differentiated through all of them",
    "perturbed": "the mean decision of the relaxation under noise of scale σ on the costs",
    "relaxed": "the LP relaxation as it is, with gradient zero: subgradients only",
    "exact": "the true program as it is, with gradient zero: subgradients only, and the slowest",
}


def check_choices(losses: Sequence[str], layer: str) -> None:
    """Told before anything is read or solved."""
    for name, asked, known in (
        ("loss", losses, [loss for loss in LOSSES if loss != "mse"]),
        ("layer", [layer], ["auto", *LAYERS]),
    ):
        unknown = [one for one in asked if one not in known]
        if unknown:
            raise OptionError(f"{name} is one of {', '.join(known)}; got {unknown[0]!r}")


def default_losses(*, settled: bool) -> tuple[str, ...]:
    """What `train` trains with; settled: right-hand sides are predicted, or something is decided once the truth is known."""
    return ("task", "quantile") if settled else ("smoothed-spo+", "sce")


def check_rows(losses: Sequence[str]) -> None:
    """Told where right-hand sides are predicted, for which most losses are not defined."""
    wrong = [loss for loss in losses if loss not in WITH_PREDICTED_ROWS]
    if wrong:
        raise OptionError(
            f"loss {wrong[0]!r} is not defined where right-hand sides are predicted, since what is optimal for the truth may be "
            f"infeasible for the prediction: use {', '.join(map(repr, WITH_PREDICTED_ROWS[:-1]))}"
        )
