"""What one instance alone is solved with: a program's numbers, work space looked at in two ways, and the factor of M Θ Mᵀ.

See `alone`. Products for the factor are added up entry by entry, and its updates are one list: short columns would spend their time
on loops.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from llvmlite import ir
from numba.core import types

from dflearn.kernels.cholesky import SparseFactor, SparseRows
from dflearn.kernels.lanes import _view, array_at, cut, get, inner, intrinsic, put, spread, where, wide_tile
from dflearn.kernels.smoothed import Plan

GROUP = 8  # neighbours that are one vector
TAPE, TOLD = 40, 58  # where a plan's numbers tell of the tape, and of the rest
MOST = 20_000  # updates of a factorization: a longer list is slower than the columns themselves

# Tiles over variables, as of `InteriorScratch`: has_lower, has_upper and movable stay, image = Mᵀ · something. Over rows: price = 1/y,
# force: which are in force; whole: see `Values`.
Columns = namedtuple(
    "Columns",
    "has_lower has_upper movable c lower upper w gl gu zl zu slope il iu theta tl tu right dw dzl dzu image",
)
Rows = namedtuple("Rows", "inequality r y s rp dy ds ts work price force whole")
COLUMNS, ROWS = 22, 12


@inner
def columns_of(space: Any, n: int) -> Columns:
    return Columns(
        cut(space, 0, n), cut(space, 1, n), cut(space, 2, n), cut(space, 3, n), cut(space, 4, n), cut(space, 5, n),
        cut(space, 6, n), cut(space, 7, n), cut(space, 8, n), cut(space, 9, n), cut(space, 10, n), cut(space, 11, n),
        cut(space, 12, n), cut(space, 13, n), cut(space, 14, n), cut(space, 15, n), cut(space, 16, n), cut(space, 17, n),
        cut(space, 18, n), cut(space, 19, n), cut(space, 20, n), cut(space, 21, n),
    )  # fmt: skip


@inner
def rows_of(space: Any, m: int) -> Rows:
    return Rows(
        cut(space, 0, m), cut(space, 1, m), cut(space, 2, m), cut(space, 3, m), cut(space, 4, m), cut(space, 5, m),
        cut(space, 6, m), cut(space, 7, m), cut(space, 8, m), cut(space, 9, m), cut(space, 10, m), cut(space, 11, m),
    )  # fmt: skip


def _tile_at(width: int) -> Any:
    row = numba.from_dtype(np.dtype([("lane", np.float64, (width,))]))
    kind = types.Array(row, 1, "C")

    @intrinsic
    def tile_at(typing_context: Any, numbers: Any, k: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            address = builder.load(builder.gep(data, [arguments[1]]))
            size = builder.load(builder.gep(data, [builder.add(arguments[1], ir.Constant(arguments[1].type, 1))]))
            pointer = builder.inttoptr(address, context.get_data_type(row).as_pointer())
            return _view(context, builder, kind, pointer, size)

        return kind(numbers, types.int64), code

    return tile_at


# The tile whose address and number of items are the k-th number and the next: `wide_at(numbers, k)`.
wide_at, narrow_at = _tile_at(GROUP), _tile_at(1)


@intrinsic
def array_of(typing_context: Any, address: Any, size: Any, like: Any) -> Any:
    """The array of so many numbers like that one at an address."""
    kind = types.Array(like, 1, "C")

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], context.get_data_type(like).as_pointer())
        return _view(context, builder, kind, pointer, arguments[1])

    return kind(types.int64, types.int64, like), code


class Ledger(NamedTuple):
    """A `Plan` for one thread: with the tape, the objective, right-hand sides and bounds, and this thread's work space."""

    numbers: np.ndarray
    kept: tuple[np.ndarray, ...]  # the arrays at its addresses

    @classmethod
    def of(
        cls, plan: Plan, factor: SparseFactor, tape: tuple[np.ndarray, ...], inequality: np.ndarray, p: int,
        column: np.ndarray, scale: np.ndarray, places: np.ndarray, d: np.ndarray, r: np.ndarray, lower: np.ndarray, upper: np.ndarray,
    ) -> Ledger:  # fmt: skip
        """tape: as of `lists`. column, scale, d `(n,)`: c = scale · y[column] + d; places `(p,)`: the variable that each cost is for."""
        n, m = factor.matrix.shape[1], factor.rows
        groups, row_groups = -(-n // GROUP), -(-m // GROUP)
        wide = wide_tile(COLUMNS * groups + ROWS * row_groups, GROUP, np.float64)
        narrow = wide.view(np.dtype([("lane", np.float64, (1,))]))
        narrow["lane"] = 0.0
        tiles = narrow["lane"][: 3 * GROUP * groups].reshape(3, -1)
        free = lower < upper
        tiles[0, :n], tiles[1, :n], tiles[2, :n] = free & (lower > -np.inf), free & (upper < np.inf), free
        first = COLUMNS * GROUP * groups
        narrow["lane"][first : first + m, 0] = inequality
        few, units = wide_tile(6, GROUP, np.float64), wide_tile(7, 1, np.float64)
        values, scaled = (wide_tile(factor.entries + m, 1, np.float64) for _ in range(2))
        numbers = [np.ascontiguousarray(part, np.float64) for part in (scale, d)]
        sides = [np.ascontiguousarray(part, np.float64) for part in (r, lower, upper)]
        told: tuple[Any, ...] = (
            column.astype(np.uint32),
            *numbers,
            wide,
            narrow,
            few,
            units,
            values,
            scaled,
            *sides,
            places.astype(np.uint32),
        )
        kept: tuple[np.ndarray, ...] = (*tape, *told)
        sizes = [number for array in kept for number in (array.ctypes.data, array.size)]
        sizes.insert(TOLD - TAPE, p)
        return cls(np.array([*plan.numbers, *sizes], np.int64), (*plan.kept, *kept))


def lists(factor: SparseFactor) -> tuple[np.ndarray, ...]:
    """The arrays of a `Tape`."""
    pattern, entries, m = factor.pattern, factor.entries, factor.rows
    start, row = pattern.column_start.astype(np.int64), pattern.row.astype(np.int64)
    pairs: np.ndarray = np.diff(pattern.pair_start.astype(np.int64))
    variable = np.repeat(np.arange(len(pairs)), pairs)
    shape = (entries + m, len(pairs))
    products = SparseRows.of(sp.csr_array((pattern.pair_product, (pattern.pair_target, variable)), shape=shape))
    numbered = {
        (int(i), k): p for k in range(m) for p, i in enumerate(row[start[k] : start[k + 1]].tolist(), int(start[k]))
    }
    first, one, other, target = [0], [], [], []
    for k in range(m):
        for b in range(start[k], start[k + 1]):
            for a in range(b, start[k + 1]):
                one.append(a)
                other.append(b)
                target.append(entries + row[a] if a == b else numbered[int(row[a]), int(row[b])])
        first.append(len(one))
    return (*products, *(np.asarray(part).astype(np.uint32) for part in (start, row, first, one, other, target)))


# The factor: for every entry of L and of the diagonal the products that are added up in it; L by columns; and for column k the updates
# first[k] to first[k + 1] by it: entry `target` loses entry `one` times the scaled entry `other`.
Tape = namedtuple("Tape", "products start row first one other target")
# values: entries of L D, then D and later 1/D; scaled: entries of L; whole: the diagonal as it was.
Values = namedtuple("Values", "values scaled whole")


@inner
def tape_of(plan: Any, at: int) -> Tape:
    index, number = np.uint32(0), np.float64(0.0)
    products = SparseRows(array_at(plan, at, index), array_at(plan, at + 2, index), array_at(plan, at + 4, number))
    return Tape(
        products, array_at(plan, at + 6, index), array_at(plan, at + 8, index), array_at(plan, at + 10, index),
        array_at(plan, at + 12, index), array_at(plan, at + 14, index), array_at(plan, at + 16, index),
    )  # fmt: skip


@inner
def product(rows: Any, x: Any, out: Any) -> None:
    """out = Matrix · x, for as many rows as the matrix has; long rows in four sums."""
    for i in range(len(rows.start) - 1):
        k, end = np.int64(rows.start[i]), np.int64(rows.start[i + 1])
        total = spread(0.0, out)
        if end - k >= 8:
            second, third, fourth = spread(0.0, out), spread(0.0, out), spread(0.0, out)
            while k + 4 <= end:
                total = total + get(rows.value, k) * get(x, rows.column[np.uint64(k)])
                second = second + get(rows.value, k + 1) * get(x, rows.column[np.uint64(k + 1)])
                third = third + get(rows.value, k + 2) * get(x, rows.column[np.uint64(k + 2)])
                fourth = fourth + get(rows.value, k + 3) * get(x, rows.column[np.uint64(k + 3)])
                k += 4
            total = (total + second) + (third + fourth)
        while k < end:
            total = total + get(rows.value, k) * get(x, rows.column[np.uint64(k)])
            k += 1
        put(out, i, total)


@inner
def factorize(tape: Tape, own: Values, vanish: float) -> None:
    """As `cholesky.factorize`, by columns to the right."""
    entries, values, scaled = len(tape.row), own.values, own.scaled
    for k in range(len(tape.start) - 1):
        pivot = get(values, entries + k)
        inverse = where(pivot > vanish * get(own.whole, k), 1.0 / pivot, 0.0)
        put(values, entries + k, inverse)
        for p in range(tape.start[k], tape.start[k + 1]):
            put(scaled, p, get(values, p) * inverse)
        for q in range(tape.first[k], tape.first[k + 1]):
            target = tape.target[q]
            put(values, target, get(values, target) - get(values, tape.one[q]) * get(scaled, tape.other[q]))


@inner
def substitute(tape: Tape, own: Values, x: Any) -> None:
    """As `cholesky.substitute`."""
    entries, scaled, m = len(tape.row), own.scaled, len(tape.start) - 1
    for j in range(m):
        factor = get(x, j)
        for p in range(tape.start[j], tape.start[j + 1]):
            i = tape.row[p]
            put(x, i, get(x, i) - get(scaled, p) * factor)
    for j in range(m - 1, -1, -1):
        total = get(x, j) * get(own.values, entries + j)
        for p in range(tape.start[j], tape.start[j + 1]):
            total = total - get(scaled, p) * get(x, tape.row[p])
        put(x, j, total)


@inner
def masked_factor(
    tape: Tape, own: Values, theta: Any, mask: Any, all_rows: bool, damping: float, vanish: float
) -> None:
    """The factor of M Θ Mᵀ on the rows of the mask, identity on the others, as of `mask_rows`."""
    entries, values = len(tape.row), own.values
    product(tape.products, theta, values)
    for j in range(len(tape.start) - 1):
        if not all_rows:
            for p in range(tape.start[j], tape.start[j + 1]):
                put(values, p, get(values, p) * get(mask, j) * get(mask, tape.row[p]))
            put(values, entries + j, get(values, entries + j) * get(mask, j) + (1.0 - get(mask, j)))
        put(values, entries + j, get(values, entries + j) + damping)
        put(own.whole, j, get(values, entries + j))
    factorize(tape, own, vanish)
