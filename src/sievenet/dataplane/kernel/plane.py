"""Kernel switches as a `DataPlane`.

The switches are tables in the kernel of this machine, so a change is a system call: it is in effect when the call
returns, and there is nothing to wait for.  What can fail is a link (its device says so, `carrier`) and a switch, which
is down when all of its ports are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from socket import AF_INET6, inet_pton
from typing import Final

from sievenet.dataplane.kernel.carrier import CarrierWatch, DeviceState
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.switch import KernelSwitch
from sievenet.dataplane.local import MTU
from sievenet.dataplane.notices import Notices
from sievenet.dataplane.packet import DATAGRAM_HEADER, PACKET_HEADER
from sievenet.dataplane.plane import (
    Attached,
    LinkDown,
    LinkUp,
    Notice,
    PlaneStatistics,
    SwitchCounters,
    SwitchDown,
    SwitchUp,
)
from sievenet.dataplane.roster import Roster
from sievenet.errors import InvalidInput, Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.network.topology import Topology

__all__ = ["KernelDataPlane"]

log = logging.getLogger("sievenet.kernel")

#: Seconds from the first word of a failure until all of it is looked at.
_PAUSE: Final = 0.02
#: Bytes of IPv6 and UDP around an event.
_HEADS: Final = 48


class KernelDataPlane:
    """The kernel's switches."""

    def __init__(self, network: KernelNetwork, *, secret: bytes | None = None) -> None:
        self._network = network
        self._topology = network.topology
        #: Bytes of the largest encoded event: it travels in one packet.
        self.max_body: Final = MTU - _HEADS - DATAGRAM_HEADER - PACKET_HEADER
        self._loop = asyncio.get_running_loop()
        self._notices = Notices()
        self._roster = Roster(network.place, secret)
        self._down_switches: set[str] = set()
        self._down_links: set[tuple[str, str]] = set()
        #: What is known of the ports of each switch.
        self._states: dict[str, dict[int, DeviceState]] = {switch: {} for switch in network.switches}
        self._due: asyncio.TimerHandle | None = None
        self._watches: list[CarrierWatch] = []

    @property
    def topology(self) -> Topology:
        """The whole network, what is down included."""
        return self._topology

    def start(self) -> None:
        """Watch the links."""
        for switch in self._network.switches:
            watch = self._network.inside(switch, partial(CarrierWatch, partial(self._told, switch)))
            watch.start(self._loop)
            self._watches.append(watch)

    async def close(self) -> None:
        """Stop watching; the switches go on with what they have."""
        self._notices.close()
        if self._due is not None:
            self._due.cancel()
        for watch in self._watches:
            watch.close(self._loop)
        self._watches.clear()

    # -- what fails ------------------------------------------------------------------------------------

    def _told(self, switch: str, state: DeviceState) -> None:
        port = self._network.devices[switch].get(state.device)
        if port is None:
            return
        self._states[switch][port] = state
        self._network.switches[switch].set_carrier(port, state.carries)
        if self._due is None:
            # A switch that fails takes its links along one by one; look when all has been told.
            self._due = self._loop.call_later(_PAUSE, self._compare)

    def _compare(self) -> None:
        """Tell of what is not as listeners believe."""
        self._due = None
        gone = {s for s, ports in self._states.items() if ports and not any(state.up for state in ports.values())}
        for switch in sorted(gone - self._down_switches):
            self._notices.tell(SwitchDown(switch))
        for switch in sorted(self._down_switches - gone):
            self._notices.tell(SwitchUp(switch))
        self._down_switches = gone
        for link in self._topology.links:
            ends = ((link.a, link.a_port), (link.b, link.b_port))
            # A switch that is gone says it all; its links are looked at when it is back.
            if any(end in gone for end, _ in ends):
                continue
            states = [self._states[end].get(port) for end, port in ends if end in self._states]
            dead = any(state is not None and not state.carries for state in states)
            if dead and link.id not in self._down_links:
                self._down_links.add(link.id)
                self._notices.tell(LinkDown(*link.id))
            elif not dead and link.id in self._down_links:
                self._down_links.discard(link.id)
                self._notices.tell(LinkUp(*link.id))

    def notices(self) -> AsyncIterator[Notice]:
        """What fails and comes back, from the call on."""
        return self._notices.listen()

    def down(self) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
        """The switches and links that are down now."""
        return frozenset(self._down_switches), frozenset(self._down_links)

    # -- flows -----------------------------------------------------------------------------------------

    def _at(self, switch: str) -> KernelSwitch:
        try:
            found = self._network.switches[switch]
        except KeyError:
            raise InvalidInput(expected="a switch", got=switch, where="data plane") from None
        if switch in self._down_switches:
            raise Unavailable(f"Switch {switch} is down: all of its ports are")
        return found

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes (see `DataPlane.apply`)."""
        try:
            self._at(switch).apply(changes)
        except OSError as error:
            raise Unavailable(f"Switch {switch}: the kernel refused a change: {error.strerror or error}") from None

    async def table(self, switch: str) -> FlowTable:
        """What the switch holds."""
        return self._at(switch).table()

    async def counters(self, switch: str) -> SwitchCounters:
        """What the switch has counted."""
        return self._at(switch).counters()

    def counters_now(self, switch: str) -> SwitchCounters:
        """The same, without a wait."""
        if switch not in self._network.switches:
            raise InvalidInput(expected="a switch", got=switch, where="data plane")
        return self._network.switches[switch].counters()

    def statistics(self) -> PlaneStatistics:
        """What clients have sent, and what was dropped at the first switch."""
        reasons = [switch.reasons() for switch in self._network.switches.values()]
        sent = sum(self._network.switches[at.switch].received(at.port) for at in self._roster)
        return PlaneStatistics(
            datagrams=sent,
            packets=sent,
            malformed=sum(r["malformed"] + r["expired"] for r in reasons),
            unknown=sum(r["unadmitted"] for r in reasons),
            forged=0,
            dropped=sum(r["unsent"] for r in reasons),
            lost=0,
            unadvertised=sum(r["unadvertised"] for r in reasons),
        )

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """None: there is no one place for events, each goes where its content says."""
        return None

    # -- clients ---------------------------------------------------------------------------------------

    async def attach(self, host: str, client: str, port: int | None = None) -> Attached:
        """Give a client a port number (see `DataPlane.attach`)."""
        known = self._roster.known(client, host)
        if known is not None:
            return known
        place = self._topology.attachment(host)
        switch = self._at(place.switch)
        if self._topology.link(host, place.switch).id in self._down_links:
            raise Unavailable(f"Host {host} is cut off: its link is down")
        attached = self._roster.add(self._topology, host, client, port)
        assert attached.endpoint is not None
        switch.add_client(attached.port, place.port, inet_pton(AF_INET6, attached.endpoint[0]))
        return attached

    async def detach(self, client: str) -> None:
        """Take a client's port number away."""
        attached = self._roster.remove(client)
        if attached is not None:
            self._network.switches[attached.switch].remove_client(attached.port)

    def permit(self, client: str, categories: frozenset[int]) -> None:
        """A client may publish in these categories and no others."""
        known = self._roster.all().get(client)
        if known is not None and not self._network.switches[known.switch].permits.give(known.port, categories):
            log.warning("client %s: no room for its %d categories; they are not checked", client, len(categories))

    def clients(self) -> dict[str, Attached]:
        """Who is attached where."""
        return self._roster.all()
