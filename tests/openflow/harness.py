"""Real Open vSwitch, as the contract suite wants it: one network for all checks of a process, its bridges made anew
for each."""

import asyncio
import fcntl
import os
import shutil
import tempfile
import termios
from contextlib import asynccontextmanager
from pathlib import Path

from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.testing.dataplane_contract import TOPOLOGY
from tests.dataplane.harnesses import SwitchHarness


def unique_name(kind):
    """Namespaces are the whole system's: parallel test processes must not meet."""
    return f"{kind}{os.getpid() % 1_000_000:x}"


def make_network(topology=TOPOLOGY, kind="svt", **options):
    """A network of its own in a temporary folder, without bridges yet."""
    network = OvsNetwork(topology, unique_name(kind), run_dir=Path(tempfile.mkdtemp(prefix="sv")), **options)
    network.prepare()
    # Rounds over the cache as often as it allows, which is every 100 ms: tests wait for whole ones.
    network._vsctl("set", "Open_vSwitch", ".", "other_config:max-revalidator=100")
    return network


def remove_network(network):
    network.down()
    shutil.rmtree(network.run_dir, ignore_errors=True)


async def listen(plane, network):
    await plane.start(sock=network.controller_socket())


class OvsHarness(SwitchHarness):
    permits = False

    async def settle(self):
        """Until nothing waits before a switch or at a client, and nothing moves any more."""
        before, quiet = None, 0
        while quiet < 3:
            counts = self._counts()
            quiet = quiet + 1 if counts == before and not self._waiting() else 0
            before = counts
            await asyncio.sleep(0.005)
        # Counts of flows reach the switch's tables in rounds; wait for a whole one.
        await asyncio.to_thread(self.network.control, "revalidator/wait")

    def _proc(self, name):
        return Path(f"/proc/{self.network._pid('ovs-vswitchd')}/net/{name}").read_text().splitlines()

    def _counts(self):
        """Bytes and packets in and out of every device of the switches."""
        return [line for line in self._proc("dev") if "-" in line.split(":")[0]]

    def _waiting(self):
        """Whether a switch or a client has packets that it has not read."""
        if any(int(line.split()[6]) for line in self._proc("packet")[1:]):
            return True
        unread = bytearray(4)
        for port in self._ports.values():
            fcntl.ioctl(port._socket, termios.FIONREAD, unread)
            if any(unread):
                return True
        return False

    async def set_switch(self, switch, up):
        if up:
            await asyncio.to_thread(self.network.restore_switch, switch)
            await self.plane.connected()
        else:
            await asyncio.to_thread(self.network.remove_switch, switch)
            while self.plane._switches[switch].channel is not None:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def on_ovs(network, **options):
    plane = network.plane(**{"grace": 0.2, **options})
    harness = OvsHarness(network, plane)
    try:
        await listen(plane, network)
        await asyncio.to_thread(network.reset)
        await plane.connected()
        yield harness
    finally:
        await harness.close()
