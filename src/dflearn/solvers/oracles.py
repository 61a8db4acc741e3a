"""Exact solvers for programs of a known shape: shortest paths, the k best; `few_rows` has more.

`of(program)` recognizes the shape, or refuses and says why. Where one fits, it is faster than a general solver by orders
of magnitude, and just as exact.
"""

from __future__ import annotations

from abc import abstractmethod
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError
from dflearn.program import Instance, Program
from dflearn.program.sides import ROUNDING, Sides
from dflearn.solvers.base import Raw, Solution, Status, check_costs, check_instance, check_start
from dflearn.solvers.gate import Certified
from dflearn.solvers.graph import Graph


class Oracle(Certified):
    """A solver that knows the program's structure. It works on tensors, on the device of the costs.

    Its decisions are integral, and optimal for the relaxation: so they are for the integer program.

    Instances may have their own d; those with constraints of their own are HiGHS's. Subclasses write `_decide`.
    """

    on_devices = True

    def __init__(self, program: Program) -> None:
        refuse_quadratic(type(self).__name__, program)
        if program.predicts_rows:
            raise refusal(type(self).__name__, program, "its right-hand sides are predicted")
        self.program, self.objective = program, program.objective
        self._plain = program.S is None and not program.d.any()

    @property
    def identity(self) -> str:
        return type(self).__name__

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        begun = perf_counter()
        batch = check_costs(y, self.objective)
        check_start(start, batch, 0)
        c = y.detach()
        if instance is not None:
            check_instance(instance, batch)
            if instance.q is not None:
                return self._solve_bent(y, instance, start)
            if not self.program.sides(instance, batch.numel()).is_shared:
                return super().solve(y, instance, start)
        if not self._plain or (instance is not None and instance.d is not None):
            c = self.objective.vector(c.double(), instance)
        # At a microsecond per instance, tensor operations that change nothing would be most of the time.
        flat = c.ndim == 2
        decision, value, sure = self._decide(c if flat else c.reshape(-1, self.objective.n))
        if not sure.all():
            return super().solve(y, instance, start)
        if decision.dtype != y.dtype:
            decision = decision.to(y.dtype)
        if not flat:
            decision, value = decision.reshape(*batch, self.objective.n), value.reshape(batch)
        return Solution(
            decision=decision,
            status=torch.zeros(batch, dtype=torch.int8),
            objective=value.cpu(),
            bound=value.cpu().clone(),
            fallback=torch.zeros(batch, dtype=torch.bool),
            seconds=perf_counter() - begun,
        )

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        out = Raw.empty(*c.shape)
        if not sides.is_shared:
            return self.handed_over(c, sides, out)
        decision, value, sure = self._decide(torch.from_numpy(c))
        out.decision[:], out.objective[:], out.bound[:], out.status[:] = decision, value, value, int(Status.OPTIMAL)
        return self.handed_over(c, sides, out, sure)

    @abstractmethod
    def _decide(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """c `(count, n)` → the optimal decision `(count, n)`, its objective, float64 `(count,)`, and whether it passes the rule of
        `certify`, bool `(count,)`."""


class DagShortestPath(Oracle):
    """The shortest path from `source` to `target` on a directed graph without cycles; costs may be negative.

    Args:
        tails, heads: where each arc begins and ends, integers `(arcs,)`.
        source, target: two nodes.
        nodes: how many nodes there are; by default, as many as the arcs name.
    """

    def __init__(self, tails: Any, heads: Any, source: int, target: int, nodes: int | None = None) -> None:
        self._take(Graph(tails, heads, source, target, nodes))
        super().__init__(self.graph.program())

    @classmethod
    def of(cls, program: Program) -> DagShortestPath:
        """The oracle for a program that sends one unit of flow through an acyclic graph: rows are nodes, columns arcs."""
        oracle = cls.__new__(cls)
        oracle._take(Graph.of(program))
        Oracle.__init__(oracle, program)
        return oracle

    def _take(self, graph: Graph) -> None:
        self.graph = graph
        self._incoming = graph.incoming()

    def _decide(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        if c.device.type != "cpu":
            return self._decide_by_levels(c)
        from dflearn.kernels.shortest_path import shortest_paths

        if c.dtype not in (torch.float32, torch.float64):
            c = c.double()
        decision = torch.zeros_like(c, memory_format=torch.contiguous_format)
        value, sure = torch.empty(len(c), dtype=torch.float64), np.empty(len(c), bool)
        shortest_paths(*self._incoming, c.contiguous().numpy(), decision.numpy(), value.numpy(), sure)
        return decision, value, sure

    def _decide_by_levels(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """The same in plain torch, for any device: all nodes at the same depth at once, then all paths back at once."""
        graph, count, last = self.graph, len(c), self.graph.size - 1
        distance = torch.zeros(count, graph.size, dtype=torch.float64, device=c.device)
        # One column more than arcs: a path that is back at the source goes on along an arc that is none.
        chosen = torch.full((count, graph.size), graph.arcs, device=c.device)
        decision = torch.zeros(count, graph.arcs + 1, dtype=c.dtype, device=c.device)
        sure = torch.ones(count, dtype=torch.bool, device=c.device)
        levels, tail = graph.levels(c.device)
        for nodes, arcs, tails in levels:
            here, cost = distance[:, tails], c[:, arcs].double()
            best, which = (here + cost).min(-1)
            distance[:, nodes] = best
            sure &= (best.unsqueeze(-1) <= here + cost).all(-1).all(-1)  # the check of `kernels.shortest_path`
            chosen[:, nodes] = arcs.expand(count, *arcs.shape).gather(-1, which.unsqueeze(-1)).squeeze(-1)
        node = torch.full((count, 1), last, device=c.device)
        for _ in range(graph.depth):
            arc = chosen.gather(1, node)
            decision.scatter_(1, arc, 1.0)
            node = tail[arc]
        value = distance[:, last]
        return decision[:, : graph.arcs].contiguous(), value, (sure & value.isfinite()).cpu().numpy()


class TopK(Oracle):
    """The k items of least cost: min cᵀw  s.t.  Σ w = k,  0 ≤ w ≤ 1.

    With `at_most` the constraint is Σ w ≤ k, so that only items of negative cost are chosen.
    """

    def __init__(self, n: int, k: int, *, at_most: bool = False) -> None:
        if not 0 < k <= n:
            raise OptionError(f"k must be between 1 and the {n} items; got {k}")
        row: dict[str, Any] = {"G": np.ones((1, n)), "h": [k]} if at_most else {"A": np.ones((1, n)), "b": [k]}
        self._take(Program(**row, upper=1, integer=True, name=f"TopK-{n}x{k}"), k, at_most)

    @classmethod
    def of(cls, program: Program) -> TopK:
        """The oracle for a program with the one constraint Σ w = k or Σ w ≤ k and 0 ≤ w ≤ 1, k an integer."""
        at_most = program.G.shape[0] == 1
        row, side = (program.G, program.h) if at_most else (program.A, program.b)
        if program.A.shape[0] + program.G.shape[0] != 1:
            raise refusal("TopK", program, f"it has {program.A.shape[0] + program.G.shape[0]} rows, not one")
        if row.nnz != program.n or np.ptp(row.data) or row.data[0] <= 0:
            raise refusal("TopK", program, "the coefficients of its row are not all equal and positive")
        if program.lower.any() or (program.upper != 1).any():
            raise refusal("TopK", program, "its bounds are not 0 and 1")
        k = side[0] / row.data[0]
        whole = int(np.rint(k))
        if abs(k - whole) > ROUNDING * whole or not 0 < whole <= program.n:  # 3 · 0.1 / 0.1 is 3
            raise refusal("TopK", program, f"k is {k:g}, not an integer between 1 and {program.n}")
        oracle = cls.__new__(cls)
        oracle._take(program, whole, at_most)
        return oracle

    def _take(self, program: Program, k: int, at_most: bool) -> None:
        super().__init__(program)
        self.k, self.at_most = k, at_most

    def _decide(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """The k-th cost, in the unit of the row, is the price that proves the choice by the rule of `certify`: no other item may
        cost less. Of an inequality it counts below zero only, and no item that costs more than nothing is chosen."""
        least = c.topk(self.k, largest=False)
        chosen = (least.values < 0).to(c.dtype) if self.at_most else torch.ones_like(least.values)
        decision = torch.zeros_like(c).scatter_(-1, least.indices, chosen)
        others, value = c.scatter(-1, least.indices, torch.inf), (least.values.double() * chosen).sum(-1)
        sure = others.amin(-1) >= least.values[:, -1]
        return decision, value, sure.cpu().numpy() & np.isfinite(value.cpu().numpy())


def refuse_quadratic(oracle: str, program: Program) -> None:
    """An error where the objective has a quadratic part, for solvers that know linear ones alone."""
    if program.Q is not None:
        raise refusal(oracle, program, "its objective is quadratic; use HiGHS, or Gurobi for integers")


def refusal(oracle: str, program: Program, reason: str) -> ProgramError:
    return ProgramError(f"{oracle} cannot solve {program!r}: {reason}")
