"""Who is attached where, on planes whose packets are addressed by their content.

A client's port number is the UDP port that its packets come from and go to. It follows from its name, and its token
from its name and the plane's secret, so that a controller that comes back gives out the same ones in any order.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, TypeAlias

from sievenet.dataplane.plane import Attached
from sievenet.errors import Rejected
from sievenet.network.topology import CLIENT_PORTS, Topology

__all__ = ["Place", "Roster"]

#: Where a host's clients open their sockets: its own address, and its namespace if it is on this machine.
Place: TypeAlias = tuple[str, str]

#: Clients' port numbers: UDP ports that need no privilege, and below those that content is sent to.
_FIRST: Final = max(CLIENT_PORTS, 1024)
_LAST: Final = 0x7FFF


class Roster:
    """The attached clients of a plane."""

    def __init__(
        self, place: Callable[[str], Place] | None = None, secret: bytes | None = None, *, room: int = 0
    ) -> None:
        self._place = place
        #: Bytes of a datagram with several events (`Attached.room`).
        self._room = room
        self._secret = secret or secrets.token_bytes(32)
        self._clients: dict[str, Attached] = {}

    def known(self, client: str, host: str) -> Attached | None:
        """Where a client is already; `Rejected` if that is another host."""
        found = self._clients.get(client)
        if found is not None and found.host != host:
            raise Rejected(f"Client {client} is attached at {found.host}, not at {host}")
        return found

    def add(self, topology: Topology, host: str, client: str, wanted: int | None) -> Attached:
        """Give a client a port number at its host's switch, if possible the one that is wanted."""
        switch = topology.attachment(host).switch
        number = self._free(switch, client, wanted)
        token = blake2b(client.encode(), key=self._secret, digest_size=8, person=b"sievenet-token").digest()
        address, namespace = self._place(host) if self._place is not None else ("::", "")
        attached = self._clients[client] = Attached(
            client, host, switch, number, int.from_bytes(token, "big"), (address, number), "ipv6", namespace, self._room
        )
        return attached

    def _free(self, switch: str, client: str, wanted: int | None) -> int:
        taken = {attached.port for attached in self._clients.values() if attached.switch == switch}
        if wanted is not None and _FIRST <= wanted <= _LAST and wanted not in taken:
            return wanted
        count = _LAST - _FIRST + 1
        start = int.from_bytes(blake2b(client.encode(), digest_size=4).digest(), "big") % count
        for step in range(count):
            number = _FIRST + (start + step) % count
            if number not in taken:
                return number
        raise Rejected(f"Switch {switch} has no free port: {count} clients are attached")

    def remove(self, client: str) -> Attached | None:
        """Forget a client; where it was."""
        return self._clients.pop(client, None)

    def all(self) -> dict[str, Attached]:
        """Everybody, by name."""
        return dict(self._clients)

    def __iter__(self) -> Iterator[Attached]:
        return iter(list(self._clients.values()))
