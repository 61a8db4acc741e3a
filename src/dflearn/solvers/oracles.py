"""Exact solvers for programs of a known structure: shortest paths, the k best; `structured` has more. Each recognizes its structure in a
program, or refuses it and says why."""

from __future__ import annotations

from abc import abstractmethod
from graphlib import CycleError, TopologicalSorter
from time import perf_counter

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import breadth_first_order
from torch import Tensor

from dflearn.errors import ProgramError
from dflearn.program import Instance, Program
from dflearn.program.sides import ROUNDING, Sides
from dflearn.solvers.base import Raw, Solution, Status, check_costs, check_instance, check_start
from dflearn.solvers.structured import Certified


class Oracle(Certified):
    """A solver that knows the program's structure, on tensors, on the device of the costs. Its decisions are integral, and optimal for the
    relaxation. HiGHS solves instances with constraints of their own. Subclasses write `_decide`."""

    on_devices = True

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        if program.predicts_rows:
            raise self.refusal(program, "its right-hand sides are predicted")
        self._plain = program.S is None and not program.d.any()

    @property
    def identity(self) -> str:
        return type(self).__name__

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        begun = perf_counter()
        batch = check_costs(y, self.objective)
        check_start(start, batch, 0)
        check_instance(instance, batch)
        if instance is not None and (
            instance.q is not None or not self.program.sides(instance, batch.numel()).is_shared
        ):
            return super().solve(y, instance, start)
        c = y.detach()
        if not self._plain or (instance is not None and instance.d is not None):
            c = self.objective.vector(c.double(), instance)
        decision, value, sure = self._decide(c.reshape(-1, self.objective.n))
        if not sure.all():
            return super().solve(y, instance, start)
        value = value.cpu().reshape(batch)
        return Solution(
            decision=decision.to(y.dtype).reshape(*batch, self.objective.n),
            status=torch.zeros(batch, dtype=torch.int8),
            objective=value,
            bound=value.clone(),
            fallback=torch.zeros(batch, dtype=torch.bool),
            seconds=perf_counter() - begun,
        )

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        if not sides.is_shared:
            return self.general._solve(c, sides, None)
        out = Raw.empty(*c.shape)
        decision, value, sure = self._decide(torch.from_numpy(c))
        out.decision[:], out.objective[:], out.bound[:], out.status[:] = decision, value, value, int(Status.OPTIMAL)
        return self.handed_over(c, sides, out, sure)

    @abstractmethod
    def _decide(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """c `(count, n)` → the optimal decision `(count, n)`, its objective, float64 `(count,)`, and whether it passes the rule of
        `certify`, bool `(count,)`."""


class Graph:
    """The graph of a unit-flow program: rows are nodes, each column (an arc) has one −1 and one +1, and so has b.

    The row of one node may be missing, since it follows from the others. With all signs reversed the program sends the unit backwards
    along reversed arcs, which is the same. Nodes on paths are numbered in topological order: the source is 0, the target `size − 1`.

    Attributes:
        arcs: how many arcs the graph has, those included that lie on no path from source to target.
        size, depth: how many nodes lie on a path, and the largest number of arcs on one.
        used: the arcs on paths, by the node that they lead to, with the numbers of both of their nodes: arc, tail, head.
    """

    def __init__(self, program: Program) -> None:
        def refusal(reason: str) -> ProgramError:
            return DagShortestPath.refusal(program, reason)

        if program.G.shape[0]:
            raise refusal("it has inequality rows, which paths know nothing of")
        if program.lower.any() or (program.upper < 1).any():
            raise refusal("its bounds are not w ≥ 0 and w ≤ 1 or more")
        A = program.A.tocsc()
        entries = np.diff(A.indptr)
        if not A.shape[0] or (np.abs(A.data) != 1).any() or (entries > 2).any() or (entries < 1).any():
            raise refusal(
                "its equality rows are not the node-arc incidence matrix of a graph (one −1 and one +1 per column)"
            )
        rows, b = A.shape[0], program.b
        if (entries == 1).any():  # the row of one node was dropped: its entries are what the columns lack
            b = np.append(b, -b.sum())
        tails, heads = np.full(program.n, rows), np.full(program.n, rows)
        column = np.repeat(np.arange(program.n), entries)
        tails[column[A.data < 0]] = A.indices[A.data < 0]
        heads[column[A.data > 0]] = A.indices[A.data > 0]
        if ((entries == 2) & ((tails == rows) | (heads == rows))).any():
            raise refusal("a column has two entries of the same sign, so it is no arc")
        if sorted(b[b != 0]) != [-1.0, 1.0]:
            raise refusal("b does not send one unit from one node to another (one −1, one +1, zero elsewhere)")
        self.tails, self.heads, self.arcs, self.nodes = tails, heads, program.n, len(b)
        self.source, self.target = int(np.argmin(b)), int(np.argmax(b))
        sorter = TopologicalSorter[int](dict.fromkeys(range(self.nodes), ()))
        for tail, head in zip(tails.tolist(), heads.tolist(), strict=True):
            sorter.add(head, tail)
        try:
            order = np.array(list(sorter.static_order()))
        except CycleError as error:
            raise refusal(f"the graph has a cycle through node {error.args[1][0]}") from error
        arcs = sp.csr_array((np.ones(self.arcs), (tails, heads)), shape=(self.nodes, self.nodes))
        ends = (arcs, self.source), (arcs.T.tocsr(), self.target)
        ahead, behind = (breadth_first_order(graph, node, return_predecessors=False) for graph, node in ends)
        if self.target not in ahead:
            raise refusal(f"no path leads from node {self.source} to node {self.target}")
        self._number(order[np.isin(order, np.intersect1d(ahead, behind))])

    def _number(self, on_path: np.ndarray) -> None:
        """Number the nodes on paths, which come in topological order; find the arcs between them, and the longest path."""
        self.size = on_path.size
        number = np.full(self.nodes, -1)
        number[on_path] = np.arange(self.size)
        used = np.flatnonzero((number[self.tails] >= 0) & (number[self.heads] >= 0))
        arc = used[np.argsort(number[self.heads[used]], kind="stable")]
        self.used = arc, number[self.tails[arc]], number[self.heads[arc]]
        depth = np.zeros(self.size, np.int64)
        for tail, head in zip(*self.used[1:], strict=True):  # what leads to a tail came before
            depth[head] = max(depth[head], depth[tail] + 1)
        self.depth = int(depth[-1])

    def incoming(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """start `(size + 1,)`, arc and tail: the arcs into node v, as of `engine.exact.shortest_path`; int32."""
        arc, tail, head = self.used
        start = np.searchsorted(head, np.arange(self.size + 1))
        return start.astype(np.int32), arc.astype(np.int32), tail.astype(np.int32)


class DagShortestPath(Oracle):
    """The shortest path through a directed graph without cycles, of a program that sends one unit of flow through it.

    Rows are nodes, columns arcs: see `Graph`. Costs may be negative.

    Examples:
        >>> problem = dfl.problems.ShortestPath(3, 3, seed=1)
        >>> dfl.solvers.DagShortestPath(problem.program).solve(torch.ones(2, 12)).objective
        tensor([4., 4.], dtype=torch.float64)
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.graph = Graph(program)
        self._incoming = self.graph.incoming()

    def _decide(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        if c.device.type != "cpu":
            return self._decide_on_device(c)
        from dflearn.engine.exact.shortest_path import shortest_paths

        if c.dtype not in (torch.float32, torch.float64):
            c = c.double()
        decision = torch.zeros_like(c, memory_format=torch.contiguous_format)
        value, sure = torch.empty(len(c), dtype=torch.float64), np.empty(len(c), bool)
        shortest_paths(*self._incoming, c.contiguous().numpy(), decision.numpy(), value.numpy(), sure)
        return decision, value, sure

    def _decide_on_device(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """The same in plain torch, for any device: all arcs at once, as often as a path has arcs."""
        graph, count = self.graph, len(c)
        arc, tail, head = (torch.as_tensor(part, device=c.device) for part in graph.used)
        cost, index, none = c[:, arc].double(), head.expand(count, -1), len(arc)
        distance = torch.full((count, graph.size), torch.inf, dtype=torch.float64, device=c.device)
        distance[:, 0] = 0.0
        for _ in range(graph.depth):
            distance = distance.scatter_reduce(1, index, distance[:, tail] + cost, "amin")
        length, best = distance[:, tail] + cost, distance[:, head]
        sure = (length >= best).all(1) & distance[:, -1].isfinite()  # the check of `engine.exact.shortest_path`
        place = torch.where(length == best, torch.arange(none, device=c.device), none)
        chosen = torch.full((count, graph.size), none, device=c.device).scatter_reduce(1, index, place, "amin")
        # One arc more: a path that is back at the source goes on along an arc that is none.
        arc, tail = torch.cat([arc, arc.new_full((1,), graph.arcs)]), torch.cat([tail, tail.new_zeros(1)])
        decision = torch.zeros(count, graph.arcs + 1, dtype=c.dtype, device=c.device)
        node = torch.full((count, 1), graph.size - 1, device=c.device)
        for _ in range(graph.depth):
            step = chosen.gather(1, node)
            decision.scatter_(1, arc[step], 1.0)
            node = tail[step]
        return decision[:, : graph.arcs].contiguous(), distance[:, -1], sure.cpu().numpy()


class TopK(Oracle):
    """The k items of least cost, of a program  min cᵀw  s.t.  Σ w = k or Σ w ≤ k,  0 ≤ w ≤ 1,  k an integer.

    With Σ w ≤ k only items of negative cost are chosen.

    Examples:
        >>> solver = dfl.solvers.TopK(dfl.Program(A=np.ones((1, 4)), b=2.0, upper=1, integer=True))
        >>> solver.solve(torch.tensor([3.0, 1.0, 2.0, 4.0])).decision
        tensor([0., 1., 1., 0.])
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        at_most = program.G.shape[0] == 1
        row, side = (program.G, program.h) if at_most else (program.A, program.b)
        if program.A.shape[0] + program.G.shape[0] != 1:
            raise self.refusal(program, f"it has {program.A.shape[0] + program.G.shape[0]} rows, not one")
        if row.nnz != program.n or np.ptp(row.data) or row.data[0] <= 0:
            raise self.refusal(program, "the coefficients of its row are not all equal and positive")
        if program.lower.any() or (program.upper != 1).any():
            raise self.refusal(program, "its bounds are not 0 and 1")
        k = side[0] / row.data[0]
        self.k, self.at_most = int(np.rint(k)), at_most
        if abs(k - self.k) > ROUNDING * self.k or not 0 < self.k <= program.n:  # 3 · 0.1 / 0.1 is 3
            raise self.refusal(program, f"k is {k:g}, not an integer between 1 and {program.n}")

    def _decide(self, c: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """The k-th cost, in the unit of the row, is the price that proves the choice by the rule of `certify`: no other item may
        cost less. Of an inequality it counts below zero only, and no item that costs more than nothing is chosen."""
        least = c.topk(self.k, largest=False)
        chosen = (least.values < 0).to(c.dtype) if self.at_most else torch.ones_like(least.values)
        decision = torch.zeros_like(c).scatter_(-1, least.indices, chosen)
        others, value = c.scatter(-1, least.indices, torch.inf), (least.values.double() * chosen).sum(-1)
        sure = others.amin(-1) >= least.values[:, -1]
        return decision, value, sure.cpu().numpy() & np.isfinite(value.cpu().numpy())
