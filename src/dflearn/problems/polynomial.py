"""The data model that all problems of the paper share: costs that are a polynomial of a linear map of the features."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dflearn.errors import OptionError
from dflearn.problems.base import Problem


@dataclass(frozen=True)
class PolynomialProblem(Problem):
    """x ~ N(0, I) (k),   z = B x / √k + 3,   y = round(level(z) · ε),   ε ~ U(1 − noise, 1 + noise) for each cost.

    `level` is a polynomial of degree `degree`, by default ((z^degree) + 1) / 3.5^degree. A linear predictor cannot
    follow it unless the degree is 1: what it gives up, and where, is what decision-focused training is about.
    Rounding is none by default; a problem that rounds writes both `_round` and its mean over an interval.

    Args:
        features: k, how many features.
        degree: degree of the polynomial, at least 1.
        noise: half-width of the multiplicative noise, at least 0.
        seed: what `Problem` says.
    """

    features: int = field(default=10, kw_only=True)
    degree: int = field(default=6, kw_only=True)
    noise: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(features=self.features, degree=self.degree)
        if not 0 <= self.noise < np.inf:
            raise OptionError(f"noise is a half-width and cannot be {self.noise}")

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (self.features,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        return rng.normal(0, 1, (count, self.features))

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        level = self._level(self._mixed(features))
        return self._round(level * rng.uniform(1 - self.noise, 1 + self.noise, level.shape))

    def _expected_costs(self, features: np.ndarray) -> np.ndarray:
        level = self._level(self._mixed(features))
        ends = level * (1 - self.noise), level * (1 + self.noise)
        low, high = np.minimum(*ends), np.maximum(*ends)  # the level is negative where an odd degree makes it so
        constant = low == high
        width = np.where(constant, 1.0, high - low)
        return np.where(constant, self._round(level), self._integral(low, high) / width)

    def _mixed(self, features: np.ndarray) -> np.ndarray:
        """z = B x / √k + 3.  `(count, k)` → `(count, p)`."""
        return features @ self.structure["B"].T / np.sqrt(self.features) + 3

    def _level(self, z: np.ndarray) -> np.ndarray:
        """The costs before noise and rounding."""
        return (z**self.degree + 1) / 3.5**self.degree

    def _round(self, values: np.ndarray) -> np.ndarray:
        return values

    def _integral(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """∫ round(t) dt from low to high, elementwise; low ≤ high."""
        return (high - low) * (low + (high - low) / 2)


def integral_of_ceiling(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """∫ ⌈t⌉ dt from low to high, elementwise, for low ≤ high of any sign.

    The interval is cut at the integers. With i = ⌈low⌉ < j = ⌈high⌉ the pieces are i on (low, i], then i + 1, …, j − 1
    on whole units, then j on (j − 1, high]; no difference of large numbers is taken.
    """
    i, j = np.ceil(low), np.ceil(high)
    pieces = i * (i - low) + (j - i - 1) * (i + j) / 2 + j * (high - j + 1)
    return np.where(i == j, i * (high - low), pieces)


def require_sizes(**sizes: int) -> None:
    """Every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, (int, np.integer)) or size < 1:
            raise OptionError(f"{name} must be an integer of at least 1, got {size!r}")
