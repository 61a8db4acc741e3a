"""The user's matrices and vectors as the arrays of a program: read, checked, and closed to writing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from torch import Tensor

from dflearn.errors import ProgramError

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
        raise ProgramError(
            f"{name}[{where}] is {vector[where]}: {'finite numbers' if finite else 'numbers or ±inf'} only"
        )
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
        raise ProgramError(
            f"{field} must be {count} strings, one for each of the {what}; got {len(names)}: {names[:5]}"
        )
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ProgramError(f"{field} holds {repeated[0]!r} more than once ({len(repeated)} such names): name each once")
    return names
