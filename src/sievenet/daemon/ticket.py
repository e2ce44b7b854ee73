"""Tickets: how a returning client proves that a name is its own.

A ticket is a nonce and a keyed hash of the name, of its life (which ends when the client leaves) and of the nonce. The
daemon keeps only its key, on disk beside the journal, and no list of tickets: a ticket is as good after a restart as
before it, which is when it is needed, and worth nothing once somebody else has the name.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sievenet.errors import Unavailable

__all__ = ["Tickets"]

_KEY: Final = 32
_NONCE: Final = 8
_HASH: Final = 24


class Tickets:
    """Issues and checks tickets under one key."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(_KEY)

    @classmethod
    def load(cls, directory: Path) -> Tickets:
        """With the key kept in a directory, made on first use and readable by its owner only."""
        path = directory / "key"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                key = path.read_bytes()
                if len(key) != _KEY:
                    raise Unavailable(
                        f"Expected {_KEY} bytes in the key file {path}, got {len(key)}. Restore it; or remove it, and "
                        "clients that were connected cannot take their names over until their leases end"
                    )
                path.chmod(0o600)
                return cls(key)
            key = secrets.token_bytes(_KEY)
            # Written aside and renamed: a crash in between leaves no half key.
            aside = path.with_suffix(".new")
            handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except OSError as error:
            raise Unavailable(f"Expected a writable state directory, got {error}") from None
        return cls(key)

    def derived(self, purpose: bytes) -> bytes:
        """A key for another purpose, the same as long as the state directory is."""
        return blake2b(purpose, key=self._key, digest_size=_KEY).digest()

    def issue(self, name: str, life: int = 0) -> bytes:
        """A ticket for a name, good as long as this life of it lasts."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._hash(name, life, nonce)

    def valid(self, name: str, ticket: bytes, life: int = 0) -> bool:
        """Whether a ticket is one of ours for this life of a name."""
        nonce, proof = ticket[:_NONCE], ticket[_NONCE:]
        return hmac.compare_digest(proof, self._hash(name, life, nonce))

    def _hash(self, name: str, life: int, nonce: bytes) -> bytes:
        said = b"%s\0%d\0%s" % (name.encode(), life, nonce)
        return blake2b(said, key=self._key, digest_size=_HASH).digest()
