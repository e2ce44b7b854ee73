"""Which data plane a daemon runs, as its configuration says.

embedded   software switches in this process, clients over UDP
ovs        a network of Open vSwitch that is built here, and taken down at the end; needs root
openflow   switches that exist already and connect to us
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeAlias

from sievenet.config import Config
from sievenet.daemon.server import Server
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.dataplane.openflow.namespaces import listening
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane
from sievenet.network.topology import Topology

__all__ = ["AnyPlane", "Planes"]

AnyPlane: TypeAlias = EmbeddedDataPlane | OpenFlowDataPlane


class Planes:
    """Opens the plane of a daemon, and the doors that belong to it."""

    def __init__(self, config: Config, topology: Topology, stack: contextlib.AsyncExitStack) -> None:
        self._config = config
        self._topology = topology
        self._stack = stack
        self._network: OvsNetwork | None = None

    async def open(self, secret: bytes | None = None) -> AnyPlane:
        """The plane, working; closed with the stack."""
        if self._config.dataplane == "ovs":
            return await self._ovs(secret)
        data = self._config.data
        plane = EmbeddedDataPlane(self._topology, seed=self._config.seed, capacity=data.capacity)
        self._stack.push_async_callback(plane.close)
        await plane.start(data.host, data.port)
        return plane

    async def _ovs(self, secret: bytes | None) -> OpenFlowDataPlane:
        config = self._config.openflow
        network = OvsNetwork(self._topology, config.name, run_dir=config.run_dir, capacity=self._config.data.capacity)
        await asyncio.to_thread(network.prepare)
        self._stack.push_async_callback(asyncio.to_thread, network.down)
        plane = network.plane(secret=secret, grace=config.grace, audit=config.audit)
        self._stack.push_async_callback(plane.close)
        await plane.start(sock=network.controller_socket())
        await asyncio.to_thread(network.connect)
        await plane.connected()
        self._network = network
        return plane

    async def open_doors(self, server: Server) -> None:
        """Let hosts that have a network of their own reach the daemon at the usual address."""
        network = self._network
        if network is None:
            return
        for host in self._topology.hosts:
            sock = listening(network.host_namespace(host), "127.0.0.1", server.port)
            await server.add_door(sock, host)
        (network.run_dir / "url").write_text(server.url)
