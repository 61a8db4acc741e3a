"""`DavisYin` as on a GPU, on tensors of the CPU, beside the CPU's kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dflearn.layers import DavisYin
from dflearn.program import Instance, Program


class InTorch(DavisYin):
    def _stays_on(self, device: torch.device) -> bool:
        return True


def both(
    program: Program, y: Tensor, instance: Instance | None = None, start: Any = None, **options: Any
) -> list[list[Tensor]]:
    """Decision, gradient in y, objective, residual and status of each."""
    found = []
    for kind in (DavisYin, InTorch):
        layer, costs = kind(program, **options), y.clone().requires_grad_()
        solution = layer.solve(costs, instance, start)
        weight = torch.randn(solution.decision.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        (slope,) = torch.autograd.grad(solution.decision, costs, weight.to(y))
        parts = (solution.decision, slope, solution.objective, solution.residual, solution.status)
        found.append([part.detach() for part in parts if part is not None])
    return found


def equal(found: list[list[Tensor]], tolerance: float = 1e-9) -> None:
    (w, slope, value, residual, status), own = found
    assert torch.equal(own[4], status)
    for mine, wanted in zip(own[:3], (w, slope, value), strict=True):
        size = 1 + float(wanted.nan_to_num().abs().max())
        torch.testing.assert_close(mine, wanted, rtol=0, atol=tolerance * size, equal_nan=True)
    torch.testing.assert_close(own[3], residual, rtol=1e-5, atol=100 * tolerance)
