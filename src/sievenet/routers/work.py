"""Work: what came of connections, carried out a share of time at a time.

One message may lead to little or to much: two thousand events that a hundred connections want are two hundred thousand
deliveries. So nothing is shared out by messages or bytes here, but by time as it was measured:

    came ─▶ nobody waits: a `SHARE` of it at once ─▶ done
                └ it takes longer, or others wait ─▶ in line (`session.shares`) ─▶ a `SHARE` of it ─▶ in line ⋯

Between two turns the event loop looks at its sockets, accepts and greets. Next in line is who has used least time, a
member with all its connections together. While something of a connection is in line the connection is not read, so
TCP holds its sender back. Events are cut into pieces that take about a share, by what events of this sender took
before; a piece is never so small that batches no longer pay.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from sievenet.routers.messages import Received
from sievenet.routers.peer import Peer, Pressure
from sievenet.routers.protocol import Publish
from sievenet.routers.service import Service
from sievenet.routers.shipment import Shipment
from sievenet.session.rest import Rest
from sievenet.session.shares import Shares

__all__ = ["SHARE", "Line", "Work"]

#: Seconds of a turn.
SHARE: Final = 0.005
#: Seconds that are too short to count.
_LITTLE: Final = 0.001
#: Events of a piece: at least, at most; and deliveries that it may lead to.
_LEAST: Final = 256
_MOST: Final = 2048
_DELIVERIES: Final = 1 << 19
#: Seconds after which a client that rests is looked at again.
_BREAK: Final = 1.0


class Line:
    """Who waits for a turn; one at a time has it, and sockets are looked at in between."""

    def __init__(self) -> None:
        self._shares: Shares[asyncio.Future[None]] = Shares()
        self._busy = False

    @property
    def free(self) -> bool:
        """Whether nobody waits, and no turn was just had."""
        return not self._busy and not self._shares

    async def turn(self, party: Hashable) -> None:
        """Returns when it is this party's turn; what it does then must not wait for anything."""
        turn = asyncio.get_running_loop().create_future()
        self._shares.wait(party, turn)
        self._open()
        await turn

    def spent(self, party: Hashable, seconds: float) -> None:
        """A turn took so long."""
        if seconds > _LITTLE or not self.free:
            self._shares.spent(party, seconds)
            self._open()

    def _open(self) -> None:
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._busy = False
        while (found := self._shares.next()) is not None:
            if not found[1].done():  # it may have been given up
                found[1].set_result(None)
                self._open()
                return


@dataclass(slots=True)
class _Job:
    """What came together of one connection, as far as it is not done."""

    peer: Peer
    messages: deque[Any]
    #: Events that may go on.
    shipments: deque[Shipment] = field(default_factory=deque)
    #: Links that its sender has to wait for, and seconds for which nothing more is to be done for it.
    held: set[Peer] = field(default_factory=set)
    wait: float = 0.0


class Work:
    """``message`` carries out whatever is no `Publish`; it returns the seconds for which its sender is not read.

    ``rest`` knows whose requests took long, and have to wait.
    """

    def __init__(self, service: Service, message: Callable[[Peer, Any], float], pressure: Pressure, rest: Rest) -> None:
        self._service, self._message, self._pressure, self._rest = service, message, pressure, rest
        self._line = Line()
        self._clock = time.perf_counter

    def take(self, peer: Peer, messages: list[Any]) -> Awaitable[None] | None:
        """Carry out what came together; what its sender has to wait for: its turn, links, its quota."""
        job = _Job(peer, deque(messages))
        if not self._line.free or not self._go_on(job):
            return self._later(job)
        return self._pressure.wait(job.held) if job.held else None

    async def _later(self, job: _Job) -> None:
        """The rest; meanwhile the connection is not read, and its other end has to wait."""
        done = False
        while not done:
            if job.wait:
                await asyncio.sleep(job.wait)
            if job.messages or job.shipments:
                await self._line.turn(job.peer.party)
            if job.peer.ended or job.peer.role == "replaced":
                return
            job.peer.callee.heard = time.monotonic()  # it is not silent: we do not listen
            done = self._go_on(job)
        if job.held:
            await self._pressure.wait(job.held)

    def _go_on(self, job: _Job) -> bool:
        """Carry out a share; whether that was all, and there is nothing to wait for."""
        begin = now = self._clock()
        job.wait = 0.0
        while (job.messages or job.shipments) and not job.wait and now < begin + SHARE:
            if job.shipments:
                job.held |= self._piece(job.peer, job.shipments)
            elif isinstance(job.messages[0], Publish):
                published: list[Publish] = []
                while job.messages and isinstance(job.messages[0], Publish):
                    published.append(job.messages.popleft())
                shipments, job.wait = self._service.admit(job.peer, published)
                job.shipments.extend(shipments)
                job.messages.extendleft(reversed(published))
            elif rests := self._rests(job.peer, job.messages[0]):
                job.wait = rests
            else:
                job.wait = self._message(job.peer, job.messages.popleft())
                if job.peer.over:
                    job.messages.clear()
            now = self._clock()
        self._line.spent(job.peer.party, now - begin)
        return not (job.messages or job.shipments or job.wait)

    def _rests(self, peer: Peer, message: Any) -> float:
        if not self._rest or isinstance(message, Received):
            return 0.0
        return min(_BREAK, self._rest.wait(peer.party, time.monotonic()))

    def _piece(self, peer: Peer, shipments: deque[Shipment]) -> set[Peer]:
        """Pass on as many events as a share is enough for; the links that their publisher has to wait for."""
        whole = shipments.popleft()
        rows = int(SHARE / peer.cost) if peer.cost else _MOST
        rows = max(_LEAST, min(rows, _MOST, _DELIVERIES // (self._service.reach(whole.category) + 1)))
        piece, rest = whole.cut(rows)
        if rest is not None:
            shipments.appendleft(rest)
        begin = self._clock()
        held = self._service.publish(peer, piece)
        # Events may be cheap for a while and then not be: what they took is forgotten slowly.
        peer.cost = max((self._clock() - begin) / len(piece), peer.cost / 2)
        return held
