"""Times of departure that can be believed: the publisher's clock, as far as it runs as fast as this one.

A time that leaps is a flipped bit or a forgery, and would do harm for as long as it is ahead: no loss would count as a
new one, and round trips would be absurd. So a departure that is off by more than `LEAP` from what the last one and the
time passed since let expect is replaced by that expectation. If the next message agrees with it, the clock was set.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sievenet.transport.codec import Header

__all__ = ["LEAP", "Departures"]

#: Seconds that a message may be late, or a clock off.
LEAP: Final = 30.0


class Departures:
    """The departures of one stream."""

    __slots__ = ("_odd", "_offset")

    def __init__(self) -> None:
        #: Arrival less departure, of the last message that was believed and of one that was not.
        self._offset: float | None = None
        self._odd: float | None = None

    def checked(self, header: Header, now: float) -> Header:
        """The header with a departure that can be believed."""
        offset = now - header.departure
        if self._offset is None or abs(offset - self._offset) <= LEAP or self._agreed(offset):
            self._offset, self._odd = offset, None
            return header
        self._odd = offset
        return msgspec.structs.replace(header, departure=max(0.0, now - self._offset))

    def _agreed(self, offset: float) -> bool:
        return self._odd is not None and abs(offset - self._odd) <= LEAP
