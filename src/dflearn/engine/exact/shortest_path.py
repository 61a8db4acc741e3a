"""Shortest paths on an acyclic graph, eight instances at a time: the additions of one instance wait for each other, those
of eight do not.

Nodes are numbered in topological order, from the source (0) to the target (the last). `arc` lists the arcs into node v
at `start[v] : start[v + 1]`, and `tail` where each comes from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.engine import ahead

LANES = 8

jit = ahead.jit(nogil=True, error_model="numpy")


@jit
def distances(start: Any, arc: Any, tail: Any, c: Any, first: Any, out: Any) -> None:
    """out[v, j] = length of the shortest path to v in instance `first + j`."""
    best = np.empty(LANES)
    for j in range(LANES):
        out[0, j] = 0.0
    for v in range(1, start.size - 1):
        for j in range(LANES):
            best[j] = np.inf
        for k in range(start[v], start[v + 1]):
            t, a = tail[k], arc[k]
            for j in range(LANES):
                best[j] = min(best[j], out[t, j] + c[first + j, a])
        for j in range(LANES):
            out[v, j] = best[j]


@jit
def check(start: Any, arc: Any, tail: Any, c: Any, first: Any, distance: Any, wrong: Any) -> None:
    """wrong[j] is 0 where the distances prove the path of instance `first + j`, by the rule of `dflearn.engine.certify`.

    The distance of a node is the price of its row. The path meets the rows exactly, and the reduced costs on it are zero. So what
    is left of the rule is that no arc has a reduced cost c + distance[tail] − distance[head] below zero.
    """
    for j in range(LANES):
        wrong[j] = 0.0
    for v in range(1, start.size - 1):
        for k in range(start[v], start[v + 1]):
            t, a = tail[k], arc[k]
            for j in range(LANES):
                wrong[j] = max(wrong[j], distance[v, j] - (distance[t, j] + c[first + j, a]))


@jit
def shortest_paths(start: Any, arc: Any, tail: Any, c: Any, w: Any, value: Any, sure: Any) -> None:
    """w[i] = arcs of the shortest path of instance i, on zeros; value[i] = its length.  c, w `(count, arcs)`, value `(count,)`.

    Of arcs that are equally good the first counts. sure[i]: whether the distances prove the path, which they do but for costs that
    are too large to be added.
    """
    count, last = c.shape[0], start.size - 2
    distance, wrong = np.empty((last + 1, LANES)), np.empty(LANES)
    costs = c
    if 0 < count < LANES:  # the lanes left over repeat the last instance
        costs = np.empty((LANES, c.shape[1]), c.dtype)
        for j in range(LANES):
            costs[j] = c[min(j, count - 1)]
    for tile in range(0, count, LANES):
        first = max(0, min(tile, count - LANES))
        distances(start, arc, tail, costs, first, distance)
        check(start, arc, tail, costs, first, distance, wrong)
        for j in range(min(LANES, count)):
            i, v = first + j, last
            value[i] = distance[v, j]
            sure[i] = wrong[j] == 0.0 and np.isfinite(value[i])
            while v:
                k = start[v]
                while distance[tail[k], j] + costs[i, arc[k]] != distance[v, j]:
                    k += 1
                w[i, arc[k]] = 1.0
                v = tail[k]
