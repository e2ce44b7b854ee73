"""One conversation with a switch: stimuli in, effects out.  No socket, no clock.

    ┌───────┐ hello, common version ┌──────────┐ features ┌───────┐
    │ hello │ ────────────────────▶ │ features │ ───────▶ │ ready │
    └───────┘                       └──────────┘          └───────┘
        └── nonsense, no common version, silence ──▶ closed ◀──┘

Every request has a number (xid).  A *change* is many messages and has a range of them, so that an error, which names
the message it objects to, finds its request:

    with bundles      open, add × n, close ⋯ closed without an error? ──▶ commit ⋯ committed: done
                                              └ an error came ──▶ discard: refused, nothing was carried out
    without           change × n, barrier ⋯ answered: done, or refused in part if an error came before

The switch answers in order, so the answer to close says that all errors about what is in the bundle have come.

A switch is silent only while we listen.  A controller that was stopped, or kept from running, for half a minute has not
heard a thing, and the switch may have spoken all the time; so each tick counts for a second of silence at most.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow.numbers import V13, V14, Bundle, Multipart, Type
from sievenet.errors import CodecError

__all__ = ["Answered", "Closed", "Connection", "Effect", "Failed", "PacketCame", "PortChanged", "Ready", "Send"]

#: Seconds of silence before we ask whether the switch is there, and before we give it up.
ECHO: Final = 4.0
DEAD: Final = 15.0
#: Seconds of silence that one tick can bring: we may have slept through what was longer.
_LISTENED: Final = 1.0
#: Bytes of an answer in parts that we are willing to hold (half a million flows are about 80 MB).
MOST: Final = 1 << 28


class Send(NamedTuple):
    """Bytes for the switch."""

    data: bytes


class Ready(NamedTuple):
    """The switch is known and may be asked."""

    features: m.Features


class Answered(NamedTuple):
    """A request is done; `body` is what was asked for, if anything was."""

    ticket: int
    body: bytes = b""


class Failed(NamedTuple):
    """The switch refused a request: which of its messages (None: the request as such), why, and whether all of it."""

    ticket: int
    change: int | None
    error: m.ErrorMessage
    partly: bool


class PortChanged(NamedTuple):
    """News of a port."""

    status: m.PortStatus


class PacketCame(NamedTuple):
    """A packet that the switch was told to give to us."""

    packet: m.PacketIn


class Closed(NamedTuple):
    """The conversation is over, and why."""

    reason: str


Effect: TypeAlias = Send | Ready | Answered | Failed | PortChanged | PacketCame | Closed
Encode: TypeAlias = Callable[[int], bytes]


class _Request:
    """Something asked and not answered."""

    __slots__ = ("bundle", "error", "first", "parts", "size", "ticket")

    def __init__(self, ticket: int, first: int, bundle: int = 0) -> None:
        self.ticket = ticket
        #: The xid of the first change; those before it are about the bundle.
        self.first = first
        self.bundle = bundle
        self.parts: list[bytes] = []
        self.size = 0
        self.error: tuple[int | None, m.ErrorMessage] | None = None


class Connection:
    """The controller's end."""

    def __init__(self, now: float, versions: tuple[int, ...] = (V13, V14)) -> None:
        self.state = "hello"
        self.version = max(versions)
        self.features: m.Features | None = None
        #: Whether changes are all or nothing; a switch may prove us wrong.
        self.bundles = True
        self._versions = versions
        self._framer = m.Framer()
        self._xid = 0
        self._bundle = 0
        #: Seconds that we have listened in vain, as of the last tick.
        self._silent = 0.0
        self._ticked = now
        #: Seconds that we have waited for it to introduce itself, as of the last tick, and when that was.
        self._unknown, self._looked = 0.0, now
        self._asked = False
        #: By xid of the message whose answer completes the request.
        self._open: dict[int, _Request] = {}
        #: By xid of any message of a change, for errors; in the order in which they were sent.
        self._ranges: dict[int, tuple[int, int]] = {}
        self.errors = 0

    # -- ours ------------------------------------------------------------------------------------

    def begin(self) -> bytes:
        """The first words."""
        return m.hello(self._next(), self._versions)

    def _next(self) -> int:
        self._xid = self._xid % 0x7FFFFFFF + 1
        return self._xid

    def _range(self, count: int) -> int:
        """As many numbers in a row; returns the first."""
        if self._xid + count >= 0x7FFFFFFF:
            self._xid = 0
        first = self._xid + 1
        self._xid += count
        return first

    def ask(self, kind: Multipart, body: bytes = b"") -> tuple[int, bytes]:
        """A question; its ticket, and what to send."""
        xid = self._next()
        self._open[xid] = _Request(xid, xid)
        return xid, m.multipart(self.version, xid, kind, body)

    def change(self, encoders: Sequence[Encode], *, atomic: bool = True) -> tuple[int, bytes]:
        """Changes that are acknowledged together: each is made with the number that it is given."""
        count, version = len(encoders), self.version
        if atomic and self.bundles:
            start = self._range(count + 3)
            self._bundle = self._bundle % 0x7FFFFFFF + 1
            close = start + count + 1
            request = _Request(start, start + 1, self._bundle)
            parts = [m.bundle_control(version, start, self._bundle, Bundle.OPEN)]
            add, bundle = m.bundle_add, self._bundle
            parts += [add(version, xid, bundle, encode(xid)) for xid, encode in enumerate(encoders, start + 1)]
            parts.append(m.bundle_control(version, close, self._bundle, Bundle.CLOSE))
            self._open[close] = self._open[close + 1] = request
            self._ranges[start] = (start, close + 1)
            return start, b"".join(parts)
        start = self._range(count + 1)
        parts = [encode(xid) for xid, encode in enumerate(encoders, start)]
        parts.append(m.barrier(version, start + count))
        self._open[start + count] = _Request(start, start)
        self._ranges[start] = (start, start + count)
        return start, b"".join(parts)

    def forget(self, ticket: int) -> None:
        """Nobody waits for this request any more."""
        self._ranges.pop(ticket, None)
        for xid in [xid for xid, request in self._open.items() if request.ticket == ticket]:
            del self._open[xid]

    def packet(self, in_port: int, actions: bytes, data: bytes) -> bytes:
        """A packet for the switch to send."""
        return m.packet_out(self.version, self._next(), in_port, actions, data)

    @property
    def waiting(self) -> frozenset[int]:
        """Tickets of the requests without an answer."""
        return frozenset(request.ticket for request in self._open.values())

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: is the switch still there?"""
        if self.state == "closed":
            return []
        self._silent += min(now - self._ticked, _LISTENED)
        if self.state != "ready":
            self._unknown += min(now - self._looked, _LISTENED)
        self._ticked = self._looked = now
        if self._unknown >= DEAD and self.state != "ready":
            return self._close(f"not introduced after {self._unknown:.1f} s")
        if self._silent >= DEAD:
            return self._close(f"silent for {self._silent:.1f} s")
        if self._silent >= ECHO and not self._asked and self.state == "ready":
            self._asked = True
            return [Send(m.echo_request(self.version, self._next()))]
        return []

    def _close(self, reason: str) -> list[Effect]:
        self.state = "closed"
        return [Closed(reason)]

    # -- the switch's ----------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Effect]:
        """React to bytes from the switch."""
        effects: list[Effect] = []
        if self.state == "closed":
            return effects
        self._silent, self._ticked, self._asked = 0.0, now, False
        try:
            for found in self._framer.feed(data):
                self._message(found, effects)
        except CodecError as error:
            effects += self._close(str(error))
        return effects

    def _message(self, found: m.Message, effects: list[Effect]) -> None:
        if self.state == "hello":
            self._greeted(found, effects)
            return
        if found.version != self.version and found.type not in (Type.HELLO, Type.ERROR):
            raise CodecError(expected=f"version {self.version}", got=found.version, where="OpenFlow header")
        match found.type:
            case Type.ECHO_REQUEST:
                effects.append(Send(m.echo_reply(self.version, found.xid, found.body)))
            case Type.FEATURES_REPLY if self.state == "features":
                self.features = m.read_features(found.body)
                self.state = "ready"
                effects += [Send(m.set_config(self.version, self._next())), Ready(self.features)]
            case Type.ERROR:
                self._error(found.xid, m.read_error(found.body), effects)
            case Type.MULTIPART_REPLY:
                self._part(found, effects)
            case Type.BARRIER_REPLY:
                self._acknowledged(found.xid, effects)
            case Type.BUNDLE_CONTROL | Type.EXPERIMENTER:
                reply = m.read_bundle(self.version, found)
                if reply is not None:
                    self._bundle_reply(found.xid, reply, effects)
            case Type.PORT_STATUS:
                effects.append(PortChanged(m.read_port_status(self.version, found.body)))
            case Type.PACKET_IN:
                effects.append(PacketCame(m.read_packet_in(found.body)))

    def _greeted(self, found: m.Message, effects: list[Effect]) -> None:
        if found.type != Type.HELLO:
            raise CodecError(expected="hello", got=found.type, where="first message")
        common = m.read_hello(found) & frozenset(self._versions)
        if not common:
            raise CodecError(expected=f"a version of {self._versions}", got=found.version, where="hello")
        self.version = max(common)
        self.state = "features"
        effects.append(Send(m.features_request(self.version, self._next())))

    def _part(self, found: m.Message, effects: list[Effect]) -> None:
        if len(found.body) < 8:
            raise CodecError(expected="at least 8 bytes", got=len(found.body), where="multipart reply")
        request = self._open.get(found.xid)
        if request is None:
            return
        (flags,) = struct.unpack_from(">H", found.body, 2)
        request.parts.append(found.body[8:])
        request.size += len(found.body)
        if request.size > MOST:
            raise CodecError(expected=f"an answer of at most {MOST} bytes", got=request.size, where="multipart reply")
        if not flags & 1:
            del self._open[found.xid]
            effects.append(Answered(request.ticket, b"".join(request.parts)))

    def _bundle_reply(self, xid: int, reply: m.BundleReply, effects: list[Effect]) -> None:
        request = self._open.get(xid)
        if request is None or request.bundle != reply.bundle:
            return
        if reply.kind == Bundle.CLOSE + 1:
            del self._open[xid]
            step = Bundle.COMMIT if request.error is None else Bundle.DISCARD
            effects.append(Send(m.bundle_control(self.version, xid + 1, request.bundle, step)))
        elif reply.kind in (Bundle.COMMIT + 1, Bundle.DISCARD + 1):
            self._done(xid, request, effects)

    def _acknowledged(self, xid: int, effects: list[Effect]) -> None:
        request = self._open.get(xid)
        if request is not None:
            self._done(xid, request, effects)

    def _done(self, xid: int, request: _Request, effects: list[Effect]) -> None:
        del self._open[xid]
        self._ranges.pop(request.ticket, None)
        if request.error is None:
            effects.append(Answered(request.ticket))
        else:
            index, error = request.error
            effects.append(Failed(request.ticket, index, error, partly=not request.bundle))

    def _error(self, xid: int, error: m.ErrorMessage, effects: list[Effect]) -> None:
        self.errors += 1
        request = self._open.get(xid)
        for start, end in self._ranges.values():
            if start <= xid <= end:
                request = self._open.get(end) or request
                break
        if request is None:
            return
        index = xid - request.first if request.first <= xid else None
        if request.bundle and xid == request.first - 1:
            # Not even opened: this switch has no bundles.  All that follows about this one fails too.
            self.bundles = self.bundles and error.type not in (1,)
        if request.error is None:
            request.error = (index, error)
        if request.bundle and self._open.get(xid) is request:
            # Close or commit failed: the bundle is gone, and nothing of it was carried out.
            for each in [each for each, other in self._open.items() if other is request]:
                del self._open[each]
            self._ranges.pop(request.ticket, None)
            effects.append(Failed(request.ticket, request.error[0], request.error[1], partly=False))
        elif xid in self._open:
            del self._open[xid]
            effects.append(Failed(request.ticket, None, error, partly=False))
