"""Tiles: a few instances side by side, handled as one vector.

Row i of a tile holds item i of some instances, one per lane. Inside compiled code, `get(tile, i)` is that row as a vector,
`put(tile, i, v)` stores one, and +, −, ·, /, comparisons, `maximum`, `minimum`, `absolute` and `where` work on vectors and
numbers. Rows so become machine vectors by construction: left to itself, the compiler would have to prove that the arrays in
a loop do not overlap, and mostly cannot.

A tile is an array of records, whose type tells the compiler how many lanes there are and of which dtype: see `wide_tile`.
`tile.lane` is it as an array `(items, lanes)` of numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.extending import lower_builtin, register_model, type_callable
from numba.np.arrayobj import populate_array

from dflearn.engine import ahead

LANES = 8
CACHE_LINE = 64  # bytes
BLOCK = 32  # rows of a tile that are transposed at a time, so that they stay in the nearest cache

Tile = tuple[np.ndarray, int]  # instance numbers, one per lane, and how many of them count

intrinsic: Any = numba.extending.intrinsic  # compiled calls lack the first argument, which type checkers cannot see
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "arcp", "nsz"}}
_njit: Any = numba.njit
_LEAN: dict[str, Any] = {"_nrt": False, "no_rewrites": True, **_OPTIONS}
jit = ahead.jit(**_OPTIONS)
# For what compiled code alone calls: a third less to compile. Python must not call it, and it must not allocate.
inner = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LEAN)


def stage(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that is compiled once, however many kernels call it. It must not allocate."""
    return lambda function: ahead.Stage(function, signature, {**_LEAN, "nogil": False})


_FLAGS = ("contract", "arcp", "nsz")


class _Vector(types.Type):
    """Numba's name for `width` numbers, float64 or float32."""

    def __init__(self, dtype: Any, width: int) -> None:
        super().__init__(name=f"Vector({dtype}, {width})")
        self.dtype, self.width = dtype, width


class _Mask(types.Type):
    """Numba's name for `width` truth values."""

    def __init__(self, width: int) -> None:
        super().__init__(name=f"Mask({width})")
        self.width = width


_vector = _Vector(types.float64, LANES)
TILE = types.Array(numba.from_dtype(np.dtype([("lane", np.float64, (LANES,))])), 1, "C")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end: Any) -> None:
        number = ir.DoubleType() if front_end.dtype == types.float64 else ir.FloatType()
        super().__init__(manager, front_end, ir.VectorType(number, front_end.width))


@register_model(_Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end: Any) -> None:
        super().__init__(manager, front_end, ir.VectorType(ir.IntType(1), front_end.width))


def _common(*kinds: Any) -> Any:
    """The vector type of operands of which at least one is a vector and the others are that or numbers, or `None`."""
    vectors = {kind for kind in kinds if isinstance(kind, _Vector)}
    fits = len(vectors) == 1 and all(isinstance(kind, _Vector | types.Number) for kind in kinds)
    return vectors.pop() if fits else None


def _as_vector(context: Any, builder: Any, value: Any, kind: Any, wanted: Any) -> Any:
    """A number, spread over the lanes of the vector type `wanted`; a vector as it is."""
    if isinstance(kind, _Vector):
        return value
    vector = context.get_value_type(wanted)
    number = context.cast(builder, value, kind, wanted.dtype)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    every = ir.Constant(ir.VectorType(ir.IntType(32), wanted.width), [0] * wanted.width)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), every)


def _as_vectors(context: Any, builder: Any, values: Any, kinds: Any) -> list[Any]:
    wanted = _common(*kinds) or _vector
    return [_as_vector(context, builder, value, kind, wanted) for value, kind in zip(values, kinds, strict=True)]


def _define_operator(
    symbol: Callable[..., Any], result: Callable[[Any], Any], emit: Callable[[Any, Any, Any], Any]
) -> None:
    """Let `symbol` take two vectors, or a vector and a number."""

    @type_callable(symbol)
    def typing(context: Any) -> Any:
        def typer(x: Any, y: Any) -> Any:
            common = _common(x, y)
            return None if common is None else result(common)

        return typer

    for first, second in ((_Vector, _Vector), (_Vector, types.Number), (types.Number, _Vector)):

        @lower_builtin(symbol, first, second)
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, *_as_vectors(context, builder, arguments, signature.args))


def _same(vector: Any) -> Any:
    return vector


def _mask_of(vector: Any) -> Any:
    return _Mask(vector.width)


def _arithmetic(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, x, y: getattr(builder, name)(x, y, flags=_FLAGS)


def _comparison(sign: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, x, y: builder.fcmp_ordered(sign, x, y)


_define_operator(operator.add, _same, _arithmetic("fadd"))
_define_operator(operator.sub, _same, _arithmetic("fsub"))
_define_operator(operator.mul, _same, _arithmetic("fmul"))
_define_operator(operator.truediv, _same, _arithmetic("fdiv"))
_define_operator(operator.gt, _mask_of, _comparison(">"))
_define_operator(operator.lt, _mask_of, _comparison("<"))


@type_callable(operator.and_)
def _typing_and(context: Any) -> Any:
    return lambda x, y: x if isinstance(x, _Mask) and x == y else None


@lower_builtin(operator.and_, _Mask, _Mask)
def _lower_and(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.and_(*arguments)


def _tile_vector(kind: Any) -> Any:
    """The vector type of a tile's rows."""
    lane: Any = kind.dtype.typeof("lane")
    return _Vector(lane.dtype, lane.shape[0])


def _row_pointer(context: Any, builder: Any, kind: Any, array: Any, index_kind: Any, index: Any) -> Any:
    vector = context.get_value_type(_tile_vector(kind))
    data = builder.bitcast(context.make_array(kind)(context, builder, array).data, vector.element.as_pointer())
    row = context.cast(builder, index, index_kind, types.int64)
    return builder.bitcast(
        builder.gep(data, [builder.mul(row, ir.Constant(row.type, vector.count))]), vector.as_pointer()
    )


@intrinsic
def get(typing_context: Any, array: Any, i: Any) -> Any:
    """Row i of a tile; of an array of numbers `(items,)`, which all lanes share, number i."""
    if isinstance(array, types.Array) and array.ndim == 1 and isinstance(array.dtype, types.Float):

        def number(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            return builder.load(builder.gep(data, [context.cast(builder, arguments[1], i, types.int64)]))

        return array.dtype(array, i), number

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        pointer = _row_pointer(context, builder, kinds[0], arguments[0], kinds[1], arguments[1])
        return builder.load(pointer, align=signature.return_type.dtype.bitwidth // 8)

    return _tile_vector(array)(array, i), code


@intrinsic
def put(typing_context: Any, array: Any, i: Any, value: Any) -> Any:
    """Row i of a tile becomes `value`, a vector or a number for all lanes."""
    vector = _tile_vector(array)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        pointer = _row_pointer(context, builder, kinds[0], arguments[0], kinds[1], arguments[1])
        row = _as_vector(context, builder, arguments[2], kinds[2], vector)
        builder.store(row, pointer, align=vector.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, i, value), code


@intrinsic
def spread(typing_context: Any, x: Any, tile: Any) -> Any:
    """A number in every lane of the tile's rows."""
    vector = _tile_vector(tile)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _as_vector(context, builder, arguments[0], signature.args[0], vector)

    return vector(x, tile), code


@intrinsic
def where(typing_context: Any, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask holds, y elsewhere. The mask may be an integer as of `bits`."""
    vector = _common(x, y) or (_Vector(types.float64, mask.width) if isinstance(mask, _Mask) else _vector)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (_as_vector(context, builder, arguments[k], signature.args[k], vector) for k in (1, 2))
        holds = builder.bitcast(arguments[0], ir.VectorType(ir.IntType(1), signature.return_type.width))
        return builder.select(holds, x, y)

    return vector(mask, x, y), code


@intrinsic
def bits(typing_context: Any, mask: Any) -> Any:
    """The mask as an unsigned integer, one bit per lane."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(mask.width))

    return getattr(types, f"uint{mask.width}")(mask), code


@intrinsic
def any_lane(typing_context: Any, mask: Any) -> Any:
    """Whether the mask holds anywhere."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = builder.bitcast(arguments[0], ir.IntType(mask.width))
        return builder.icmp_unsigned("!=", number, ir.Constant(number.type, 0))

    return types.boolean(mask), code


def _extreme(sign: str) -> Any:
    @intrinsic
    def extreme(typing_context: Any, x: Any, y: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, y = _as_vectors(context, builder, arguments, signature.args)
            return builder.select(builder.fcmp_ordered(sign, x, y), x, y)

        return (_common(x, y) or _vector)(x, y), code

    return extreme


maximum = _extreme(">")
minimum = _extreme("<")


@intrinsic
def absolute(typing_context: Any, x: Any) -> Any:
    """|x|, lane by lane."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        negative = builder.fneg(arguments[0])
        return builder.select(builder.fcmp_ordered(">", arguments[0], negative), arguments[0], negative)

    return x(x), code


@intrinsic
def number_at(typing_context: Any, numbers: Any, k: Any) -> Any:
    """The k-th of the integers at that address, or in that array."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return integer_at(context, builder, numbers, *arguments)

    return types.int64(numbers, types.int64), code


@intrinsic
def array_at(typing_context: Any, numbers: Any, k: Any, like: Any) -> Any:
    """The array of numbers like that one whose address and size are the k-th integer and the next, as of `number_at`."""
    kind = types.Array(like, 1, "C")

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        own, k, _ = arguments
        address = integer_at(context, builder, numbers, own, k)
        size = integer_at(context, builder, numbers, own, builder.add(k, ir.Constant(k.type, 1)))
        pointer = builder.inttoptr(address, context.get_data_type(like).as_pointer())
        return _view(context, builder, kind, pointer, size)

    return kind(numbers, types.int64, like), code


def integer_at(context: Any, builder: Any, kind: Any, numbers: Any, k: Any) -> Any:
    """Code for `number_at`."""
    if isinstance(kind, types.Array):
        data = context.make_array(kind)(context, builder, numbers).data
    else:
        data = builder.inttoptr(numbers, ir.IntType(64).as_pointer())
    return builder.load(builder.gep(data, [k]))


@intrinsic
def tile_at(typing_context: Any, address: Any, items: Any) -> Any:
    """The tile of so many items, LANES float64 each, at that address."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return tile_value(context, builder, *arguments)

    return TILE(types.int64, types.int64), code


def tile_value(context: Any, builder: Any, address: Any, items: Any) -> Any:
    """Code for `tile_at`."""
    pointer = builder.inttoptr(address, context.get_data_type(TILE.dtype).as_pointer())
    return _view(context, builder, TILE, pointer, items)


@intrinsic
def address_of(typing_context: Any, tile: Any) -> Any:
    """Where a tile is."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(context.make_array(tile)(context, builder, arguments[0]).data, ir.IntType(64))

    return types.int64(tile), code


@intrinsic
def cut(typing_context: Any, tile: Any, k: Any, items: Any) -> Any:
    """The k-th tile of so many items in one that holds several, one after the other."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(tile)(context, builder, arguments[0]).data
        first = builder.gep(data, [builder.mul(arguments[1], arguments[2])])
        return _view(context, builder, tile, first, arguments[2])

    return tile(tile, types.int64, types.int64), code


def _view(context: Any, builder: Any, kind: Any, data: Any, size: Any) -> Any:
    """An array of so many items of memory that others hold: less to compile than a slice, which has an owner to count."""
    array = context.make_array(kind)(context, builder)
    itemsize = ir.Constant(size.type, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    populate_array(array, data=data, shape=[size], strides=[itemsize], itemsize=itemsize, meminfo=None)
    return array._getvalue()


def wide_tile(items: int, lanes: int, dtype: Any) -> np.ndarray:
    """An empty tile of other width or dtype: `(items,)` records of `lanes` numbers, rows aligned with cache lines."""
    row = np.dtype([("lane", dtype, (lanes,))])
    raw = np.empty(items * row.itemsize + CACHE_LINE, np.uint8)
    first = -raw.__array_interface__["data"][0] % CACHE_LINE
    return raw[first : first + items * row.itemsize].view(row)


def as_tile(array: np.ndarray) -> np.ndarray:
    """Numbers `(items, lanes)` as a tile of its own: kernels that are given this kind alone are compiled once."""
    items, lanes = array.shape
    tile = wide_tile(items, lanes, np.float64)
    tile["lane"] = array
    return tile


@inner
def plus_row(total: Any, rows: Any, i: int, x: Any) -> Any:
    """total + (row i) · x for a matrix by rows (`SparseRows`)."""
    for k in range(rows.start[i], rows.start[i + 1]):
        total = total + rows.value[k] * get(x, rows.column[k])
    return total


@inner
def gather(rows: Any, x: Any, out: Any) -> None:
    """out = Matrix · x for a matrix by rows."""
    for i in range(out.shape[0]):
        put(out, i, plus_row(spread(0.0, out), rows, i, x))


@jit
def load(source: Any, index: Any, tile: Any) -> None:
    """Rows `index` of an instance-major array `(count, items)` (or `(1, items)`, shared by all) become the lanes.

    tile: `(items or more, lanes)`; of a `wide_tile` its `lane`.
    """
    shared, items = source.shape[0] == 1, source.shape[1]
    for block in range((items + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        for t in range(len(index)):
            row = 0 if shared else index[t]
            for j in range(min(BLOCK, items - first)):
                tile[first + j, t] = source[row, first + j]


@jit
def store(tile: Any, index: Any, used: int, out: Any) -> None:
    """The first `used` lanes of a tile, as of `load`, go back to their rows of an instance-major array."""
    items = out.shape[1]
    for block in range((items + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        for t in range(used):
            row = index[t]
            for j in range(min(BLOCK, items - first)):
                out[row, first + j] = tile[first + j, t]


@lru_cache(maxsize=64)
def all_tiles(count: int, lanes: int = LANES) -> list[Tile]:
    """`tiles` of a whole batch."""
    return tiles(np.arange(count), lanes)


def tiles(index: np.ndarray, lanes: int = LANES) -> list[Tile]:
    """Instance numbers in groups of `lanes`; the last group repeats its last instance. With how many are real."""
    groups = []
    for first in range(0, len(index), lanes):
        part = index[first : first + lanes]
        padded = np.full(lanes, part[-1], dtype=np.int64)
        padded[: len(part)] = part
        groups.append((padded, len(part)))
    return groups
