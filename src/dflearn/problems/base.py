"""The contract of every problem: a program, data for it, and, where it is known, the exact mean of the costs given x."""

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
from dflearn.solvers.task import Decides, DecisionTask


@dataclass(frozen=True)
class Problem(Decides):
    """Configuration only: equal fields mean the same program and the same data, on every machine.

    One stream, `numpy.random.RandomState(seed)`, draws the structure (what all instances share: weights, demands, the
    true model of the costs) and then goes on to draw the data.

    Subclasses are frozen dataclasses that write `name` and the private hooks, and that override `solver` or
    `relaxed_solver` where something better than HiGHS is known. A problem with recorded data writes `_instances` instead of
    the hooks that draw, and one that does not know E[y | x] leaves `_expected_costs` out.
    `dflearn.testing.problems.check_problem` checks them all.
    """

    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise OptionError(f"seed must be at least 0 and below 2³², got {self.seed}")

    @property
    @abstractmethod
    def name(self) -> str:
        """Kind and size, such as "SP-5": what tables call the problem."""

    @property
    def title(self) -> str:
        """What messages call its program: the name, where a problem says nothing else."""
        return self.name

    # -- the program --------------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> Program:
        """The true program, integrality included."""
        return self._build_program(self.structure)

    @property
    def relaxation(self) -> Program:
        """The linear relaxation of the program."""
        return self._relaxation

    @cached_property
    def _relaxation(self) -> Program:
        return self.program.relax()

    def solver(self) -> Solver:
        """A new exact solver of the program: the one to label and to judge with."""
        from dflearn.solvers.highs import HiGHS

        return HiGHS(self.program)

    def relaxed_solver(self) -> Solver:
        """A new exact solver of the relaxation: the cheaper one to train with."""
        from dflearn.solvers.highs import HiGHS

        return HiGHS(self.relaxation)

    def task(self) -> DecisionTask:
        """What is decided, for `fit`, `evaluate` and all others."""
        floor = self.expected_costs if self.has_floor else None
        return DecisionTask(
            self.program.objective, self.solver(), self.relaxed_solver(), self.program, floor, self.name
        )

    @property
    def origin(self) -> dict[str, Any]:
        """Name and configuration as JSON holds them: what data generated here say of themselves."""
        return {"problem": self.name, **{name: _plain(value) for name, value in asdict(self).items()}}

    # -- the data -----------------------------------------------------------------------------------------------

    @property
    def structure(self) -> Mapping[str, np.ndarray]:
        """What was drawn once and is shared by all instances, by name; read-only."""
        return self._drawn[0]

    @cached_property
    def _drawn(self) -> tuple[Mapping[str, np.ndarray], Any]:
        """The structure, and the state in which drawing it left the stream."""
        rng = np.random.RandomState(self.seed)
        structure = self._draw_structure(rng)
        for array in structure.values():
            array.flags.writeable = False
        return structure, rng.get_state()

    def generate(self, count: int, seed: int | None = None, dtype: torch.dtype = torch.float32) -> DecisionDataset:
        """`count` instances: features `(count, …)` and costs `(count, p)`, independent and identically distributed.

        With `seed=None` the stream that drew the structure goes on, which gives the published data. Any `seed` keeps
        the structure and draws fresh features and noise. The same arguments always give the same data; since features
        are drawn before noise, a smaller `count` does not give the first rows of a larger one.
        """
        if count < 0:
            raise OptionError(f"count must not be negative, got {count}")
        if not dtype.is_floating_point:
            raise OptionError(f"dtype must be a floating-point one, got {dtype}")
        features, costs = self._instances(count, seed)
        return DecisionDataset(
            torch.as_tensor(features, dtype=dtype), torch.as_tensor(costs, dtype=dtype), origin=self.origin
        )

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

    # -- what a subclass writes ---------------------------------------------------------------------------------

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
