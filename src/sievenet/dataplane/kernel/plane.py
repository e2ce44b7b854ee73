"""Kernel switches as a `DataPlane`.

Where they are is the business of their network: namespaces of this machine (`network`), or machines with an agent each
(`fleet`).  A change of a switch of this machine is a system call, in effect when the call returns; that of another is
in effect when its agent has answered.  What can fail is a link (its device says so, `carrier`) and a switch, which is
down when all of its ports are, or when its agent has been away for too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from socket import AF_INET6, inet_pton
from typing import Final

from sievenet.dataplane.kernel.handle import Handle, Network
from sievenet.dataplane.kernel.protocol import Client
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
#: Seconds after which clients that only an earlier daemon knew are forgotten: longer than a lease.
_STRANGERS: Final = 60.0
#: Bytes of IPv6 and UDP around an event.
_HEADS: Final = 48


class KernelDataPlane:
    """The kernel's switches."""

    #: Cells are taken, under few masks.
    per_port: Final = True

    def __init__(self, network: Network, *, secret: bytes | None = None, together: bool = True) -> None:
        """``together``: whether several events may travel in one packet; then each category must have a single tree."""
        self._network = network
        self._topology = network.topology
        #: Bytes of the largest encoded event: it travels in one packet.
        self.max_body: Final = network.mtu - _HEADS - DATAGRAM_HEADER - PACKET_HEADER
        self._loop = asyncio.get_running_loop()
        self._notices = Notices()
        self._roster = Roster(network.place, secret, room=network.mtu - _HEADS if together else 0)
        #: In which categories clients may publish, as far as that is limited.
        self._permits: dict[str, frozenset[int]] = {}
        self._down_switches: set[str] = set()
        self._down_links: set[tuple[str, str]] = set()
        #: What is known of the ports of each switch: whether up, whether it carries packets.
        self._states: dict[str, dict[int, tuple[bool, bool]]] = {switch: {} for switch in network.handles}
        #: Switches that cannot be reached, and those that can be again since the last look.
        self._lost: set[str] = set()
        self._found: set[str] = set()
        self._due: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def topology(self) -> Topology:
        """The whole network, what is down included."""
        return self._topology

    def start(self) -> None:
        """Watch the links."""
        self._network.watch(self)
        if self._lost:
            self._compare()
        self._sweep = self._loop.call_later(_STRANGERS, self._forget_strangers)

    async def close(self) -> None:
        """Stop watching; the switches go on with what they have."""
        self._notices.close()
        for timer in (self._due, self._sweep):
            if timer is not None:
                timer.cancel()
        self._network.unwatch()

    def _forget_strangers(self) -> None:
        """Clients of an earlier daemon that nobody has spoken of since do not come back."""
        for name, handle in self._network.handles.items():
            handle.keep_only(self.clients_at(name))

    # -- what fails ------------------------------------------------------------------------------------

    def told(self, switch: str, port: int, up: bool, carries: bool) -> None:
        """A port failed or came back."""
        self._states[switch][port] = up, carries
        self._look()

    def lost(self, switch: str) -> None:
        """A switch cannot be reached."""
        self._lost.add(switch)
        self._look()

    def found(self, switch: str) -> None:
        """A switch can be reached (again); its table may be another."""
        self._lost.discard(switch)
        self._found.add(switch)
        self._look()

    def _look(self) -> None:
        if self._due is None:
            # A switch that fails takes its links along one by one; look when all has been told.
            self._due = self._loop.call_later(_PAUSE, self._compare)

    def _compare(self) -> None:
        """Tell of what is not as listeners believe."""
        self._due = None
        gone = {s for s, ports in self._states.items() if ports and not any(up for up, _ in ports.values())}
        gone |= self._lost
        for switch in sorted(gone - self._down_switches):
            self._notices.tell(SwitchDown(switch))
        for switch in sorted((self._down_switches | self._found) - gone):
            self._notices.tell(SwitchUp(switch))
        self._found.clear()
        self._down_switches = gone
        for link in self._topology.links:
            ends = ((link.a, link.a_port), (link.b, link.b_port))
            # A switch that is gone says it all; its links are looked at when it is back.
            if any(end in gone for end, _ in ends):
                continue
            states = [self._states[end].get(port) for end, port in ends if end in self._states]
            dead = any(state is not None and not state[1] for state in states)
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

    def _handle(self, switch: str) -> Handle:
        try:
            return self._network.handles[switch]
        except KeyError:
            raise InvalidInput(expected="a switch", got=switch, where="data plane") from None

    def _at(self, switch: str) -> Handle:
        handle = self._handle(switch)
        if switch in self._lost:
            raise Unavailable(f"Switch {switch} is down: its agent is not there")
        if switch in self._down_switches:
            raise Unavailable(f"Switch {switch} is down: all of its ports are")
        return handle

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes (see `DataPlane.apply`)."""
        await self._at(switch).apply(changes)

    async def table(self, switch: str) -> FlowTable:
        """What the switch holds."""
        return await self._at(switch).table()

    async def counters(self, switch: str) -> SwitchCounters:
        """What the switch has counted."""
        return await self._at(switch).counters()

    def capacity(self, switch: str) -> int | None:
        """How many flows a switch holds."""
        self._handle(switch)
        return self._network.capacity

    def counters_now(self, switch: str) -> SwitchCounters:
        """The same, without a wait: of another machine's switch what its agent said last."""
        return self._handle(switch).counters_now()

    def statistics(self) -> PlaneStatistics:
        """What clients have sent, and what was dropped at the first switch."""
        handles = self._network.handles
        reasons = [handle.reasons() for handle in handles.values()]
        sent = sum(handle.received() for handle in handles.values())

        def count(*names: str) -> int:
            return sum(each.get(name, 0) for each in reasons for name in names)

        return PlaneStatistics(
            datagrams=sent,
            packets=sent,
            malformed=count("malformed", "expired"),
            unknown=count("unadmitted"),
            forged=0,
            dropped=count("unsent"),
            lost=0,
            unadvertised=count("unadvertised"),
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
        at = self._topology.attachment(host).switch
        switch = self._at(at)
        if self._topology.link(host, at).id in self._down_links:
            raise Unavailable(f"Host {host} is cut off: its link is down")
        attached = self._roster.add(self._topology, host, client, port)
        try:
            await switch.admit(self._client(attached))
        except BaseException:
            self._roster.remove(client)
            raise
        return attached

    def _client(self, attached: Attached) -> Client:
        """What its switch has to know of a client."""
        assert attached.endpoint is not None
        port = self._topology.attachment(attached.host).port
        permitted = self._permits.get(attached.client)
        categories = None if permitted is None else tuple(sorted(permitted))
        return Client(attached.port, port, inet_pton(AF_INET6, attached.endpoint[0]), categories)

    def clients_at(self, switch: str) -> tuple[Client, ...]:
        """Who is attached at a switch."""
        return tuple(self._client(attached) for attached in self._roster if attached.switch == switch)

    async def detach(self, client: str) -> None:
        """Take a client's port number away."""
        attached = self._roster.remove(client)
        self._permits.pop(client, None)
        if attached is not None:
            with contextlib.suppress(Unavailable):  # then its switch learns of it when it comes back
                await self._handle(attached.switch).dismiss(attached.port)

    async def permit(self, client: str, categories: frozenset[int]) -> None:
        """A client may publish in these categories and no others."""
        known = self._roster.all().get(client)
        if known is None:
            return
        self._permits[client] = categories
        if not await self._handle(known.switch).permit(self._client(known)):
            log.warning("client %s: no room for its %d categories; they are not checked", client, len(categories))

    def clients(self) -> dict[str, Attached]:
        """Who is attached where."""
        return self._roster.all()
