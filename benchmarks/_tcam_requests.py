"""What a request costs that makes full tables merge at once: the whole request, with and without a capacity."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.control import Switches
from sievenet.content import Filter, Schema, Subscription, decode_subscription, encode_subscription
from sievenet.control import protocol
from sievenet.control.config import ControlConfig
from sievenet.control.journal import Durability, FileJournal
from sievenet.control.plane import ControlPlane
from sievenet.daemon.collector import collecting_seldom
from sievenet.network import Topology

__all__ = ["Requests", "Spent"]


class Spent(NamedTuple):
    """Processor time of requests, and how large tables were at the end."""

    seconds: list[float]
    #: Whether each made some table merge.
    merged: list[bool]
    sizes: Mapping[str, int]


class Requests:
    """The same subscriptions for control planes with different settings, each with a journal on disk."""

    def __init__(
        self, topology: Topology, schema: Schema, filters: Sequence[Filter], publishers: int, first: int
    ) -> None:
        self._topology = topology
        self._schema = schema
        #: As they come over a connection.
        self._requests = [
            msgspec.msgpack.encode(protocol.Subscribe(i + 1, i + 1, 1, encode_subscription(Subscription([each]))))
            for i, each in enumerate(filters)
        ]
        self._publishers = publishers
        #: How many come at first, together.
        self._first = first
        random = np.random.default_rng(1)
        self._hosts = [topology.hosts[i] for i in random.permutation(len(topology.hosts))]
        self._who = random.integers(publishers, len(self._hosts), size=len(filters)).tolist()

    def spent(self, config: ControlConfig) -> Spent:
        """Let all of them come; what each one costs of those that come one by one."""
        with collecting_seldom(), tempfile.TemporaryDirectory() as folder:
            return asyncio.run(self._spent(Path(folder), config))

    async def _spent(self, folder: Path, config: ControlConfig) -> Spent:
        switches = Switches(self._topology, scheduler=asyncio.get_running_loop())
        journal = FileJournal(folder / "journal.sqlite", durability=Durability.POWER)
        plane = await ControlPlane.start(switches, journal, config)
        await plane.register_schema(self._schema)
        for host in self._hosts:
            await plane.join(f"at-{host}", host)
        for host in self._hosts[: self._publishers]:
            await plane.advertise(f"at-{host}", 0, Subscription([Filter(self._schema, {})]))

        async def one(i: int) -> None:
            """As the daemon does it, from the bytes of the request to those of the answer."""
            request = msgspec.msgpack.decode(self._requests[i], type=protocol.Subscribe)
            wanted = decode_subscription(self._schema, request.content)
            await plane.subscribe(f"at-{self._hosts[self._who[i]]}", request.id, wanted, request.content)
            msgspec.msgpack.encode(protocol.Done(request.request))

        def merges() -> int:
            """How often a table has been merged at once."""
            lanes = [lane for space in plane._controller.spaces.values() for lane in space.lanes]
            return sum(lane.holdings.merged for lane in lanes)

        for at in range(0, self._first, 100):
            await asyncio.gather(*(one(i) for i in range(at, min(self._first, at + 100))))
        gc.collect()
        seconds, merged = [], []
        for i in range(self._first, len(self._requests)):
            before = merges()
            begin = time.process_time()
            await one(i)
            seconds.append(time.process_time() - begin)
            merged.append(merges() != before)
        sizes = {switch: len(plane.table(switch)) for switch in self._topology.switches}
        await plane.close()
        return Spent(seconds, merged, sizes)
