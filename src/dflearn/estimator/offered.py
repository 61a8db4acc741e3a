"""The names of losses and layers on offer: known before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from dflearn.errors import OptionError
from dflearn.estimator.methods import LOSSES

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
