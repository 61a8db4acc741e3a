from typing import Any

import numpy as np
import pytest

from dflearn.solvers.base import Raw
from dflearn.solvers.highs import HiGHS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many instances each call of HiGHS solved, whoever asked."""
    counts, solve = [], HiGHS._solve

    def watched(self: HiGHS, c: np.ndarray, *others: Any) -> Raw:
        counts.append(len(c))
        return solve(self, c, *others)

    monkeypatch.setattr(HiGHS, "_solve", watched)
    return counts
