"""The agent of a switch: does on this machine what a control plane elsewhere says.

It decides nothing. It dials the control plane, makes this machine the switch that it is told to be (`machine`), carries
out orders one after the other, and tells when a port fails. When the connection is lost the switch goes on with the
tables that it has, and the agent dials again until it is welcome; when the agent itself is killed the switch goes on as
well, and the next agent finds it. Whoever takes the switch away lets the agent say so first (`leave`): paths are led
around it while it still forwards.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.kernel.machine import Machine
from sievenet.errors import SievenetError, Unavailable
from sievenet.session.backoff import Backoff
from sievenet.session.dialler import Dialler
from sievenet.session.link import Link
from sievenet.session.message import Alive, failure

__all__ = ["Agent"]

log = logging.getLogger("sievenet.kernel")

#: Seconds between attempts to reach a control plane that was never there.
_AGAIN: Final = 0.5
#: Seconds without a packet after which nobody needs a switch that leaves, and for which it waits for them at most.
_QUIET: Final = 0.25
_LONGEST: Final = 3.0


class Agent(Dialler):
    """Serves one switch until it is closed, or refused for good."""

    def __init__(self, machine: Machine, host: str, port: int, *, login: Login | None = None) -> None:
        super().__init__(p.AGENTS, (host, port), timeout=10.0, reconnect=True, login=login)
        self.machine = machine
        #: Set while a control plane is there.
        self.welcome = asyncio.Event()
        self._refused: asyncio.Future[SievenetError] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Dial until there is a control plane, and serve it; raises if it does not want this agent."""
        told = ""
        try:
            while True:
                try:
                    await self.start()
                    break
                except Unavailable as error:
                    if str(error) != told:
                        told = str(error)
                        log.warning("switch %s: %s; trying again until it does", self.machine.name, told)
                    self._backoff = Backoff()
                await asyncio.sleep(_AGAIN)
            raise await self._refused
        finally:
            await self.close()
            self.machine.unwatch()

    async def leave(self) -> None:
        """Say that the switch will be gone, and let it forward until packets have found another way."""
        if self._link is None or not self.welcome.is_set():
            return
        self._link.send(p.Leaving())
        before = -1
        for _ in range(round(_LONGEST / _QUIET)):
            await asyncio.sleep(_QUIET)
            passed = self.machine.switch.passed()
            if passed == before:
                break
            before = passed

    # -- the connection --------------------------------------------------------------------------------

    def _hello(self) -> p.Hello:
        machine = self.machine
        return p.Hello(
            p.PROTOCOL,
            Role.COMPONENT,
            machine.name,
            token=self._token,
            interfaces=len(machine.interfaces),
            mtu=machine.mtu(),
        )

    async def _enter(self, link: Link, welcome: p.Welcome) -> None:
        self._pause = max(0.05, welcome.lease / 4)
        self.machine.up(welcome.ports, welcome.capacity)
        link.send(p.Ready())
        self.machine.watch(
            lambda port, up, carries: link.send(p.Carrier(port, up, carries)),
            lambda port, other: link.send(p.Cabled(port, other.switch, other.port)),
        )

    def _entered(self) -> None:
        self.welcome.set()

    async def _beat(self, link: Link) -> None:
        link.send(Alive())

    def _lost(self, reason: SievenetError) -> None:
        self.welcome.clear()
        self.machine.unwatch()
        self._failed(reason)

    def _failed(self, error: SievenetError) -> None:
        # Whoever is not wanted as it is need not come again; everything else may pass.
        if not isinstance(error, Unavailable) and not self._refused.done():
            self._refused.set_result(error)

    # -- orders ----------------------------------------------------------------------------------------

    def _told(self, link: Link, message: Any) -> None:
        link.send(self._answer(message))

    def _answer(self, message: Any) -> p.Carried | p.Refused:
        try:
            return p.Carried(message.order, self._done(message))
        except SievenetError as error:
            return p.Refused(message.order, failure(0, error))
        except OSError as error:
            said = f"Switch {self.machine.name}: the kernel refused a change: {error.strerror or error}"
            return p.Refused(message.order, failure(0, Unavailable(said)))

    def _done(self, message: Any) -> Any:
        machine = self.machine
        match message:
            case p.Apply():
                machine.switch.apply(p.changes_of(message.changes))
            case p.Read(counters=True):
                return p.counted(machine.switch.counters(), machine.switch.reasons())
            case p.Read():
                return [p.packed(flow) for flow in machine.switch.table()]
            case p.Clients():
                machine.admit_only(message.clients)
            case p.Permit():
                machine.admit(message.client)
            case p.Leave():
                machine.switch.remove_client(message.number)
        return None
