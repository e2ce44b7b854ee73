"""What a data plane is, for those who decide: the interface, its notices and its counters.

Every data plane (embedded, simulated, OpenFlow) is used through `DataPlane` and held to
one contract suite, `sievenet.testing.dataplane_contract`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from socket import AF_INET6, inet_pton
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from sievenet.dataplane.packet import publisher_at, publisher_of
from sievenet.network.flow import FlowChange, FlowKey
from sievenet.network.table import FlowTable
from sievenet.network.topology import CLIENT_PORTS, Attachment, Topology

__all__ = [
    "Attached",
    "Count",
    "DataPlane",
    "LinkDown",
    "LinkUp",
    "Notice",
    "PlaneStatistics",
    "PortCount",
    "Redrawn",
    "SwitchCounters",
    "SwitchDown",
    "SwitchUp",
]


class SwitchUp(msgspec.Struct, frozen=True, tag=True):
    """A switch answers (again); what its table holds must be read."""

    switch: str


class SwitchDown(msgspec.Struct, frozen=True, tag=True):
    """A switch is gone, with its table."""

    switch: str


class LinkUp(msgspec.Struct, frozen=True, tag=True):
    """A link carries packets (again)."""

    a: str
    b: str


class LinkDown(msgspec.Struct, frozen=True, tag=True):
    """A link carries nothing."""

    a: str
    b: str


class Redrawn(msgspec.Struct, frozen=True, tag=True):
    """The network has other switches, links or hosts than before; new switches are told to be up afterwards."""

    topology: Topology


Notice: TypeAlias = SwitchUp | SwitchDown | LinkUp | LinkDown | Redrawn


class Attached(msgspec.Struct, frozen=True):
    """A client's place in the network: a port of its own at its host's switch."""

    client: str
    host: str
    switch: str
    port: int
    #: The secret that its datagrams carry.
    token: int = 0
    #: Where to send them: (address, UDP port), or None if the plane has no sockets of its own.
    endpoint: tuple[str, int] | None = None
    #: What they look like: "udp" (datagrams with the token) or "ipv6" (packets addressed by their content).
    kind: str = "udp"
    #: The network namespace to open sockets in, for hosts on this machine that have their own.
    namespace: str = ""
    #: Bytes of the longest datagram in which several events may travel; 0 means one event in each.
    room: int = 0

    @property
    def publisher(self) -> int:
        """The publisher number that its packets must have."""
        if self.kind == "ipv6" and self.endpoint is not None:
            return publisher_at(inet_pton(AF_INET6, self.endpoint[0]), self.endpoint[1])
        return publisher_of(self.token)

    @property
    def attachment(self) -> Attachment:
        """Switch and port alone."""
        return Attachment(self.switch, self.port)


class Count(msgspec.Struct, frozen=True):
    """Packets and their bytes."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.packets + other.packets, self.bytes + other.bytes)


class PortCount(msgspec.Struct, frozen=True):
    """What went through a port."""

    received: Count = Count()
    sent: Count = Count()
    #: Not sent because the link was down, full or lossy, or because nobody listened.
    dropped: int = 0

    def __add__(self, other: PortCount) -> PortCount:
        return PortCount(self.received + other.received, self.sent + other.sent, self.dropped + other.dropped)


class SwitchCounters(msgspec.Struct, frozen=True):
    """What a switch has counted since it came up."""

    flows: Mapping[FlowKey, Count]
    ports: Mapping[int, PortCount]
    #: Packets that no flow wanted.
    unmatched: int = 0
    #: Flows that fit its table, if it has a limit.
    capacity: int | None = None
    #: Of clients' ports that are gone, all together.
    departed: PortCount = PortCount()

    @property
    def clients(self) -> PortCount:
        """What went through the ports of clients, those that have left included."""
        numbers = [number for number in self.ports if number >= CLIENT_PORTS]
        return sum((self.ports[number] for number in numbers), self.departed)

    def transmissions(self, links: Collection[int]) -> int:
        """Packets over links, each counted once: by the switch that it comes to, or that gives it to a client.

        ``links`` are the ports to other switches.  The port of a host carries what its clients' ports count.
        """
        clients = self.clients
        between = sum(self.ports[number].received.packets for number in links if number in self.ports)
        return between + clients.received.packets + clients.sent.packets


class PlaneStatistics(msgspec.Struct, frozen=True):
    """What a plane has seen of its clients' datagrams."""

    datagrams: int
    packets: int
    #: Datagrams dropped: not ours at all, or with a token that nobody has.
    malformed: int
    unknown: int
    #: Packets dropped: with a publisher number that is not their sender's.
    forged: int
    #: Packets dropped because a client's queue was full, or too much was under way on slow links.
    dropped: int
    #: Datagrams that never arrived from clients.
    lost: int
    #: Packets dropped: in a category that their sender does not advertise.
    unadvertised: int = 0
    #: Datagrams dropped: their seal is wrong, or they had come before.
    unsealed: int = 0
    replayed: int = 0
    #: Packets dropped: their sender may not publish, or the client not receive, what they say.
    unpermitted: int = 0
    #: Packets dropped: their sender has used up its quota.
    over_quota: int = 0
    #: Packets of the control plane (link discovery, answers to hosts) that a switch did not read in time.
    unsent: int = 0

    def shown(self) -> dict[str, int]:
        """As `status` shows it, without what counts as traffic."""
        return {
            "received": self.datagrams,
            "packets": self.packets,
            "malformed": self.malformed,
            "unknown_token": self.unknown,
            "forged": self.forged,
            "unadvertised": self.unadvertised,
            "unsealed": self.unsealed,
            "replayed": self.replayed,
            "unpermitted": self.unpermitted,
            "over_quota": self.over_quota,
            "unsent": self.unsent,
            "lost": self.lost,
        }


@runtime_checkable
class DataPlane(Protocol):
    """A network of switches that can be told what to do."""

    @property
    def per_port(self) -> bool:
        """Whether switches take tables per out port, with entries under any mask (plans of kind `cells`)."""
        ...

    @property
    def topology(self) -> Topology:
        """The whole network, what is down included."""
        ...

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes in order; returns when the switch has acknowledged all of them.

        `Unavailable` if it is down or does not acknowledge in time: then its state is
        undefined.  `Rejected` if it refuses (a full table): then none was carried out.
        """
        ...

    async def table(self, switch: str) -> FlowTable:
        """What the switch holds, after everything that was sent to it before; or `Unavailable`."""
        ...

    async def counters(self, switch: str) -> SwitchCounters:
        """What the switch has counted; or `Unavailable`."""
        ...

    def capacity(self, switch: str) -> int | None:
        """How many flows the switch holds, as far as it has told; None means any number."""
        ...

    def notices(self) -> AsyncIterator[Notice]:
        """What fails and comes back, from the call on."""
        ...

    def down(self) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
        """The switches and links that are down now."""
        ...

    async def attach(self, host: str, client: str, port: int | None = None) -> Attached:
        """Give a client a port at its host's switch, if possible the one it asks for.

        The same client gets the same port until it is detached.  `InvalidInput` for an
        unknown host, `Unavailable` if the host's switch or link is down.
        """
        ...

    async def detach(self, client: str) -> None:
        """Take a client's port away; nothing happens if it has none."""
        ...

    async def permit(self, client: str, categories: frozenset[int]) -> None:
        """A client advertises in these categories; what it sends in others is dropped and counted, where possible.

        In effect when it returns, if the switch can be reached.  Until it is called, a client may publish anything.
        """
        ...

    async def close(self) -> None:
        """Stop, and give everything back."""
        ...
