"""The smoothed LP as its two methods, interior points and dual Newton steps, are given it.

min cᵀw + (μ/2)‖w‖²   s.t.   M w = r on equality rows,  M w ≤ r on inequality rows,   lower ≤ w ≤ upper
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dflearn.kernels.cholesky import SparseFactor, SparseRows
from dflearn.kernels.symbolic import Pattern


class SmoothedSystem(NamedTuple):
    """The part that all instances share: the pattern of the factor, M and Mᵀ by rows, and which rows are inequalities `(m,)`."""

    pattern: Pattern
    by_rows: SparseRows
    by_columns: SparseRows
    inequality: np.ndarray

    @classmethod
    def of(cls, factor: SparseFactor, inequality: np.ndarray) -> SmoothedSystem:
        return cls(factor.pattern, factor.by_rows, factor.by_columns, np.ascontiguousarray(inequality))


class SmoothedTile(NamedTuple):
    """The instances of one tile, costs and decisions scaled to about one: tiles c, lower, upper of n items; r of m;
    mu of 2: μ, and the shortest length that r and the bounds name, |c|/μ where they name none."""

    c: Any
    mu: Any
    r: Any
    lower: Any
    upper: Any
