"""Cheapest paths through grids: `ShortestPath` with costs of edges, `Terrain` with costs of tiles that are seen on a drawn image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError
from dflearn.problems.base import PolynomialProblem, Problem, require_sizes
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.callable import from_callable
from dflearn.solvers.oracles import DagShortestPath


@dataclass(frozen=True)
class ShortestPath(PolynomialProblem):
    """min over w of yᵀw   s.t.   out(v) − in(v) = 1 at the first node, −1 at the last, 0 elsewhere,   0 ≤ w ≤ 1.

    Nodes form a grid of `rows` × `columns`, numbered row by row; edges go east and south, row by row: first the east
    edges of a row, then its south edges. The program is linear: its vertices are paths.
    Costs: B ~ Bernoulli(½);  y = ((z^degree) + 1) / 3.5^degree · ε, all positive where the degree is even.
    Drawn in the order B, x, ε. SP-k of the paper is the k × k grid.

    Args:
        rows, columns: of the grid.
        features, degree, noise, seed: as of `PolynomialProblem`.

    Examples:
        >>> dfl.problems.ShortestPath(5, 5, seed=1).program.n
        40
    """

    rows: int
    columns: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(rows=self.rows, columns=self.columns)
        if self.rows * self.columns < 2:
            raise OptionError("a grid of one node has no path: rows or columns must be at least 2")

    @property
    def name(self) -> str:
        return f"SP-{self.rows}" if self.rows == self.columns else f"SP-{self.rows}x{self.columns}"

    def edges(self) -> np.ndarray:
        """Tail and head of every edge, int64 `(edges, 2)`, in the order of the variables."""
        node = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        parts = []
        for row in range(self.rows):
            parts.append(np.stack([node[row, :-1], node[row, 1:]], axis=1))
            if row + 1 < self.rows:
                parts.append(np.stack([node[row], node[row + 1]], axis=1))
        return np.concatenate(parts)

    def solver(self) -> Solver:
        return DagShortestPath(self.program)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"B": rng.binomial(1, 0.5, (len(self.edges()), self.features))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        A, b = _flow(self.edges(), self.rows * self.columns)
        return Program(A=A, b=b, upper=1, name=self.name)


def _flow(arcs: np.ndarray, nodes: int) -> tuple[sp.csr_array, np.ndarray]:
    """The rows out(v) − in(v) = 1 at the first node, −1 at the last, 0 elsewhere, for arcs (tail, head) `(arcs, 2)`."""
    number, one = np.arange(len(arcs)), np.ones(len(arcs))
    places = (arcs.T.reshape(-1), np.concatenate([number, number]))
    b = np.zeros(nodes)
    b[0], b[-1] = 1, -1
    return sp.csr_array((np.concatenate([one, -one]), places), shape=(nodes, len(arcs))), b


STEPS = tuple((down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0))
#: What it costs to enter a tile, and its mean colour: water, forest, rock, sand, grass.
COSTS = np.array([9.2, 7.7, 4.5, 2.0, 1.2])
COLOURS = np.array([[0.15, 0.3, 0.7], [0.1, 0.35, 0.15], [0.45, 0.42, 0.4], [0.8, 0.7, 0.45], [0.4, 0.65, 0.25]])


@dataclass(frozen=True)
class Terrain(Problem):
    """min over w of (S y)ᵀw   s.t.   out(v) − in(v) = 1 at the first tile, −1 at the last, 0 elsewhere,   0 ≤ w ≤ 1.

    A map of side × side tiles; arcs lead from each tile to its up to eight neighbours. y is the cost of *entering* each tile, as in
    the Warcraft maps of Vlastelica et al. (2020). Features are drawn images `(3, side · pixels, side · pixels)` between 0 and 1.

    Drawn, map by map: heights, smoothed over neighbours, whose quantiles give the kind of each tile; its cost times
    U(1 − noise, 1 + noise); pixels of the kind's colour with light that differs from tile to tile, and with grain.

    Args:
        side: tiles.
        pixels: of a tile, each way.
        noise: of the costs.
        seed: of the maps.
        grain: deviation of the noise of each pixel, and of the light of each tile.

    Examples:
        >>> dfl.problems.Terrain(4).generate(2).features.shape
        torch.Size([2, 3, 24, 24])
    """

    side: int
    pixels: int = field(default=6, kw_only=True)
    noise: float = field(default=0.25, kw_only=True)
    grain: float = field(default=0.15, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(side=self.side, pixels=self.pixels)
        if self.side < 2:
            raise OptionError("a map of one tile has no way across: side must be at least 2")
        if not (0 <= self.noise < 1 and 0 <= self.grain < np.inf):
            raise OptionError(f"noise is at least 0 and below 1, grain at least 0; got {self.noise} and {self.grain}")

    @property
    def name(self) -> str:
        return f"terrain-{self.side}"

    def arcs(self) -> np.ndarray:
        """Tail and head of every arc, int64 `(arcs, 2)`, in the order of the variables: direction by direction."""
        tile = np.arange(self.side**2).reshape(self.side, self.side)
        parts = []
        for down, right in STEPS:
            tails, heads = (tile[_shifted(sign * down), _shifted(sign * right)] for sign in (1, -1))
            parts.append(np.stack([tails.reshape(-1), heads.reshape(-1)], axis=1))
        return np.concatenate(parts)

    def solver(self) -> Solver:
        """Bellman and Ford, all instances at once."""
        way = CheapestWay(self.side)
        return from_callable(way, self.program.n, S=self.program.S, batched=True, name=f"CheapestWay({self.side})")

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (3, self.side * self.pixels, self.side * self.pixels)

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        arcs, tiles = self.arcs(), self.side**2
        A, b = _flow(arcs, tiles)
        S = sp.csr_array((np.ones(len(arcs)), (np.arange(len(arcs)), arcs[:, 1])), shape=(len(arcs), tiles))
        return Program(A=A, b=b, upper=1, S=S, name=self.name)

    def _instances(self, count: int, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        rng, side, pixels = self._stream(seed), self.side, self.pixels
        rough = rng.normal(0, 1, (count, side + 2, side + 2))
        height = np.sum([rough[:, i : i + side, j : j + side] for i in range(3) for j in range(3)], axis=0)
        edges = np.quantile(height, np.linspace(0, 1, len(COSTS) + 1)[1:-1], axis=(1, 2)) if count else np.empty((4, 0))
        kind = (height[None] > edges[:, :, None, None]).sum(0)
        costs = COSTS[kind] * rng.uniform(1 - self.noise, 1 + self.noise, kind.shape)
        light = 1 + self.grain * rng.normal(0, 1, (count, 1, side, side))
        image = (COLOURS[kind].transpose(0, 3, 1, 2) * light).repeat(pixels, axis=2).repeat(pixels, axis=3)
        image = np.clip(image + self.grain * rng.normal(0, 1, image.shape), 0, 1)
        return image, costs.reshape(count, side**2)


def _shifted(step: int) -> slice:
    """Of a row of tiles, those from which a step of −1, 0 or 1 stays on the map."""
    return slice(max(0, -step), -step if step > 0 else None)


@dataclass(frozen=True)
class CheapestWay:
    """Costs of the arcs of `Terrain`, `(count, arcs)` → the cheapest path from the first tile to the last, likewise.

    Negative costs, which noise and 2ŷ − y may have, count as zero: with them shortest *paths* are hard to find.
    """

    side: int

    @cached_property
    def _arcs(self) -> tuple[np.ndarray, np.ndarray]:
        """For each direction and tile, the arc that comes in from there, or −1, `(8, tiles)`; and the tails of arcs."""
        arcs = Terrain(self.side).arcs()
        entering = np.full((len(STEPS), self.side**2), -1)
        step = (arcs[:, 1] // self.side - arcs[:, 0] // self.side, arcs[:, 1] % self.side - arcs[:, 0] % self.side)
        direction = np.array([STEPS.index((int(down), int(right))) for down, right in zip(*step, strict=True)])
        entering[direction, arcs[:, 1]] = np.arange(len(arcs))
        return entering, arcs[:, 0]

    def __call__(self, c: np.ndarray) -> np.ndarray:
        entering, tails = self._arcs
        count, tiles = len(c), self.side**2
        cost = np.concatenate([np.maximum(c, 0), np.full((count, 1), np.inf)], axis=1)[:, entering]
        before = np.append(tails, 0)[entering]  # the tile that each of them comes from
        distance, arrived = np.full((count, tiles), np.inf), np.zeros((count, tiles), int)
        distance[:, 0] = 0
        while True:
            found = distance[:, before] + cost
            best = found.argmin(1)
            value = np.take_along_axis(found, best[:, None], 1)[:, 0]
            better = value < distance
            if not better.any():
                break
            distance, arrived = np.where(better, value, distance), np.where(better, best, arrived)
        w, at, row = np.zeros_like(c), np.full(count, tiles - 1), np.arange(count)
        while (at != 0).any():
            on = at != 0
            arc = entering[arrived[row[on], at[on]], at[on]]
            w[row[on], arc] = 1
            at[on] = tails[arc]
        return w
