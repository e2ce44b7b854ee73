"""The code: content as bits, in the forms in which the parts of the system need it.

    dz        101               a string of bits: the subspace of all events whose code begins so (`dz`)
    cell      1*1               bits under a mask (`cell`)
    code      101000…           left-aligned in 128 bits, so that codes of different lengths compare as numbers
    words     (hi, lo)          the code as two 64-bit words, for arrays and compiled code
    masked    (value, mask)     a code lies in a dz or cell iff ``code & mask == value``
    key       0b1101            a dz as one number, its bits behind a leading one: ``a`` covers ``b`` iff
                                ``b >> (|b| - |a|) == a``
    address   fd0e:1:a000::     what switches match (`address`)

This module has the widths and the way between a code and its words; `Dz` and `Cell` have the other forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["CODE_BITS", "MAX_BITS", "Words", "joined", "split", "word_arrays"]

#: Bits of a code in memory: those of an IPv6 address.
CODE_BITS: Final = 128
#: Most bits of an index plan: what fits into a packet's head besides prefix and category.
MAX_BITS: Final = 112

Words = npt.NDArray[np.uint64]

_LOW: Final = (1 << 64) - 1


def split(code: int) -> tuple[int, int]:
    """A code as its high and low 64-bit word."""
    return code >> 64, code & _LOW


def joined(high: int, low: int) -> int:
    """The code of two 64-bit words."""
    return high << 64 | low


def word_arrays(codes: Iterable[int]) -> tuple[Words, Words]:
    """Codes as two arrays of 64-bit words."""
    listed = list(codes)
    return np.array([code >> 64 for code in listed], np.uint64), np.array([code & _LOW for code in listed], np.uint64)
