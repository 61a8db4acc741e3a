"""Matrices and vectors of a program: read, checked, closed to writing; constant sparse matrices as differentiable maps of tensors."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import ProgramError
from dflearn.pickling import WithoutCaches

MatrixLike = npt.ArrayLike | sp.sparray | sp.spmatrix | Tensor
VectorLike = npt.ArrayLike | Tensor


def alike(rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The different rows of `(count, k)`, each with the numbers of those that are equal to it."""
    if not len(rows):
        return []
    different, place = np.unique(rows, axis=0, return_inverse=True)
    place = place.reshape(-1)
    return [(row, np.flatnonzero(place == i)) for i, row in enumerate(different)]


def read_shape(name: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
    except ValueError as error:
        raise ProgramError(f"{name} has lines of different lengths: {error}") from error


def _plain(value: Any) -> Any:
    """A tensor as a numpy array; anything else as it is."""
    return value.detach().to_dense().cpu().numpy() if isinstance(value, Tensor) else value


def read_matrix(name: str, value: Any, columns: int | None = None) -> sp.csr_array:
    if value is None:
        return sp.csr_array((0, columns or 0), dtype=np.float64)
    try:
        matrix = sp.csr_array(_plain(value), dtype=np.float64, copy=True)
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{name} cannot be read as a matrix of numbers: {error}") from error
    if matrix.ndim != 2:
        raise ProgramError(f"{name} must be a matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix.data).all():
        raise ProgramError(f"{name} holds a NaN or an infinity")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


def read_vector(name: str, value: Any, length: int, *, finite: bool) -> np.ndarray:
    try:
        vector = np.array(_plain(value), dtype=np.float64) + 0.0  # −0 becomes 0
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{name} cannot be read as a vector of numbers: {error}") from error
    if vector.ndim == 0:
        vector = np.full(length, float(vector))
    if vector.shape != (length,):
        raise ProgramError(f"{name} must have shape ({length},), got {vector.shape}")
    if np.isnan(vector).any() or (finite and np.isinf(vector).any()):
        where = int(np.flatnonzero(~np.isfinite(vector) if finite else np.isnan(vector))[0])
        wanted = f"{'finite numbers' if finite else 'numbers or ±inf'} only"
        raise ProgramError(f"{name}[{where}] is {vector[where]}: {wanted}")
    vector.flags.writeable = False
    return vector


def read_mask(name: str, value: Any, n: int) -> np.ndarray:
    array = np.asarray(value)
    mask = np.zeros(n, dtype=bool)
    if array.dtype == bool and array.ndim == 0:
        mask[:] = bool(array)
    elif array.dtype == bool and array.shape == (n,):
        mask[:] = array
    elif array.ndim == 1 and (
        array.size == 0 or (np.issubdtype(array.dtype, np.integer) and array.min() >= 0 and array.max() < n)
    ):
        mask[array.astype(np.int64)] = True
    else:
        raise ProgramError(f"{name} must be True, a boolean mask of shape ({n},) or indices below {n}; got {value!r}")
    mask.flags.writeable = False
    return mask


def read_names(field: str, value: Any, count: int, what: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if len(names) != count or not all(isinstance(name, str) for name in names):
        raise ProgramError(f"{field} takes {count} strings, one for each of the {what}; got {len(names)}: {names[:5]}")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ProgramError(f"{field} holds {repeated[0]!r} more than once ({len(repeated)} such names): name each once")
    return names


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
    """x → x Mᵀ for a constant sparse M, whose transpose is at hand for backward."""

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
