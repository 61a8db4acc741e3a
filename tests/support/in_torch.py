"""Solvers by what they do on a GPU, on tensors of the CPU."""

from __future__ import annotations

from torch import Tensor

from dflearn.solvers.few_rows import FewRowLP


class FewRowLPInTorch(FewRowLP):
    def _stays_on(self, y: Tensor) -> bool:
        return isinstance(y, Tensor)
