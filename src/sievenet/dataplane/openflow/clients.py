"""Port numbers of clients: UDP ports that need no privilege, and below those that content is sent to."""

from __future__ import annotations

from collections.abc import Container
from hashlib import blake2b
from typing import Final

from sievenet.errors import Rejected
from sievenet.network.topology import CLIENT_PORTS

__all__ = ["free_port"]

_FIRST: Final = max(CLIENT_PORTS, 1024)
_LAST: Final = 0x7FFF


def free_port(switch: str, client: str, wanted: int | None, taken: Container[int]) -> int:
    """A port number for a client at a switch, if possible the one that is wanted; `Rejected` if all are taken."""
    if wanted is not None and _FIRST <= wanted <= _LAST and wanted not in taken:
        return wanted
    # From the name, so that a controller that comes back gives out the same numbers in any order.
    count = _LAST - _FIRST + 1
    start = int.from_bytes(blake2b(client.encode(), digest_size=4).digest(), "big") % count
    for step in range(count):
        number = _FIRST + (start + step) % count
        if number not in taken:
            return number
    raise Rejected(f"Switch {switch} has no free port: {count} clients are attached")
