"""A network of kernel switches on this machine: a namespace for each switch and host, virtual links.  Needs root.

    namespace NAME-h1   namespace NAME.switches                    namespace NAME-h2
    ┌────────────┐      ┌───────────────────────────────────┐      ┌────────────┐
    │       eth0 ╪══════╪ p16 ◀ s1 ▶ p17 ══ p18 ◀ s2 ▶ p19 ═╪══════╪ eth0       │
    └────────────┘      └───────────────────────────────────┘      └────────────┘

A packet crosses all switches in one go, on the processor of whoever sent it.  Between switches it does not even use
their link: the program goes on with the tables of the switch at its other end, and hands the packet to the end of the
link to a host (`bpf_redirect_peer`), or to the queue of a link with a bandwidth.  A link carries nothing any more when
its device has said that it is down (`watch`).

Everything is pinned in a bpf file system of its own below `run_dir`, so that switches go on forwarding when the process
that made them is gone, and the next one finds them again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
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
        #: Ports of a switch by the number of their device: the program tells switches by it.
        self.devices: dict[str, dict[int, int]] = {switch: {} for switch in topology.switches}
        #: The other way round, for all switches.
        self._numbers: dict[tuple[str, int], int] = {}
        numbers = counting(_FIRST_DEVICE)
        for link in topology.links:
            for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
                if topology.is_switch(node):
                    number = self._numbers[node, port] = next(numbers)
                    self.devices[node][number] = port
        self.mtu = MTU
        self._watch: CarrierWatch | None = None

    @property
    def handles(self) -> Mapping[str, Handle]:
        """Its switches, as the plane uses them."""
        return {name: LocalSwitch(switch) for name, switch in self.switches.items()}

    def watch(self, listener: Listener) -> None:
        """Tell somebody of every port, now and whenever it fails or comes back."""
        ports = {number: end for end, number in self._numbers.items()}

        def told(state: DeviceState) -> None:
            end = ports.get(state.device)
            if end is not None:
                switch, port = end
                self.switches[switch].set_carrier(port, state.carries)
                listener.told(switch, port, state.up, state.carries)

        self._watch = self.inside(partial(CarrierWatch, told))
        self._watch.start(asyncio.get_running_loop())

    def unwatch(self) -> None:
        """Tell nobody any more."""
        if self._watch is not None:
            self._watch.close(asyncio.get_running_loop())
            self._watch = None

    def switch_namespace(self, switch: str) -> str:
        """Where a switch is."""
        return f"{self.name}.switches"

    def device(self, switch: str, port: int) -> str:
        """What the device of a port is called there."""
        return f"p{self._numbers[switch, port]}"

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
            ns.add([*self._switch_namespaces(), *map(self.host_namespace, self.topology.hosts)])
            self._wire()
            for switch in KernelSwitch.create(self.topology.switches, self.capacity):
                self.switches[switch.name] = switch
                switch.pin(self._pins / switch.name)
            self._attach()
            for name in self.topology.switches:
                self._add_ports(name)
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
            there = {number for number, _ in self.inside(socket.if_nameindex)}
            if not there.issuperset(self._numbers.values()):
                return False
            for number, name in enumerate(self.topology.switches):
                self.switches[name] = KernelSwitch.adopt(name, self._pins / name, self.capacity, (number, count))
                self._add_ports(name)
            return len(ns.listing(f"{self.name}-")) == len(self.topology.hosts)
        except (OSError, Unavailable, ValueError):
            return False

    def _switch_namespaces(self) -> list[str]:
        return sorted(set(map(self.switch_namespace, self.topology.switches)))

    def _wire(self) -> None:
        lines, aliases = [], []
        for link in self.topology.links:
            ends = []
            for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
                if self.topology.is_switch(node):
                    where, name = self.switch_namespace(node), self.device(node, port)
                    ends.append(f"name {name} index {self._numbers[node, port]} mtu {MTU} netns {where}")
                    aliases.append((where, f'link set {name} alias "{node} port {port}" addrgenmode none up'))
                else:
                    ends.append(f"name eth0 mtu {MTU} netns {self.host_namespace(node)}")
            lines.append(f"link add {ends[0]} type veth peer {ends[1]}")
        ns.ip(None, lines)
        for where in self._switch_namespaces():
            ns.ip(where, [line for there, line in aliases if there == where])
        for switch in self.topology.switches:
            for port, peer in self.topology.ports(switch).items():
                bandwidth = self.topology.link(switch, peer).settings.bandwidth
                if bandwidth is not None and self.topology.is_switch(peer):
                    limit(self.switch_namespace(switch), self.device(switch, port), bandwidth)
        for host in self.topology.hosts:
            self._make_host(host)

    def _attach(self) -> None:
        """Let the program see what comes in by all ports."""
        ends = [(switch, port, number) for (switch, port), number in self._numbers.items()]

        def attach() -> bool:
            return all(
                bpf.attach_pinned(self.switches[switch].program, number, str(self._pins / switch / f"p{port}"))
                for switch, port, number in ends
            )

        if self.inside(attach):
            return
        # Kernels before 6.6 have no links for this: a filter in front of each device's queue.
        for switch, port, _ in ends:
            where, device = self.switch_namespace(switch), self.device(switch, port)
            ns.run("tc", "-n", where, "qdisc", "replace", "dev", device, "clsact")
            program = ("bpf", "direct-action", "object-pinned", str(self._pins / switch / "sieve"))
            ns.run("tc", "-n", where, "filter", "replace", "dev", device, "ingress", *program)

    def _add_ports(self, name: str) -> None:
        queues: dict[int, str] = {}
        for port, peer in self.topology.ports(name).items():
            number, switch = self._numbers[name, port], self.switches[name]
            if not self.topology.is_switch(peer):
                switch.add_port(port, number, host=True, straight=True)
            elif self.topology.link(name, peer).settings.bandwidth is not None:
                switch.add_port(port, number, host=False)
                queues[port] = self.device(name, port)
            else:
                beyond = self._numbers[peer, self.topology.port(peer, name)]
                switch.add_port(port, number, host=False, beyond=beyond)
        self.switches[name].queued_out = Queues(self.switch_namespace(name), queues).dropped

    def inside(self, work: Callable[[], _T]) -> _T:
        """Do something inside the switches' namespace."""
        return ns.inside(self.switch_namespace(self.topology.switches[0]), work)

    # -- failing on purpose --------------------------------------------------------------------------

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Pull the plug of a link, or put it in again."""
        link = self.topology.link(a, b)
        node, port = (link.a, link.a_port) if self.topology.is_switch(link.a) else (link.b, link.b_port)
        ns.ip(self.switch_namespace(node), [f"link set {self.device(node, port)} {'up' if up else 'down'}"])

    def set_switch(self, switch: str, up: bool) -> None:
        """Let a switch fail, and forget its flows, or come back."""
        state = "up" if up else "down"
        devices = [self.device(switch, port) for port in self.topology.ports(switch)]
        ns.ip(self.switch_namespace(switch), [f"link set {device} {state}" for device in devices])
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
