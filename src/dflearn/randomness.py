"""Where random numbers come from: every argument that draws takes a generator, or a seed for one of its own."""

from __future__ import annotations

import torch

Randomness = torch.Generator | int


def generator_of(source: Randomness) -> torch.Generator:
    """The generator itself, which its owner goes on using; or a new one on the CPU, for a seed."""
    return torch.Generator().manual_seed(source) if isinstance(source, int) else source
