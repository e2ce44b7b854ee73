"""Sign-ins: who is behind a request, without asking the gate each time.

    Authorization: Bearer NAME.SECRET ─┐
    TLS client certificate ────────────┼─▶ gate, once ─▶ visitor, remembered ─▶ does it still stand? ─▶ go on
    cookie of a sign-in ───────────────┘                                                 └─ no ─▶ gate again

The audit log so has one greeting for each visit and not one for each request. Nothing secret is kept: tokens and
cookies are remembered by their hashes. A cookie alone changes nothing: requests that do also show the sign-in's own
secret in a header, which pages of other sites cannot read (CSRF).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from sievenet.daemon.lobby import Visitor
from sievenet.errors import Rejected

__all__ = ["SignIn", "SignIns", "Visits"]

#: Sign-ins and visits that are remembered; the oldest is forgotten.
_MOST: Final = 4096


def _hash(*texts: str) -> bytes:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class SignIn:
    """A person at a page."""

    visitor: Visitor
    #: Shown in a header with everything that changes something.
    csrf: str
    until: float

    def check(self, shown: str) -> None:
        """`Rejected` if a request comes from another page."""
        if not hmac.compare_digest(self.csrf.encode(), shown.encode("utf-8", "surrogatepass")):
            raise Rejected("Expected the header X-CSRF-Token as /me says it, got another one or none")


class SignIns:
    """By the hash of the cookie. Pure: ``now`` in seconds."""

    def __init__(self, life: float) -> None:
        self._life = life
        self._all: dict[bytes, SignIn] = {}

    def begin(self, visitor: Visitor, now: float) -> tuple[str, SignIn]:
        """A cookie for a person who was admitted."""
        while len(self._all) >= _MOST:
            del self._all[next(iter(self._all))]
        cookie = secrets.token_urlsafe(32)
        made = self._all[_hash(cookie)] = SignIn(visitor, secrets.token_urlsafe(24), now + self._life)
        return cookie, made

    def get(self, cookie: str, now: float) -> SignIn | None:
        """Whose cookie this is, if it still counts."""
        found = self._all.get(_hash(cookie))
        if found is not None and now > found.until:
            self.end(cookie)
            return None
        return found

    def end(self, cookie: str) -> None:
        """Sign out."""
        self._all.pop(_hash(cookie), None)


class Visits:
    """Those who show a token or a certificate with each request, or nothing where nobody has to be known."""

    def __init__(self) -> None:
        self._all: dict[bytes, Visitor] = {}

    def get(self, *shown: str) -> Visitor | None:
        """Who showed this before."""
        return self._all.get(_hash(*shown))

    def put(self, visitor: Visitor, *shown: str) -> None:
        """Remember who shows this."""
        while len(self._all) >= _MOST:
            del self._all[next(iter(self._all))]
        self._all[_hash(*shown)] = visitor

    def forget(self, *shown: str) -> None:
        """It does not count any more."""
        self._all.pop(_hash(*shown), None)
