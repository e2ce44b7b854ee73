"""A switch as the plane uses it, wherever it is; and the networks that such switches make.

A switch of this machine is tables in this kernel, and every call is done when it returns (`LocalSwitch`). A switch of
another machine has an agent there, and every call waits for its answer (`fleet`). The plane does not know which is
which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sievenet.dataplane.kernel.protocol import Client
from sievenet.dataplane.kernel.switch import KernelSwitch
from sievenet.dataplane.plane import SwitchCounters
from sievenet.dataplane.roster import Place
from sievenet.errors import Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.network.topology import Topology

__all__ = ["Handle", "Listener", "LocalSwitch", "Network"]


class Handle(Protocol):
    """One switch."""

    async def apply(self, changes: Sequence[FlowChange]) -> None:
        """Carry out changes; in effect when this returns."""

    async def table(self) -> FlowTable:
        """What it holds."""

    async def counters(self) -> SwitchCounters:
        """What it has counted."""

    def counters_now(self) -> SwitchCounters:
        """The same as far as it is known here."""

    def reasons(self) -> Mapping[str, int]:
        """Packets dropped, by reason, as far as it is known here."""

    def received(self) -> int:
        """Packets that came from clients, those that have left included, as far as it is known here."""

    async def admit(self, client: Client) -> None:
        """Let a client send, or change what it may do."""

    async def dismiss(self, number: int) -> None:
        """A client has left."""

    def keep_only(self, clients: Sequence[Client]) -> None:
        """Clients that are not among these have left: from now on all are known here."""

    async def permit(self, client: Client) -> bool:
        """Change what a client may do; False if so much does not fit."""


class Listener(Protocol):
    """Who is told what happens to switches."""

    def told(self, switch: str, port: int, up: bool, carries: bool) -> None:
        """A port failed or came back."""

    def lost(self, switch: str) -> None:
        """A switch cannot be reached."""

    def found(self, switch: str) -> None:
        """It can be reached again; its table may have changed."""

    def clients_at(self, switch: str) -> tuple[Client, ...]:
        """Who is attached at a switch."""


class Network(Protocol):
    """All switches of a plane."""

    #: Bytes of the largest packet.
    mtu: int

    @property
    def topology(self) -> Topology:
        """The whole network."""

    @property
    def capacity(self) -> int | None:
        """How many flows each of them holds; None means as many as the kernel's tables have room for."""

    @property
    def handles(self) -> Mapping[str, Handle]:
        """Its switches."""

    def place(self, host: str) -> Place:
        """Where a host's clients open their sockets."""

    def watch(self, listener: Listener) -> None:
        """Tell somebody of everything from now on."""

    def unwatch(self) -> None:
        """Tell nobody any more."""


class LocalSwitch:
    """A switch of this machine."""

    def __init__(self, switch: KernelSwitch) -> None:
        self.switch = switch

    async def apply(self, changes: Sequence[FlowChange]) -> None:
        """Carry out changes; in effect when this returns."""
        try:
            self.switch.apply(changes)
        except OSError as error:
            name, said = self.switch.name, error.strerror or error
            raise Unavailable(f"Switch {name}: the kernel refused a change: {said}") from None

    async def table(self) -> FlowTable:
        """What it holds."""
        return self.switch.table()

    async def counters(self) -> SwitchCounters:
        """What it has counted."""
        return self.switch.counters()

    def counters_now(self) -> SwitchCounters:
        """The same."""
        return self.switch.counters()

    def reasons(self) -> Mapping[str, int]:
        """Packets dropped, by reason."""
        return self.switch.reasons()

    def received(self) -> int:
        """Packets that came from clients, those that have left included."""
        return self.switch.received()

    async def admit(self, client: Client) -> None:
        """Let a client send, or change what it may do."""
        self.switch.add_client(client.number, client.port, client.address)
        await self.permit(client)

    async def dismiss(self, number: int) -> None:
        """A client has left."""
        self.switch.remove_client(number)

    def keep_only(self, clients: Sequence[Client]) -> None:
        """Clients that are not among these have left."""
        for number in self.switch.clients - {client.number for client in clients}:
            self.switch.remove_client(number)

    async def permit(self, client: Client) -> bool:
        """Change what a client may do; False if so much does not fit."""
        if client.categories is None:
            return True
        return self.switch.permits.give(client.number, frozenset(client.categories))
