"""Plain sockets at the two ends of a line of switches: the planes, and programs in C that send and receive."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from benchmarks.fabric import Worker
from sievenet import programs
from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.hosts import host_commands
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.dataplane.local import MTU
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.index import Dz
from sievenet.index.address import CONTENT_PORT
from sievenet.network import Add, Delete, Flow, parse_topology

__all__ = ["COMPILERS", "LINE", "Ends", "Plain", "Straight", "built", "named"]

LINE = parse_topology("line,switches=5,hosts=1")
#: Whichever is there: the program is the same for all planes.
COMPILERS = ("clang", "gcc")
#: Seconds between looks of a receiver that takes much at a time, and after which no more will come.
_NAP = 0.0005
_WAIT = 1.0


def built(path: Path) -> Path | None:
    """The senders and receivers, compiled; None if there is no compiler."""
    for compiler in COMPILERS:
        if programs.find(compiler) is not None:
            library, source = path / "plain.so", Path(__file__).with_name("_plain.c")
            words = ("-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source))
            subprocess.run(programs.command(compiler, *words), check=True)
            return library
    return None


def named(kind: str) -> str:
    """A network's name, of this process."""
    return f"sb{kind}{os.getpid() % 100_000:x}"


class PlainWorker(Worker):
    """A process with a plain socket."""

    module = "benchmarks._plain_worker"

    def order(self, **order: Any) -> None:
        self.write(order)

    def ask(self, do: str = "", **order: Any) -> dict[str, Any]:
        self.write(order)
        return self.answer()


class Ends:
    """A plain sender in one namespace, and a plain receiver in another."""

    def __init__(self, stack: ExitStack, library: Path, near: str, port: int, far: str, to: int) -> None:
        self._sender = PlainWorker(stack, "sender", near, str(port), str(library))
        self._receiver = PlainWorker(stack, "receiver", far, str(to), str(library))
        self._sender.ready()
        self._receiver.ready()
        self._seed = 0

    def latencies(self, count: int, pace: float) -> list[float]:
        """Seconds on the way of so many packets."""
        _, came = self._pass(count, pace)
        # A packet that never came took for ever.
        return [*(value / 1e9 for value in came["latencies"]), *[float("inf")] * (count - came["seen"])]

    def rate(self, seconds: float) -> float:
        """The highest rate at which not one packet was lost, searched for by sending at a pace again and again.

        Until the last packet has arrived: queues on the way may hold whatever is sent within so short a time.
        """
        best, good, bad, pace = 0.0, 0.0, 0.0, 8_000.0
        while not bad or bad > good * 1.1:
            count = int(pace * seconds)
            sent, came = self._pass(count, pace, batch=64, nap=_NAP)
            reached = count / (came["last"] - sent["begin"]) * 1e9 if came["seen"] == count else 0.0
            best = max(best, reached)
            if reached >= pace / 1.1:
                good = pace
            else:
                # Lost, or late: with kernel switches the sender itself pays for the whole way, and falls behind.
                bad = pace
            if bad and not good:
                break
            pace = good * 1.5 if not bad else (good * bad) ** 0.5
        return best

    def flood(self, count: int, batch: int, segments: int) -> tuple[float, float, float]:
        """As fast as it goes: packets/s that arrive, and µs of processor per packet at either end."""
        sent, came = self._pass(count, 0, batch, segments, _NAP)
        rate = came["seen"] / max(came["last"] - came["first"], 1) * 1e9
        return rate, sent["cpu"] / count * 1e6, came["cpu"] / max(came["seen"], 1) * 1e6

    def _pass(
        self, count: int, pace: float, batch: int = 1, segments: int = 1, nap: float = 0.0
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self._seed += 1
        self._receiver.order(count=count, wait=_WAIT, nap=nap, gro=int(segments > 1))
        sent = self._sender.ask(count=count, rate=pace, batch=batch, segments=segments, seed=self._seed)
        return sent, self._receiver.answer()


class Straight(Ends):
    """Two hosts with one virtual link between them, and no switch: what the two ends take by themselves."""

    def __init__(self, stack: ExitStack, library: Path) -> None:
        ends = near, far = named("n"), named("f")
        ns.add(ends)
        stack.callback(ns.delete, ends)
        ns.ip(None, [f"link add name eth0 mtu {MTU} netns {near} type veth peer name eth0 mtu {MTU} netns {far}"])
        for number, each in enumerate(ends, 1):
            ns.ip(each, host_commands("eth0", f"fd0f:1::{number}"))
        super().__init__(stack, library, near, CONTENT_PORT, far, CONTENT_PORT)


class Plain(Ends):
    """Five switches of a plane between the two."""

    def __init__(self, kind: str, stack: ExitStack, path: Path, library: Path) -> None:
        self._runner = stack.enter_context(asyncio.Runner())
        self._network: KernelNetwork | OvsNetwork
        if kind == "kernel":
            self._network = KernelNetwork(LINE, named("k"), run_dir=path / kind)
        else:
            links: Literal["veth", "patch"] = "veth" if kind.endswith("veth") else "patch"
            self._network = OvsNetwork(LINE, named(links[0]), run_dir=path / links, links=links)
        stack.callback(self._network.down)
        self._plane, sender, self._to = self._runner.run(self._open())
        stack.callback(lambda: self._runner.run(self._plane.close()))
        near, far = (self._network.host_namespace(host) for host in ("h1", "h5"))
        super().__init__(stack, library, near, sender, far, self._to)

    async def _open(self) -> tuple[Any, int, int]:
        plane: Any
        if isinstance(self._network, KernelNetwork):
            self._network.up()
            plane = KernelDataPlane(self._network)
            plane.start()
        else:
            self._network.prepare()
            plane = self._network.plane()
            await plane.start(sock=self._network.controller_socket())
            await asyncio.to_thread(self._network.connect)
            await plane.connected()
        return plane, (await plane.attach("h1", "sender")).port, (await plane.attach("h5", "receiver")).port

    def fill(self, entries: int) -> None:
        """Tables of so many entries that tile the space, in every switch."""
        self._runner.run(self._fill(entries))

    async def _fill(self, entries: int) -> None:
        if not isinstance(self._network, KernelNetwork):
            # Nobody answered Open vSwitch while packets were measured: it may have hung up, and calls again.
            await asyncio.sleep(0.5)
            await self._plane.connected()
        length = (entries - 1).bit_length()
        dzs = [Dz(i, length) for i in range(1 << length)]
        for number in range(1, 6):
            switch = f"s{number}"
            port = self._to if number == 5 else LINE.port(switch, f"s{number + 1}")
            await self._plane.apply(switch, [Delete(flow) for flow in await self._plane.table(switch)])
            await self._plane.apply(switch, [Add(Flow.of(1, dz, port)) for dz in dzs])
