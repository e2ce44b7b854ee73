"""The listening side of one conversation, without the connection: bytes and the time in, what is to be done out.

    ┌───────┐  hello that the gate and the part behind accept   ┌──────┐
    │ HELLO │ ────────────────────────────────────────────────▶ │ OPEN │
    └───────┘                     `welcomed`                    └──────┘
        │ no hello in time, something else, other version           │ goodbye, silent for a lease, nothing read in time,
        └───────────────────────────▶ end ◀─────────────────────────┘ a wrong length, too many malformed messages

What comes after the hello in the same bytes waits until `welcomed` says who speaks: only then it is known how large
frames may be and who may send what. Every message is looked up in the protocol's table (`Protocol.check`) before the
part behind sees it.

Components are not told of malformed messages or of those that they may not send: two that do not understand each
other's complaints would complain for ever. Both are counted, and too many end the connection.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any, Final

from sievenet.access.identity import Identity, Role
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable
from sievenet.session.framing import LARGE, Malformed
from sievenet.session.limits import Limits
from sievenet.session.message import Alive, Failure, Goodbye, Message, failure, raised
from sievenet.session.protocol import Protocol

__all__ = ["Callee", "Step"]

#: Bytes per second that the other side has to read, if more than these wait.
_SLOWEST: Final = 1 << 16
#: Two programs that do not understand each other are of two versions, or of two kinds.
_HINT: Final = ". It is another version; or a router (sievenet+router://) where a fabric (sievenet://) was meant"

log = logging.getLogger("sievenet.session")


@dataclass(slots=True)
class Step:
    """What bytes lead to, in this order."""

    #: To be sent.
    answers: list[Message] = field(default_factory=list)
    #: To be carried out: messages, and their bytes.
    messages: list[tuple[Any, int]] = field(default_factory=list)
    #: Who wants to be welcome. `Callee.welcomed` and `receive` with no bytes go on from there.
    greeting: Any = None
    #: Whether the other side has taken its leave.
    left: bool = False
    #: Why the connection ends, to be told to the other side.
    end: SievenetError | None = None
    #: Whether a frame was completed.
    whole: bool = False


class Callee:
    """One end of one connection; ``dialled`` if this side has said hello and now expects to be welcomed itself."""

    def __init__(self, protocol: Protocol, limits: Limits, now: float, *, dialled: bool = False) -> None:
        self._protocol, self._limits = protocol, limits
        self._framer = protocol.listening()
        self._expected = protocol.welcome if dialled else protocol.hello
        #: Who speaks, once it is welcome.
        self.identity: Identity | None = None
        #: What it calls itself.
        self._called: str | None = None
        self._lease = 0.0
        #: When something came last; before it is welcome, when it began.
        self.heard = now
        #: When something was written last, and how much had been by then.
        self._spoke, self._written = now, 0
        #: When the other side read something last, and how much it had then.
        self._moved, self._read = now, 0
        #: What it has to have read, and by when.
        self._mark, self._by = 0, math.inf
        #: Messages that were none, or that it may not send.
        self.malformed = 0
        #: Whether it said anything after its hello: then it knows that it is welcome.
        self.said = False

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not arrived fully."""
        return self._framer.pending

    def welcomed(self, identity: Identity, lease: float) -> None:
        """The other side is welcome; it has to say something within each lease (0: it need not)."""
        self.identity, self._lease = identity, lease
        largest = self._protocol.largest[identity.role]
        self._framer.limit = min(largest, self._limits.largest or largest)

    # -- what comes -----------------------------------------------------------------------

    def receive(self, data: bytes, now: float, most: int = 0) -> Step:
        """Take what the connection gave; ``most`` messages at once, if that is said: then `more` may wait."""
        step = Step()
        if self.identity is not None:
            self.heard = now
        try:
            for message in self._framer.feed(data, most):
                step.whole = True
                self._take(message, self._framer.size, step)
                if step.greeting is not None or step.left or step.end is not None:
                    break
        except CodecError as error:
            step.end = error
        return step

    def add(self, data: bytes) -> bool:
        """Keep what the connection gave for `receive`; whether the next message is so large that it may take long."""
        self._framer.add(data)
        return LARGE < self._framer.front <= self._framer.limit

    @property
    def front(self) -> int:
        """Bytes of the message that comes next, if it has arrived fully; else 0."""
        return self._framer.front

    def skip(self) -> int:
        """Leave the next message out, undecoded; the number of its request."""
        return self._framer.skip()

    @property
    def more(self) -> bool:
        """Whether a whole message waits."""
        return self._framer.front > 0

    def _take(self, message: Any, size: int, step: Step) -> None:
        if self.identity is None:
            self._greet(message, step)
            return
        self.said = True
        match message:
            case Malformed(request, error):
                self._complain(request, error, step)
            case Alive():
                pass
            case Goodbye():
                step.left = True
            case _:
                try:
                    self._protocol.check(self.identity.role, message)
                except Rejected as error:
                    self._complain(getattr(message, "request", 0), error, step)
                else:
                    step.messages.append((message, size))

    def _greet(self, message: Any, step: Step) -> None:
        match message:
            case Malformed(error=error):
                step.end = CodecError(str(error))
            case Goodbye(reason):
                step.end = Unavailable(reason)
            case Failure():
                step.end = raised(message)
            case _ if type(message) is not self._expected:
                expected = f"a {self._expected.__name__.lower()}"
                step.end = CodecError(expected=expected, got=f"`{type(message).__name__}`", where="connection")
            case _ if message.protocol != self._protocol.version:
                version, name = self._protocol.version, self._protocol.name
                hint = _HINT if name in ("control", "router") else ""
                step.end = Rejected(f"Expected {name} protocol version {version}, got {message.protocol}{hint}")
            case _:
                self._called = getattr(message, "router", None) or message.name
                step.greeting = message

    def _complain(self, request: int, error: SievenetError, step: Step) -> None:
        self.malformed += 1
        most = self._limits.malformed
        assert self.identity is not None
        if self.malformed > most:
            step.end = CodecError(f"Expected at most {most} malformed messages: {error}")
        elif self.identity.role is Role.COMPONENT:
            log.warning("from component %s: %s", self.identity.name or self._called, error)
        else:
            step.answers.append(failure(request, error))

    # -- time -----------------------------------------------------------------------------

    def tick(self, now: float, written: int, waiting: int) -> Message | SievenetError | None:
        """Look at the time: what to say, or why to end. So many bytes were written so far, and so many of them wait."""
        if written != self._written:
            self._spoke, self._written = now, written
        if not waiting or written - waiting != self._read:
            self._moved, self._read = now, written - waiting
        late = self._late(now, written, waiting)
        what, wait = ("hello", self._limits.hello) if self.identity is None else ("word", self._lease)
        if wait and self.heard <= now - wait:
            return Unavailable(f"Expected a {what} within {wait:g} s")
        if self._limits.unread is not None and self._moved <= now - self._limits.unread:
            return Unavailable(f"Expected that something is read within {self._limits.unread:g} s")
        if late:
            return Unavailable("Expected that what is sent is read in time, at least 64 KiB per second")
        if self._lease and self._spoke <= now - self._lease / 8:
            return Alive()
        return None

    def _late(self, now: float, written: int, waiting: int) -> bool:
        """Whether the other side reads too slowly: if much waits, it has to be read in a bounded time."""
        if self._limits.unread is None:
            return False
        if written - waiting >= self._mark:
            much = waiting > _SLOWEST
            self._mark, self._by = written, now + self._limits.unread + waiting / _SLOWEST if much else math.inf
        return now > self._by

    def slept(self, seconds: float) -> None:
        """If this process was held up for long, that time does not count as the silence of the other side."""
        if seconds > (self._lease or self._limits.hello) / 4:
            self.heard += seconds
            self._moved += seconds
            self._by += seconds
