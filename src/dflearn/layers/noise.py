"""Noise by name: what perturb-and-MAP methods add to utilities."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from dflearn.errors import OptionError

Noise = Literal["gaussian", "gumbel", "sum-of-gamma"]
TERMS = 10  # of the sum of gammas, in place of infinitely many


def check_noise(noise: str, layer: str) -> None:
    if noise not in get_args(Noise):
        raise OptionError(f"{layer} draws noise that is {', '.join(map(repr, get_args(Noise)))}; got {noise!r}")


def draw(noise: Noise, like: Tensor, shape: tuple[int, ...], generator: torch.Generator, kappa: float) -> Tensor:
    """Z of the given shape, independent entries, in the dtype and on the device of `like`.

    gaussian:      N(0, 1)
    gumbel:        −log E, E ~ Exp(1): a choice of one item then has the probabilities of a softmax
    sum-of-gamma:  (1/κ) [Σ_{i ≤ s} Γ(1/κ, κ/i) − log s]: the sum of κ of these is Gumbel as s → ∞, so that a choice
                   of κ items is approximately one by their total utility (Niepert et al., 2021, theorem 1)
    """
    if noise == "gaussian":
        z = torch.randn(shape, generator=generator, dtype=like.dtype)
    elif noise == "gumbel":
        z = -torch.empty(shape, dtype=like.dtype).exponential_(generator=generator).log()
    else:
        # What torch.distributions.Gamma draws with, which takes no generator.
        gamma = torch._standard_gamma(torch.full((TERMS, *shape), 1 / kappa, dtype=like.dtype), generator=generator)
        scale = kappa / torch.arange(1, TERMS + 1, dtype=like.dtype)
        z = ((gamma * scale.view(-1, *[1] * len(shape))).sum(0) - math.log(TERMS)) / kappa
    return z.to(like.device)
