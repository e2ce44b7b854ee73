"""What every protocol's messages have in common: a base, the messages that all have, and errors that cross the wire."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec

from sievenet import errors
from sievenet.access.identity import Role

__all__ = [
    "Alive",
    "Done",
    "Failure",
    "Goodbye",
    "Hello",
    "Message",
    "Name",
    "Number",
    "Revised",
    "Text",
    "Ticket",
    "Welcome",
    "check_name",
    "failure",
    "raised",
]

#: Short, printable, safe in a path, a log line and a metric; `\\Z` because `$` would let a newline follow.
_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}\Z"
Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
Text = Annotated[str, msgspec.Meta(max_length=256)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Ticket = Annotated[bytes, msgspec.Meta(max_length=64)]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag=True):
    """Base of all messages: a map with a ``type``, without fields that are not known."""


class Hello(Message, frozen=True):
    """The first message of whoever dials; a protocol adds what it needs."""

    protocol: Number
    #: What it asks to be.
    role: Role = Role.CLIENT
    #: None leaves the name to the other side.
    name: Name | None = None
    #: The ticket of an earlier connection under this name, which this one replaces.
    ticket: Ticket = b""
    #: Proves who it is, where no certificate does.
    token: Text = ""
    request: Number = 0


class Welcome(Message, frozen=True):
    """The answer to `Hello`; a protocol adds what it needs."""

    protocol: Number
    #: The name of the one who dialled.
    name: Name
    #: Shown in the next `Hello`, it proves that the name is still ours.
    ticket: Ticket = b""
    #: Seconds of silence after which either side gives the other up; 0 if it never does.
    lease: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0


class Done(Message, frozen=True):
    """The request is done; ``answer`` is plain data, if any."""

    request: Number
    answer: Any = None


class Failure(Message, frozen=True):
    """The request is refused; the same facts as the exception's. Request 0 stands for the connection itself."""

    request: Number
    kind: str
    message: str
    expected: str = ""
    got: str = ""
    where: str = ""


class Goodbye(Message, frozen=True):
    """The other side closes the connection, and why."""

    reason: Annotated[str, msgspec.Meta(max_length=1024)]


class Revised(Message, frozen=True):
    """Rules have changed, and a registration with them: it is less than it was, or it has ended for a reason."""

    kind: Literal["advertisement", "subscription"]
    id: Number
    #: What it is from now on, in the codec's bytes.
    narrowed: bytes = b""
    #: Why it has ended; empty if it has not.
    reason: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class Alive(Message, frozen=True):
    """Nothing else to say, but still here: said by either side a few times per lease."""


# -- errors across the wire ----------------------------------------------------------------

_KINDS: Final[dict[str, type[errors.SievenetError]]] = {name: getattr(errors, name) for name in errors.__all__}


def check_name(name: str) -> None:
    """`InvalidInput` unless this can be the name of a node, a router or a component."""
    if not re.match(_NAME, name):
        allowed = "a name of letters, digits, _ . : and -, 64 at most, a letter, digit or _ first"
        raise errors.InvalidInput(expected=allowed, got=name, where="name")


def failure(request: int, error: BaseException) -> Failure:
    """An exception as the message that tells the other side of it."""
    if not isinstance(error, errors.SievenetError):
        return Failure(request, "SievenetError", f"internal error (please report): {type(error).__name__}")
    kind = next((c.__name__ for c in type(error).__mro__ if c.__name__ in _KINDS), "SievenetError")
    if isinstance(error, errors.InvalidInput):
        got = "" if error.got is None else errors.shortened(error.got)
        return Failure(request, kind, str(error)[:4096], error.expected[:1024], got, error.where[:256])
    return Failure(request, kind, str(error)[:4096])


def raised(message: Failure) -> errors.SievenetError:
    """The exception that a failure tells of, to be raised on this side."""
    cls = _KINDS.get(message.kind, errors.SievenetError)
    error = cls.__new__(cls)
    # The text is complete already: the constructors would put it together a second time.
    Exception.__init__(error, message.message)
    if isinstance(error, errors.InvalidInput):
        error.expected, error.where = message.expected, message.where
        error.got = errors.Shown(message.got) if message.got else None
    if isinstance(error, errors.ParseError):
        error.text, error.column = "", 0
    return error
