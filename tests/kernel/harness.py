"""Kernel switches as the contract suite wants them: one network for all checks of a process, emptied for each."""

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from sievenet.client.ports.factory import open_port
from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.testing.dataplane_contract import TOPOLOGY


def make_network(topology=TOPOLOGY, kind="svk", **options):
    name = f"{kind}{os.getpid() % 1_000_000:x}"
    network = KernelNetwork(topology, name, run_dir=Path(tempfile.mkdtemp(prefix="sv")), **options)
    network.up()
    return network


def remove_network(network):
    network.down()
    shutil.rmtree(network.run_dir, ignore_errors=True)


class KernelHarness:
    limited = True
    permits = True

    def __init__(self, network, plane):
        self.network, self.plane = network, plane
        self._ports, self._got = {}, {}

    async def send(self, attached, packets):
        for name, known in self.plane.clients().items():
            if name not in self._ports:
                got = self._got.setdefault(name, [])
                address, number = known.endpoint
                endpoint = DataEndpoint(known.kind, address, number, known.token, known.namespace)
                self._ports[name] = await open_port(endpoint, got.extend)
        port = self._ports[attached.client]
        port.send(packets)
        await port.flushed(ahead=0)

    async def settle(self):
        """Packets have arrived when `send` returns; clients read them in the turns after."""
        before, quiet = None, 0
        while quiet < 3:
            counts = {name: len(got) for name, got in self._got.items()}
            quiet = quiet + 1 if counts == before else 0
            before = counts
            await asyncio.sleep(0.005)

    def received(self, attached):
        return self._got.get(attached.client, [])

    async def set_switch(self, switch, up):
        await asyncio.to_thread(self.network.set_switch, switch, up)
        while (switch in self.plane.down()[0]) == up or (up and self.plane.down()[1]):
            await asyncio.sleep(0.002)

    async def set_link(self, a, b, up):
        await asyncio.to_thread(self.network.set_link, a, b, up)

    async def close(self):
        for name in list(self.plane.clients()):
            await self.plane.detach(name)
        for port in self._ports.values():
            port.close()
        await self.plane.close()


@asynccontextmanager
async def on_kernel(network, **options):
    for switch in network.topology.switches:
        network.set_switch(switch, True)
        network.switches[switch].clear()
    plane = KernelDataPlane(network, **options)
    harness = KernelHarness(network, plane)
    try:
        plane.start()
        yield harness
    finally:
        await harness.close()
