"""Data ports: how a node's packets reach the network and come from it, one at a time or many with one system call."""

from __future__ import annotations

from sievenet.client.ports.port import Alone, DataPort, Deliver
from sievenet.client.ports.udp import UdpPort
from sievenet.control.protocol import DataEndpoint
from sievenet.errors import InvalidInput

__all__ = ["open_port"]


async def open_port(
    endpoint: DataEndpoint, deliver: Deliver, timeout: float = 5.0, *, whole: bool = False, alone: Alone | None = None
) -> DataPort:
    """The port that an endpoint describes, known to the data plane and reading.

    ``whole``: groups that are as large as they can be matter more than a few microseconds of the first packet.
    ``alone`` is asked first about a datagram that comes alone, where datagrams have senders.
    """
    if endpoint.kind == "ipv6":
        from sievenet.client.ports.content import ContentPort

        port = await ContentPort.open(endpoint, deliver, whole)
        port.alone = alone
        return port
    if endpoint.kind != "udp":
        raise InvalidInput(expected="a data plane of kind udp or ipv6", got=endpoint.kind, where="welcome.data")
    return await UdpPort.open(endpoint, deliver, timeout)
