"""Puts: registrations and their opposites in columns, for those who have many, and for the way to another process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.registrations.trie.layout import COUNT, FRM, ITEMS, LENGTH, MADE, NEXT, TO, WANTS, WIRE, Arrays
from sievenet.errors import CodecError
from sievenet.index.code import word_arrays

__all__ = ["Puts", "keys_of", "listed", "words_of"]

_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_WORD: Final = (1 << 64) - 1

#: Whether it is an offer (else something wanted), whether it is added (else taken back), the wire, the keys.
Put = tuple[bool, bool, int, Iterable[int]]


class Puts(NamedTuple):
    """Rows of: twice the side and one to add, the wire, the two words of the key."""

    kinds: _Longs
    wires: _Longs
    highs: _Words
    lows: _Words

    @classmethod
    def of(cls, puts: Iterable[Put]) -> Puts:
        """From what was asked for, in its order."""
        kinds: list[int] = []
        wires: list[int] = []
        keys: list[int] = []
        for offers, adds, wire, mine in puts:
            before = len(keys)
            keys += mine
            some = len(keys) - before
            kinds += [2 * offers + adds] * some
            wires += [wire] * some
        return cls(np.array(kinds, np.int64), np.array(wires, np.int64), *words_of(keys))

    def undone(self) -> Puts:
        """What takes all of it back."""
        back = slice(None, None, -1)
        return Puts(self.kinds[back] ^ 1, self.wires[back].copy(), self.highs[back].copy(), self.lows[back].copy())

    def encode(self) -> bytes:
        """As bytes: column after column."""
        return b"".join(each.tobytes() for each in self)

    @classmethod
    def decode(cls, data: bytes) -> Puts:
        """From bytes; `CodecError` if they are none."""
        count, rest = divmod(len(data), 32)
        if rest:
            raise CodecError(expected="a multiple of 32 bytes", got=len(data), where="puts")
        # A copy, since compiled code would be compiled once more for what cannot be written to.
        kinds, wires, highs, lows = np.frombuffer(bytearray(data), np.uint64).reshape(4, count)
        if count and (kinds.max() > 3 or wires.max() >= 1 << 31 or not (highs | lows).all()):
            raise CodecError(expected="kinds up to 3, wires from 0 and keys from 1", got="others", where="puts")
        return cls(kinds.view(np.int64), wires.view(np.int64), highs, lows)


def words_of(keys: list[int]) -> tuple[_Words, _Words]:
    """Keys in two words each."""
    if not keys or max(keys) <= _WORD:
        return np.zeros(len(keys), np.uint64), np.array(keys, np.uint64)
    return word_arrays(keys)


def listed(a: Arrays) -> Puts:
    """Everything that is registered in a tree."""
    made = int(a.meta[MADE])
    nodes, items = a.nodes[:made], a.items[: int(a.meta[ITEMS])]
    live = np.flatnonzero(nodes[:, LENGTH] >= 0)
    found: list[tuple[_Longs, _Longs, int]] = []
    for side in (TO, FRM):
        where, item = live, nodes[live, WANTS + side]
        while len(where):  # once per place in the lists
            there = item >= 0
            where, item = where[there], item[there]
            found.append((where, item, side))
            item = items[item, NEXT]
    where = np.concatenate([each[0] for each in found])
    item = np.concatenate([each[1] for each in found])
    sides = np.concatenate([np.full(len(each[0]), each[2], np.int64) for each in found])
    counts = items[item, COUNT]
    where, wires, sides = (np.repeat(each, counts) for each in (where, items[item, WIRE], sides))
    return Puts(2 * sides + 1, wires, *keys_of(a.keys[where], nodes[where, LENGTH]))


def keys_of(aligned: _Words, lengths: _Longs) -> tuple[_Words, _Words]:
    """Left-aligned bits as keys: behind a leading one, at the right."""
    high, low, length = aligned[:, 0], aligned[:, 1], lengths.astype(np.uint64)
    # Shifting by 64 or more is not defined: both ways are worked out with what fits, and the proper one is taken.
    short = np.where(length, high >> np.minimum(64 - length, 63), 0)
    down = np.minimum(128 - length, 63)
    one, wide = np.uint64(1), length > 64
    highs = np.where(wide, high >> down | one << np.minimum(length - 64, 63), length == 64)
    lows = np.where(wide, low >> down | high << (64 - down), high)
    lows = np.where(length < 64, short | one << np.minimum(length, 63), lows)
    return highs.astype(np.uint64), lows.astype(np.uint64)
