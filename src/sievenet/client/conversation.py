"""The client's side of one control connection, without the connection.

Bytes in, effects out; requests in, bytes out. The shell (`link`) owns the socket and the futures and does what the
effects say. A conversation lasts as long as one TCP connection: after a loss a new one begins with `hello`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from sievenet.access.identity import Role
from sievenet.control import protocol as p
from sievenet.errors import CodecError, SievenetError, Unavailable
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import Message, raised

__all__ = ["Answered", "Conversation", "Dismissed", "Effect", "Ended", "PlanNews", "Removal", "Request", "Welcomed"]

#: Makes the message once its number is known.
Request = Callable[[int], Message]


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The daemon has accepted this client."""

    welcome: p.Welcome


@dataclass(frozen=True, slots=True)
class Answered:
    """A request is answered: with a value, or with the error to raise."""

    number: int
    value: Any
    error: SievenetError | None = None


@dataclass(frozen=True, slots=True)
class PlanNews:
    """A category has a new plan, to be adopted and acknowledged."""

    category: p.CategoryInfo


@dataclass(frozen=True, slots=True)
class Removal:
    """A category is no more."""

    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection is of no more use."""

    error: SievenetError


Effect = Welcomed | Answered | PlanNews | Removal | Ended


class Dismissed(Unavailable):
    """The daemon has taken its leave, perhaps with its network, or given this node up."""


class Conversation:
    """Numbers requests, recognises answers, refuses what does not belong."""

    def __init__(self) -> None:
        self._framer = p.CONTROL.dialling()
        self._numbers = count(1)
        #: Requests without an answer yet; 0 is the hello.
        self._open: set[int] = set()

    def hello(
        self, name: str | None, host: str | None, ticket: bytes, role: Role = Role.CLIENT, token: str = ""
    ) -> bytes:
        """The first bytes to send."""
        self._open.add(0)
        return frame(p.Hello(p.PROTOCOL, role, name, ticket, token, host=host))

    def request(self, make: Request) -> tuple[int, bytes]:
        """A new request: its number and its bytes. A request larger than the daemon takes is refused here."""
        number = next(self._numbers)
        data = frame(make(number))
        if len(data) - 4 > p.MAX_REQUEST:
            raise CodecError(expected=f"a request of at most {p.MAX_REQUEST} bytes", got=len(data) - 4)
        self._open.add(number)
        return number, data

    @staticmethod
    def adopted(category: int, epoch: int) -> bytes:
        """The acknowledgement of a new plan."""
        return frame(p.PlanAdopted(category, epoch))

    def receive(self, data: bytes) -> list[Effect]:
        """What bytes from the daemon mean. After `Ended` nothing more is to be fed."""
        effects: list[Effect] = []
        try:
            for message in self._framer.feed(data):
                effects.append(self._effect(message))
                if isinstance(effects[-1], Ended):
                    break
        except CodecError as error:
            effects.append(Ended(error))
        return effects

    def _effect(self, message: Message | Malformed) -> Effect:
        match message:
            case p.PlanChanged(category):
                return PlanNews(category)
            case p.CategoryRemoved(number):
                return Removal(number)
            case p.Goodbye(reason):
                return Ended(Dismissed(f"The daemon closed the connection: {reason}"))
            case Malformed(_, error):
                return Ended(error)
            case p.Welcome() if 0 in self._open:
                self._open.discard(0)
                return Welcomed(message)
            case p.Failure(request=0):
                # A failure that belongs to no request: of the hello, or of something the daemon could not read.
                return Ended(raised(message))
            case p.Failure() | p.Done() | p.CategoryReply() if message.request in self._open:
                self._open.discard(message.request)
                return _answered(message)
        return Ended(CodecError(expected="an answer to an open request", got=message, where="connection"))


def _answered(message: p.Failure | p.Done | p.CategoryReply) -> Answered:
    match message:
        case p.Failure():
            return Answered(message.request, None, raised(message))
        case p.Done(request, answer):
            return Answered(request, answer)
        case p.CategoryReply(request, category):
            return Answered(request, category)
