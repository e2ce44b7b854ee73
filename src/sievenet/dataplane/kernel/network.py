"""A network of kernel switches on this machine: a namespace for each switch and host, virtual links.  Needs root.

    namespace NAME.s1                 namespace NAME.s2                 namespace NAME-h1
    ┌───────────────────────┐         ┌───────────────────────┐         ┌──────────────────────┐
    │ p1 ◀─ program ─▶ p2 ══╪═════════╪══ p1 ◀─ program ─▶ p2 ╪═════════╪══ eth0               │
    └───────────────────────┘         └───────────────────────┘         └──────────────────────┘

A packet crosses all switches in one go, on the processor of whoever sent it: each program hands it to the other end of
a link (`bpf_redirect_peer`), where the next one sees it.  Links with a bandwidth keep their queue instead.

Everything is pinned in a bpf file system of its own below `run_dir`, so that switches go on forwarding when the process
that made them is gone, and the next one finds them again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from itertools import count as counting
from pathlib import Path
from typing import Final, TypeVar

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.carrier import CarrierWatch, DeviceState
from sievenet.dataplane.kernel.handle import Handle, Listener, LocalSwitch
from sievenet.dataplane.kernel.image import shipped
from sievenet.dataplane.kernel.queues import Queues
from sievenet.dataplane.kernel.switch import KernelSwitch
from sievenet.dataplane.local import MTU, LocalNetwork, limit
from sievenet.errors import Unavailable
from sievenet.network.topology import Topology

__all__ = ["KernelNetwork"]

_T = TypeVar("_T")
#: Number of the first device of a switch; namespaces have others with small ones.
_FIRST_DEVICE: Final = 16


class KernelNetwork(LocalNetwork):
    """A topology, built from namespaces."""

    def __init__(
        self,
        topology: Topology,
        name: str = "sievenet",
        *,
        run_dir: str | Path | None = None,
        capacity: int | None = None,
    ) -> None:
        super().__init__(topology, name, run_dir=run_dir, capacity=capacity)
        self.switches: dict[str, KernelSwitch] = {}
        #: Ports of a switch by the number of their device.
        self.devices: dict[str, dict[int, int]] = {}
        self.mtu = MTU
        self._watches: list[CarrierWatch] = []

    @property
    def handles(self) -> Mapping[str, Handle]:
        """Its switches, as the plane uses them."""
        return {name: LocalSwitch(switch) for name, switch in self.switches.items()}

    def watch(self, listener: Listener) -> None:
        """Tell somebody of every port, now and whenever it fails or comes back."""
        loop = asyncio.get_running_loop()

        def told(switch: str, state: DeviceState) -> None:
            port = self.devices[switch].get(state.device)
            if port is not None:
                self.switches[switch].set_carrier(port, state.carries)
                listener.told(switch, port, state.up, state.carries)

        for switch in self.switches:
            watch = self.inside(switch, partial(CarrierWatch, partial(told, switch)))
            watch.start(loop)
            self._watches.append(watch)

    def unwatch(self) -> None:
        """Tell nobody any more."""
        for watch in self._watches:
            watch.close(asyncio.get_running_loop())
        self._watches.clear()

    def switch_namespace(self, switch: str) -> str:
        """Where a switch is."""
        return f"{self.name}.{switch}"

    def up(self) -> bool:
        """See that the network is there; whether it was there already.  What is not the wanted one is removed."""
        missing = bpf.supported()
        if missing is not None:
            raise Unavailable(
                f"The kernel data plane needs {missing}. Use --dataplane embedded, which needs nothing, or ovs"
            )
        if self._adopt():
            return True
        self.down()
        try:
            self._pins.mkdir(parents=True, exist_ok=True)
            bpf.mount(str(self._pins))
            ns.add(
                [*map(self.switch_namespace, self.topology.switches), *map(self.host_namespace, self.topology.hosts)]
            )
            self._wire()
            for switch in KernelSwitch.create(self.topology.switches, self.capacity):
                self.switches[switch.name] = switch
            for name in self.topology.switches:
                self._make(name)
            self._note.write_text(self._digest())
        except BaseException:
            self.down()
            raise
        return False

    def _adopt(self) -> bool:
        """Take over the very network that is wanted, if it is there and whole."""
        try:
            if self._note.read_text() != self._digest():
                return False
            count = len(self.topology.switches)
            for number, name in enumerate(self.topology.switches):
                self.switches[name] = KernelSwitch.adopt(name, self._pins / name, self.capacity, (number, count))
                self.devices[name] = self.inside(name, partial(_devices, self.topology.ports(name)))
                self._add_ports(name)
            return len(ns.listing(f"{self.name}-")) == len(self.topology.hosts)
        except (OSError, Unavailable, ValueError):
            return False

    def _end_of_link(self, node: str, port: int) -> tuple[str, str]:
        """Namespace and device of one end of a link."""
        if node in self.topology.hosts:
            return self.host_namespace(node), "eth0"
        return self.switch_namespace(node), f"p{port}"

    def _wire(self) -> None:
        # The switches' devices have different numbers, though each is in a namespace of its own: the program tells
        # switches by them.
        lines, numbers = [], counting(_FIRST_DEVICE)
        for link in self.topology.links:
            ends = []
            for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
                where, name = self._end_of_link(node, port)
                number = f"index {next(numbers)} " if self.topology.is_switch(node) else ""
                ends.append(f"name {name} {number}mtu {MTU} netns {where}")
            lines.append(f"link add {ends[0]} type veth peer {ends[1]}")
        ns.ip(None, lines)
        for switch in self.topology.switches:
            ports = self.topology.ports(switch)
            ns.ip(self.switch_namespace(switch), [f"link set p{port} addrgenmode none up" for port in ports])
            for port, peer in ports.items():
                bandwidth = self.topology.link(switch, peer).settings.bandwidth
                if bandwidth is not None and self.topology.is_switch(peer):
                    limit(self.switch_namespace(switch), f"p{port}", bandwidth)
        for host in self.topology.hosts:
            self._make_host(host)

    def _make(self, name: str) -> None:
        switch, ports = self.switches[name], self.topology.ports(name)

        folder = self._pins / name
        switch.pin(folder)

        def attach() -> bool:
            self.devices[name] = _devices(ports)
            pairs = self.devices[name].items()
            return all(bpf.attach_pinned(switch.program, device, str(folder / f"p{port}")) for device, port in pairs)

        if not self.inside(name, attach):
            self._attach_by_filter(name)
        self._add_ports(name)

    def _attach_by_filter(self, name: str) -> None:
        """The same for kernels before 6.6, which have no links for this: a filter in front of each device's queue."""
        where = self.switch_namespace(name)
        for port in self.topology.ports(name):
            ns.run("tc", "-n", where, "qdisc", "replace", "dev", f"p{port}", "clsact")
            program = ("bpf", "direct-action", "object-pinned", str(self._pins / name / "sieve"))
            ns.run("tc", "-n", where, "filter", "replace", "dev", f"p{port}", "ingress", *program)

    def _add_ports(self, name: str) -> None:
        ports = self.topology.ports(name)
        queues: dict[int, str] = {}
        for device, port in self.devices[name].items():
            peer = ports[port]
            limited = self.topology.is_switch(peer) and self.topology.link(name, peer).settings.bandwidth is not None
            self.switches[name].add_port(port, device, host=not self.topology.is_switch(peer), straight=not limited)
            if limited:
                queues[port] = f"p{port}"
        self.switches[name].queued_out = Queues(self.switch_namespace(name), queues).dropped

    def inside(self, switch: str, work: Callable[[], _T]) -> _T:
        """Do something inside a switch's namespace."""
        return ns.inside(self.switch_namespace(switch), work)

    # -- failing on purpose --------------------------------------------------------------------------

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Pull the plug of a link, or put it in again."""
        link = self.topology.link(a, b)
        node, port = (link.a, link.a_port) if self.topology.is_switch(link.a) else (link.b, link.b_port)
        ns.ip(self.switch_namespace(node), [f"link set p{port} {'up' if up else 'down'}"])

    def set_switch(self, switch: str, up: bool) -> None:
        """Let a switch fail, and forget its flows, or come back."""
        state = "up" if up else "down"
        ns.ip(self.switch_namespace(switch), [f"link set p{port} {state}" for port in self.topology.ports(switch)])
        if not up:
            self.switches[switch].clear()

    # -- taking down -----------------------------------------------------------------------------------

    def down(self) -> None:
        """Remove everything of this name, whatever state it is in."""
        for switch in self.switches.values():
            switch.close()
        self.switches.clear()
        super().down()

    def _digest(self) -> str:
        """What tells this network from another of the same name."""
        parts = (self.topology.switches, self.topology.hosts, self.topology.links, self.capacity, shipped())
        return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _devices(ports: Iterable[int]) -> dict[int, int]:
    """Ports by the numbers of their devices, in the namespace that this is called in."""
    return {socket.if_nametoindex(f"p{port}"): port for port in ports}
