"""Machines of a network: namespaces with interfaces, each with an agent, and a fleet that drives them."""

import asyncio
import os
import shutil
import tempfile
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.agent import Agent
from sievenet.dataplane.kernel.fleet import Fleet
from sievenet.dataplane.kernel.machine import Machine
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.testing.dataplane_contract import TOPOLOGY
from tests.kernel.harness import KernelHarness

PORT = 7402


class Wires(KernelNetwork):
    """Namespaces and virtual links alone: machines that are no switches yet."""

    def up(self):
        self.down()
        self.run_dir.mkdir(parents=True, exist_ok=True)
        ns.add([*map(self.switch_namespace, self.topology.switches), *map(self.host_namespace, self.topology.hosts)])
        self._wire()
        return False

    def interfaces(self, switch):
        return [f"p{port}" for port in sorted(self.topology.ports(switch))]


def make_wires(topology=TOPOLOGY, kind="svm"):
    name = f"{kind}{os.getpid() % 1_000_000:x}"
    wires = Wires(topology, name, run_dir=Path(tempfile.mkdtemp(prefix="sv")))
    wires.up()
    return wires


def remove_wires(wires):
    wires.down()
    for pins in wires.run_dir.glob("m-*/bpf"):
        bpf.unmount(str(pins))
    shutil.rmtree(wires.run_dir, ignore_errors=True)


class AgentThread:
    """An agent as its machine runs it: everything that it does, it does inside of its namespace."""

    def __init__(self, wires, switch, interfaces=None):
        self.wires, self.switch = wires, switch
        self.machine = Machine(switch, interfaces or wires.interfaces(switch), run_dir=wires.run_dir / f"m-{switch}")
        self.error = None
        self._loop = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._started.wait(60)

    def _run(self):
        with suppress(asyncio.CancelledError):
            ns.inside(self.wires.switch_namespace(self.switch), lambda: asyncio.run(self._main()))

    async def _main(self):
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._started.set()
        self.machine.prepare()
        try:
            self._agent = Agent(self.machine, "127.0.0.1", PORT)
            await self._agent.run()
        except Exception as error:
            self.error = error

    def leave(self):
        """Say that the switch will be gone."""
        asyncio.run_coroutine_threadsafe(self._agent.leave(), self._loop).result(30)

    def end(self, *, keep=False):
        """As a killed agent leaves it (keep), or with the switch removed."""
        with suppress(RuntimeError):  # it may have ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        (self.machine.close if keep else self.machine.down)()


class FleetHarness(KernelHarness):
    """The contract's harness, with machines instead of namespaces of ours."""

    def __init__(self, wires, plane, fleet, agents):
        super().__init__(wires, plane)
        self.fleet, self.agents = fleet, agents

    async def set_switch(self, switch, up):
        ports = self.network.topology.ports(switch)
        state = "up" if up else "down"
        namespace = self.network.switch_namespace(switch)
        await asyncio.to_thread(ns.ip, namespace, [f"link set p{port} {state}" for port in ports])
        if not up:
            self.agents[switch].machine.switch.clear()
        while (switch in self.plane.down()[0]) == up or (up and self.plane.down()[1]):
            await asyncio.sleep(0.002)


def doors_of(wires):
    """Where agents on their machines dial."""
    return [ns.listening(wires.switch_namespace(switch), "127.0.0.1", PORT) for switch in wires.topology.switches]


@asynccontextmanager
async def on_machines(wires, *, capacity=None, grace=1.0):
    doors = doors_of(wires)
    for switch, ports in ((s, wires.topology.ports(s)) for s in wires.topology.switches):
        ns.ip(wires.switch_namespace(switch), [f"link set p{port} up" for port in ports])
    fleet = Fleet(wires.topology, capacity=capacity, grace=grace)
    fleet.place = wires.place  # clients of the tests are started here, not at their hosts
    await fleet.start(doors=doors)
    agents = {switch: await asyncio.to_thread(AgentThread, wires, switch) for switch in wires.topology.switches}
    harness = None
    try:
        await fleet.connected(60)
        for agent in agents.values():
            agent.machine.switch.clear()
            agent.machine.admit_only(())
        plane = KernelDataPlane(fleet)
        harness = FleetHarness(wires, plane, fleet, agents)
        plane.start()
        while len(plane._states) < len(agents) or not all(plane._states.values()):
            await asyncio.sleep(0.005)
        yield harness
    finally:
        if harness is not None:
            await harness.close()
        await fleet.close()
        # The next one finds the switches: until the kernel has checked their programs takes longer than most tests.
        for agent in agents.values():
            await asyncio.to_thread(agent.end, keep=True)
