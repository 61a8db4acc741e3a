"""Solvers by what they do on a GPU, on tensors of the CPU."""

from __future__ import annotations

import torch

from dflearn.solvers.few_rows import FewRowLP


class FewRowLPInTorch(FewRowLP):
    def _stays_on(self, device: torch.device) -> bool:
        return True
