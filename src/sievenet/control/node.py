"""Nodes of the prefix tree of registrations, and dz as the numbers they are found by."""

from __future__ import annotations

from sievenet.index import Dz

__all__ = ["Node", "dz_of", "key_of"]


def key_of(dz: Dz) -> int:
    """A dz as one number: its bits behind a leading one.  ``a`` covers ``b`` iff b >> (|b| - |a|) == a."""
    return 1 << dz.length | dz.bits


def dz_of(key: int) -> Dz:
    """The dz of a key."""
    length = key.bit_length() - 1
    return Dz(key ^ 1 << length, length)


class Node:
    """A dz that somebody registered, or at which two such part."""

    __slots__ = ("all_frm", "all_to", "frm", "key", "length", "offers", "one", "parent", "to", "wants", "zero")

    def __init__(self, key: int, length: int, parent: Node | None) -> None:
        self.key = key
        self.length = length
        self.parent = parent
        self.zero: Node | None = None
        self.one: Node | None = None
        #: Clients' wires, counted.
        self.wants: dict[int, int] = {}
        self.offers: dict[int, int] = {}
        #: Ways to those who want, from those who offer, exactly this dz.
        self.to = 0
        self.frm = 0
        #: The same for this dz and all above.
        self.all_to: int = 0 if parent is None else parent.all_to
        self.all_frm: int = 0 if parent is None else parent.all_frm

    def __repr__(self) -> str:
        return f"<Node {self.key:b}: wanted by {self.wants}, offered by {self.offers}>"
