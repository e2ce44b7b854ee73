"""The transport's header on an event: in front of the payload, so that any plane carries it.

    payload     anything, as the application gave it
    stamped     00 73 76 74 | header (`transport.codec`, first byte 0x21) | payload
    escaped     00 73 76 74 | 00 | payload            for a payload that begins like a stamp by chance

A node that does not know or want the transport takes the stamp off and delivers the event as it was published. Without
a stamp the cost is one comparison of four bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sievenet.content.batch import EventBatch
from sievenet.content.event import Event
from sievenet.errors import CodecError
from sievenet.transport.codec import Header, decode_header

__all__ = ["MARK", "Stamp", "all_escaped", "batch_escaped", "escaped", "stamped", "unstamped"]

MARK: Final = b"\x00svt"
_AT: Final = len(MARK)


class Stamp(msgspec.Struct, frozen=True):
    """What a publisher's transport said about an event."""

    header: Header
    #: The header's bytes.
    raw: bytes


def escaped(event: Event) -> Event:
    """An event whose payload cannot be taken for a stamped one."""
    # What is no event at all is refused elsewhere, with a message.
    if not getattr(event, "payload", b"").startswith(MARK):
        return event
    return Event(event.schema, event.values, MARK + b"\x00" + event.payload)


def batch_escaped(events: EventBatch) -> EventBatch:
    """The same for a batch; without payloads nothing has to be looked at."""
    if events.payloads is None or not any(each.startswith(MARK) for each in events.payloads):
        return events
    return EventBatch.from_events(events.schema, [escaped(each) for each in events])


def all_escaped(events: EventBatch | Sequence[Event]) -> EventBatch | Sequence[Event]:
    """The same for many."""
    if isinstance(events, EventBatch):
        return batch_escaped(events)
    return [escaped(each) for each in events] if any(getattr(each, "payload", b"") for each in events) else events


def stamped(event: Event, header: bytes) -> Event:
    """An event with a header in front of its payload; the caller has seen to its size."""
    return Event.trusted(event.schema, event.values, MARK + header + event.payload)


def unstamped(event: Event) -> tuple[Event, Stamp | None]:
    """An event as it was published, and its stamp; `CodecError` if that is malformed.

    Only for payloads that begin with `MARK`.
    """
    payload = event.payload
    if payload[_AT : _AT + 1] == b"\x00":
        return Event.trusted(event.schema, event.values, payload[_AT + 1 :]), None
    header, at = decode_header(payload[_AT:])
    if header.digest:
        raise CodecError(expected="a message", got="`a digest`", where="payload")
    end = _AT + at
    return Event.trusted(event.schema, event.values, payload[end:]), Stamp(header, payload[_AT:end])
