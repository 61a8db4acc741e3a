"""An acyclic graph between a source and a target, in the orders that shortest paths are computed in."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import ProgramError
from dflearn.pickling import WithoutCaches
from dflearn.program import Program


class Graph(WithoutCaches):
    """Arcs from `tails` to `heads`. What lies on no path from source to target is left out of all computations.

    Nodes that remain are numbered in topological order: the source is 0, the target `size − 1`.

    Attributes:
        arcs: how many arcs the graph has, those included that lie on no path.
        size: how many nodes lie on a path.
        depth: the largest number of arcs on a path.
    """

    made_anew: ClassVar = {"_levels": dict}

    def __init__(self, tails: Any, heads: Any, source: int, target: int, nodes: int | None = None) -> None:
        self.tails, self.heads = _nodes_of("tails", tails), _nodes_of("heads", heads)
        if self.tails.shape != self.heads.shape or not self.tails.size:
            raise ProgramError(
                f"tails and heads must name both ends of at least one arc; got {self.tails.shape} and {self.heads.shape}"
            )
        self.nodes = int(max(self.tails.max(), self.heads.max())) + 1 if nodes is None else int(nodes)
        self.source, self.target, self.arcs = int(source), int(target), self.tails.size
        ends = np.concatenate([self.tails, self.heads, [self.source, self.target]])
        if ends.min() < 0 or ends.max() >= self.nodes:
            raise ProgramError(f"nodes are numbered from 0 to {self.nodes - 1}; got {ends.min()} to {ends.max()}")
        if self.source == self.target:
            raise ProgramError("source and target are the same node: the only path is empty")
        self._levels: dict[torch.device, tuple[list[tuple[Tensor, ...]], Tensor]] = {}
        self._sort()

    @classmethod
    def of(cls, program: Program) -> Graph:
        """The graph of a unit-flow program: rows are nodes, each column has one −1 and one +1, and so has b.

        The row of one node may be missing, since it follows from the others. With all signs reversed the program sends
        the unit backwards along reversed arcs, which is the same.
        """

        def refusal(reason: str) -> ProgramError:
            return ProgramError(f"DagShortestPath cannot solve {program!r}: {reason}")

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
        try:
            return cls(tails, heads, int(np.argmin(b)), int(np.argmax(b)), len(b))
        except ProgramError as error:
            raise refusal(str(error)) from error

    def program(self) -> Program:
        """min over w of yᵀw  s.t.  in(v) − out(v) = −1 at the source, 1 at the target, 0 elsewhere,  0 ≤ w ≤ 1."""
        number = np.arange(self.arcs)
        entries = np.concatenate([-np.ones(self.arcs), np.ones(self.arcs)])
        places = (np.concatenate([self.tails, self.heads]), np.concatenate([number, number]))
        used = np.unique(places[0])
        A = sp.csr_array((entries, places), shape=(self.nodes, self.arcs))[used]
        b = np.zeros(self.nodes)
        b[self.source], b[self.target] = -1, 1
        return Program(A=A, b=b[used], upper=1, name="shortest path")

    def _sort(self) -> None:
        """Topological order and depth of every node on a path; the arcs on paths, by the node that they lead to."""
        order = _topological_order(self.tails, self.heads, self.nodes)
        place = np.empty(self.nodes, np.int64)
        place[order] = np.arange(self.nodes)
        forward, backward = np.zeros(self.nodes, bool), np.zeros(self.nodes, bool)
        forward[self.source] = backward[self.target] = True
        depth = np.zeros(self.nodes, np.int64)
        for a in np.argsort(place[self.tails], kind="stable"):
            tail, head = self.tails[a], self.heads[a]
            if forward[tail]:
                forward[head] = True
                depth[head] = max(depth[head], depth[tail] + 1)
        for a in np.argsort(-place[self.heads], kind="stable"):
            backward[self.tails[a]] |= backward[self.heads[a]]
        if not forward[self.target]:
            raise ProgramError(f"no path leads from node {self.source} to node {self.target}")
        on_path = order[(forward & backward)[order]]
        self.size, self.depth = on_path.size, int(depth[self.target])
        number = np.full(self.nodes, -1)
        number[on_path] = np.arange(self.size)
        self._depth = depth[on_path]
        used = np.flatnonzero((number[self.tails] >= 0) & (number[self.heads] >= 0))
        self._arc = used[np.argsort(number[self.heads[used]], kind="stable")]
        self._tail, self._head = number[self.tails[self._arc]], number[self.heads[self._arc]]

    def incoming(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """start `(size + 1,)`, arc and tail: the arcs into node v, as of `kernels.shortest_path`; int32."""
        start = np.searchsorted(self._head, np.arange(self.size + 1))
        return start.astype(np.int32), self._arc.astype(np.int32), self._tail.astype(np.int32)

    def levels(self, device: torch.device) -> tuple[list[tuple[Tensor, ...]], Tensor]:
        """For plain torch, on `device`: the levels, and the node that each arc comes from `(arcs + 1,)`.

        A level is all nodes of one depth `(k,)`, the arcs into them `(k, most)` and their tails; shorter lists repeat
        their first. The last arc is none: it stays at the source.
        """
        if device not in self._levels:
            start, levels = np.searchsorted(self._head, np.arange(self.size + 1)), []
            for depth in range(1, self.depth + 1):
                nodes = np.flatnonzero(self._depth == depth)
                first, count = start[nodes], start[nodes + 1] - start[nodes]
                step = np.arange(count.max())
                place = first[:, None] + np.where(step < count[:, None], step, 0)
                parts = (nodes, self._arc[place], self._tail[place])
                levels.append(tuple(torch.as_tensor(part, device=device) for part in parts))
            tail = np.zeros(self.arcs + 1, np.int64)
            tail[self._arc] = self._tail
            self._levels[device] = levels, torch.as_tensor(tail, device=device)
        return self._levels[device]


def _nodes_of(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ProgramError(f"{name} must be a list of node numbers; got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def _topological_order(tails: np.ndarray, heads: np.ndarray, nodes: int) -> np.ndarray:
    """Nodes such that every arc leads to a later one; an error names a node on a cycle."""
    waiting = np.bincount(heads, minlength=nodes)
    by_tail = np.argsort(tails, kind="stable")
    start = np.searchsorted(tails[by_tail], np.arange(nodes + 1))
    order = list(np.flatnonzero(waiting == 0))
    for node in order:
        for head in heads[by_tail[start[node] : start[node + 1]]]:
            waiting[head] -= 1
            if waiting[head] == 0:
                order.append(head)
    if len(order) < nodes:
        # Walk backwards among the nodes that are left: each has a predecessor there, so the walk ends on a cycle.
        left = np.flatnonzero(waiting > 0)
        inside = np.isin(tails, left)
        node, seen = left[0], set[int]()
        while node not in seen:
            seen.add(int(node))
            node = tails[inside & (heads == node)][0]
        raise ProgramError(f"the graph has a cycle through node {node}")
    return np.array(order, dtype=np.int64)
