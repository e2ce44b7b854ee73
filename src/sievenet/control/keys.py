"""Keys: a dz as one number, its bits behind a leading one.

``a`` covers ``b`` iff ``b >> (|b| - |a|) == a``, where the length of a key is that of its bits behind the leading one.
"""

from __future__ import annotations

from sievenet.index import Dz

__all__ = ["dz_of", "key_of"]


def key_of(dz: Dz) -> int:
    """The key of a dz."""
    return 1 << dz.length | dz.bits


def dz_of(key: int) -> Dz:
    """The dz of a key."""
    length = key.bit_length() - 1
    return Dz(key ^ 1 << length, length)
