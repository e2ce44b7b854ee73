"""A network that grows while it runs: late switches, new links, new hosts.

The plane goes on looking (`discovery`): every switch sends, by each of its ports and every `PERIOD` seconds, a frame
that says whose port that is.  What comes of it is a topology; if it is another than the one in use, the switches are
prepared and then whoever listens is told:

    a switch connects that nobody knows ──▶ set right, waits ──▶ a link to it is heard of ──▶ named, part of the network
    a port comes up, nothing is heard from it for a while    ──▶ a host
    a frame comes in by a port that led to a host            ──▶ a link; clients thought to be there are cut off

Names stay with their datapath numbers and ports.  A switch without a link to the others is not part of the network: it
could not be reached, and would only split the trees.  What strangers say costs them their connection and nobody else:
they are bounded in number, and a frame counts only with the plane's own signature.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow import oxm
from sievenet.dataplane.openflow.discovery import Discovery, is_lldp
from sievenet.dataplane.openflow.handle import SwitchHandle
from sievenet.dataplane.openflow.numbers import CONTROLLER
from sievenet.errors import CodecError, Rejected, SievenetError
from sievenet.network.topology import Topology

if TYPE_CHECKING:
    from sievenet.dataplane.openflow.channel import Channel
    from sievenet.dataplane.openflow.effect import Settling

__all__ = ["PERIOD", "Growth"]

log = logging.getLogger("sievenet.openflow")

#: Seconds between frames by the same port.
PERIOD: Final = 1.0
#: Switches that may wait to be linked with the others.
WAITING: Final = 64

#: Makes a topology the one in use, with handles of the switches that are new, by datapath.
Adopt = Callable[[Topology, dict[int, SwitchHandle]], None]


class Growth:
    """What an `OpenFlowDataPlane` does to find what is new."""

    def __init__(self, discovery: Discovery, topology: Topology, adopt: Adopt, rounds: Settling | None) -> None:
        self.discovery: Final = discovery
        self._topology = topology
        self._adopt = adopt
        self._rounds = rounds
        self._clock = asyncio.get_running_loop().time
        #: All switches that are connected.
        self._channels: dict[int, Channel] = {}
        self._numbers: dict[Channel, int] = {}
        #: Handles of the switches in the network, and of those that wait to be.
        self.handles: dict[int, SwitchHandle] = {}
        self.waiting: dict[int, SwitchHandle] = {}
        self._news = asyncio.Event()
        #: Called when the network is another.
        self.on_change: Callable[[], None] = lambda: None
        #: Frames that were no link discovery of ours.
        self.malformed = 0

    # -- what switches say ---------------------------------------------------------------------

    def seen(self, channel: Channel, datapath: int, handle: SwitchHandle) -> None:
        """A switch of the network has connected and is set right."""
        self.handles[datapath] = handle
        self._connected(channel, datapath, handle)

    async def stranger(self, channel: Channel, datapath: int) -> None:
        """A switch has connected that is not of the network."""
        if datapath not in self.waiting and len(self.waiting) >= WAITING:
            raise Rejected(f"Expected at most {WAITING} switches that are linked to none, got {datapath:#x} besides")
        channel.name = f"{datapath:#x}"
        handle = SwitchHandle(channel.name, (), (), self._rounds)
        await handle.set_right(channel)
        handle.channel = channel
        await handle.count()
        old = self.waiting.get(datapath)
        self.waiting[datapath] = handle
        self._connected(channel, datapath, handle)
        log.info("switch %s has connected; it is used once it is linked with the others", channel.name)
        if old is not None and old.channel is not None:
            await old.channel.close()

    def _connected(self, channel: Channel, datapath: int, handle: SwitchHandle) -> None:
        self._channels[datapath] = channel
        self._numbers[channel] = datapath
        self.discovery.switch(datapath, frozenset(handle.present), self._clock())
        self._news.set()

    def port_changed(self, channel: Channel, status: m.PortStatus) -> None:
        """A port came, went or changed."""
        datapath = self._numbers.get(channel)
        if datapath is None:
            return
        handle = self.handles.get(datapath) or self.waiting[datapath]
        handle.port_changed(status)
        self.discovery.switch(datapath, frozenset(handle.present), self._clock())
        self._news.set()

    def heard(self, channel: Channel, packet: m.PacketIn) -> bool:
        """A frame came in; False if it is not about links."""
        if not is_lldp(packet.data):
            return False
        datapath = self._numbers.get(channel)
        if datapath is not None:
            try:
                if self.discovery.heard(datapath, packet.in_port, packet.data):
                    self._news.set()
            except CodecError:
                self.malformed += 1
        return True

    def closed(self, channel: Channel) -> None:
        """A connection is gone."""
        datapath = self._numbers.pop(channel, None)
        if datapath is None or self._channels.get(datapath) is not channel:
            return
        del self._channels[datapath]
        if self.waiting.pop(datapath, None) is not None:
            self.discovery.forget(datapath)

    # -- looking -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look for what is new, for ever."""
        while True:
            self._probe()
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD):
                    await self._news.wait()
                    await asyncio.sleep(PERIOD / 10)  # what comes together is used together
            try:
                await self._extend()
            except SievenetError as error:
                log.warning("the network has changed, but its switches cannot be prepared yet: %s", error)

    def _probe(self) -> None:
        for datapath, channel in self._channels.items():
            for port in self.discovery.ports.get(datapath, ()):
                channel.send_packet(CONTROLLER, oxm.output(port), self.discovery.frame(datapath, port))

    async def _extend(self) -> None:
        found = self.discovery.found(self._clock())
        topology = found.topology
        if topology == self._topology:
            return
        fresh = {number: self.waiting[number] for number in found.datapaths if number in self.waiting}
        for number, handle in (self.handles | fresh).items():
            name = found.datapaths[number]
            ports = topology.ports(name)
            with contextlib.suppress(SievenetError):  # it is set right when it comes back
                await handle.relink((port for port, peer in ports.items() if topology.is_switch(peer)), ports)
        for number, handle in fresh.items():
            del self.waiting[number]
            self.handles[number] = handle
            handle.name = found.datapaths[number]
            if handle.channel is not None:
                handle.channel.name = handle.name
            log.info("switch %#x is part of the network now, as %s", number, handle.name)
        self._topology = topology
        self._adopt(topology, fresh)
        self.on_change()
