"""obj(y, w) = (S y + d)ᵀ w, apart from any constraints."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError, ShapeError
from dflearn.program.arrays import read_matrix, read_vector
from dflearn.program.instance import Instance

Sense = Literal["minimize", "maximize"]
Value = Callable[[np.ndarray, np.ndarray], Any]


class Objective:
    """obj(y, w) = (S y + d)ᵀ w: linear in the predicted costs y (p) and in the decision w (n).

    `S=None` is the identity (n = p); `d=None` is zero. Calling it gives obj, `vector` gives c = S y + d,
    `transpose` gives Sᵀ v. All are differentiable and keep dtype and device of their first argument.

    A decision may cost more than its linear part, where own code solves for it: `value` is then what it truly costs,
    numpy float64 y `(count, p)`, w `(count, n)` → `(count,)`, less being better. `true_cost` and `regret` are those to
    judge decisions by; everything else stays linear.
    """

    value: Value | None = None

    def __init__(
        self, n: int, S: Any = None, d: Any = None, sense: Sense = "minimize", value: Value | None = None
    ) -> None:
        if sense not in ("minimize", "maximize"):
            raise OptionError(f"sense is 'minimize' or 'maximize', got {sense!r}")
        self.n = int(n)
        self.sense: Sense = sense
        self.value = value
        self.S = None if S is None else read_matrix("S", S)
        if self.S is not None and self.S.shape[0] != n:
            raise ProgramError(
                f"S maps the p predicted costs to the {n} variables, so it needs {n} rows; its shape is {self.S.shape}"
            )
        self.p = self.n if self.S is None else self.S.shape[1]
        self.d = read_vector("d", 0.0 if d is None else d, n, finite=True)
        self._constants: dict[tuple[torch.dtype, torch.device], tuple[Tensor, ...]] = {}

    def __repr__(self) -> str:
        return f"Objective(n={self.n}, p={self.p}, sense={self.sense!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_constants": {}}

    @cached_property
    def _single_entry_rows(self) -> bool:
        """Whether every variable depends on at most one cost: then S y is a gather and a product."""
        return self.S is not None and bool((np.diff(self.S.indptr) <= 1).all())

    @cached_property
    def _diagonal(self) -> bool:
        """Whether variable j depends on cost j at most: then S y is a product."""
        if self.S is None or self.S.shape[0] != self.S.shape[1] or not self._single_entry_rows:
            return False
        return bool((self.S.indices == np.flatnonzero(np.diff(self.S.indptr))).all())

    @cached_property
    def _has_d(self) -> bool:
        return bool(self.d.any())

    def _tensors(self, like: Tensor) -> tuple[Tensor, ...]:
        """d, and S as (column, value) per row or as a sparse matrix and its transpose, for this dtype and device."""
        key = (like.dtype, like.device)
        if key not in self._constants:
            d = torch.tensor(self.d, dtype=like.dtype, device=like.device)
            if self.S is None:
                self._constants[key] = (d,)
            elif self._single_entry_rows:
                column, value = np.zeros(self.n, np.int64), np.zeros(self.n)
                filled = np.diff(self.S.indptr) == 1
                column[filled], value[filled] = self.S.indices, self.S.data
                scale = torch.as_tensor(value, dtype=like.dtype, device=like.device)
                self._constants[key] = (d, torch.as_tensor(column, device=like.device), scale)
            else:
                both = (_torch_sparse(self.S, like), _torch_sparse(self.S.T.tocsr(), like))
                self._constants[key] = (d, *both)
        return self._constants[key]

    def vector(self, y: Tensor, instance: Instance | None = None) -> Tensor:
        """c = S y + d.  y `(*batch, p)` → `(*batch, n)`; an instance's own d replaces the program's."""
        if y.shape[-1:] != (self.p,):
            raise ShapeError(f"costs must have shape (*batch, {self.p}); got {tuple(y.shape)}")
        own, *S = self._tensors(y)
        d = own if self._has_d else None
        if instance is not None and instance.d is not None:
            if instance.d.shape[-1:] != (self.n,):
                raise ShapeError(f"the instance's d must have shape (*batch, {self.n}); got {tuple(instance.d.shape)}")
            d = instance.d.to(y)
        if self.S is None:
            c = y
        elif self._single_entry_rows:
            c = (y if self._diagonal else y.index_select(-1, S[0])) * S[1]
        else:
            c = _sparse_map(y, S[0], S[1])
        return c if d is None else c + d

    def transpose(self, v: Tensor) -> Tensor:
        """Sᵀ v: a gradient with respect to c becomes one with respect to y.  `(*batch, n)` → `(*batch, p)`."""
        _, *S = self._tensors(v)
        if self.S is None:
            return v
        if self._diagonal:
            return v * S[1]
        if self._single_entry_rows:
            return v.new_zeros(*v.shape[:-1], self.p).index_add(-1, S[0], v * S[1])
        return _sparse_map(v, S[1], S[0])

    def __call__(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Tensor:
        """obj(y, w) = (S y + d)ᵀ w.  y `(*batch, p)`, w `(*batch, n)` → `(*batch,)`."""
        if w.shape[-1:] != (self.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.n}); got {tuple(w.shape)}")
        return (self.vector(y, instance) * w).sum(-1)

    def true_cost(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Tensor:
        """What w costs under y: `value` where there is one, obj(y, w) otherwise.  `(*batch, p)`, `(*batch, n)` → `(*batch,)`."""
        if self.value is None:
            return self(y, w, instance)
        if instance is not None and instance.d is not None:
            raise OptionError("`value` is told costs and decisions only, so an instance cannot override d beside it")
        batch = w.shape[:-1]
        arrays = (y.expand(*batch, self.p).reshape(-1, self.p), w.reshape(-1, self.n))
        costs = np.asarray(self.value(*(one.detach().cpu().double().numpy() for one in arrays)), dtype=np.float64)
        if costs.shape != (batch.numel(),):
            raise ShapeError(
                f"`value` must give one cost for each of {batch.numel()} decisions; got shape {costs.shape}"
            )
        return torch.as_tensor(costs, device=w.device).reshape(batch)

    def regret(self, y: Tensor, w: Tensor, best: Tensor, instance: Instance | None = None) -> Tensor:
        """What w costs more than `best` under y: obj(y, w − best), so that equal decisions have regret zero, not round-off;
        with `value`, a difference of values."""
        if self.value is None:
            return self(y, w - best, instance)
        return self.true_cost(y, w, instance) - self.true_cost(y, best, instance)


def _sparse_map(x: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
    result: Tensor = _SparseMap.apply(x, matrix, transpose)  # type: ignore[no-untyped-call]  # torch has no types for it
    return result


class _SparseMap(torch.autograd.Function):
    """x → x Mᵀ for a constant sparse M, whose transpose is at hand for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.pair = (transpose, matrix)
        return (matrix @ x.reshape(-1, x.shape[-1]).T).T.reshape(*x.shape[:-1], matrix.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _sparse_map(gradient, *ctx.pair), None, None


def _torch_sparse(matrix: sp.csr_array, like: Tensor) -> Tensor:
    coo = matrix.tocoo()
    index = torch.as_tensor(np.vstack(coo.coords).astype(np.int64))
    value = torch.tensor(coo.data, dtype=like.dtype)
    return torch.sparse_coo_tensor(index, value, coo.shape, check_invariants=False).coalesce().to(like.device)
