"""Whole numbers in rows of bytes, each read by one instruction: the compiler would take their bytes one by one."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.np.arrayobj import make_array

from sievenet.jit import intrinsic

__all__ = ["load_big", "load_little"]

_array_of: Any = make_array


def _load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    made = _array_of(signature.args[0])(context, builder, args[0])
    ahead = builder.add(builder.mul(args[1], builder.extract_value(made.strides, 0)), args[2])
    place = builder.gep(made.data, [ahead], source_etype=ir.IntType(8))
    word = ir.IntType(64)
    return builder.load(builder.bitcast(place, word.as_pointer()), align=1, typ=word)


def _loader(rows: Any, order: str) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = _load(context, builder, signature, args)
        return found if order == sys.byteorder else builder.bswap(found)

    return types.uint64(rows, types.int64, types.int64), generate


@intrinsic
def load_big(context: Any, rows: Any, i: Any, at: Any) -> Any:
    """The number in the eight bytes of row i from ``at`` on, highest first; a row's bytes lie one after the other."""
    return _loader(rows, "big")


@intrinsic
def load_little(context: Any, rows: Any, i: Any, at: Any) -> Any:
    """The number in the eight bytes of row i from ``at`` on, lowest first; a row's bytes lie one after the other."""
    return _loader(rows, "little")
