"""The shortest path through a grid, from one corner to the opposite one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError
from dflearn.problems.polynomial import PolynomialProblem, require_sizes
from dflearn.program import Program
from dflearn.solvers.base import Solver


@dataclass(frozen=True)
class ShortestPath(PolynomialProblem):
    """min over w of yᵀw   s.t.   out(v) − in(v) = 1 at the first node, −1 at the last, 0 elsewhere,   0 ≤ w ≤ 1.

    Nodes form a grid of `rows` × `columns`, numbered row by row; edges go east and south, row by row: first the east
    edges of a row, then its south edges. The program is linear: its vertices are paths.
    Costs: B ~ Bernoulli(½);  y = ((z^degree) + 1) / 3.5^degree · ε, all positive where the degree is even.
    Drawn in the order B, x, ε. SP-k of the paper is the k × k grid.
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
        from dflearn.solvers.oracles import DagShortestPath

        return DagShortestPath.of(self.program)

    def relaxed_solver(self) -> Solver:
        return self.solver()  # the program is its own relaxation

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"B": rng.binomial(1, 0.5, (len(self.edges()), self.features))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        edges, nodes = self.edges(), self.rows * self.columns
        number = np.arange(len(edges))
        entries = np.concatenate([np.ones(len(edges)), -np.ones(len(edges))])
        places = (edges.T.reshape(-1), np.concatenate([number, number]))
        A = sp.csr_array((entries, places), shape=(nodes, len(edges)))
        b = np.zeros(nodes)
        b[0], b[-1] = 1, -1
        return Program(A=A, b=b, upper=1, name=self.name)
