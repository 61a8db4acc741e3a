"""The contract of every problem: a program, data for it and, where known, E[y | x]; and the data model of the paper's problems."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.data import DecisionDataset, Split
from dflearn.errors import OptionError, ShapeError
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.task import Decides, DecisionTask


@dataclass(frozen=True)
class Problem(Decides):
    """Configuration only: equal fields mean the same program and the same data, on every machine.

    One stream, `numpy.random.RandomState(seed)`, draws the structure (what all instances share: weights, demands, the
    true model of the costs) and then the data.

    Subclasses are frozen dataclasses that write `name` and the private hooks, and override `solver` or `relaxed_solver` where
    something better than HiGHS is known. A problem with recorded data writes `_instances` instead of the hooks that draw; without
    E[y | x] it leaves `_expected_costs` out. `dflearn.testing.problems.check_problem` checks them all.

    Examples:
        >>> isinstance(problem, dfl.problems.Problem), problem.name, problem.generate(5).costs.shape
        (True, 'SP-3', torch.Size([5, 12]))
    """

    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise OptionError(f"seed must be at least 0 and below 2³², got {self.seed}")

    @property
    @abstractmethod
    def name(self) -> str:
        """Kind and size, such as "SP-5": what tables call the problem."""

    @cached_property
    def program(self) -> Program:
        """The true program, integrality included."""
        return self._build_program(self.structure)

    @cached_property
    def relaxation(self) -> Program:
        """The linear relaxation of the program."""
        return self.program.relax()

    def solver(self) -> Solver:
        """A new exact solver of the program: the one to label and to judge with."""
        return HiGHS(self.program)

    def relaxed_solver(self) -> Solver:
        """A new exact solver of the relaxation: the cheaper one to train with. A program without integers is its own."""
        return HiGHS(self.relaxation) if self.program.is_integer else self.solver()

    def task(self) -> DecisionTask:
        """What is decided, for `fit`, `evaluate` and all others."""
        floor = self.expected_costs if self.has_floor else None
        solvers = self.solver(), self.relaxed_solver()
        return DecisionTask(self.program.objective, *solvers, self.program, floor, self.name)

    @property
    def origin(self) -> dict[str, Any]:
        """Name and configuration as JSON holds them: the origin of data generated here."""
        return {"problem": self.name, **{name: _plain(value) for name, value in asdict(self).items()}}

    @property
    def structure(self) -> Mapping[str, np.ndarray]:
        """What was drawn once and is shared by all instances, by name; read-only."""
        return self._drawn[0]

    @cached_property
    def _drawn(self) -> tuple[Mapping[str, np.ndarray], Any]:
        """The structure, and the state of the stream after drawing it."""
        rng = np.random.RandomState(self.seed)
        structure = self._draw_structure(rng)
        for array in structure.values():
            array.flags.writeable = False
        return structure, rng.get_state()

    def generate(self, count: int, seed: int | None = None, dtype: torch.dtype = torch.float32) -> DecisionDataset:
        """`count` instances: features `(count, …)` and costs `(count, p)`, independent and identically distributed.

        With `seed=None` the stream that drew the structure goes on, which gives the published data. Any `seed` keeps the structure
        and draws fresh features and noise. A smaller `count` does not give the first rows of a larger one.
        """
        if count < 0:
            raise OptionError(f"count must not be negative, got {count}")
        if not dtype.is_floating_point:
            raise OptionError(f"dtype must be a floating-point one, got {dtype}")
        features, costs = (torch.as_tensor(part, dtype=dtype) for part in self._instances(count, seed))
        return DecisionDataset(features, costs, origin=self.origin)

    @property
    def recorded(self) -> dict[str, Any]:
        """Options that pin data which were recorded and not drawn, such as the digest of a file; none by default."""
        return {}

    def split(self, count: int, seed: int, test: int | float, validation: int | float) -> Split:
        """`count` instances in three parts, as a study takes them; arguments as of `DecisionDataset.split`."""
        return self.generate(count).split(seed, test, validation)

    def sample_costs(self, features: Tensor, seed: int) -> Tensor:
        """One draw of the costs for each row of given features.  `(*batch, …)` → `(*batch, p)`."""
        rng = self._stream(seed)
        return self._from_features(features, lambda x: self._draw_costs(rng, x))

    @property
    def has_floor(self) -> bool:
        """Whether E[y | x] is known, and with it the least regret that any predictor can have."""
        return type(self)._expected_costs is not Problem._expected_costs

    def expected_costs(self, features: Tensor) -> Tensor:
        """E[y | x], exact: the best that any predictor can do.  `(*batch, …)` → `(*batch, p)`."""
        return self._from_features(features, self._expected_costs)

    def _stream(self, seed: int | None) -> np.random.RandomState:
        if seed is None:
            rng = np.random.RandomState()
            rng.set_state(self._drawn[1])
            return rng
        # A pair seeds a stream that shares nothing with RandomState(self.seed), even where the two seeds are equal.
        return np.random.RandomState([self.seed, seed])

    def _from_features(self, features: Tensor, costs_of: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        wanted = self._feature_shape
        if features.shape[features.ndim - len(wanted) :] != wanted or not features.is_floating_point():
            raise ShapeError(
                f"features must be floating-point of shape (*batch, {', '.join(map(str, wanted))}); "
                f"got {features.dtype} {tuple(features.shape)}"
            )
        batch = features.shape[: features.ndim - len(wanted)]
        x = features.detach().cpu().double().numpy().reshape(-1, *wanted)
        return torch.as_tensor(costs_of(x)).to(features).reshape(*batch, self.program.p)

    @property
    @abstractmethod
    def _feature_shape(self) -> tuple[int, ...]:
        """Shape of one instance's features."""

    @abstractmethod
    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program: ...

    def _instances(self, count: int, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Features `(count, *feature_shape)` and costs `(count, p)`, float64."""
        rng = self._stream(seed)
        features = self._draw_features(rng, count)
        return features, self._draw_costs(rng, features)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {}

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Features `(count, *feature_shape)`, float64."""
        raise OptionError(f"{self.name} does not draw its data, so there are no new features to draw")

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        """Costs `(count, p)`, float64, one draw for each row of the features."""
        raise OptionError(f"{self.name} does not draw its data, so there are no other costs for these features")

    def _expected_costs(self, features: np.ndarray) -> np.ndarray:
        """E[y | x] `(count, p)`, float64, for each row of the features."""
        raise OptionError(f"{self.name} does not know E[y | x], so it has no floor: ask has_floor first")

    def __getstate__(self) -> dict[str, Any]:
        """The configuration; whatever was cached is drawn and built again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _plain(value: Any) -> Any:
    """Tuples as lists, as they come back from a file."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class PolynomialProblem(Problem):
    """x ~ N(0, I) (k),   z = B x / √k + 3,   y = round(level(z) · ε),   ε ~ U(1 − noise, 1 + noise) for each cost.

    `level` is a polynomial of degree `degree`, by default ((z^degree) + 1) / 3.5^degree, which a linear predictor cannot follow
    unless the degree is 1. A problem that rounds writes both `_round` and its mean over an interval.

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

    With i = ⌈low⌉ < j = ⌈high⌉ the integrand is i on (low, i], then i + 1, …, j − 1 on whole units, then j on (j − 1, high].
    """
    i, j = np.ceil(low), np.ceil(high)
    pieces = i * (i - low) + (j - i - 1) * (i + j) / 2 + j * (high - j + 1)
    return np.where(i == j, i * (high - low), pieces)


def require_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, (int, np.integer)) or size < 1:
            raise OptionError(f"{name} must be an integer of at least 1, got {size!r}")
