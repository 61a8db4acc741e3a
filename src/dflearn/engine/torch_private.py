"""The private names of torch that dflearn uses, in one place: torch has no public ones that do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def current_stream(device: int) -> int:
    """The handle of torch's current stream on a CUDA device, as Triton asks for it: no object is made."""
    stream: int = torch._C._cuda_getCurrentRawStream(device)
    return stream


def current_device() -> int:
    """The number of torch's current CUDA device."""
    number: int = torch._C._cuda_getDevice()
    return number


def outside_of_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `torch.compiler.disable`, which would load the compiler now."""
    outside: Callable[..., Any] = torch._disable_dynamo(function)
    return outside


def gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
    """Γ(shape, 1), as `torch.distributions.Gamma` draws it, which takes no generator."""
    return torch._standard_gamma(shape, generator=generator)
