"""Losses and layers by name, with μ and σ relative to the data: what the estimator and `dfl` offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from dflearn.data.scale import Scale
from dflearn.errors import OptionError
from dflearn.estimator.offered import LAYERS, LOSSES
from dflearn.layers.base import Exact, Layer
from dflearn.losses.base import Loss
from dflearn.losses.fenchel_young import FenchelYoung
from dflearn.losses.mse import MSE
from dflearn.losses.regret import Regret
from dflearn.losses.sce import SCE
from dflearn.losses.spo_plus import SmoothedSPOPlus, SPOPlus
from dflearn.losses.squared_decision_error import SquaredDecisionError
from dflearn.program import Program
from dflearn.solvers.task import DecisionTask

Amount = float | Literal["auto"]

# For each loss that takes a layer: the layer it is used with by default, and how it is made.
_LOSSES: dict[str, tuple[str, Callable[[Layer], Loss]]] = {
    "sce": ("smoothed", SCE),
    "sce-plain": ("smoothed", lambda layer: SCE(layer, variant="plain")),
    "spo+": ("relaxed", SPOPlus),
    "smoothed-spo+": ("smoothed", SmoothedSPOPlus),
    "fenchel-young": ("smoothed", FenchelYoung),
    "pfy": ("perturbed", FenchelYoung),
    "regret": ("smoothed", Regret),
    "sqde": ("smoothed", SquaredDecisionError),
}


def make_loss(
    loss: str | Loss,
    layer: str | Layer,
    task: DecisionTask,
    scale: Scale,
    *,
    mu: Amount = "auto",
    sigma: Amount = "auto",
    step: Amount = "auto",
    seed: int = 0,
) -> Loss:
    """The loss of that name through the layer of that name; objects pass through.

    Args:
        loss: one of `LOSSES`.
        layer: one of `LAYERS`, or "auto": the one that suits the loss.
        mu, sigma: in units of the costs, or "auto": those of `scale`.
        step: of "davis-yin"; "auto" leaves it to the layer.
        seed: of the noise of "perturbed".
    """
    if isinstance(loss, Loss):
        return loss
    if loss == "mse":
        return MSE()
    if loss == "cave":
        from dflearn.losses.cave import CaVE

        return CaVE(_program(task, loss))
    if loss not in _LOSSES:
        raise OptionError(f"loss is one of {', '.join(LOSSES)}, or a Loss; got {loss!r}")
    default, make = _LOSSES[loss]
    if isinstance(layer, Layer):
        return make(layer)
    name = default if layer == "auto" else layer
    if name == "exact":
        return make(Exact(task.solver))
    if name == "relaxed":
        return make(Exact(task.relaxed))
    if name == "perturbed":
        from dflearn.layers.perturbed import Perturbed

        noise = scale.sigma if sigma == "auto" else sigma
        return make(Perturbed(task.relaxed, noise, generator=torch.Generator().manual_seed(seed)))
    smoothing = scale.mu if mu == "auto" else mu
    if name == "smoothed":
        from dflearn.layers.smoothed import Smoothed

        return make(Smoothed(_program(task, name), smoothing))
    if name == "davis-yin":
        from dflearn.layers.davis_yin import DavisYin

        length = None if step == "auto" else step
        return make(DavisYin(_program(task, name), smoothing, length, gradient="unrolled"))
    raise OptionError(f"layer is 'auto', one of {', '.join(LAYERS)}, or a Layer; got {layer!r}")


def _program(task: DecisionTask, name: str) -> Program:
    if task.program is None:
        raise OptionError(
            f"{name!r} works on the constraints of a program, and {task.solver!r} knows none: "
            "use layer='exact' or 'perturbed' with loss 'spo+', 'sce' or 'pfy'"
        )
    return task.program
