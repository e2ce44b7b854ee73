"""The agent of a switch: does on this machine what a control plane elsewhere says.

It decides nothing. It dials the control plane, makes this machine the switch that it is told to be (`machine`), carries
out requests one after the other, and tells when a port fails. When the connection is lost the switch goes on with the
tables that it has, and the agent dials again until it is welcome; when the agent itself is killed the switch goes on as
well, and the next agent finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

import msgspec

from sievenet.access.identity import Role
from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.kernel.machine import Machine
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import Alive, Done, Failure, Goodbye, failure, raised

__all__ = ["Agent"]

log = logging.getLogger("sievenet.kernel")

_CHUNK: Final = 1 << 18
#: Seconds for the first answer; and between two attempts, at first and at most.
_PATIENCE: Final = 10.0
_FIRST: Final = 0.1
_MOST: Final = 5.0


class Agent:
    """Serves one switch until it is cancelled, or refused for good (`Rejected`)."""

    def __init__(self, machine: Machine, host: str, port: int, *, token: str = "") -> None:
        self.machine = machine
        self._host, self._port = host, port
        self._token = token
        #: Whether a control plane is there.
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Dial, serve, dial again."""
        wait = _FIRST
        while True:
            try:
                await self._serve()
                wait = _FIRST
            except (OSError, Unavailable, CodecError, TimeoutError) as error:
                if self.connected.is_set():
                    wait = _FIRST
                said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                log.info("%s: no control plane (%s), again in %.1f s", self.machine.name, said or "no answer", wait)
            finally:
                self.connected.clear()
                self.machine.unwatch()
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MOST)

    async def _serve(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        machine = self.machine

        def say(*messages: msgspec.Struct) -> None:
            if not writer.is_closing():
                writer.write(b"".join(map(frame, messages)))

        say(
            p.Hello(
                p.PROTOCOL,
                Role.COMPONENT,
                machine.name,
                token=self._token,
                interfaces=len(machine.interfaces),
                mtu=machine.mtu(),
            )
        )
        framer, lease = p.AGENTS.dialling(), _PATIENCE
        while True:
            async with asyncio.timeout(lease):
                data = await reader.read(_CHUNK)
            if not data:
                raise Unavailable("the connection was closed")
            for message in framer.feed(data):
                if isinstance(message, p.Welcome):
                    lease = max(1.0, 3 * message.lease)
                    machine.up(message.ports, message.capacity)
                    say(p.Ready())
                    machine.watch(lambda port, up, carries: say(p.Carrier(port, up, carries)))
                    self.connected.set()
                elif isinstance(message, Failure):
                    # Of the connection itself: whoever is not wanted as it is need not come again.
                    error = raised(message)
                    raise error if isinstance(error, Rejected) else Rejected(str(error))
                elif isinstance(message, Goodbye):
                    raise Unavailable(message.reason)
                elif isinstance(message, Malformed):
                    say(failure(message.request, message.error))
                elif isinstance(message, Alive):
                    say(Alive())
                else:
                    say(self._answer(message))

    def _answer(self, message: Any) -> msgspec.Struct:
        try:
            return Done(message.request, self._done(message))
        except SievenetError as error:
            return failure(message.request, error)
        except OSError as error:
            said = f"Switch {self.machine.name}: the kernel refused a change: {error.strerror or error}"
            return failure(message.request, Unavailable(said))

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
