"""Tokens: ``name.secret``, and what is kept of them.

A secret is 32 random bytes, so nobody finds it by trying: one fast hash is enough, and a flood of wrong tokens costs
the daemon little. What is kept is a salt and a hash, compared in constant time. A member may have several tokens at a
time: a new one is made, handed over, and the old one revoked, without a gap.

    tokens file:   name  salt  hash  expires      one line per token; expires is a day, or "-"
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from sievenet.errors import InvalidInput

__all__ = ["MEMBER", "StoredToken", "check_name", "new_token", "read_tokens", "shown"]

_SECRET: Final = 32
_SALT: Final = 16
_HASH: Final = 32

#: Names of members. No dot: a member's clients are called NAME or NAME.anything.
MEMBER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,47}\Z")


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as the daemon keeps it."""

    name: str
    salt: bytes
    hash: bytes
    #: The last day on which it counts (UTC).
    expires: datetime.date | None = None

    def proves(self, token: str) -> bool:
        """Whether this is the token, in time that does not depend on how much of it is right."""
        return hmac.compare_digest(self.hash, _hash(token, self.salt))

    def good(self, now: float) -> bool:
        """Whether it still counts, at a time in seconds since 1970."""
        if self.expires is None:
            return True
        return datetime.datetime.fromtimestamp(now, datetime.UTC).date() <= self.expires

    def line(self) -> str:
        """As the file has it."""
        expires = "-" if self.expires is None else self.expires.isoformat()
        return f"{self.name} {self.salt.hex()} {self.hash.hex()} {expires}"


def new_token(name: str, expires: datetime.date | None = None) -> tuple[str, StoredToken]:
    """A token to hand over, and what is kept of it."""
    check_name(name)
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET)).rstrip(b"=").decode()
    token, salt = f"{name}.{secret}", secrets.token_bytes(_SALT)
    return token, StoredToken(name, salt, _hash(token, salt), expires)


def read_tokens(text: str, where: str = "tokens") -> tuple[StoredToken, ...]:
    """The tokens of a file; `InvalidInput` names the line that is none."""
    return tuple(
        _token(line, f"{where}:{number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    )


def _token(line: str, where: str) -> StoredToken:
    try:
        name, salt, hashed, expires = line.split()
        check_name(name, where)
        found = StoredToken(
            name,
            binascii.unhexlify(salt),
            binascii.unhexlify(hashed),
            None if expires == "-" else datetime.date.fromisoformat(expires),
        )
        if len(found.salt) != _SALT or len(found.hash) != _HASH:
            raise ValueError
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(expected="name, salt, hash and day of a token", got="`another line`", where=where) from None
    return found


def check_name(name: str, where: str = "name") -> None:
    """`InvalidInput` if a member cannot be called so."""
    if not MEMBER.match(name):
        raise InvalidInput(expected="a name of letters, digits, - and _, 48 at most", got=name, where=where)


def shown(token: str) -> str:
    """A token as errors and logs may show it: the name, never the secret.

    >>> shown("alice.c2VjcmV0"), shown("c2VjcmV0")
    ('alice.…', '…')
    """
    name, dot, _ = token.rpartition(".")
    return f"{name}.…" if dot and MEMBER.match(name) else "…"


def _hash(token: str, salt: bytes) -> bytes:
    return blake2b(
        token.encode("utf-8", "surrogatepass"), salt=salt, digest_size=_HASH, person=b"sievenet-token"
    ).digest()
