"""The losses that take a layer, and the layers they are tested through."""

from __future__ import annotations

from collections.abc import Callable

from dflearn.layers.base import Layer
from dflearn.losses import SCE, FenchelYoung, Loss, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError

LOSSES: dict[str, Callable[[Layer], Loss]] = {
    "regret": Regret,
    "squared decision error": SquaredDecisionError,
    "SPO+": SPOPlus,
    "smoothed SPO+": SmoothedSPOPlus,
    "smoothed SPO+, exact label": lambda layer: SmoothedSPOPlus(layer, label="exact"),
    "SCE": SCE,
    "plain SCE": lambda layer: SCE(layer, variant="plain"),
    "SCE, smoothed label": lambda layer: SCE(layer, label="smoothed"),
    "Fenchel-Young": FenchelYoung,
    "Fenchel-Young, smoothed label": lambda layer: FenchelYoung(layer, label="smoothed"),
}
FLAT = {"regret", "squared decision error", "mean squared decision error"}  # through a layer with zero Jacobian
