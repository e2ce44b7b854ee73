"""Which publisher number a client has at a data port: the one that the plane, or whoever receives, can check."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane.packet import publisher_at, publisher_of
from sievenet.index.address import CONTENT_PORT, CONTENT_PREFIX

__all__ = ["publisher_number"]

_ANY: Final = socket.inet_pton(socket.AF_INET6, "::")


def publisher_number(endpoint: DataEndpoint) -> int:
    """The number that a client with this endpoint publishes under."""
    if endpoint.kind != "ipv6":
        return publisher_of(endpoint.token)
    address = socket.inet_pton(socket.AF_INET6, endpoint.address)
    return publisher_at(_own_address() if address == _ANY else address, endpoint.port)


def _own_address() -> bytes:
    """The address that content leaves this host from, for planes that do not know it: the system's choice."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        # Connecting sends nothing; it only chooses a route.
        probe.connect((f"{CONTENT_PREFIX:x}::", CONTENT_PORT))
        return socket.inet_pton(socket.AF_INET6, probe.getsockname()[0])
    return _ANY
