"""Kernel switches as the contract suite wants them: one network for all checks of a process, emptied for each."""

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.testing.dataplane_contract import TOPOLOGY
from tests.dataplane.harnesses import SwitchHarness


def make_network(topology=TOPOLOGY, kind="svk", **options):
    name = f"{kind}{os.getpid() % 1_000_000:x}"
    network = KernelNetwork(topology, name, run_dir=Path(tempfile.mkdtemp(prefix="sv")), **options)
    network.up()
    return network


def remove_network(network):
    network.down()
    shutil.rmtree(network.run_dir, ignore_errors=True)


class KernelHarness(SwitchHarness):
    permits = True

    async def settle(self):
        """Packets have arrived when `send` returns; clients read them in the turns after."""
        before, quiet = None, 0
        while quiet < 3:
            counts = {name: len(got) for name, got in self._got.items()}
            quiet = quiet + 1 if counts == before else 0
            before = counts
            await asyncio.sleep(0.005)

    async def set_switch(self, switch, up):
        await asyncio.to_thread(self.network.set_switch, switch, up)
        while (switch in self.plane.down()[0]) == up or (up and self.plane.down()[1]):
            await asyncio.sleep(0.002)

    async def close(self):
        for name in list(self.plane.clients()):
            await self.plane.detach(name)
        await super().close()


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
