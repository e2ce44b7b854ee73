"""The embedded and the simulated plane, as the contract suite wants them."""

import asyncio
from contextlib import asynccontextmanager

from sievenet.client.ports import open_port
from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane import EmbeddedDataPlane, Simulator
from sievenet.testing.dataplane_contract import CAPACITY, TOPOLOGY


async def open_client(attached, receive, timeout=20.0):
    """The client library's socket, for an attached client."""
    address, port = attached.endpoint
    return await open_port(DataEndpoint("udp", address, port, attached.token), receive, timeout)


class _Failing:
    limited = True

    async def set_switch(self, switch, up):
        (self.plane.switch_up if up else self.plane.switch_down)(switch)

    async def set_link(self, a, b, up):
        (self.plane.link_up if up else self.plane.link_down)(a, b)


class SwitchHarness:
    """Switches outside of this process; clients have the client library's sockets."""

    limited = True

    def __init__(self, network, plane):
        self.network, self.plane = network, plane
        self._ports, self._got = {}, {}

    async def send(self, attached, packets):
        for name, known in self.plane.clients().items():
            if name not in self._ports:
                got = self._got.setdefault(name, [])
                address, number = known.endpoint
                endpoint = DataEndpoint(known.kind, address, number, known.token, known.namespace, room=known.room)
                self._ports[name] = await open_port(endpoint, got.extend)
        port = self._ports[attached.client]
        port.send(packets)
        await port.flushed(ahead=0)

    def received(self, attached):
        return self._got.get(attached.client, [])

    async def set_link(self, a, b, up):
        await asyncio.to_thread(self.network.set_link, a, b, up)

    async def close(self):
        for port in self._ports.values():
            port.close()
        await self.plane.close()


class SimulatorHarness(_Failing):
    permits = False

    def __init__(self, **options):
        self.plane = Simulator.on_loop(TOPOLOGY, capacity=CAPACITY, **options)
        self._got = {}

    async def send(self, attached, packets):
        for name in self.plane.clients():
            self.plane.listen(name, self._got.setdefault(name, []).append)
        self.plane.send_many(attached.client, packets)

    async def settle(self):
        while self.plane.forwarding.in_flight:
            await asyncio.sleep(0.001)

    def received(self, attached):
        return self._got.get(attached.client, [])


class UdpHarness(_Failing):
    permits = True

    def __init__(self):
        self.plane = EmbeddedDataPlane(TOPOLOGY, capacity=CAPACITY)
        self._ports = {}
        self._got = {}

    async def send(self, attached, packets):
        for name, known in self.plane.clients().items():
            if known.token not in self._ports:
                got = self._got.setdefault(name, [])
                self._ports[known.token] = await open_client(known, got.extend)
        port = self._ports[attached.token]
        port.send(packets)
        await port.flushed(ahead=500)

    async def settle(self):
        """Until every queue is empty and everything sent has been acknowledged, so that nothing is in a socket."""
        links = [client.link for client in self.plane._by_token.values()]
        links += [port._link for port in self._ports.values()]
        while any(link.queued or link._under_way for link in links) or self.plane.forwarding.in_flight:
            await asyncio.sleep(0)

    def received(self, attached):
        return self._got.get(attached.client, [])

    async def close(self):
        for port in self._ports.values():
            port.close()
        await self.plane.close()


@asynccontextmanager
async def simulated(**options):
    harness = SimulatorHarness(**options)
    yield harness
    await harness.plane.close()


@asynccontextmanager
async def embedded():
    harness = UdpHarness()
    await harness.plane.start()
    try:
        yield harness
    finally:
        await harness.close()
