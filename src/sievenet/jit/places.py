"""Arrays by their places: where many of them are handed over, at each call, that takes longer than much work.

A row of a table says where an array is and how large; compiled code makes the array of it that it needs. Whoever fills
the table keeps the arrays alive, and where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.np.numpy_support import carray

from sievenet.errors import InvalidInput
from sievenet.jit.decorators import inlined, intrinsic

__all__ = ["grid", "line", "placed", "pointer"]


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An address as compiled code takes it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@inlined
def line(places: Any, row: int, kind: Any) -> Any:
    """The array of one dimension that a row of places tells of."""
    return carray(pointer(places[row, 0]), (places[row, 1],), kind)


@inlined
def grid(places: Any, row: int, kind: Any) -> Any:
    """The array of two dimensions that a row of places tells of."""
    return carray(pointer(places[row, 0]), (places[row, 1], places[row, 2]), kind)


def placed(arrays: Sequence[Any], kinds: Sequence[str]) -> npt.NDArray[np.int64]:
    """The places of arrays of one or two dimensions; ``kinds`` are what compiled code takes them for.

    That is all that compiled code knows of them: what is something else would be read as if it were not.
    """
    if (found := [each.dtype.str for each in arrays]) != list(kinds):
        raise InvalidInput(expected=f"arrays of {' '.join(kinds)}", got=" ".join(found), where="places")
    if not all(each.flags.c_contiguous for each in arrays):
        raise InvalidInput(expected="arrays without gaps", got="one with gaps", where="places")
    return np.array([(each.__array_interface__["data"][0], *each.shape, 0)[:3] for each in arrays], np.int64)
