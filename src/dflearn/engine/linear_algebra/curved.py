"""A quadratic program's own pattern in place of M Θ Mᵀ.

In the variables of `engine.smoothed.quadratic`, a quadratic program has the rows (M, 0) and (R, −I), each scaled to length one: rows of R by
σ. Their normal matrix fills up even where Q has few entries. With u = Θ v, (M Θ Mᵀ + diag(D)) x = r for x = (p, t) is the same as

    [ Θ + Θ P Θ/θ   −Θ Mᵀ ] [ v ]   [ Θ Rᵀ(r_t/σ)/θ ]
    [ −M Θ          −D    ] [ p ] = [ −r_p          ],      t = (r_t − σ R u) / (σ² θ),      P = RᵀR,

θ the one weight of all z, which have no bounds. That matrix has the pattern of Q and M. Its nodes, variables and rows, are
eliminated in an order of their own, a row after all of its variables: pivots of variables are then positive, those of rows
negative (or zero, where a row depends on others), as in M Θ Mᵀ itself. What is added to the diagonal of a row of R is left out:
it is there against zero pivots, and these rows have none.

In an array of values, after the entries of L: D (m), 1/pivots (nodes), columns that are worked on (BLOCK · nodes), sizes of pivots
(nodes), unknowns (nodes), Θ (n) and 1/θ, the mask (rows of M).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.linear_algebra.elimination import after_their_variables
from dflearn.engine.linear_algebra.lanes import array_at, get, inner, put
from dflearn.engine.linear_algebra.symbolic import BLOCK

LEAST = 1e5  # multiplications of one factorization from which on another order may be worth its search
GAIN = 0.7  # of the multiplications, at most, for another order
MOST = 2500  # nodes: the search takes a bit for each pair


class Curve(NamedTuple):
    """Where everything goes.

    node: of each variable, then of each row of M. sign `(nodes,)`: 1 for variables, −1 for rows. own `(n,)`: the diagonal of P.
    product_…: for each pair of variables in P, its entry of L, its number, and the two.
    link_…: by rows of M, for each of their entries its entry of L, its number, and the variable.
    lift_…: by rows of R, their variables and numbers (times σ); weight: 1/σ².
    """

    node: np.ndarray
    sign: np.ndarray
    own: np.ndarray
    product_target: np.ndarray
    product_value: np.ndarray
    product_first: np.ndarray
    product_second: np.ndarray
    link_start: np.ndarray
    link_target: np.ndarray
    link_value: np.ndarray
    link_column: np.ndarray
    lift_start: np.ndarray
    lift_column: np.ndarray
    lift_value: np.ndarray
    weight: np.ndarray


NODE, SIGN, OWN, LINK_START, WEIGHT = 0, 2, 4, 14, 28  # where `packed` tells of these


def packed(curve: Curve) -> np.ndarray:
    """Addresses and sizes, as one array: a call with few arguments is a fast one. Whoever holds it holds the curve."""
    return np.array([number for part in curve for number in (part.ctypes.data, part.size)], np.int64)


@inner
def unpacked(numbers: Any) -> Curve:
    """The curve that those numbers tell of."""
    index, number = np.uint32(0), np.float64(0.0)
    return Curve(
        array_at(numbers, 0, index), array_at(numbers, 2, number), array_at(numbers, 4, number),
        array_at(numbers, 6, index), array_at(numbers, 8, number), array_at(numbers, 10, index), array_at(numbers, 12, index),
        array_at(numbers, 14, index), array_at(numbers, 16, index), array_at(numbers, 18, number), array_at(numbers, 20, index),
        array_at(numbers, 22, index), array_at(numbers, 24, index), array_at(numbers, 26, number), array_at(numbers, 28, number),
    )  # fmt: skip


def nodes_of(
    matrix: sp.csr_array, lifting: slice, P: sp.csr_array, work: float
) -> tuple[np.ndarray, sp.csc_array] | None:
    """The place of each node in the order of elimination, and the strictly lower pattern of L in that order.

    `None` where that does not take much less than the work of M Θ Mᵀ.
    """
    own = sp.csr_array(matrix[np.delete(np.arange(matrix.shape[0]), lifting)][:, : P.shape[0]])
    if work < LEAST or sum(own.shape) > MOST:
        return None
    found = after_their_variables(P, own)
    below = np.diff(found[1].indptr).astype(float)
    return found if (below * (below + 1)).sum() / 2 <= GAIN * work else None


def curve_of(matrix: sp.csr_array, P: sp.csr_array, node: np.ndarray, lower: sp.csc_array) -> Curve:
    """The curve of a scaled matrix whose last rows are (σ R, −σ)."""
    n, nodes = P.shape[0], len(node)
    own_rows = nodes - n
    numbered = sp.csr_array(
        sp.csc_array((np.arange(lower.nnz) + 1.0, lower.indices, lower.indptr), shape=(nodes, nodes))
    )

    def target(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        at = np.maximum(node[first], node[second]), np.minimum(node[first], node[second])
        found = np.asarray(numbered[at]).reshape(-1).astype(np.int64) - 1 if len(first) else np.zeros(0, np.int64)
        assert (found >= 0).all()
        return found

    pairs = sp.coo_array(sp.tril(P, -1))
    links, lifts = sp.csr_array(matrix[:own_rows, :n]), sp.csr_array(matrix[own_rows:, :n])
    of_row = np.repeat(np.arange(own_rows), np.diff(links.indptr))
    scale = matrix[own_rows:, n:].diagonal()
    sign = np.ones(nodes)
    sign[node[n:]] = -1.0
    index = lambda part: np.ascontiguousarray(part).astype(np.uint32)  # noqa: E731
    number = lambda part: np.ascontiguousarray(part).astype(np.float64)  # noqa: E731
    return Curve(
        index(node), sign, number(P.diagonal()),
        index(target(*pairs.coords)), number(pairs.data), index(pairs.coords[0]), index(pairs.coords[1]),
        index(links.indptr), index(target(n + of_row, links.indices)), number(links.data), index(links.indices),
        index(lifts.indptr), index(lifts.indices), number(lifts.data), number(1 / scale**2),
    )  # fmt: skip


@inner
def own_rows_of(curve: Any) -> int:
    """Rows of M."""
    return curve[LINK_START + 1] - 1


@inner
def rows_of(curve: Any) -> int:
    """Rows of M and of R."""
    return own_rows_of(curve) + curve[WEIGHT + 1]


@inner
def unknowns_at(curve: Any, entries: int, nodes: int) -> int:
    """Where the unknowns are in an array of values, node by node. Their sizes are before them."""
    return entries + rows_of(curve) + (2 + BLOCK) * nodes


@inner
def weights_at(curve: Any, entries: int, nodes: int) -> int:
    """Where Θ of the variables is, and 1/θ after it."""
    return unknowns_at(curve, entries, nodes) + nodes


@inner
def masks_at(curve: Any, entries: int, nodes: int) -> int:
    """Where the mask of the rows of M is."""
    return weights_at(curve, entries, nodes) + curve[OWN + 1] + 1


@inner
def keep(numbers: Any, entries: int, nodes: int, theta: Any, values: Any) -> None:
    """Θ goes into `values`; nothing is on the diagonal, and no row is masked."""
    curve = unpacked(numbers)
    n, weights, masks = len(curve.own), weights_at(numbers, entries, nodes), masks_at(numbers, entries, nodes)
    for j in range(n):
        put(values, weights + j, get(theta, j))
    put(values, weights + n, 1.0 / get(theta, n))
    for i in range(rows_of(numbers)):
        put(values, entries + i, 0.0)
    for i in range(own_rows_of(numbers)):
        put(values, masks + i, 1.0)


@inner
def between_nodes(numbers: Any, entries: int, nodes: int, values: Any) -> None:
    """The matrix above, from Θ, D and the mask; and the sizes that its pivots are to be compared with."""
    curve = unpacked(numbers)
    n, weights, masks = len(curve.own), weights_at(numbers, entries, nodes), masks_at(numbers, entries, nodes)
    at = entries + rows_of(numbers)
    sizes, inverse = at + (1 + BLOCK) * nodes, get(values, weights + n)
    for p in range(entries):
        put(values, p, 0.0)
    for j in range(n):
        weight, node = get(values, weights + j), np.int64(curve.node[j])
        pivot = weight + curve.own[j] * inverse * weight * weight
        put(values, at + node, pivot)
        put(values, sizes + node, pivot)
    for k in range(len(curve.product_value)):
        first, second = get(values, weights + curve.product_first[k]), get(values, weights + curve.product_second[k])
        put(values, curve.product_target[k], curve.product_value[k] * inverse * first * second)
    for i in range(own_rows_of(numbers)):
        node, mask, size = np.int64(curve.node[n + i]), get(values, masks + i), get(values, entries + i)
        put(values, at + node, -1.0 * size)
        for k in range(curve.link_start[i], curve.link_start[i + 1]):
            link, weight = -1.0 * curve.link_value[k] * mask, get(values, weights + curve.link_column[k])
            put(values, curve.link_target[k], link * weight)
            size = size + link * link * weight
        put(values, sizes + node, size)


@inner
def to_nodes(numbers: Any, entries: int, nodes: int, values: Any, x: Any) -> None:
    """The right-hand side of the system above, for r in x."""
    curve = unpacked(numbers)
    n, own, weights, first = (
        len(curve.own),
        own_rows_of(numbers),
        weights_at(numbers, entries, nodes),
        unknowns_at(numbers, entries, nodes),
    )
    inverse = get(values, weights + n)
    for i in range(nodes):
        put(values, first + i, 0.0)
    for k in range(len(curve.weight)):
        right = get(x, own + k) * inverse * curve.weight[k]
        for p in range(curve.lift_start[k], curve.lift_start[k + 1]):
            at = first + np.int64(curve.node[curve.lift_column[p]])
            put(values, at, get(values, at) + curve.lift_value[p] * right)
    for j in range(n):
        at = first + np.int64(curve.node[j])
        put(values, at, get(values, at) * get(values, weights + j))
    for i in range(own):
        put(values, first + np.int64(curve.node[n + i]), -1.0 * get(x, i))


@inner
def from_nodes(numbers: Any, entries: int, nodes: int, values: Any, x: Any) -> None:
    """The solution (p, t) into x, which still holds r_t."""
    curve = unpacked(numbers)
    n, own, weights, first = (
        len(curve.own),
        own_rows_of(numbers),
        weights_at(numbers, entries, nodes),
        unknowns_at(numbers, entries, nodes),
    )
    inverse = get(values, weights + n)
    for j in range(n):
        at = first + np.int64(curve.node[j])
        put(values, at, get(values, at) * get(values, weights + j))
    for i in range(own):
        put(x, i, get(values, first + np.int64(curve.node[n + i])))
    for k in range(len(curve.weight)):
        left = get(x, own + k)
        for p in range(curve.lift_start[k], curve.lift_start[k + 1]):
            left = left - curve.lift_value[p] * get(values, first + np.int64(curve.node[curve.lift_column[p]]))
        put(x, own + k, left * inverse * curve.weight[k])
