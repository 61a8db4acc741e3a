"""An interior-point method in torch with one batched dense Cholesky factor a step: a yardstick for `gpu_peers.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

MU = 1.0
STEPS, LITTLE, MUCH = 60, 1e-15, 1e-9
LEAST_GAP = 1e-17  # less than rounding leaves of one


def solver(given: dict[str, Any], c: np.ndarray, gap_limit: float = 1e-16) -> Callable[[], Tensor]:
    """min cᵀw + (μ/2)‖w‖² over M (w, s) = r and bounds, forward, and back on the face that its last point shows.

    gap_limit: the mean product of a gap and its multiplier, beside 1 + the largest cost, from which on an instance rests.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    M, r = (torch.from_numpy(part).to(device) for part in (given["M"].toarray(), given["r"]))
    low, high = (torch.from_numpy(part).to(device) for part in given["ends"])
    n, N = c.shape[1], M.shape[1]
    pad = torch.nn.functional.pad
    costs = pad(torch.from_numpy(c), (0, N - n)).to(device)
    mu = pad(torch.full((n,), MU, dtype=torch.float64), (0, N - n)).to(device)
    some_low, some_high = torch.isfinite(low), torch.isfinite(high)
    low0, high0 = torch.where(some_low, low, 0.0), torch.where(some_high, high, 0.0)
    incoming = pad(torch.linspace(-1, 1, n, dtype=torch.float64), (0, N - n)).to(device)

    def factor(theta: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        """Of M Θ Mᵀ, its diagonal scaled to ones, and a little more."""
        system = (M * theta[:, None, :]) @ M.T
        scale = system.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300).rsqrt()
        system *= scale[:, :, None] * scale[:, None, :]
        system.diagonal(dim1=-2, dim2=-1).add_(more[:, None])
        return torch.linalg.cholesky_ex(system)[0], scale

    def solved(L: tuple[Tensor, Tensor], right: Tensor) -> Tensor:
        factor, scale = L
        return scale * torch.cholesky_solve((scale * right)[..., None], factor)[..., 0]

    def direction(tl: Tensor, tu: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, ...]:
        theta, L, slope, missing, gl, gu, zl, zu = state
        right = theta * (tl / gl * some_low - tu / gu * some_high - slope)
        dy = solved(L, right @ M.T - missing)
        dw = right - theta * (dy @ M)
        return dw, dy, (tl - zl * dw) / gl * some_low, (tu + zu * dw) / gu * some_high

    def longest(step: tuple[Tensor, ...], state: tuple[Any, ...]) -> Tensor:
        (dw, dzl, dzu), (gl, gu, zl, zu) = step, state[4:]
        shares = (
            -dw / gl * some_low, dw / gu * some_high, -dzl / zl.clamp(min=1e-300) * some_low, -dzu / zu.clamp(min=1e-300) * some_high,
        )  # fmt: skip
        return 1 / torch.stack([part.amax(1) for part in shares]).amax(0).clamp(min=1.0)

    def run() -> Tensor:
        count = len(costs)
        middle = torch.where(
            some_low & some_high,
            (low0 + high0) / 2,
            torch.where(some_low, low0 + 1, torch.where(some_high, high0 - 1, 0.0)),
        )
        w, y = middle.expand(count, N).clone(), costs.new_zeros(count, len(r))
        zl, zu = some_low.double().expand(count, N).clone(), some_high.double().expand(count, N).clone()
        more = torch.full(
            (count,), LITTLE, dtype=torch.float64, device=device
        )  # where a step was no number, ten times as much
        pairs = float(some_low.sum() + some_high.sum())
        for _ in range(STEPS):
            gl, gu = (
                torch.where(some, gap.clamp(min=LEAST_GAP), 1.0)
                for some, gap in ((some_low, w - low0), (some_high, high0 - w))
            )
            slope, missing = costs + mu * w + y @ M - zl + zu, r - w @ M.T
            gap = ((gl * zl * some_low).sum(1) + (gu * zu * some_high).sum(1)) / pairs
            size, off = 1 + costs.abs().amax(1), torch.maximum(slope.abs().amax(1), missing.abs().amax(1))
            going = (((gap > gap_limit * size) | (off > 1e-9 * size)) & (more < MUCH))[:, None]
            if not bool(going.any()):
                break
            theta = 1 / (mu + zl / gl + zu / gu)
            state = (theta, factor(theta, more), slope, missing, gl, gu, zl, zu)
            dw, dy, dzl, dzu = direction(-gl * zl, -gu * zu, state)
            a = longest((dw, dzl, dzu), state)[:, None]
            after = (
                ((gl + a * dw) * (zl + a * dzl) * some_low).sum(1) + ((gu - a * dw) * (zu + a * dzu) * some_high).sum(1)
            ) / pairs
            aim = (gap * (after / gap.clamp(min=1e-300)).clamp(0, 1) ** 3)[:, None]
            dw, dy, dzl, dzu = direction(aim - gl * zl - dw * dzl, aim - gu * zu + dw * dzu, state)
            a = 0.9995 * longest((dw, dzl, dzu), state)[:, None]
            old, new = (w, y, zl, zu), (w + a * dw, y + a * dy, zl + a * dzl, zu + a * dzu)
            able = torch.stack([part.sum(1) for part in new]).isfinite().all(0)
            more = torch.where(able, more, 10 * more)
            going = going & able[:, None]
            w, y, zl, zu = (torch.where(going, after, before) for before, after in zip(old, new, strict=True))
        inside = (gl > zl) & (gu > zu)
        theta = torch.where(inside, 1 / mu.clamp(min=1e-10), 0.0)  # slacks are free
        v = theta * incoming
        _ = v - theta * (solved(factor(theta, more), v @ M.T) @ M)
        if device == "cuda":
            torch.cuda.synchronize()
        return w[:, :n]

    return run
