"""Authenticated datagrams: a number that is never used twice, and a keyed hash of everything.

    datagram │ number u64 │ tag 16 bytes       tag = BLAKE2b(key, direction, everything before it)

Each session has a key of its own, drawn at random when its control connection (which is encrypted) is welcomed, so a
datagram of another session, of an earlier life of the daemon or in the other direction never verifies. Numbers count
datagrams, also those without packets. A receiver takes each number once, within a window behind the highest; what is
older than the window is refused, whether it came before or not. Datagrams are not encrypted: whoever can read the
network can read events.

Cost: one hash over the datagram, about 1.5 µs and 1 ns per byte; packets that share a datagram share it.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b
from typing import Final

__all__ = ["KEY", "SEAL", "WINDOW", "Opener", "Sealer", "new_key"]

#: Bytes of a key, and of what a seal adds to a datagram.
KEY: Final = 32
_TAG: Final = 16
_NUMBER: Final = 8
SEAL: Final = _NUMBER + _TAG
#: How far behind the highest number one may come late.
WINDOW: Final = 1024
_FULL: Final = (1 << WINDOW) - 1


def new_key() -> bytes:
    """A key for one session."""
    return secrets.token_bytes(KEY)


class Sealer:
    """Seals what one end sends."""

    __slots__ = ("_hash", "_number")

    def __init__(self, key: bytes, *, down: bool) -> None:
        self._hash = _hash(key, down)
        self._number = 0

    def seal(self, datagram: bytes) -> bytes:
        """A datagram with its number and tag."""
        self._number += 1
        said = datagram + self._number.to_bytes(_NUMBER, "big")
        digest = self._hash.copy()
        digest.update(said)
        return said + digest.digest()


class Opener:
    """Opens what the other end sent, each datagram once."""

    __slots__ = ("_hash", "_highest", "_seen", "forged", "replayed")

    def __init__(self, key: bytes, *, down: bool) -> None:
        self._hash = _hash(key, down)
        self._highest = 0
        #: Bit i: the number that is i below the highest has come.
        self._seen = 0
        #: Datagrams that did not verify, and that had come before or were too late.
        self.forged = 0
        self.replayed = 0

    def open(self, data: memoryview) -> memoryview | None:
        """The datagram in sealed bytes; None if it is forged, was altered, came before or is too old."""
        end = len(data) - _TAG
        if end < _NUMBER:
            self.forged += 1
            return None
        digest = self._hash.copy()
        digest.update(data[:end])
        if not hmac.compare_digest(digest.digest(), data[end:]):
            self.forged += 1
            return None
        # Only what verifies moves the window.
        if not self._first(int.from_bytes(data[end - _NUMBER : end], "big")):
            self.replayed += 1
            return None
        return data[: end - _NUMBER]

    def _first(self, number: int) -> bool:
        ahead = number - self._highest
        if ahead > 0:
            self._seen = 1 if ahead >= WINDOW else (self._seen << ahead | 1) & _FULL
            self._highest = number
            return True
        if -ahead >= WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True


def _hash(key: bytes, down: bool) -> blake2b:
    return blake2b(key=key, digest_size=_TAG, person=b"sievenet-down" if down else b"sievenet-up")
