"""The prefix tree of registrations: nodes, and dz as the numbers they are found by.

A node stands for a dz that somebody registered, or at which two such part; there is none in
between.  Each knows the ways of those registered at it (`to`, `frm`, see `wires`) and of all
that are registered at it or below (`sub_to`, `sub_frm`), which tells a walk from above
what it would find without going there.
"""

from __future__ import annotations

from collections.abc import Iterator

from sievenet.index import Dz
from sievenet.network import Match

__all__ = ["Node", "Tree", "dz_of", "key_of"]


def key_of(dz: Dz) -> int:
    """A dz as one number: its bits behind a leading one.  ``a`` covers ``b`` iff b >> (|b| - |a|) == a."""
    return 1 << dz.length | dz.bits


def dz_of(key: int) -> Dz:
    """The dz of a key."""
    length = key.bit_length() - 1
    return Dz(key ^ 1 << length, length)


class Node:
    """A dz that somebody registered, or at which two such part."""

    __slots__ = (
        "frm",
        "key",
        "length",
        "match",
        "offers",
        "one",
        "parent",
        "stale",
        "sub_frm",
        "sub_to",
        "to",
        "wants",
        "was",
        "zero",
    )

    def __init__(self, key: int, length: int, parent: Node | None) -> None:
        self.key = key
        self.length = length
        self.parent = parent
        self.zero: Node | None = None
        self.one: Node | None = None
        #: Clients' wires, counted; None as long as there are none.
        self.wants: dict[int, int] | None = None
        self.offers: dict[int, int] | None = None
        #: Ways to those who want, from those who offer, exactly this dz.
        self.to = 0
        self.frm = 0
        #: The same for this dz and all below.
        self.sub_to = 0
        self.sub_frm = 0
        #: `to` and `frm` as switches know them, if that may differ.
        self.was: tuple[int, int] | None = None
        #: Whether there is a `was` here or below.
        self.stale = False
        #: What its flows match, once it has any.
        self.match: Match | None = None

    def touch(self) -> None:
        """Remember what was, before it changes for the first time."""
        if self.was is None:
            self.was = self.to, self.frm
            node: Node | None = self
            while node is not None and not node.stale:
                node.stale = True
                node = node.parent

    def widen(self) -> None:
        """Somebody registered here: tell those above."""
        node: Node | None = self
        to, frm = self.to, self.frm
        while node is not None:
            sub_to, sub_frm = node.sub_to | to, node.sub_frm | frm
            if sub_to == node.sub_to and sub_frm == node.sub_frm:
                return
            node.sub_to, node.sub_frm = sub_to, sub_frm
            node = node.parent

    def narrow(self) -> None:
        """Somebody is not registered here any more: tell those above."""
        node: Node | None = self
        while node is not None and node.sum_up():
            node = node.parent

    def sum_up(self) -> bool:
        """Bring `sub_to` and `sub_frm` in line with the children's; whether that changed anything."""
        to, frm = self.to, self.frm
        for child in (self.zero, self.one):
            if child is not None:
                to |= child.sub_to
                frm |= child.sub_frm
        if to == self.sub_to and frm == self.sub_frm:
            return False
        self.sub_to, self.sub_frm = to, frm
        return True

    def __repr__(self) -> str:
        return f"<Node {self.key:b}: wanted by {self.wants}, offered by {self.offers}>"


class Tree:
    """All nodes, found by key or from above."""

    def __init__(self) -> None:
        self.root = Node(1, 0, None)
        self._nodes: dict[int, Node] = {1: self.root}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """Parents before their children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            if node.zero is not None:
                stack.append(node.zero)
            if node.one is not None:
                stack.append(node.one)

    def node(self, key: int) -> Node:
        """The node of a dz, made if there is none."""
        known = self._nodes.get(key)
        if known is not None:
            return known
        # From below, since a full tree has nodes at most lengths: the nearest one above is near.
        prefix, above = key >> 1, self._nodes.get(key >> 1)
        while above is None:
            prefix >>= 1
            above = self._nodes.get(prefix)
        length = key.bit_length() - 1
        child = above.one if key >> (length - above.length - 1) & 1 else above.zero
        if child is None:
            return self._hang(above, key, length)
        shared = min(length, child.length)
        mine, theirs = key >> (length - shared), child.key >> (child.length - shared)
        differing = (mine ^ theirs).bit_length()
        fork = self._hang(above, mine >> differing, shared - differing)
        fork.sub_to, fork.sub_frm, fork.stale = child.sub_to, child.sub_frm, child.stale
        child.parent = fork
        if child.key >> (child.length - fork.length - 1) & 1:
            fork.one = child
        else:
            fork.zero = child
        return fork if fork.length == length else self._hang(fork, key, length)

    def _hang(self, above: Node, key: int, length: int) -> Node:
        """A new node on the proper side of `above`."""
        node = self._nodes[key] = Node(key, length, above)
        if key >> (length - above.length - 1) & 1:
            above.one = node
        else:
            above.zero = node
        return node

    def prune(self, node: Node) -> None:
        """Take out a node that nobody registered at, if nothing parts there."""
        while not node.wants and not node.offers:
            above = node.parent
            child = node.zero or node.one
            if above is None or (node.zero is not None and node.one is not None):
                return
            if self._nodes.pop(node.key, None) is None:
                return  # out already
            if above.one is node:
                above.one = child
            else:
                above.zero = child
            if child is not None:
                child.parent = above
                return
            node = above
