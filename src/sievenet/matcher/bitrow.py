"""Rows of 256 bits, four words each, handled whole: the compiler would take their words one by one."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.np.arrayobj import make_array

from sievenet.jit import intrinsic

__all__ = ["SLOTS", "WORDS", "and_row", "copy_row", "lowest_bit"]

_array_of: Any = make_array

#: Words of a row.
WORDS: Final = 4
#: Bits of a row: slots of a block, of which each has one.
SLOTS: Final = 64 * WORDS


@intrinsic
def lowest_bit(typingctx: Any, word: Any) -> Any:
    """The position of the lowest bit that is set, by the machine's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _rows(context: Any, builder: Any, signature: Any, args: Any, arrays: tuple[int, ...]) -> list[Any]:
    """Pointers to rows of four words; args alternate between arrays and indices."""
    row = ir.VectorType(ir.IntType(64), WORDS)
    pointers = []
    for at in arrays:
        array = _array_of(signature.args[at])(context, builder, args[at])
        base = builder.bitcast(array.data, row.as_pointer())
        pointers.append(builder.gep(base, [args[at + 1]], source_etype=row))
    return pointers


@intrinsic
def copy_row(typingctx: Any, target: Any, i: Any, source: Any, j: Any) -> Any:
    """target[i] = source[j], for rows of four words, with one wide load and store."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, of = _rows(context, builder, signature, args, (0, 2))
        row = ir.VectorType(ir.IntType(64), WORDS)
        builder.store(builder.load(of, align=8, typ=row), to, align=8)
        return context.get_dummy_value()

    return types.void(target, i, source, j), generate


@intrinsic
def and_row(typingctx: Any, target: Any, i: Any, source: Any, j: Any) -> Any:
    """target[i] &= source[j], for rows of four words; the compiler would take them one by one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, of = _rows(context, builder, signature, args, (0, 2))
        row = ir.VectorType(ir.IntType(64), WORDS)
        both = builder.and_(builder.load(to, align=8, typ=row), builder.load(of, align=8, typ=row))
        builder.store(both, to, align=8)
        return context.get_dummy_value()

    return types.void(target, i, source, j), generate
