"""Which data plane a daemon runs, as its configuration says.

embedded   software switches in this process, clients over UDP
ovs        a network of Open vSwitch that is built here, and taken down at the end; needs root
kernel     switches inside the Linux kernel: a network that is built here as well, or machines with an agent each;
           needs root
openflow   switches that exist already and connect to us
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.config import Config, OpenFlowConfig
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.dataplane.kernel.fleet import Fleet
from sievenet.dataplane.kernel.machine import Machine, interfaces_of
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.dataplane.namespaces import listening
from sievenet.dataplane.openflow.discovery import Discovery, Names, Scout
from sievenet.dataplane.openflow.effect import Pause
from sievenet.dataplane.openflow.inband import InBand
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane
from sievenet.dataplane.openflow.tunnel import open_tunnel
from sievenet.errors import InvalidInput, Unavailable
from sievenet.network.topology import Topology
from sievenet.session.listener import Listener

__all__ = ["AnyPlane", "Planes"]

log = logging.getLogger("sievenet.daemon")

AnyPlane: TypeAlias = EmbeddedDataPlane | OpenFlowDataPlane | KernelDataPlane


class Planes:
    """Opens the plane of a daemon, and the doors that belong to it."""

    def __init__(
        self,
        config: Config,
        topology: Topology,
        stack: contextlib.AsyncExitStack,
        keeper: Doorkeeper | None = None,
    ) -> None:
        self._config = config
        #: Who may be an agent of a switch.
        self._keeper = keeper
        self._topology = topology
        self._stack = stack
        self._network: OvsNetwork | KernelNetwork | None = None
        self._fleet: Fleet | None = None
        #: Where daemons take turns, the term of this one: OpenFlow switches obey the latest alone.
        self.generation: int | None = None
        #: Where names of switches that were found are kept instead of in the state directory; called when they change.
        self.names: Path | None = None
        self.on_names: Callable[[], None] = lambda: None
        #: How hosts reach us through their switches, where that is possible.
        self.in_band: InBand | None = None

    async def open(self, secret: bytes | None = None) -> AnyPlane:
        """The plane, working; closed with the stack."""
        plane = await self._opened(secret)
        # Before the plane, and after the server that is still to come: its last words are carried too.
        self._stack.callback(self._close_tunnel)
        return plane

    async def _opened(self, secret: bytes | None) -> AnyPlane:
        if self._config.dataplane == "ovs":
            return await self._ovs(secret)
        if self._config.dataplane == "kernel":
            return await self._kernel(secret)
        if self._config.dataplane == "openflow":
            return await self._openflow(secret)
        data = self._config.data
        plane = EmbeddedDataPlane(self._topology, seed=self._config.seed, capacity=data.capacity)
        self._stack.push_async_callback(plane.close)
        await plane.start(data.host, data.port)
        return plane

    async def _ovs(self, secret: bytes | None) -> OpenFlowDataPlane:
        config = self._config.openflow
        network = OvsNetwork(
            self._topology,
            config.name,
            run_dir=config.run_dir,
            capacity=self._config.data.capacity,
            links=config.links,
        )
        self._stack.enter_context(network.claimed())
        await asyncio.to_thread(network.prepare)
        self._stack.push_async_callback(asyncio.to_thread, network.down)
        plane = network.plane(secret=secret, grace=config.grace, audit=config.audit, generation=self.generation)
        self._stack.push_async_callback(plane.close)
        await plane.start(sock=network.controller_socket())
        await asyncio.to_thread(network.connect)
        await plane.connected()
        self._network = network
        return plane

    async def _kernel(self, secret: bytes | None) -> KernelDataPlane:
        if self._config.kernel.listen is not None or self._config.kernel.interfaces is not None:
            return await self._machines(secret)
        config = self._config.openflow
        network = KernelNetwork(
            self._topology, config.name, run_dir=config.run_dir, capacity=self._config.data.capacity
        )
        self._stack.enter_context(network.claimed())
        await asyncio.to_thread(network.up)
        self._stack.push_async_callback(asyncio.to_thread, network.down)
        plane = KernelDataPlane(network, secret=secret, together=self._together)
        self._stack.push_async_callback(plane.close)
        plane.start()
        self._network = network
        return plane

    @property
    def _together(self) -> bool:
        """Whether several events may travel in one packet.

        Not by several trees at a time, which together may have a circle; not where it is counted what single packets a
        host gets, for matchers and caches; and not where members may read different events.
        """
        config = self._config
        counted = config.hybrid.latency_bound > 0 or config.run.caches > 0
        return config.control.spread == 1 and not counted and config.access.folder is None

    async def _machines(self, secret: bytes | None) -> KernelDataPlane:
        """Switches that are machines: this one perhaps, and those whose agents come."""
        config, topology = self._config.kernel, self._topology
        machine = None
        if config.interfaces is not None:
            name = config.switch or topology.switches[0]
            if name not in topology.switches:
                known = ", ".join(topology.switches)
                raise InvalidInput(expected=f"a switch of the topology ({known})", got=name, where="kernel.switch")
            Machine.check()
            machine = Machine(name, interfaces_of(config.interfaces))
            self._stack.enter_context(machine.claimed())
            self._stack.push_async_callback(asyncio.to_thread, machine.down)
        others = len(topology.switches) - (machine is not None)
        if others and config.listen is None:
            raise InvalidInput(
                expected=f"an address to which the agents of the other {others} switches connect",
                got="none",
                where="kernel.listen",
            )
        fleet = Fleet(
            topology,
            machine=machine,
            capacity=self._config.data.capacity,
            grace=config.grace,
            gate=self._keeper,
            tls=None if self._keeper is None else self._keeper.tls,
        )
        self._stack.push_async_callback(fleet.close)
        self._fleet = fleet
        host, port = _address(config.listen, "kernel.listen") if config.listen is not None else ("", 0)
        await fleet.start(host, port)
        if others:
            log.info("agents of switches connect to %s port %d", *fleet.address)
        await fleet.connected(config.wait)
        plane = KernelDataPlane(fleet, secret=secret, together=self._together)
        self._stack.push_async_callback(plane.close)
        plane.start()
        return plane

    async def _openflow(self, secret: bytes | None) -> OpenFlowDataPlane:
        config = self._config.openflow
        host, port = _address(config.listen)
        tls = _tls(config)
        file = self.names or (None if self._config.state is None else Path(self._config.state) / "network.json")
        names = Names.load(file)

        def save() -> None:
            names.save(file)
            self.on_names()

        discovery = Discovery(secret or secrets.token_bytes(32), names)
        found = await Scout(discovery).look(config.switches, host, port, tls=tls)
        save()
        plane = OpenFlowDataPlane(
            found.topology,
            found.datapaths,
            rounds=Pause(config.settle) if config.settle else None,
            secret=secret,
            grace=config.grace,
            audit=config.audit,
            discovery=discovery,
            generation=self.generation,
        )
        assert plane.growth is not None
        plane.growth.on_change = save
        self._stack.push_async_callback(plane.close)
        await plane.start(host, port, tls=tls)
        await plane.connected(30.0)
        return plane

    def renew(self, keeper: Doorkeeper) -> None:
        """The access folder may have changed, and logins may count no more."""
        if self._fleet is not None:
            self._fleet.renew(keeper.tls, keeper.stands)

    async def open_doors(self, server: Listener[Any], plane: AnyPlane) -> None:
        """Let hosts reach the daemon: through their switches, and those of a network of ours at the usual address."""
        if isinstance(plane, OpenFlowDataPlane):
            await self._open_tunnel(server, plane)
        network = self._network
        if network is None:
            return
        for host in self._topology.hosts:
            sock = listening(network.host_namespace(host), "127.0.0.1", server.port)
            await server.add_door(sock, host)
        (network.run_dir / "url").write_text(server.url)

    async def _open_tunnel(self, server: Listener[Any], plane: OpenFlowDataPlane) -> None:
        try:
            tunnel, sock = await asyncio.to_thread(open_tunnel, server.port)
        except Unavailable as error:
            log.warning("hosts cannot reach the daemon through their switches: %s", error)
            return
        self.in_band = InBand(plane, tunnel)
        await server.add_door(sock, self.in_band.host_of)

    def _close_tunnel(self) -> None:
        if self.in_band is not None:
            self.in_band.close()


def _address(text: str, where: str = "openflow.listen") -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise InvalidInput(expected="an address such as 127.0.0.1:6653", got=text, where=where)
    return host.strip("[]"), int(port)


def _tls(config: OpenFlowConfig) -> ssl.SSLContext | None:
    """Both sides prove who they are, or nothing is encrypted."""
    files = (config.certificate, config.key, config.authority)
    if files == (None, None, None):
        return None
    if None in files or config.certificate is None:
        raise InvalidInput(expected="certificate, key and authority together", got=files, where="openflow")
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=config.authority)
        context.load_cert_chain(config.certificate, config.key)
    except OSError as error:
        raise InvalidInput(f"Expected readable PEM files, got {error}", where="openflow") from None
    context.verify_mode = ssl.CERT_REQUIRED
    return context
