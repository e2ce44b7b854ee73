"""Names: which events a ring had at offsets that it let go of though somebody waited for them.

A queue holds offsets, and finds out later that the ring had no room. Its subscriber is to hear which events those were.
So the first bytes of such records stay a while, block by block; they name an event:

    block let go     4096 … 8191     24 bytes each: publisher, incarnation, sequence
    block let go     8192 … 9000     …                            the last 64 blocks are known
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from sievenet.cache.record import Key, key_of, name_of

__all__ = ["Names"]

#: Blocks whose events are known.
_BLOCKS: Final = 64


class Names:
    """Those of one ring, by offset."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, list[bytes]]] = deque(maxlen=_BLOCKS)

    def note(self, start: int, records: Sequence[bytes]) -> None:
        """The ring lets go of records, from an offset on."""
        self._blocks.append((start, [name_of(each) for each in records]))

    def of(self, offsets: Sequence[int]) -> list[Key]:
        """Which events were at ascending offsets, as far as that is known."""
        found: list[Key] = []
        for start, names in self._blocks:
            found += [key_of(names[each - start]) for each in offsets if start <= each < start + len(names)]
        return found
