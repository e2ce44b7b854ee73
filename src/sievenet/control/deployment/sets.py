"""Port sets: sets of ports as bits, for compiled code, and back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sievenet.control.deployment.keys import Ports

__all__ = ["PortSets"]

#: Sets that are remembered.
_KNOWN = 1 << 14


class PortSets:
    """Which bit is which port of a switch.  A set is so many words, in bytes, the lowest first."""

    def __init__(self) -> None:
        self.words = 1
        self._bit: dict[int, int] = {}
        self._port: list[int] = []
        #: The ports in the order of their bits.
        self.order = np.zeros(0, np.uint32)
        self._bytes: dict[Ports, bytes] = {}
        self._ports: dict[bytes, Ports] = {}

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
            found = self._keep(mask.to_bytes(8 * self.words, "little"), ports)
        return found

    def ports(self, data: bytes) -> Ports:
        """The set of some bytes."""
        found = self._ports.get(data)
        if found is None:
            mask = int.from_bytes(data, "little")
            found = frozenset(port for bit, port in enumerate(self._port) if mask >> bit & 1)
            self._keep(data, found)
        return found

    def __len__(self) -> int:
        return len(self._port)

    def _keep(self, data: bytes, ports: Ports) -> bytes:
        if len(self._ports) > _KNOWN:
            self._forget()
        self._bytes[ports] = data
        self._ports[data] = ports
        return data

    def _forget(self) -> None:
        self._bytes.clear()
        self._ports.clear()
