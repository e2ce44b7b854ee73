"""Tables as plain values while they are worked on: ports by dz, and how dz lie to each other.

A dz is its key here (`Dz.key`: its bits behind a leading one), a table a dict from keys to sets of ports.  As
anywhere, the longest dz that covers a packet's code decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from sievenet.index import CODE_BITS

__all__ = [
    "Ports",
    "Table",
    "Transform",
    "above",
    "common",
    "covers",
    "key_at",
    "keys_of",
    "place",
    "space",
    "stretch",
    "words_of",
]

Ports: TypeAlias = frozenset[int]
Table: TypeAlias = Mapping[int, Ports]
#: From one table to another that is to be deployed in its stead; pure.
Transform: TypeAlias = Callable[[Table], dict[int, Ports]]

_BEHIND: Final = 8
_LENGTH: Final = (1 << _BEHIND) - 1
_LOW: Final = (1 << 64) - 1


def covers(a: int, b: int) -> bool:
    """Whether dz a is b or a larger one around it."""
    gap = b.bit_length() - a.bit_length()
    return gap >= 0 and b >> gap == a


def common(a: int, b: int) -> int:
    """The smallest dz that covers both."""
    gap = b.bit_length() - a.bit_length()
    if gap >= 0:
        b >>= gap
    else:
        a >>= -gap
    return a >> (a ^ b).bit_length()


def place(key: int) -> int:
    """Where a dz stands in the order in which each comes before all that it covers, and those before all others."""
    length = key.bit_length() - 1
    return key << (CODE_BITS - length + _BEHIND) | length


def key_at(place_: int) -> int:
    """The dz that stands at a place."""
    return place_ >> (CODE_BITS - (place_ & _LENGTH) + _BEHIND)


def stretch(key: int) -> tuple[int, int]:
    """The places of a dz and of all that it covers: from the first to before the last."""
    shift = CODE_BITS - key.bit_length() + 1 + _BEHIND
    return key << shift | key.bit_length() - 1, (key + 1) << shift


def above(key: int, root: int) -> Iterator[int]:
    """The dz around one, the smallest first, up to a root."""
    while key > root:
        key >>= 1
        yield key


def space(key: int) -> float:
    """The share of all content that lies in a dz."""
    return 2.0 ** (1 - key.bit_length())


def words_of(key: int) -> tuple[int, int, int]:
    """A key left-aligned in two words, and its length."""
    length = key.bit_length() - 1
    code = (key ^ 1 << length) << CODE_BITS - length
    return code >> 64, code & _LOW, length


def keys_of(words: Any, lengths: Any) -> list[int]:
    """The keys of such words and lengths, in arrays."""
    each = zip(words.tolist(), lengths.tolist(), strict=True)
    return [1 << n | (hi << 64 | lo) >> CODE_BITS - n for (hi, lo), n in each]
