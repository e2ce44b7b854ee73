"""Filters as clients are sent them: with their schema, or in disguise and with none."""

from __future__ import annotations

from sievenet.content.codec import encode_filter
from sievenet.content.filter import Filter
from sievenet.routers.offload.disguise import Disguise

__all__ = ["Writing"]


class Writing:
    """How one table's filters are written; each client is sent the schema once."""

    def __init__(self, category: int, schema: bytes, secret: bytes | None) -> None:
        self._disguise = Disguise(secret) if secret else None
        # What is hidden is schemaless.
        self.category, self._schema = (0, b"") if secret else (category, schema)
        self._explained: set[str] = set()

    def filter(self, wanted: Filter) -> bytes:
        """A filter's bytes. Raises `FilterError` for one that cannot be hidden."""
        return encode_filter(self._disguise.filter(wanted) if self._disguise is not None else wanted)

    def schema(self, client: str) -> bytes:
        """The schema, if a client has to be sent it."""
        if client in self._explained:
            return b""
        self._explained.add(client)
        return self._schema

    def leave(self, client: str) -> None:
        """A client is gone, and what it knew with it."""
        self._explained.discard(client)
