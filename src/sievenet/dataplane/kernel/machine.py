"""One machine as a content switch: its network interfaces are the ports.  Needs root.

    eth1 ══ port 1 ┐                   ┌ port 3 ══ eth3
                   ├─ one program and ─┤
    eth2 ══ port 2 ┘    its tables     └ port 4 ══ eth4

The interfaces belong to the switch: they take whatever comes (promiscuous), and content is seen before the system's own
stack, which gets the rest.  As in a network of namespaces everything is pinned, so that the switch goes on forwarding
when its process is gone, and the next one finds it again: the same interfaces, ports and program.

An interface that vanishes is a port that is down. If one of the same name comes back it is the port again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.beacon import Beacons, Neighbour
from sievenet.dataplane.kernel.carrier import CarrierWatch, DeviceState
from sievenet.dataplane.kernel.image import shipped
from sievenet.dataplane.kernel.protocol import Client, Port
from sievenet.dataplane.kernel.queues import Queues
from sievenet.dataplane.kernel.switch import KernelSwitch
from sievenet.dataplane.local import MTU, RUN, limit
from sievenet.errors import InvalidInput, Unavailable

__all__ = ["Machine", "interfaces_of"]

log = logging.getLogger("sievenet.kernel")

_SIOCGIFMTU: Final = 0x8921


def interfaces_of(text: str) -> tuple[str, ...]:
    """The interfaces in a list such as eth1,eth2; `InvalidInput` if one is not there or named twice."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names or len(set(names)) < len(names):
        raise InvalidInput(expected="network interfaces, each once, such as eth1,eth2", got=text, where="interfaces")
    there = {name for _, name in socket.if_nameindex()} - {"lo"}
    for name in names:
        if name not in there:
            shown = ", ".join(sorted(there)) or "none"
            raise InvalidInput(expected=f"a network interface of this machine ({shown})", got=name, where="interfaces")
    return names


class Machine:
    """A switch made of this machine's interfaces; port 1 is the first of them."""

    def __init__(
        self, name: str, interfaces: Sequence[str], *, run_dir: Path | None = None, capacity: int | None = None
    ) -> None:
        self.name = name
        self.interfaces = dict(enumerate(interfaces, 1))
        self.capacity = capacity
        self.run_dir = run_dir if run_dir is not None else RUN / f"switch-{name}"
        self._pins = self.run_dir / "bpf"
        self._note = self.run_dir / "switch"
        self._ports: dict[int, Port] = {}
        #: Ports by the numbers of their devices.
        self._devices: dict[int, int] = {}
        self._switch: KernelSwitch | None = None
        self._watch: CarrierWatch | None = None
        self._beacons: Beacons | None = None
        self._told: Callable[[int, bool, bool], None] = lambda port, up, carries: None

    @property
    def switch(self) -> KernelSwitch:
        """The switch, once it is up."""
        assert self._switch is not None
        return self._switch

    @staticmethod
    def check() -> None:
        """`Unavailable` if this machine cannot be a switch, with what to use instead."""
        missing = bpf.supported()
        if missing is not None:
            raise Unavailable(
                f"A switch in the kernel needs {missing}. Use --dataplane embedded, which needs nothing, or OpenFlow "
                "switches (--dataplane openflow)"
            )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Nobody else is this switch meanwhile; `Unavailable` if somebody is already."""
        self.run_dir.parent.mkdir(parents=True, exist_ok=True)
        with self.run_dir.with_suffix(".lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise Unavailable(
                    f"Switch {self.name} has an agent on this machine already (process {lock.read().strip()})"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def mtu(self) -> int:
        """Bytes of the largest packet that fits all ports."""
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            return min(_mtu(sock, device) for device in self.interfaces.values())

    def prepare(self) -> None:
        """Bring the interfaces up, open for all packets, and for large ones where the hardware takes them."""
        for device in self.interfaces.values():
            ns.ip(None, [f"link set {device} promisc on up"])
            with contextlib.suppress(Unavailable):
                ns.ip(None, [f"link set {device} mtu {MTU}"])

    def up(self, ports: Sequence[Port], capacity: int | None = None) -> bool:
        """See that the switch is there; whether it was there already.  What is not the wanted one is removed."""
        self.check()
        self.capacity = capacity
        self._ports = {port.number: port for port in ports}
        if self._ports.keys() != self.interfaces.keys():
            raise InvalidInput(
                expected=f"as many interfaces as switch {self.name} has ports ({len(self._ports)})",
                got=len(self.interfaces),
                where="interfaces",
            )
        if self._switch is not None and self._note.exists() and self._note.read_text() == self._digest():
            return True
        if self._adopt():
            self._count_queues()
            return True
        self.down()
        try:
            self._pins.mkdir(parents=True, exist_ok=True)
            bpf.mount(str(self._pins))
            [self._switch] = KernelSwitch.create([self.name], capacity)
            self._switch.pin(self._pins / self.name)
            for port in self._ports:
                self._attach(port)
            self._note.write_text(self._digest())
        except BaseException:
            self.down()
            raise
        self._count_queues()
        return False

    def _count_queues(self) -> None:
        limited = {port: self.interfaces[port] for port, each in self._ports.items() if each.bandwidth}
        self.switch.queued_out = Queues(None, limited).dropped

    def _adopt(self) -> bool:
        try:
            if self._note.read_text() != self._digest():
                return False
            self._switch = KernelSwitch.adopt(self.name, self._pins / self.name, self.capacity)
        except (OSError, Unavailable, ValueError):
            return False
        for port, device in self.interfaces.items():
            index = socket.if_nametoindex(device)
            self._devices[index] = port
            self._switch.add_port(port, index, host=self._ports[port].host, straight=False)
        return True

    def _attach(self, port: int) -> None:
        """Let an interface be a port."""
        device = self.interfaces[port]
        index = socket.if_nametoindex(device)
        pin = self._pins / self.name / f"p{port}"
        with contextlib.suppress(OSError):
            pin.unlink()
        if not bpf.attach_pinned(self.switch.program, index, str(pin)):
            ns.run("tc", "qdisc", "replace", "dev", device, "clsact")
            program = ("bpf", "direct-action", "object-pinned", str(self._pins / self.name / "sieve"))
            ns.run("tc", "filter", "replace", "dev", device, "ingress", *program)
        if bandwidth := self._ports[port].bandwidth:
            limit(None, device, bandwidth)
        self._devices[index] = port
        self.switch.add_port(port, index, host=self._ports[port].host, straight=False)

    def _digest(self) -> str:
        """What tells this switch from another of the same name."""
        devices = [(port, socket.if_nametoindex(device)) for port, device in sorted(self.interfaces.items())]
        parts = (self.name, devices, sorted(self._ports.items()), self.capacity, shipped())
        return blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    # -- what happens ----------------------------------------------------------------------------------

    def watch(self, told: Callable[[int, bool, bool], None], found: Callable[[int, Neighbour], None]) -> None:
        """Tell of every port, now and whenever it fails or comes back: number, whether up, whether it carries; and of
        the switches at the other ends of cables.
        """
        self.unwatch()
        self._told = told
        self._beacons = Beacons(self.name, self.interfaces, found)
        self._watch = CarrierWatch(self._state)
        self._watch.start(asyncio.get_running_loop())

    def unwatch(self) -> None:
        """Tell nobody any more."""
        if self._watch is not None:
            self._watch.close(asyncio.get_running_loop())
            self._watch = None
        if self._beacons is not None:
            self._beacons.close()
            self._beacons = None

    def _state(self, state: DeviceState) -> None:
        port = self._devices.get(state.device)
        if port is None:
            port = self._returned(state)
            if port is None:
                return
        if state.gone:
            del self._devices[state.device]
        self.switch.set_carrier(port, state.carries)
        self._told(port, state.up, state.carries)

    def _returned(self, state: DeviceState) -> int | None:
        """The port whose interface was gone and is there again under another number."""
        if state.gone:
            return None
        try:
            name = socket.if_indextoname(state.device)
        except OSError:
            return None
        for port, device in self.interfaces.items():
            if device == name and port not in self._devices.values():
                try:
                    ns.ip(None, [f"link set {device} promisc on up"])
                    self._attach(port)
                    self._note.write_text(self._digest())
                except (OSError, Unavailable) as error:
                    log.warning("interface %s is back but cannot be a port: %s", device, error)
                    return None
                log.info("interface %s is back as port %d", device, port)
                return port
        return None

    # -- clients ---------------------------------------------------------------------------------------

    def admit(self, client: Client) -> None:
        """Let a client send, or change what it may do."""
        self.switch.add_client(client.number, client.port, client.address)
        if client.categories is not None and not self.switch.permits.give(client.number, frozenset(client.categories)):
            log.warning("client %d: no room for its %d categories", client.number, len(client.categories))

    def admit_only(self, clients: Sequence[Client]) -> None:
        """These are all clients there are."""
        for number in self.switch.clients - {client.number for client in clients}:
            self.switch.remove_client(number)
        for client in clients:
            self.admit(client)

    # -- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the switch, which goes on."""
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        self._devices.clear()

    def down(self) -> None:
        """Remove the switch; the interfaces stay as they are."""
        held = self._pins / self.name
        for port, device in self.interfaces.items():
            if (held / "sieve").exists() and not (held / f"p{port}").exists():
                with contextlib.suppress(Unavailable):
                    ns.run("tc", "filter", "del", "dev", device, "ingress")
            if port in self._ports and self._ports[port].bandwidth:
                with contextlib.suppress(Unavailable):
                    ns.run("tc", "qdisc", "del", "dev", device, "root")
        self.close()
        bpf.unmount(str(self._pins))
        shutil.rmtree(self.run_dir, ignore_errors=True)


def _mtu(sock: socket.socket, device: str) -> int:
    answer = fcntl.ioctl(sock, _SIOCGIFMTU, struct.pack("16si20x", device.encode(), 0))
    found: int = struct.unpack("16si20x", answer)[1]
    return found
