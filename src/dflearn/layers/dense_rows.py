"""The rows of a program as dense matrices on a device, and loops over them as CUDA graphs: what `splitting_in_torch` computes with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.layers.splitting import SplittingRows


class Matrices(NamedTuple):
    """The rows on one device in one dtype: M and T `(m, N)`, (M Mᵀ)⁻¹ `(m, m)`; R `(k, n)` and δ `(n,)` of Q, zero without Q."""

    M: Tensor
    T: Tensor
    inverse: Tensor
    R: Tensor
    delta: Tensor

    @classmethod
    def of(cls, rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> Matrices:
        matrix, n, Q = rows.factor.matrix, rows.program.n, rows.program.Q
        M = torch.from_numpy(matrix.toarray()).to(device)
        factor = torch.linalg.cholesky(M @ M.T)
        R = np.zeros((0, n)) if Q is None else Q.factor.toarray()
        delta = np.zeros(n) if Q is None else Q.diagonal

        def there(part: Tensor | np.ndarray) -> Tensor:
            return (part if isinstance(part, Tensor) else torch.tensor(part)).to(device, dtype)

        return cls(
            there(M),
            there(torch.cholesky_solve(M, factor)),
            there(torch.cholesky_inverse(factor)),
            there(R),
            there(delta),
        )


def constants_of(rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> tuple[Matrices, Captured]:
    """Made once for a dtype and a device."""
    if (dtype, device) not in rows.elsewhere:
        rows.elsewhere[dtype, device] = Matrices.of(rows, dtype, device), Captured()
    found: tuple[Matrices, Captured] = rows.elsewhere[dtype, device]
    return found


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


class FullPrecision:
    """Products in full float32, whatever the user allows elsewhere."""

    def __enter__(self) -> None:
        self.was = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self.was
