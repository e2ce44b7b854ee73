"""In which categories the clients of a kernel switch may publish: a set of (client, category) in the kernel.

The program looks there for packets of clients whose `checked` is set, one look for each packet at its first switch.
A client's set changes while it publishes, so what is new enters first and what is old leaves last: nothing that is
permitted before and after a change is refused meanwhile.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf

__all__ = ["Permits"]

#: A client's number and a category: `struct permit` of the program.
_PERMIT: Final = struct.Struct("=HH")


class Permits:
    """The permits of one switch."""

    def __init__(self, entries: bpf.Map, ports: NDArray[Any]) -> None:
        self._entries = entries
        #: The rows of its ports, whose `checked` says whether permits count.
        self._ports = ports
        #: What the kernel holds, by client.
        self._held: dict[int, frozenset[int]] = {}

    def remember(self) -> None:
        """Learn what the kernel holds."""
        for entry in self._entries.items():
            number, category = _PERMIT.unpack(entry[0])
            self._held[number] = self._held.get(number, frozenset()) | {category}

    def give(self, number: int, categories: frozenset[int]) -> bool:
        """A client may publish in these categories alone; False, and it may in any, if so many do not fit."""
        held = self._held.get(number, frozenset())
        self._held[number] = held | categories
        try:
            for category in sorted(categories - held):
                self._entries.put(_PERMIT.pack(number, category), bytes(4))
        except OSError:
            self.lift(number)
            return False
        self._ports[number]["checked"] = 1
        self._keep(number, categories)
        return True

    def lift(self, number: int) -> None:
        """A client may publish anything; what is held of it stays until it is given others, or leaves."""
        self._ports[number]["checked"] = 0

    def take(self, number: int) -> None:
        """A client has left."""
        self.lift(number)
        self._keep(number, frozenset())

    def _keep(self, number: int, categories: frozenset[int]) -> None:
        for category in self._held.pop(number, frozenset()) - categories:
            self._entries.remove(_PERMIT.pack(number, category))
        if categories:
            self._held[number] = categories
