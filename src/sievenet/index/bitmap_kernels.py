"""The compiled part of `bitmaps`: writing a cell's bits, and the *and* over all places."""

from __future__ import annotations

from typing import Any

import numpy as np

from sievenet.jit import compiled, inlined

__all__ = ["find", "find_many", "holding", "write"]


@inlined
def _four(octets: Any, place: Any) -> Any:
    """The four bits at a place."""
    octet = np.int64(octets[place >> 1])
    return octet & 15 if place & 1 else octet >> 4


@inlined
def _lowest(low: Any) -> Any:
    """The position of the only one in a word."""
    x = low - np.uint64(1)
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int32((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def write(bits: Any, number: Any, value: Any, mask: Any, numbers: Any, table: Any) -> None:
    """Write the bits of one cell into the bitmaps of all places and letters."""
    word, one = number // 64, np.uint64(1) << np.uint64(number % 64)
    for r in range(bits.shape[0]):
        for place in range(bits.shape[1]):
            letter = numbers[_four(mask, place), _four(value, place)]
            for asked in range(bits.shape[2]):
                if table[r, letter, asked]:
                    bits[r, place, asked, word] |= one
                else:
                    bits[r, place, asked, word] &= ~one


@compiled
def _gather(bits: Any, words: Any, letters: Any, out: Any, count: Any) -> Any:
    """Write the numbers of the cells with these letters at their places behind the first `count`; the new count."""
    places = bits.shape[0]
    for word in range(words):
        left = bits[0, letters[0], word]
        for place in range(1, places):
            if left == np.uint64(0):
                break
            left &= bits[place, letters[place], word]
        while left != np.uint64(0):
            low = left & (~left + np.uint64(1))
            out[count] = 64 * word + _lowest(low)
            count += 1
            left ^= low
    return count


@compiled
def find(bits: Any, words: Any, value: Any, mask: Any, numbers: Any, out: Any) -> Any:
    """Write the numbers of the cells that go with a cell at every place; how many there are."""
    places = bits.shape[0]
    letters = np.empty(places, np.int64)
    for place in range(places):
        letters[place] = numbers[_four(mask, place), _four(value, place)]
    return _gather(bits, words, letters, out, 0)


@compiled
def holding(bits: Any, words: Any, code: Any, out: Any) -> Any:
    """The same for the cells that hold a code."""
    letters = np.empty(bits.shape[0], np.int64)
    for place in range(bits.shape[0]):
        letters[place] = _four(code, place)
    return _gather(bits, words, letters, out, 0)


@compiled
def find_many(bits: Any, words: Any, hi: Any, lo: Any, out: Any, ends: Any) -> Any:
    """The same for codes, one after the other until `out` might not do: how many codes, and how many numbers."""
    places = bits.shape[0]
    letters = np.empty(places, np.int64)
    count = 0
    for row in range(hi.size):
        if out.size - count < 64 * words:
            return row, count
        for place in range(places):
            half, at = (hi[row], place) if place < 16 else (lo[row], place - 16)
            letters[place] = np.int64((half >> np.uint64(60 - 4 * at)) & np.uint64(15))
        count = _gather(bits, words, letters, out, count)
        ends[row] = count
    return hi.size, count
