"""Edge routing with Bloom filters: the publisher's router turns an event into bits, and all others only look those up.

    publisher's router                   next router                     next
    bfposet: event → bits ──(event, bits)──▶ tree: bits → interfaces ──▶ …

Every router knows every subscription (`add`, by the interface it came from). The first one pays for matching once; on
the way an event costs one search in a bftree or sbstree. Bits may claim too much, never too little: some needless hops,
and an exact filter at the edge of the network.
"""

from __future__ import annotations

from collections.abc import Hashable

from sievenet.content.filter import Filter, Matchable
from sievenet.content.schema import Schema
from sievenet.routers.bloom.bfposet import BfPoset
from sievenet.routers.bloom.trees import BfTree, BitTree, SbsTree

__all__ = ["EdgeRouter"]


class EdgeRouter:
    """The Bloom tables of one router, for one category."""

    def __init__(self, schema: Schema | None, *, width: int = 1024, hashes: int = 2, height: int | None = None) -> None:
        self._constraints = BfPoset(schema, width, hashes)
        #: A bftree of this height, or an sbstree.
        self._tree: BitTree = SbsTree() if height is None else BfTree(width, height)

    def add(self, wanted: Filter, interface: Hashable) -> None:
        """A subscription came by an interface."""
        self._tree.add(self._constraints.add(wanted), interface)

    def remove(self, wanted: Filter, interface: Hashable) -> None:
        """It was taken back."""
        self._tree.remove(self._constraints.remove(wanted), interface)

    def encode(self, event: Matchable) -> int:
        """The bits of an event that enters the network here."""
        return self._constraints.event(event)

    def interfaces(self, bits: int, by: Hashable = None) -> set[Hashable]:
        """Where an event with these bits goes on, besides where it came from."""
        return self._tree.match(bits) - {by}
