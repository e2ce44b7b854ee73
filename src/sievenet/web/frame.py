"""How a message looks on the wire: server-sent events in chunks, or text frames of a WebSocket.

    id: 5f3a9c-1042                                     {"id": "5f3a9c-1042", "type": "event", "data": {…}}
    data: {"category": "stock", "event": {…}, …}

A frame is made once and written to every stream of its kind. The identifier names the stream's life and the message's
number in it; a client that shows its last one (``Last-Event-ID``) goes on behind it.
"""

from __future__ import annotations

import re
from typing import Final, Literal

__all__ = ["Kind", "chunk", "identifier", "message", "parse_identifier"]

#: Server-sent events (in chunks, or not: HTTP/1.0), or WebSocket.
Kind = Literal["sse", "plain", "ws"]

_IDENTIFIER: Final = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})\Z")


def identifier(life: str, number: int) -> str:
    """The name of a message."""
    return f"{life}-{number}"


def parse_identifier(text: str) -> tuple[str, int] | None:
    """Life and number; None if the text names no message.

    >>> parse_identifier("5f3a-17"), parse_identifier("17")
    (('5f3a', 17), None)
    """
    found = _IDENTIFIER.match(text)
    return None if found is None else (found[1], int(found[2]))


def message(kind: Kind, name: str, data: bytes, id: str = "") -> bytes:
    """One message; ``data`` is JSON, on one line. The name ``event`` is what clients expect if none is said.

    >>> message("sse", "event", b"{}", "5f-1")
    b'id: 5f-1\\ndata: {}\\n\\n'
    """
    if kind == "ws":
        head = f'{{"id":"{id}",' if id else "{"
        body = b'%b"type":"%b","data":%b}' % (head.encode(), name.encode(), data)
        return _text_frame(body)
    said = b"" if name == "event" else b"event: %b\n" % name.encode()
    number = b"id: %b\n" % id.encode() if id else b""
    return b"%b%bdata: %b\n\n" % (number, said, data)


def chunk(kind: Kind, data: bytes) -> bytes:
    """Messages as they are written."""
    return b"%x\r\n%b\r\n" % (len(data), data) if kind == "sse" else data


def _text_frame(body: bytes) -> bytes:
    """A whole text message of RFC 6455, as a server sends it: not masked."""
    size = len(body)
    if size < 126:
        return b"\x81" + size.to_bytes(1) + body
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2) + body
    return b"\x81\x7f" + size.to_bytes(8) + body
