"""Port sets: sets of ports as bits, for compiled code, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Final

import numpy as np

from sievenet.control.deployment.keys import Ports

__all__ = ["PortSets"]

#: Sets that are remembered.
_KNOWN = 1 << 14


#: What digits say.
_BITS: Final = bytes(byte == ord("1") for byte in range(256))


class _Known(dict[bytes, Ports]):
    """Sets by their bytes; one that is not there is made."""

    def __init__(self, port: list[int]) -> None:
        self._port = port

    def __missing__(self, data: bytes) -> Ports:
        if len(self) > _KNOWN:
            self.clear()
        bits = bin(int.from_bytes(data, "little"))[:1:-1].encode().translate(_BITS)
        found = self[data] = frozenset(compress(self._port, bits))
        return found


class PortSets:
    """Which bit is which port of a switch.  A set is so many words, in bytes, the lowest first."""

    def __init__(self) -> None:
        self.words = 1
        self._bit: dict[int, int] = {}
        self._port: list[int] = []
        #: The ports in the order of their bits.
        self.order = np.zeros(0, np.uint32)
        self._bytes: dict[Ports, bytes] = {}
        self._ports = _Known(self._port)
        #: The set of some bytes; no call in Python where it is remembered.
        self.ports: Callable[[bytes], Ports] = self._ports.__getitem__

    def learn(self, ports: Iterable[int]) -> bool:
        """Give bits to ports that have none; whether that takes more words."""
        for port in ports:
            if port not in self._bit:
                self._bit[port] = len(self._port)
                self._port.append(port)
        self.order = np.array(self._port, np.uint32)
        words = max(1, -(-len(self._port) // 64))
        if words == self.words:
            return False
        self.words = words
        self._forget()
        return True

    def known(self, ports: Ports) -> bytes | None:
        """A set as bytes, if all its ports have bits."""
        found = self._bytes.get(ports)
        if found is None:
            mask = 0
            for port in ports:
                bit = self._bit.get(port)
                if bit is None:
                    return None
                mask |= 1 << bit
            if len(self._bytes) > _KNOWN:
                self._bytes.clear()
            found = self._bytes[ports] = mask.to_bytes(8 * self.words, "little")
        return found

    def __len__(self) -> int:
        return len(self._port)

    def _forget(self) -> None:
        self._bytes.clear()
        self._ports.clear()
