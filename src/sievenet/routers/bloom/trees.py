"""bftree and sbstree: sets of bits, asked which of them lie inside the bits of an event.

Both are tries. The *bftree* cuts the bits into h parts of equal size and has one part per level; a search goes into
every child whose part lies in the event's. The *sbstree* has one set bit per level, in ascending order: Bloom filters
of subscriptions are sparse, so its paths are short and share more.

    bits {1, 4, 6} and {1, 6}, 8 bits, h = 2         sbstree:   1 ─┬─ 4 ── 6 •
    bftree:  0010 ─┬─ 0101 •                                       └─ 6 •
                   └─ 0100 •

A search costs the nodes that lie inside the event's bits: all of them in the worst case, few if bits are spread well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from sievenet.errors import InvalidInput

__all__ = ["BfTree", "BitTree", "SbsTree"]


@dataclass(slots=True)
class _Node:
    children: dict[int, _Node] = field(default_factory=dict)
    #: How often each interface was added here.
    interfaces: dict[Hashable, int] = field(default_factory=dict)


class BitTree(Protocol):
    """Sets of bits by interface."""

    def add(self, bits: int, interface: Hashable) -> None:
        """Events that have these bits go to an interface; counted, if added more than once."""

    def remove(self, bits: int, interface: Hashable) -> None:
        """Take one addition back."""

    def match(self, bits: int) -> set[Hashable]:
        """The interfaces with a set that lies inside these bits."""


class _Trie(ABC):
    """What both trees share: a set of bits is a path of keys."""

    def __init__(self) -> None:
        self._root = _Node()

    @abstractmethod
    def _path(self, bits: int) -> Iterator[int]:
        """The keys of a set, in the order of this tree."""

    def add(self, bits: int, interface: Hashable) -> None:
        """Events that have these bits go to an interface; counted, if added more than once."""
        node = self._root
        for key in self._path(bits):
            node = node.children.setdefault(key, _Node())
        node.interfaces[interface] = node.interfaces.get(interface, 0) + 1

    def remove(self, bits: int, interface: Hashable) -> None:
        """Take one addition back; a path that leads nowhere any more is taken out."""
        trail: list[tuple[_Node, int]] = []
        node = self._root
        for key in self._path(bits):
            trail.append((node, key))
            if key not in node.children:
                return
            node = node.children[key]
        if interface not in node.interfaces:
            return
        node.interfaces[interface] -= 1
        if not node.interfaces[interface]:
            del node.interfaces[interface]
        while trail and not node.interfaces and not node.children:
            node, key = trail.pop()
            del node.children[key]

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""
        return not self._root.children and not self._root.interfaces

    def nodes(self) -> int:
        """How many nodes there are, the root not counted."""
        count, waiting = -1, [self._root]
        while waiting:
            node = waiting.pop()
            count += 1
            waiting += node.children.values()
        return count


class BfTree(_Trie):
    """Bits in ``height`` parts."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        if height < 1 or width % height:
            raise InvalidInput(expected=f"a height that divides the width {width}", got=height)
        self._height = height
        self._step = width // height
        self._mask = (1 << self._step) - 1

    def _path(self, bits: int) -> Iterator[int]:
        for level in range(self._height):
            yield bits >> level * self._step & self._mask

    def match(self, bits: int) -> set[Hashable]:
        """The interfaces with a set that lies inside these bits."""
        found: set[Hashable] = set()
        level = [self._root]
        for part in self._path(bits):
            deeper: list[_Node] = []
            for node in level:
                deeper += [child for key, child in node.children.items() if key & part == key]
            level = deeper
        for node in level:
            found.update(node.interfaces)
        return found


class SbsTree(_Trie):
    """Bits one by one."""

    def _path(self, bits: int) -> Iterator[int]:
        while bits:
            lowest = bits & -bits
            yield lowest
            bits ^= lowest

    def match(self, bits: int) -> set[Hashable]:
        """The interfaces with a set that lies inside these bits."""
        found: set[Hashable] = set()
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            found.update(node.interfaces)
            for key, child in node.children.items():
                if key & bits:
                    waiting.append(child)
        return found
