"""Carrying out what a router wants: events and messages to connections, each on its own.

What cannot be written costs itself alone. Events for a connection whose buffer is full are dropped and counted; the
links with long buffers are told to the caller, whose publisher waits for them (`peer.Pressure`). A timer, the `Alarm`,
is set to the next moment at which the router has something to do, and only ever moved forward.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from sievenet.routers.core import Router
from sievenet.routers.messages import Carried, Missed
from sievenet.routers.outputs import Deliver, Output, Send, Tell, WaveDone
from sievenet.routers.peer import Peer, Pressure
from sievenet.routers.registry import Registry
from sievenet.routers.shipment import Shipment
from sievenet.session.framing import frame
from sievenet.session.message import Message

__all__ = ["Alarm", "Dispatch"]

log = logging.getLogger("sievenet.routers")


class Alarm:
    """Calls ``ring`` at the time (`time.monotonic`) that ``due`` says, if it says one."""

    def __init__(self, due: Callable[[], float | None], ring: Callable[[], None]) -> None:
        self._due, self._ring = due, ring
        self._timer: asyncio.TimerHandle | None = None
        #: What it is set to, if it is.
        self._at = 0.0

    def set(self) -> None:
        """Something may be due earlier than before."""
        due = self._due()
        if due is None or (self._timer is not None and self._at <= due):
            return
        self.cancel()
        self._at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - time.monotonic()), self._fire)

    def cancel(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._ring()


class Dispatch:
    """The way out of a router."""

    def __init__(self, router: Router, registry: Registry) -> None:
        self._router, self._registry = router, registry
        self.alarm = Alarm(router.due, self._ring)
        self.pressure = Pressure(time.monotonic)
        #: Clients in this process, and who takes their events.
        self.ports: dict[str, Callable[[Shipment], None]] = {}
        #: Told that a wave is back.
        self.wave_done: Callable[[int, bool], None] = lambda number, done: None
        #: Events dropped because a connection was too slow or lost.
        self.dropped = 0
        #: Events that neighbours say they dropped on the way here.
        self.missed = 0
        #: Errors that should not be: each is in the log.
        self.errors = 0

    def wrong(self, where: str) -> None:
        """Count the error that is being handled, and log it."""
        self.errors += 1
        log.exception("%s: internal error %s (please report)", self._router.name, where)

    def _ring(self) -> None:
        self.do(self._router.tick(time.monotonic()))

    def do(self, outputs: Sequence[Output]) -> set[Peer]:
        """Carry out what the router wants; the links with long buffers that events were written to."""
        encoded: dict[int, bytes] = {}
        held: set[Peer] = set()
        for output in outputs:
            try:
                self._one(output, encoded, held)
            except Exception:
                self.wrong(f"in {type(output).__name__}")
        self.alarm.set()
        return held

    def _one(self, output: Output, encoded: dict[int, bytes], held: set[Peer]) -> None:
        match output:
            case Deliver(client, shipment) if client in self.ports:
                self.ports[client](shipment)
            case Deliver(client, shipment):
                data = encoded.get(id(shipment))
                if data is None:
                    data = encoded[id(shipment)] = frame(shipment.message())
                self._events(self._registry.clients.get(client), data, len(shipment))
            case Send(neighbour, message):
                near = self._registry.routers.get(neighbour)
                if near is not None and isinstance(message, Carried):
                    self._events(near, frame(message), len(message.sequences) // 8)
                    if self.pressure.holds(near):
                        held.add(near)
                elif near is not None:
                    near.send(message)
            case WaveDone(number, done):
                self.wave_done(number, done)
            case Tell(client, request):
                self._tell(client, request)

    def _events(self, peer: Peer | None, data: bytes, events: int) -> None:
        if peer is not None and not peer.offer(data, events):
            self.dropped += events
            if peer.dropped == events:
                log.warning("%s: %s %s is too slow: events are dropped", self._router.name, peer.role, peer.name)

    def pass_on(self, peer: Peer, message: Missed) -> None:
        """A neighbour dropped events for this router: tells all clients and routers behind it."""
        self.missed += message.events
        if message.hops < self._router.settings.max_hops:
            onward = frame(Missed(message.events, message.hops + 1))
            near = self._router.states.overlay.tree_neighbours(self._router.name)
            for each in (*(self._registry.routers.get(n) for n in near), *self._registry.clients.values()):
                if each is not None and each.absent:
                    each.untold += message.events
                elif each is not None and each is not peer:
                    each.offer(onward)

    def _tell(self, client: str, request: Message) -> None:
        """A question for a client; one that does not read is not asked, and found out by its silence."""
        peer = self._registry.clients.get(client)
        if peer is not None:
            begin = time.process_time()
            peer.offer(frame(request))
            self._router.intake.charge(request, time.process_time() - begin)
