"""A protocol: the table of its messages, who may send each, and how large it may be.

One side listens and the other dials. A message that the listening side takes has the *least role* that may send it
(`access.Role`): None for anybody who is welcome, `COMPONENT` for components alone, several if one of them is enough.
`Protocol.check` is the one place where that is looked up, for every message of every protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any, Final

import msgspec

from sievenet.access.identity import Role
from sievenet.errors import Rejected
from sievenet.session.framing import Framer
from sievenet.session.message import Hello, Welcome

__all__ = ["Protocol"]

#: Largest frame before the other side is welcome.
_MAX_HELLO: Final = 1 << 12


@dataclass(frozen=True)
class Protocol:
    """Made once for each protocol, beside its messages."""

    name: str
    #: What the listening side is called in errors.
    listener: str
    #: Both sides must have the same.
    version: int
    #: Of its URLs; with TLS an ``s`` follows.
    scheme: str
    #: The first message of the side that dials, and its answer.
    hello: type[Hello]
    welcome: type[Welcome]
    #: What the listening side takes after the hello, with the least role that may send it.
    taken: Mapping[type[msgspec.Struct], Role | tuple[Role, ...] | None]
    #: What the dialling side takes.
    given: tuple[type[msgspec.Struct], ...]
    #: Bytes of the largest frame: that the listening side takes of each role, and that the dialling side takes.
    largest: Mapping[Role, int]
    max_given: int
    max_hello: int = _MAX_HELLO

    @cached_property
    def _listens(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(reduce(or_, (self.hello, *self.taken)))

    @cached_property
    def _dials(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(reduce(or_, self.given))

    def url(self, address: tuple[str, int], *, secure: bool) -> str:
        """Where a process listens, as users say it."""
        host, port = address
        return f"{self.scheme}{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"

    def listening(self, limit: int | None = None) -> Framer:
        """A framer for what the listening side receives: small frames, until the other side is welcome."""
        return Framer(self._listens, limit or self.max_hello)

    def dialling(self) -> Framer:
        """A framer for what the dialling side receives."""
        return Framer(self._dials, self.max_given)

    def check(self, role: Role, message: msgspec.Struct) -> None:
        """`Rejected` if whoever has this role may not send such a message."""
        kind = type(message)
        if kind not in self.taken:
            raise Rejected(f"Expected one hello, got a second ({kind.__name__})")
        least = self.taken[kind]
        enough = least if isinstance(least, tuple) else (least,)
        if not any(map(role.includes, enough)):
            wanted = " or ".join(_article(each) for each in enough if each is not None)
            raise Rejected(f"Expected {wanted} to send {kind.__name__}, got it from {_article(role)}")


def _article(role: Role) -> str:
    return f"{'an' if role.value[0] in 'aeiou' else 'a'} {role.value}"
