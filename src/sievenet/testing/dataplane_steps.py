"""Steps of the data planes' contract: packets and flows in few words, and the network that all checks use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final

from sievenet.dataplane.packet import Packet
from sievenet.dataplane.plane import Attached, Notice
from sievenet.errors import SievenetError
from sievenet.index import CODE_BITS, Cell, Dz
from sievenet.network import Flow, Line, Match
from sievenet.testing.dataplane_harness import Harness

__all__ = ["TOPOLOGY", "cell_flow", "code_of", "dz_flow", "expect", "next_notice", "numbers", "packet_of", "publish"]
__all__ += ["three", "toward"]

#: The network of the suite.
TOPOLOGY: Final = Line.build(switches=3, hosts=2)


def code_of(bits: str) -> int:
    """A code that begins with these bits."""
    return Dz.parse(bits).bits << (CODE_BITS - len(bits)) if bits else 0


def packet_of(sender: Attached, number: int, bits: str, category: int = 1) -> Packet:
    """A packet of a client."""
    return Packet(category, code_of(bits), sender.publisher, number, 17, 0, f"body {number}".encode())


def dz_flow(bits: str, *ports: int, category: int = 1) -> Flow:
    """The flow of a dz."""
    return Flow.of(category, Dz.parse(bits), *ports)


async def publish(h: Harness, sender: Attached, *bits: str, category: int = 1, first: int = 0) -> None:
    """Send packets with these codes, and wait until nothing moves any more."""
    await h.send(sender, [packet_of(sender, first + i, b, category) for i, b in enumerate(bits)])
    await h.settle()


async def three(h: Harness, a: str, b: str, c: str) -> tuple[Attached, Attached, Attached]:
    """Attach three clients."""
    attach = h.plane.attach
    return await attach(a, "a"), await attach(b, "b"), await attach(c, "c")


def numbers(h: Harness, attached: Attached) -> list[int]:
    """The numbers of the packets that a client got."""
    return [packet.sequence for packet in h.received(attached)]


async def next_notice(notices: AsyncIterator[Notice]) -> Notice:
    """What the plane tells next."""
    return await asyncio.wait_for(anext(notices), 5)


async def expect(error: type[SievenetError], call: Awaitable[object]) -> None:
    """See that a call fails in this way."""
    try:
        await call
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


def toward(switch: str, peer: str) -> int:
    """The port of a switch to another."""
    return TOPOLOGY.port(switch, peer)


def cell_flow(bits: str, port: int) -> Flow:
    """The flow of a cell, in the table of its port."""
    cell = Cell.parse(bits)
    return Flow(Match(1, cell), frozenset({port}), cell.checked, table=port)
