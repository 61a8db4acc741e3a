"""Davis-Yin iterations as products with dense matrices, wherever torch has tensors: for programs with many rows on a GPU.

With M w̃ = r the scaled, ordered rows, T = (M Mᵀ)⁻¹ M and v as in `iterations`,

    x = T v − (M Mᵀ)⁻¹ r,      z⁺ = κ y − α c − Mᵀ x

A loop is captured as a CUDA graph when it comes for the second time (`Captured`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from dflearn.engine.davis_yin.batch import Answer, Backend, Batch, largest_of
from dflearn.engine.davis_yin.data import SplittingRows


class Dense(Backend):
    """M, T `(m, N)` and (M Mᵀ)⁻¹ `(m, m)`; R `(k, n)` and δ `(n,)` of Q. `Answer.masks` `(limit, count, N)`."""

    def __init__(self, rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(rows, dtype, device)
        M = torch.from_numpy(rows.factor.matrix.toarray()).to(device)
        factor = torch.linalg.cholesky(M @ M.T)
        self.M, self.T = M.to(dtype), torch.cholesky_solve(M, factor).to(dtype)
        self.inverse, Q = torch.cholesky_inverse(factor).to(dtype), rows.quadratic()
        self.R, self.delta, self.captured = self.there(Q.factor.toarray()), self.there(Q.diagonal), Captured()

    def shifted(self, right: Tensor) -> Tensor:
        return times_inverse(right, self.inverse)

    def iterate(self, batch: Batch, limit: int, *, record: bool) -> Answer:
        lines, n, N = self.lines(batch.sides), self.rows.program.n, self.rows.width
        step, delta, z = batch.steps(lines)[:, None], self._delta(batch), batch.c.new_zeros(len(batch.c), N)
        cost, keep = pad(step * batch.c, (0, N - n)), self._keep(step, batch.mu)
        inputs = (z, cost, keep, step, delta, lines.lower, lines.upper, lines.shift)
        with FullPrecision():
            loop = self._loop(limit, record, batch.quadratic)
            z, before, *masks = self.captured((limit, record, batch.quadratic), loop, *inputs)
            size = torch.maximum(largest_of(torch.clamp(before, lines.lower, lines.upper).abs()), batch.least(lines))
            moved = (largest_of((z - before).abs()) / size + z.sum(1) * 0).double()  # not a number where z is none
            w = torch.clamp(z, lines.lower, lines.upper)[:, :n]
            wide = w.double()
            value = (wide * (batch.c.double() + 0.5 * batch.mu * wide)).sum(1)
            if batch.quadratic:
                value = value + 0.5 * (wide * self._times_Q(w, delta).double()).sum(1)
        inside = ((z > lines.lower) & (z < lines.upper)).to(torch.uint8)
        return Answer(z, inside, w, value, moved, step, masks[0] if record else None)

    def back(self, gradient: Tensor, batch: Batch, answer: Answer) -> Tensor:
        n, step = gradient.shape[1], answer.alpha
        with FullPrecision():
            if answer.masks is None:
                kept = pad(gradient * answer.inside[:, :n], (0, self.rows.width - n))
                return -step * self._projected(kept)[:, :n]
            inputs = gradient, answer.masks, self._keep(step, batch.mu), step, self._delta(batch)
            return self.captured(("back", batch.quadratic), self._adjoint(batch.quadratic), *inputs)[0]

    def _loop(self, steps: int, record: bool, quadratic: bool) -> Callable[..., tuple[Tensor, ...]]:
        """A function of z, α c, κ, α, δ, bounds and (M Mᵀ)⁻¹ r: so many iterations. → z, the one before; and the masks."""
        M, T = self.M, self.T.T

        def run(
            z: Tensor, cost: Tensor, keep: Tensor, step: Tensor, delta: Tensor, low: Tensor, high: Tensor, shift: Tensor
        ) -> tuple[Tensor, ...]:
            before, masks = z, []
            less, bias = -cost, -shift[0] if len(shift) == 1 else -shift
            for _ in range(steps):
                y = torch.clamp(z, low, high)
                base = torch.addcmul(less - step * self._times_Q(y, delta) if quadratic else less, keep, y)
                x = torch.addmm(bias, base + (y - z), T)
                before, z = z, torch.addmm(base, x, M, alpha=-1)
                if record:
                    masks.append((z > low) & (z < high))
            return (z, before, torch.stack(masks)) if record else (z, before)

        return run

    def _adjoint(self, quadratic: bool) -> Callable[..., tuple[Tensor, ...]]:
        """The derivative through every iteration: see `iterations.adjoint`."""

        def run(g: Tensor, masks: Tensor, keep: Tensor, step: Tensor, delta: Tensor) -> tuple[Tensor]:
            n = g.shape[1]
            whole = torch.where(masks[-1], pad(g, (0, keep.shape[1] - n)), 0.0)
            total = torch.zeros_like(whole)
            for k in range(len(masks), 0, -1):
                p = self._projected(whole)
                total = total - step * p
                if k > 1:
                    inward = keep * p
                    if quadratic:
                        inward = inward - step * self._times_Q(p, delta)
                    whole = torch.where(masks[k - 2], inward, whole - p)
            return (total[:, :n],)

        return run

    def _delta(self, batch: Batch) -> Tensor:
        return self.delta if batch.q is None else self.delta + self.there(batch.q)

    def _keep(self, step: Tensor, mu: float) -> Tensor:
        """κ `(count, N)`: 1 − α μ of the decisions, 1 of the slacks."""
        n = self.rows.program.n
        return pad((1 - step * mu).expand(-1, n), (0, self.rows.width - n), value=1.0)

    def _times_Q(self, y: Tensor, delta: Tensor) -> Tensor:
        """Q y of the decisions, with zeros for the slacks if y has them."""
        n = self.rows.program.n
        own = y[:, :n]
        return pad((own @ self.R.T) @ self.R + delta * own, (0, y.shape[1] - n))

    def _projected(self, g: Tensor) -> Tensor:
        """P g, P the projection onto the null space of M."""
        return torch.addmm(g, g @ self.T.T, self.M, alpha=-1)


class Captured:
    """Functions of tensors as CUDA graphs, by name and shapes; the last ones are kept. Elsewhere they are called as they are."""

    KEPT = 4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Any, Any] = {}  # the graph, what it reads and what it writes; None after the first call

    def __call__(self, name: Any, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
        first = inputs[0]
        if not first.is_cuda or not first.numel() or torch.cuda.is_current_stream_capturing():
            return function(*inputs)
        stream = torch.cuda.current_stream(first.device)
        key = (name, first.device, stream.cuda_stream, *((part.shape, part.dtype) for part in inputs))
        with self._lock:
            if key not in self._kept:
                while len(self._kept) >= self.KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = None
                return function(*inputs)
            if self._kept[key] is None:
                own = [part.clone() for part in inputs]
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    out = function(*own)
                self._kept[key] = graph, own, out
            graph, own, out = self._kept[key]
            for mine, given in zip(own, inputs, strict=True):
                mine.copy_(given)
            graph.replay()
            return tuple(part.clone() for part in out)


def times_inverse(right: Tensor, inverse: Tensor) -> Tensor:
    """(M Mᵀ)⁻¹ r for each row r."""
    with FullPrecision():
        return right @ inverse


class FullPrecision:
    """Products in full float32, whatever the user allows elsewhere."""

    def __enter__(self) -> None:
        self.was = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self.was
