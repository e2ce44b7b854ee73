"""The dialling side of one conversation, without the connection: bytes in, effects out; requests in, bytes out.

A conversation lasts as long as one connection: after a loss a new one begins with a hello. Requests are numbered, and
an answer finds its request by the number: `Done` has the value, `Failure` the error to raise, any other message with an
open number is the value itself. What the other side says unasked comes out as `Told`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from sievenet.access.identity import Role
from sievenet.errors import CodecError, SievenetError, Unavailable
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import Alive, Done, Failure, Goodbye, Hello, Message, Welcome, raised
from sievenet.session.protocol import Protocol

__all__ = ["Answered", "Caller", "Dismissed", "Effect", "Ended", "Request", "Told", "Welcomed"]

#: Makes the message once its number is known.
Request = Callable[[int], Message]


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The other side has accepted this one."""

    welcome: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """A request is answered: with a value, or with the error to raise."""

    number: int
    value: Any
    error: SievenetError | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Something that was not asked for."""

    message: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection is of no more use; ``told``: the other side says why."""

    error: SievenetError
    told: bool = False


Effect = Welcomed | Answered | Told | Ended


class Dismissed(Unavailable):
    """The other side has taken its leave, or has given this one up."""


class Caller:
    """Numbers requests, recognises answers, refuses what does not belong."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._framer = protocol.dialling()
        self._largest = protocol.largest[Role.CLIENT]
        self._numbers = count(1)
        #: Requests without an answer yet; 0 is the hello.
        self._open: set[int] = set()
        #: Seconds of silence after which either side gives the other up; 0 before it is known, or never.
        self.lease = 0.0

    def hello(self, hello: Hello) -> bytes:
        """The first bytes to send."""
        self._open.add(0)
        self._largest = self._protocol.largest[hello.role]
        return frame(hello)

    def request(self, make: Request) -> tuple[int, bytes]:
        """A new request: its number and its bytes. One larger than the other side takes is refused here."""
        number = next(self._numbers) % (1 << 32) or next(self._numbers) % (1 << 32)
        data = frame(make(number))
        if len(data) - 4 > self._largest:
            raise CodecError(expected=f"a request of at most {self._largest} bytes", got=len(data) - 4)
        self._open.add(number)
        return number, data

    def receive(self, data: bytes) -> list[Effect]:
        """What bytes mean. After `Ended` nothing more is to be fed."""
        effects: list[Effect] = []
        try:
            for message in self._framer.feed(data):
                effect = self._effect(message)
                if effect is not None:
                    effects.append(effect)
                    if type(effect) is Ended:
                        break
        except CodecError as error:
            effects.append(Ended(self._stranger() if 0 in self._open else error))
        return effects

    def _stranger(self) -> SievenetError:
        return Unavailable(
            f"What answers there is no {self._protocol.listener}, or one of another version. "
            "A fabric's address begins with sievenet://, a router's with sievenet+router://"
        )

    def _effect(self, message: Any) -> Effect | None:
        number = getattr(message, "request", None)
        match message:
            case Malformed(_, error):
                return Ended(self._stranger() if 0 in self._open else error)
            case Goodbye(reason):
                return Ended(Dismissed(f"The {self._protocol.listener} closed the connection: {reason}"))
            case Welcome() if 0 in self._open:
                self._open.discard(0)
                self.lease = message.lease
                return Welcomed(message)
            case Failure(request=0):
                # A failure that belongs to no request: of the hello, or of something that could not be read.
                return Ended(raised(message), told=True)
            case _ if 0 in self._open or isinstance(message, Welcome):
                return Ended(CodecError(expected="one welcome, first", got=message, where="connection"))
            case Alive():
                return None
            case _ if number is None:
                return Told(message)
            case _ if number not in self._open:
                return Ended(CodecError(expected="an answer to an open request", got=message, where="connection"))
        self._open.discard(number)
        match message:
            case Failure():
                return Answered(number, None, raised(message))
            case Done(answer=answer):
                return Answered(number, answer)
        return Answered(number, message)

    def silence(self, waited: float) -> SievenetError | None:
        """Nothing came for so long, a lease at least: why to end. If it was much longer, this process slept."""
        if waited >= 1.25 * self.lease:
            return None
        return Unavailable(f"Nothing came from the {self._protocol.listener} for {self.lease:g} s")
