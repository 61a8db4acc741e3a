"""Constant sparse matrices as differentiable maps of tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.pickling import WithoutCaches


class LinearMap(WithoutCaches):
    """x → M x for a constant sparse M `(rows, columns)`, in the dtype and on the device of x.

    Calling it maps `(*batch, columns)` → `(*batch, rows)`; `transpose` maps back. Both are differentiable.
    """

    made_anew: ClassVar = {"_constants": dict}

    def __init__(self, matrix: sp.csr_array) -> None:
        self.matrix = matrix
        self._constants: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    def _pair(self, like: Tensor) -> tuple[Tensor, Tensor]:
        key = (like.dtype, like.device)
        if key not in self._constants:
            self._constants[key] = (_torch_sparse(self.matrix, like), _torch_sparse(self.matrix.T.tocsr(), like))
        return self._constants[key]

    def __call__(self, x: Tensor) -> Tensor:
        matrix, transpose = self._pair(x)
        return _apply(x, matrix, transpose)

    def transpose(self, v: Tensor) -> Tensor:
        """Mᵀ v, `(*batch, rows)` → `(*batch, columns)`."""
        matrix, transpose = self._pair(v)
        return _apply(v, transpose, matrix)


def _apply(x: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
    result: Tensor = _SparseMap.apply(x, matrix, transpose)  # type: ignore[no-untyped-call]  # torch has no types for it
    return result


class _SparseMap(torch.autograd.Function):
    """x → x Mᵀ for a constant sparse M, whose transpose is at hand for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.pair = (transpose, matrix)
        return (matrix @ x.reshape(x.shape[:-1].numel(), x.shape[-1]).T).T.reshape(*x.shape[:-1], matrix.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _apply(gradient, *ctx.pair), None, None


def _torch_sparse(matrix: sp.csr_array, like: Tensor) -> Tensor:
    coo = matrix.tocoo()
    index = torch.as_tensor(np.vstack(coo.coords).astype(np.int64))
    value = torch.tensor(coo.data, dtype=like.dtype)
    return torch.sparse_coo_tensor(index, value, coo.shape, check_invariants=False).coalesce().to(like.device)
