"""`DavisYin` as on a GPU, on tensors of the CPU, beside the CPU's kernels; and its iteration in plain torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.layers import DavisYin
from dflearn.program import Instance, Program


class InTorch(DavisYin):
    def _stays_on(self, device: torch.device) -> bool:
        return self.tolerance is None


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


def plain(
    program: Program, c: Tensor, mu: float, alpha: float, iterations: int, instance: Any, *, free: bool
) -> tuple[Tensor, Tensor]:
    """The iteration in dense torch, rows as they come, projection by pseudo-inverse; w, and the least distance to a kink `(count,)`.

    free: the Jacobian-free gradient, that of the last iteration.
    """
    slacks, n, count = program.G.shape[0], program.n, len(c)
    sides = program.sides(instance, count)
    top = np.hstack([program.A.toarray(), np.zeros((program.A.shape[0], slacks))])
    matrix = torch.tensor(np.vstack([top, np.hstack([program.G.toarray(), np.eye(slacks)])]))
    inverse = torch.linalg.pinv(matrix, rtol=1e-10) if len(matrix) else matrix.T
    right = torch.tensor(sides.right_hand_sides())
    lower = torch.tensor(np.hstack([np.broadcast_to(sides.lower, (count, n)), np.zeros((count, slacks))]))
    upper = torch.tensor(np.hstack([np.broadcast_to(sides.upper, (count, n)), np.full((count, slacks), np.inf)]))
    hessian = torch.zeros(n + slacks, n + slacks, dtype=torch.float64)
    hessian[:n, :n] = mu * torch.eye(n, dtype=torch.float64) + (
        0 if program.Q is None else torch.tensor(program.Q.matrix.toarray())
    )
    c = torch.nn.functional.pad(c, (0, slacks))
    z, least = torch.zeros_like(c), torch.full((count,), torch.inf, dtype=torch.float64)

    def clip(z: Tensor) -> Tensor:  # its derivative is one strictly inside the bounds, and zero elsewhere
        return torch.where((z > lower) & (z < upper), z, torch.maximum(torch.minimum(z.detach(), upper), lower))

    for _ in range(iterations):
        z = z.detach() if free else z
        x = clip(z)
        v = 2 * x - z - alpha * (c + x @ hessian)
        z = z - x + v - (v @ matrix.T - right) @ inverse.T
        gap = torch.minimum((z - lower).abs(), (z - upper).abs())
        least = torch.minimum(least, torch.where(lower == upper, torch.inf, gap).amin(1).detach())
    return clip(z)[:, :n], least
