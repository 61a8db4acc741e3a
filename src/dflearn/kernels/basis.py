"""Systems with the columns of a basis, B x = r and Bᵀy = c, from the numbers of the program alone.

Bases of linear programs are nearly triangular. Columns with a single row left are taken off one after another, then rows with a
single column left; what remains, often nothing, is factorized as a dense matrix with row exchanges. In that order

        (U  *  *)    columns taken off, rows taken off, the dense rest:
    B = (   L   ),   U is upper, L is lower triangular.
        (   *  D)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dflearn.kernels import ahead

SINGULAR = 1e-13  # a pivot of the dense rest this small beside its largest entry is rounding

# Kernels that only kernels call: without a way in from Python, which takes long to compile where tuples of arrays go in.
inner = ahead.jit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


class Columns(NamedTuple):
    """Columns of all variables: value[k] is in row index[k], for k from start[j] to start[j + 1]."""

    start: Any
    index: Any
    value: Any


class Order(NamedTuple):
    """Room for the order of a basis of m columns and for its dense rest; all but `pivot`, `rest` and `small` are integers."""

    row: Any  # the row of each step, and its position in the basis: first U, then L, then the rest
    position: Any
    pivot: Any
    ends: Any  # how many steps end U, and L
    row_start: Any  # which positions have an entry in each row
    row_entry: Any
    rows_left: Any
    columns_left: Any
    stack: Any
    rest: Any
    exchange: Any
    small: Any


@inner
def room_for_order(m: int, entries: int) -> Any:
    """entries: the most that a basis may have."""
    return Order(
        np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m), np.empty(2, np.int64), np.empty(m + 1, np.int64),
        np.empty(entries, np.int64), np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m, np.int64), np.empty((m, m)),
        np.empty(m, np.int64), np.empty(m),
    )  # fmt: skip


@inner
def factorize(columns: Columns, basis: Any, order: Order) -> Any:
    """Find the order of the basis, and factorize the rest; whether there is an inverse."""
    start, index, value = columns
    m = len(basis)
    row_start, row_entry, rows_left, columns_left = (
        order.row_start, order.row_entry, order.rows_left, order.columns_left,
    )  # fmt: skip
    stack, done = order.stack, 0
    for i in range(m + 1):
        row_start[i] = 0
    for k in range(m):
        columns_left[k] = start[basis[k] + 1] - start[basis[k]]
        for e in range(start[basis[k]], start[basis[k] + 1]):
            row_start[index[e] + 1] += 1
    for i in range(m):
        row_start[i + 1] += row_start[i]
        rows_left[i] = row_start[i]
    for k in range(m):
        for e in range(start[basis[k]], start[basis[k] + 1]):
            row_entry[rows_left[index[e]]] = k
            rows_left[index[e]] += 1

    # U: a column with a single row left. Rows and columns that are taken off have −1 left.
    for i in range(m):
        rows_left[i] = 0
    waiting = 0
    for k in range(m):
        if columns_left[k] == 1:
            stack[waiting] = k
            waiting += 1
    while waiting:
        waiting -= 1
        k = stack[waiting]
        if columns_left[k] != 1:
            continue
        for e in range(start[basis[k]], start[basis[k] + 1]):
            i = index[e]
            if rows_left[i] == 0:
                order.row[done], order.position[done], order.pivot[done] = i, k, value[e]
                done += 1
                rows_left[i], columns_left[k] = -1, -1
                for place in range(row_start[i], row_start[i + 1]):
                    other = row_entry[place]
                    if columns_left[other] > 0:
                        columns_left[other] -= 1
                        if columns_left[other] == 1:
                            stack[waiting] = other
                            waiting += 1
                break
    order.ends[0] = done

    # L: a row with a single column left.
    for i in range(m):
        if rows_left[i] == 0:
            for e in range(row_start[i], row_start[i + 1]):
                k = row_entry[e]
                rows_left[i] += 1 if columns_left[k] >= 0 else 0
            if rows_left[i] == 1:
                stack[waiting] = i
                waiting += 1
    while waiting:
        waiting -= 1
        i = stack[waiting]
        if rows_left[i] != 1:
            continue
        for place in range(row_start[i], row_start[i + 1]):
            k = row_entry[place]
            if columns_left[k] >= 0:
                rows_left[i], columns_left[k] = -1, -1
                for e in range(start[basis[k]], start[basis[k] + 1]):
                    other = index[e]
                    if other == i:
                        order.row[done], order.position[done], order.pivot[done] = i, k, value[e]
                    elif rows_left[other] > 0:
                        rows_left[other] -= 1
                        if rows_left[other] == 1:
                            stack[waiting] = other
                            waiting += 1
                done += 1
                break
    order.ends[1] = done

    # The rest; what a row of it is called there is in `rows_left`.
    count, number = 0, done
    for i in range(m):
        if rows_left[i] >= 0:
            order.row[number] = i
            rows_left[i] = count
            count, number = count + 1, number + 1
    number = done
    for k in range(m):
        if columns_left[k] >= 0:
            order.position[number] = k
            for i in range(count):
                order.rest[i, number - done] = 0.0
            for e in range(start[basis[k]], start[basis[k] + 1]):
                if rows_left[index[e]] >= 0:
                    order.rest[rows_left[index[e]], number - done] = value[e]
            number += 1
    return factorize_dense(order.rest[:count, :count], order.exchange)


@inner
def factorize_dense(matrix: Any, exchange: Any) -> Any:
    """P matrix = L U in place, by rows."""
    m = len(matrix)
    largest = 0.0
    for r in range(m):
        for q in range(m):
            largest = max(largest, abs(matrix[r, q]))
    for k in range(m):
        pivot = k
        for r in range(k + 1, m):
            if abs(matrix[r, k]) > abs(matrix[pivot, k]):
                pivot = r
        if not abs(matrix[pivot, k]) > SINGULAR * largest:
            return False
        exchange[k] = pivot
        if pivot != k:
            for q in range(m):
                matrix[k, q], matrix[pivot, q] = matrix[pivot, q], matrix[k, q]
        for r in range(k + 1, m):
            factor = matrix[r, k]
            if factor != 0.0:
                factor /= matrix[k, k]
                matrix[r, k] = factor
                for q in range(k + 1, m):
                    matrix[r, q] -= factor * matrix[k, q]
    return True


@inner
def solve(columns: Columns, basis: Any, order: Order, right: Any, x: Any) -> None:
    """B x = right, x by position; right is overwritten."""
    start, index, value = columns
    m, first, last = len(basis), order.ends[0], order.ends[1]
    for t in range(first, last):
        k = order.position[t]
        x[k] = right[order.row[t]] / order.pivot[t]
        if x[k] != 0.0:
            for e in range(start[basis[k]], start[basis[k] + 1]):
                right[index[e]] -= value[e] * x[k]
    count, rest, small = m - last, order.rest, order.small
    for t in range(count):
        small[t] = right[order.row[last + t]]
    for t in range(count):
        small[t], small[order.exchange[t]] = small[order.exchange[t]], small[t]
    for t in range(count):
        for s in range(t):
            small[t] -= rest[t, s] * small[s]
    for t in range(count - 1, -1, -1):
        for s in range(t + 1, count):
            small[t] -= rest[t, s] * small[s]
        small[t] /= rest[t, t]
        k = order.position[last + t]
        x[k] = small[t]
        for e in range(start[basis[k]], start[basis[k] + 1]):
            right[index[e]] -= value[e] * x[k]
    for t in range(first - 1, -1, -1):
        k = order.position[t]
        x[k] = right[order.row[t]] / order.pivot[t]
        if x[k] != 0.0:
            for e in range(start[basis[k]], start[basis[k] + 1]):
                right[index[e]] -= value[e] * x[k]


@inner
def solve_transposed(columns: Columns, basis: Any, order: Order, cost: Any, y: Any) -> None:
    """Bᵀy = cost, cost by position, y by row."""
    m, first, last = len(basis), order.ends[0], order.ends[1]
    for r in range(m):
        y[r] = 0.0
    for t in range(first):
        y[order.row[t]] = left_over(columns, basis[order.position[t]], cost[order.position[t]], y) / order.pivot[t]
    count, rest, small = m - last, order.rest, order.small
    for t in range(count):
        k = order.position[last + t]
        small[t] = left_over(columns, basis[k], cost[k], y)
    for t in range(count):
        small[t] /= rest[t, t]
        for s in range(t + 1, count):
            small[s] -= rest[t, s] * small[t]
    for t in range(count - 1, -1, -1):
        for s in range(t):
            small[s] -= rest[t, s] * small[t]
    for t in range(count - 1, -1, -1):
        small[t], small[order.exchange[t]] = small[order.exchange[t]], small[t]
    for t in range(count):
        y[order.row[last + t]] = small[t]
    for t in range(last - 1, first - 1, -1):
        y[order.row[t]] = left_over(columns, basis[order.position[t]], cost[order.position[t]], y) / order.pivot[t]


@inner
def left_over(columns: Columns, j: Any, cost: Any, y: Any) -> Any:
    """cost − (column j)ᵀy; what is not known yet of y is zero."""
    for e in range(columns.start[j], columns.start[j + 1]):
        cost -= columns.value[e] * y[columns.index[e]]
    return cost
