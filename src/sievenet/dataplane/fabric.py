"""The embedded data plane, whatever its clock: switches that acknowledge, fail and come back.

`Fabric` gives `Forwarding` what a control plane sees of a network: acknowledged changes,
tables to read back, notices of failures, ports for clients.  Time comes from a scheduler,
so the same class runs in real time (`EmbeddedDataPlane`) and in virtual time (`Simulator`).

Each switch has a channel to the control plane, in order as TCP is:

    apply ──(control delay)──▶ switch carries out ──(control delay)──▶ acknowledged
                                   └ ApplyFault: only some of the changes, late, or never acknowledged

Without delay and faults `apply` is a function call and does not wait.  A fault hits one
`apply`; what the caller then knows is what it would know of a real switch: nothing, until
it reads the table.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from sievenet.dataplane.forwarding import Forwarding
from sievenet.dataplane.notices import Notices
from sievenet.dataplane.plane import (
    Attached,
    LinkDown,
    LinkUp,
    Notice,
    PortCount,
    SwitchCounters,
    SwitchDown,
    SwitchUp,
)
from sievenet.dataplane.walks import Port
from sievenet.errors import InvalidInput, Rejected, Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.network.topology import CLIENT_PORTS, Topology
from sievenet.simulation import LoopClock, Scheduler

__all__ = ["ApplyFault", "Fabric"]

#: Port numbers end here, as OpenFlow's 16-bit ones would.
_LAST_PORT: Final = 0xFEFF

_T = TypeVar("_T")


class ApplyFault(msgspec.Struct, frozen=True):
    """What goes wrong with one `apply`."""

    #: How many of the changes are carried out, from the first on; None means all.
    applied: int | None = None
    #: Seconds by which the acknowledgement is late; None means that it never comes.
    late: float | None = None


class Fabric:
    """Embedded switches as a `DataPlane`."""

    #: They take any table, and any mask.
    per_port: Final = True

    def __init__(
        self,
        topology: Topology,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        capacity: int | None = None,
        control_delay: float = 0.0,
        ack_timeout: float = 1.0,
    ) -> None:
        self.forwarding: Final = Forwarding(topology, scheduler, seed=seed, capacity=capacity)
        self.scheduler: Final = scheduler
        #: Seconds from the control plane to a switch, and back.
        self.control_delay: Final = control_delay
        #: Seconds to wait for an acknowledgement.
        self.ack_timeout: Final = ack_timeout
        self._tokens = random.Random(seed)
        self._notices = Notices()
        self._faults: dict[str, deque[ApplyFault]] = {}
        #: Per switch, when everything sent so far will have been carried out.
        self._channel: dict[str, float] = {}
        #: Per switch, who waits for it.
        self._waiting: dict[str, set[asyncio.Future[Any]]] = {}
        self._clients: dict[str, tuple[Attached, Port]] = {}
        self._next_port: dict[str, int] = {}

    @property
    def topology(self) -> Topology:
        """The whole network, what is down included."""
        return self.forwarding.topology

    # -- changes and reading back --------------------------------------------------------------

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes; returns when the switch has acknowledged them (see `DataPlane.apply`)."""
        self._check_up(switch)
        fault = self._next_fault(switch)
        if fault is None and not self.control_delay and not self._backlog(switch):
            self.forwarding.install(switch, changes)
            return
        applied = len(changes) if fault is None or fault.applied is None else fault.applied
        late = 0.0 if fault is None else fault.late

        def carry_out() -> None:
            self.forwarding.install(switch, changes[:applied])

        await self._send(switch, carry_out, late, f"acknowledge {len(changes)} flow changes")

    async def table(self, switch: str) -> FlowTable:
        """What the switch holds."""
        self._check_up(switch)
        if not self.control_delay and not self._backlog(switch):
            return self.forwarding.switches[switch].table()
        return await self._send(switch, self.forwarding.switches[switch].table, 0.0, "send its table")

    async def counters(self, switch: str) -> SwitchCounters:
        """What the switch has counted."""
        self._check_up(switch)
        return self.counters_now(switch)

    def capacity(self, switch: str) -> int | None:
        """How many flows the switch holds."""
        return self.forwarding.switches[switch].capacity

    def counters_now(self, switch: str) -> SwitchCounters:
        """What the switch has counted, without asking it over its channel."""
        at = self.forwarding.switches[switch]
        ports = self.forwarding.port_counters(switch)
        departed = self.forwarding.departed.get(switch, PortCount())
        return SwitchCounters(at.counts(), ports, at.unmatched, at.capacity, departed)

    def _check_up(self, switch: str) -> None:
        if switch not in self.forwarding.switches:
            raise InvalidInput(expected="a switch", got=switch, where="data plane")
        if switch in self.forwarding.down_switches:
            raise Unavailable(f"Switch {switch} is down")

    def _backlog(self, switch: str) -> bool:
        return self._channel.get(switch, 0.0) > self.scheduler.time()

    async def _send(self, switch: str, action: Callable[[], _T], late: float | None, what: str) -> _T:
        """Do something at the switch, after all that was sent before, and wait for the answer."""
        scheduler = self.scheduler
        now = scheduler.time()
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(switch, set())
        waiting.add(answer)
        answer.add_done_callback(waiting.discard)
        arrives = max(now + self.control_delay, self._channel.get(switch, 0.0))
        self._channel[switch] = arrives

        def arrive() -> None:
            if switch in self.forwarding.down_switches:
                return  # those who wait have been told
            try:
                result = action()
            except Rejected as error:
                scheduler.call_at(arrives + self.control_delay, _fail, answer, error)
                return
            if late is not None:
                scheduler.call_at(arrives + self.control_delay + late, _resolve, answer, result)

        scheduler.call_at(arrives, arrive)
        timeout = Unavailable(f"Switch {switch} did not {what} within {self.ack_timeout:g} s")
        scheduler.call_at(now + self.ack_timeout, _fail, answer, timeout)
        return await answer

    # -- failures ------------------------------------------------------------------------------

    def inject_fault(self, switch: str, fault: ApplyFault, times: int = 1) -> None:
        """Let the next `apply` calls to a switch go wrong."""
        if switch not in self.forwarding.switches:
            raise InvalidInput(expected="a switch", got=switch, where="data plane")
        self._faults.setdefault(switch, deque()).extend([fault] * times)

    def clear_faults(self) -> None:
        """No more injected faults."""
        self._faults.clear()

    def _next_fault(self, switch: str) -> ApplyFault | None:
        faults = self._faults.get(switch)
        return faults.popleft() if faults else None

    def switch_down(self, switch: str, *, keep_table: bool = False) -> None:
        """A switch fails.  Unless `keep_table`, it comes back empty."""
        if self.forwarding.set_switch(switch, False, keep_table):
            for answer in list(self._waiting.get(switch, ())):
                _fail(answer, Unavailable(f"Switch {switch} went down"))
            self._channel.pop(switch, None)
            self._notices.tell(SwitchDown(switch))

    def switch_up(self, switch: str) -> None:
        """A switch comes back."""
        if self.forwarding.set_switch(switch, True):
            self._notices.tell(SwitchUp(switch))

    def link_down(self, a: str, b: str) -> None:
        """A link fails, in both directions."""
        if self.forwarding.set_link(a, b, False):
            self._notices.tell(LinkDown(*self.topology.link(a, b).id))

    def link_up(self, a: str, b: str) -> None:
        """A link comes back."""
        if self.forwarding.set_link(a, b, True):
            self._notices.tell(LinkUp(*self.topology.link(a, b).id))

    def down(self) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
        """The switches and links that are down now."""
        return frozenset(self.forwarding.down_switches), frozenset(self.forwarding.down_links)

    def notices(self) -> AsyncIterator[Notice]:
        """What fails and comes back, from the call on."""
        return self._notices.listen()

    # -- clients ---------------------------------------------------------------------------------

    async def attach(self, host: str, client: str, port: int | None = None) -> Attached:
        """Give a client a port (see `DataPlane.attach`)."""
        return self.attach_now(host, client, port)

    def attach_now(self, host: str, client: str, port: int | None = None) -> Attached:
        """`attach` without an event loop."""
        known = self._clients.get(client)
        if known is not None:
            if known[0].host != host:
                raise Rejected(f"Client {client} is attached at {known[0].host}, not at {host}")
            return known[0]
        place = self.topology.attachment(host)
        switches, links = self.down()
        if place.switch in switches or self.topology.link(host, place.switch).id in links:
            raise Unavailable(f"Host {host} is cut off: switch {place.switch} or its link is down")
        number = self._free_port(place.switch, port)
        attached = Attached(client, host, place.switch, number, self._new_token(), self._endpoint())
        self._clients[client] = (attached, self.forwarding.add_port(place.switch, number, host))
        self._attached(attached, self._clients[client][1])
        return attached

    async def detach(self, client: str) -> None:
        """Take a client's port away."""
        self.detach_now(client)

    def detach_now(self, client: str) -> None:
        """`detach` without an event loop."""
        known = self._clients.pop(client, None)
        if known is not None:
            self._detached(known[0])
            self.forwarding.remove_port(known[1])

    def clients(self) -> dict[str, Attached]:
        """Who is attached where."""
        return {name: attached for name, (attached, _) in self._clients.items()}

    async def permit(self, client: str, categories: frozenset[int]) -> None:
        """See `DataPlane.permit`; without sockets nobody sends what it should not."""

    def port_of(self, client: str) -> Port:
        """The port of an attached client."""
        try:
            return self._clients[client][1]
        except KeyError:
            raise InvalidInput(expected="an attached client", got=client, where="data plane") from None

    def _free_port(self, switch: str, wanted: int | None) -> int:
        ports = self.forwarding.ports
        if wanted is not None and CLIENT_PORTS <= wanted <= _LAST_PORT and (switch, wanted) not in ports:
            return wanted
        number = self._next_port.get(switch, CLIENT_PORTS)
        # Going round rather than reusing the lowest: a port's old flows are gone before its number comes back.
        for _ in range(CLIENT_PORTS, _LAST_PORT + 1):
            here, number = number, number + 1 if number < _LAST_PORT else CLIENT_PORTS
            if (switch, here) not in ports:
                self._next_port[switch] = number
                return here
        raise Rejected(f"Switch {switch} has no free port: {_LAST_PORT - CLIENT_PORTS + 1} clients are attached")

    def _new_token(self) -> int:
        return self._tokens.getrandbits(64)

    def _endpoint(self) -> tuple[str, int] | None:
        return None

    def _attached(self, attached: Attached, port: Port) -> None:
        """Hook for planes that have sockets."""

    def _detached(self, attached: Attached) -> None:
        """Hook for planes that have sockets."""

    async def close(self) -> None:
        """Stop."""
        self._notices.close()
        if isinstance(self.scheduler, LoopClock):
            self.scheduler.close()
        for waiting in self._waiting.values():
            for answer in list(waiting):
                _fail(answer, Unavailable("The data plane is closing"))


def _resolve(answer: asyncio.Future[_T], result: _T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
