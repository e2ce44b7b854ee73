"""Changes of a switch's entries on their way to the kernel."""

from __future__ import annotations

from collections.abc import Mapping

from sievenet.dataplane.kernel import bpf

__all__ = ["Batch"]


class Batch:
    """Changes of entries on their way to the kernel: as few calls as their order allows."""

    def __init__(self, maps: Mapping[str, bpf.Map]) -> None:
        self._maps = maps
        self._what = ("", False)
        self._keys: list[bytes] = []
        self._values: list[bytes] = []

    def put(self, where: str, key: bytes, value: bytes) -> None:
        """Set an entry."""
        if self._what != (where, True):
            self.flush()
            self._what = where, True
        self._keys.append(key)
        self._values.append(value)

    def remove(self, where: str, key: bytes) -> None:
        """Forget an entry."""
        if self._what != (where, False):
            self.flush()
            self._what = where, False
        self._keys.append(key)

    def flush(self) -> None:
        """Carry out what waits."""
        where, puts = self._what
        if self._keys and puts:
            self._maps[where].put_all(self._keys, self._values)
        elif self._keys:
            self._maps[where].remove_all(self._keys)
        self._keys, self._values = [], []
