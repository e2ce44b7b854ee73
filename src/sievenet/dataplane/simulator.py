"""The data plane in virtual time: deterministic, seeded, as fast as the machine allows.

Two ways to use it.  Without asyncio, it has a clock of its own:

    sim = Simulator(parse_topology("testbed"), seed=7)
    a, b = sim.attach_now("h1", "alice"), sim.attach_now("h8", "bob")
    sim.listen("bob", print)
    sim.send("alice", packet)
    sim.run(until=1.0)

On an event loop (`Simulator.on_loop`), it takes the loop's time; on
`sievenet.testing.virtual_time.VirtualLoop` that is virtual too, and a whole system of
control plane, data plane and clients runs in virtual time.

For large networks `send_batch` carries arrays of events through compiled tables, in one
go and without the queueing of links; see `batch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sievenet.dataplane.fabric import Fabric
from sievenet.dataplane.packet import Packet
from sievenet.errors import InvalidInput
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.network.topology import Topology
from sievenet.simulation import LoopClock, Scheduler, VirtualClock

if TYPE_CHECKING:
    from sievenet.dataplane.batch import CompiledNetwork, Deliveries

__all__ = ["Simulator"]


class Simulator(Fabric):
    """Embedded switches in virtual time."""

    def __init__(
        self,
        topology: Topology,
        *,
        seed: int = 0,
        scheduler: Scheduler | None = None,
        capacity: int | None = None,
        control_delay: float = 0.0,
        ack_timeout: float = 1.0,
    ) -> None:
        if scheduler is None:
            scheduler = VirtualClock()
        #: Its own clock, unless it runs on an event loop.
        self._queue = scheduler if isinstance(scheduler, VirtualClock) else None
        super().__init__(
            topology,
            scheduler,
            seed=seed,
            capacity=capacity,
            control_delay=control_delay,
            ack_timeout=ack_timeout,
        )
        self._seed = seed
        self._batches = 0
        self._network: CompiledNetwork | None = None

    @classmethod
    def on_loop(
        cls,
        topology: Topology,
        *,
        seed: int = 0,
        capacity: int | None = None,
        control_delay: float = 0.0,
        ack_timeout: float = 1.0,
    ) -> Simulator:
        """A simulator that takes its time from the running event loop."""
        return cls(
            topology,
            seed=seed,
            scheduler=LoopClock(asyncio.get_running_loop()),
            capacity=capacity,
            control_delay=control_delay,
            ack_timeout=ack_timeout,
        )

    # -- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.scheduler.time()

    def run(self, until: float | None = None) -> None:
        """Let time pass: up to a moment, or until nothing is under way."""
        if self._queue is None:
            raise InvalidInput("A simulator on an event loop passes its time there", where="simulator")
        self._queue.run(until)

    # -- packets -------------------------------------------------------------------------------

    def listen(self, client: str, receive: Callable[[Packet], None]) -> None:
        """Who takes the packets of a client."""
        self.port_of(client).listener = lambda packet, _size: receive(packet)

    def send(self, client: str, packet: Packet) -> None:
        """A client sends a packet, now."""
        self.forwarding.inject(self.port_of(client), packet.category, packet.code, packet, packet.size)

    def send_many(self, client: str, packets: Sequence[Packet]) -> None:
        """A client sends several packets, now."""
        port, inject = self.port_of(client), self.forwarding.inject
        for packet in packets:
            inject(port, packet.category, packet.code, packet, packet.size)

    def send_batch(
        self,
        client: str | Sequence[str],
        category: int,
        hi: npt.NDArray[np.uint64],
        lo: npt.NDArray[np.uint64],
        size: npt.NDArray[np.int64] | int = 100,
    ) -> Deliveries:
        """Events as arrays of codes, from one client or from one client each, carried at once (see `batch`)."""
        from sievenet.dataplane.batch import CompiledNetwork

        network, masked = self._network, self.forwarding.signatures(category)
        if masked is not None:
            lo, classes = masked.classes(hi, lo)
            hi = np.zeros_like(lo)
            network = self._network = CompiledNetwork(self.forwarding, category, network, classes)
        elif network is None or not network.current(category):
            network = self._network = CompiledNetwork(self.forwarding, category, previous=network)
        names = [client] if isinstance(client, str) else list(dict.fromkeys(client))
        numbers = np.array([network.number(self.port_of(name)) for name in names], np.int64)
        if isinstance(client, str):
            entry = np.full(hi.size, numbers[0], np.int64)
        else:
            rank = {name: i for i, name in enumerate(names)}
            entry = numbers[np.array([rank[name] for name in client], np.int64)]
        self._batches += 1
        sizes = np.full(hi.size, size, np.int64) if isinstance(size, int) else size
        return network.carry(entry, hi, lo, sizes, seed=self._seed * 1_000_003 + self._batches)

    # -- the control plane's side, without an event loop ------------------------------------------

    def apply_now(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes at once, whatever delays and faults there are."""
        self._check_up(switch)
        self.forwarding.install(switch, changes)

    def table_now(self, switch: str) -> FlowTable:
        """What a switch holds."""
        self._check_up(switch)
        return self.forwarding.switches[switch].table()
