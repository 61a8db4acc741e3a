"""`Sides`: right-hand sides and bounds of a batch, each shared by all of its instances or with a line of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from dflearn.errors import ProgramError

Side = Literal["b", "h", "lower", "upper"]
SIDES: tuple[Side, ...] = get_args(Side)

NO_LIMIT = 1e30  # what +inf on the right of an inequality is held as
ROUNDING = 1e-9  # how far from what is meant a number may lie, relative to its size: 2.9999999999 is 3


@dataclass(frozen=True, eq=False)
class Sides:
    """b, h, lower and upper in float64: `(k,)` where all instances share one, `(count, k)` where they differ."""

    b: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def parts(self) -> dict[Side, np.ndarray]:
        """The four arrays by name."""
        return {name: getattr(self, name) for name in SIDES}

    @property
    def differing(self) -> tuple[Side, ...]:
        """The parts that differ from instance to instance."""
        return tuple(name for name, part in self.parts().items() if part.ndim == 2)

    @property
    def is_shared(self) -> bool:
        """Whether all instances have the same constraints."""
        return not self.differing

    def row(self, i: int | np.integer) -> Sides:
        """The sides of instance i alone, each `(k,)`."""
        return self.rows(i)

    def rows(self, index: Any) -> Sides:
        """The sides of the instances at `index` (whatever indexes an array); what they share stays as it is."""
        if self.is_shared:
            return self
        return Sides(*(part if part.ndim == 1 else part[index] for part in self.parts().values()))

    def lines(self, name: Side) -> np.ndarray:
        """One part as `(count, k)`, or as `(1, k)` where it is shared: the form that kernels read."""
        return np.atleast_2d(getattr(self, name))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper as `lines`."""
        return self.lines("lower"), self.lines("upper")

    def right_hand_sides(self) -> np.ndarray:
        """b, then h, as one array: `(count, k)`, or `(1, k)` where both are shared."""
        b, h = self.lines("b"), self.lines("h")
        count = max(len(b), len(h)) if min(len(b), len(h)) else 0
        return np.hstack([np.broadcast_to(part, (count, part.shape[1])) for part in (b, h)])


def check_bounds(lower: np.ndarray, upper: np.ndarray) -> None:
    """Every lower bound is at most its upper bound, and neither is the wrong infinity; arrays `(n,)` or `(count, n)`."""
    crossed = np.argwhere((lower > upper) | (lower == np.inf) | (upper == -np.inf))
    if crossed.size:
        where = tuple(int(i) for i in crossed[0])
        low, high = np.broadcast_arrays(lower, upper)
        place = f"variable {where[-1]}" + (f" of instance {where[0]}" if len(where) > 1 else "")
        how = "cross" if low[where] > high[where] else "leave nothing"
        raise ProgramError(f"the bounds of {place} {how}: lower {low[where]}, upper {high[where]}")


def integer_bounds(lower: np.ndarray, upper: np.ndarray, integer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds with those of integer variables rounded inwards, up to rounding errors: 2.9999999999 is 3.

    The same decisions remain. HiGHS 1.15 needs this: given fractional bounds of integer variables, it is wrong about
    some MILPs.
    """
    eps = np.finfo(float).eps
    low = np.where(integer, np.ceil(lower - ROUNDING - 4 * eps * np.abs(lower)), lower) + 0.0
    high = np.where(integer, np.floor(upper + ROUNDING + 4 * eps * np.abs(upper)), upper) + 0.0
    return low, high
