"""Tiles: eight instances side by side, handled as one vector.

A tile array is `(items, LANES)`, float64 and C-contiguous: row i holds item i of eight instances. Inside compiled code,
`get(array, i)` is that row as a vector, `put(array, i, v)` stores one, and +, −, ·, /, comparisons, `maximum`, `minimum`,
`absolute` and `where` work on vectors and numbers. Rows so become machine vectors by construction: left to itself, the
compiler would have to prove that the arrays in a loop do not overlap, and mostly cannot.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.extending import lower_builtin, register_model, type_callable

LANES = 8

intrinsic: Any = numba.extending.intrinsic  # compiled calls lack the first argument, which type checkers cannot see
jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "arcp", "nsz"})

_FLAGS = ("contract", "arcp", "nsz")
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)


class _Vector(types.Type):
    """Numba's name for eight float64 numbers."""

    def __init__(self) -> None:
        super().__init__(name=f"Vector({LANES})")


class _Mask(types.Type):
    """Numba's name for eight truth values."""

    def __init__(self) -> None:
        super().__init__(name=f"Mask({LANES})")


_vector, _mask = _Vector(), _Mask()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end: Any) -> None:
        super().__init__(manager, front_end, _VECTOR)


@register_model(_Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end: Any) -> None:
        super().__init__(manager, front_end, _MASK)


def _as_vector(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """A number, spread over the lanes; a vector as it is."""
    if isinstance(kind, _Vector):
        return value
    number = context.cast(builder, value, kind, types.float64)
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    every = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), every)


def _is_operand(kind: Any) -> bool:
    return isinstance(kind, _Vector | types.Number)


def _define_operator(symbol: Callable[..., Any], result: Any, emit: Callable[[Any, Any, Any], Any]) -> None:
    """Let `symbol` take two vectors, or a vector and a number."""

    @type_callable(symbol)
    def typing(context: Any) -> Any:
        def typer(x: Any, y: Any) -> Any:
            if _is_operand(x) and _is_operand(y) and _vector in (x, y):
                return result
            return None

        return typer

    for first, second in ((_Vector, _Vector), (_Vector, types.Number), (types.Number, _Vector)):

        @lower_builtin(symbol, first, second)
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, y = (
                _as_vector(context, builder, value, kind) for value, kind in zip(arguments, signature.args, strict=True)
            )
            return emit(builder, x, y)


def _arithmetic(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, x, y: getattr(builder, name)(x, y, flags=_FLAGS)


def _comparison(sign: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, x, y: builder.fcmp_ordered(sign, x, y)


_define_operator(operator.add, _vector, _arithmetic("fadd"))
_define_operator(operator.sub, _vector, _arithmetic("fsub"))
_define_operator(operator.mul, _vector, _arithmetic("fmul"))
_define_operator(operator.truediv, _vector, _arithmetic("fdiv"))
_define_operator(operator.gt, _mask, _comparison(">"))
_define_operator(operator.lt, _mask, _comparison("<"))


@type_callable(operator.and_)
def _typing_and(context: Any) -> Any:
    return lambda x, y: _mask if isinstance(x, _Mask) and isinstance(y, _Mask) else None


@lower_builtin(operator.and_, _Mask, _Mask)
def _lower_and(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.and_(*arguments)


def _row_pointer(context: Any, builder: Any, kind: Any, array: Any, index_kind: Any, index: Any) -> Any:
    if not (isinstance(kind, types.Array) and kind.dtype == types.float64 and kind.layout == "C" and kind.ndim == 2):
        raise TypeError(f"a tile is a C-contiguous float64 array (items, {LANES}), not {kind}")
    data = context.make_array(kind)(context, builder, array).data
    row = context.cast(builder, index, index_kind, types.int64)
    return builder.bitcast(builder.gep(data, [builder.mul(row, ir.Constant(row.type, LANES))]), _VECTOR.as_pointer())


@intrinsic
def get(typing_context: Any, array: Any, i: Any) -> Any:
    """Row i of a tile."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        return builder.load(_row_pointer(context, builder, kinds[0], arguments[0], kinds[1], arguments[1]), align=8)

    return _vector(array, i), code


@intrinsic
def put(typing_context: Any, array: Any, i: Any, value: Any) -> Any:
    """Row i of a tile becomes `value`, a vector or a number for all lanes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        pointer = _row_pointer(context, builder, kinds[0], arguments[0], kinds[1], arguments[1])
        builder.store(_as_vector(context, builder, arguments[2], kinds[2]), pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, i, value), code


@intrinsic
def spread(typing_context: Any, x: Any) -> Any:
    """A number in every lane."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _as_vector(context, builder, arguments[0], signature.args[0])

    return _vector(x), code


@intrinsic
def where(typing_context: Any, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask holds, y elsewhere."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (_as_vector(context, builder, arguments[k], signature.args[k]) for k in (1, 2))
        return builder.select(arguments[0], x, y)

    return _vector(mask, x, y), code


@intrinsic
def any_lane(typing_context: Any, mask: Any) -> Any:
    """Whether the mask holds anywhere."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(mask), code


def _extreme(sign: str) -> Any:
    @intrinsic
    def extreme(typing_context: Any, x: Any, y: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, y = (
                _as_vector(context, builder, value, kind) for value, kind in zip(arguments, signature.args, strict=True)
            )
            return builder.select(builder.fcmp_ordered(sign, x, y), x, y)

        return _vector(x, y), code

    return extreme


maximum = _extreme(">")
minimum = _extreme("<")


@intrinsic
def absolute(typing_context: Any, x: Any) -> Any:
    """|x|, lane by lane."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        negative = builder.fneg(arguments[0])
        return builder.select(builder.fcmp_ordered(">", arguments[0], negative), arguments[0], negative)

    return _vector(x), code


@jit
def gather(start: Any, column: Any, value: Any, x: Any, out: Any) -> None:
    """out = Matrix · x for a matrix by rows."""
    for i in range(out.shape[0]):
        total = spread(0.0)
        for k in range(start[i], start[i + 1]):
            total = total + value[k] * get(x, column[k])
        put(out, i, total)


@jit
def load(source: Any, index: Any, out: Any) -> None:
    """Rows `index` of an instance-major array `(count, items)` (or `(1, items)`, shared by all) become the lanes."""
    shared = source.shape[0] == 1
    for t in range(LANES):
        row = 0 if shared else index[t]
        for i in range(out.shape[0]):
            out[i, t] = source[row, i]


@jit
def store(tile: Any, index: Any, used: Any, out: Any) -> None:
    """The first `used` lanes go back to their rows of an instance-major array."""
    for t in range(used):
        row = index[t]
        for i in range(tile.shape[0]):
            out[row, i] = tile[i, t]


def tiles(index: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Instance numbers in groups of `LANES`; the last group repeats its last instance. With how many are real."""
    groups = []
    for first in range(0, len(index), LANES):
        part = index[first : first + LANES]
        padded = np.full(LANES, part[-1], dtype=np.int64)
        padded[: len(part)] = part
        groups.append((padded, len(part)))
    return groups
