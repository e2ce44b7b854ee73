"""What the nodes of a fabric want, for a gateway that looks for it elsewhere.

The question is ``interests``, of ``CLIENT VERSION``: what everybody but this client subscribed to, unless nothing has
changed since that version (``""`` at first). The answer has the version of now and, if it is another one, for each
category its schema and the distinct filters, both in the codec's bytes. Going through all
registrations is done only when something changed, and not more often than it takes time.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from sievenet.content.codec import encode_filter, encode_schema
from sievenet.content.schema import Schema
from sievenet.control.directed import is_twin
from sievenet.control.plane import ControlPlane

__all__ = ["Interests"]

_TURN: Final = 200
_REST: Final = 20.0

#: Category → client → filters.
_Found = dict[str, dict[str, dict[bytes, None]]]


class Interests:
    """The filters of the last time, or of now if something has changed."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._answered = -1
        self._next = 0.0
        self._found: _Found = {}
        # Versions of another life of the daemon are none of this one.
        self._life = secrets.token_hex(4)
        self._number = 0

    async def answer(self, of: str) -> dict[str, Any]:
        """What everybody but one client wants."""
        client, _, version = of.partition(" ")
        await self._take()
        now = f"{self._life}-{self._number}"
        if version == now:
            return {"version": now}
        schemas = {name: encode_schema(schema) for name, schema in self._latest().items()}
        wanted = {
            name: list(dict.fromkeys(f for who, mine in clients.items() if who != client for f in mine))
            for name, clients in self._found.items()
        }
        return {"version": now, "categories": {n: [schemas[n], found] for n, found in wanted.items() if n in schemas}}

    def _latest(self) -> dict[str, Schema]:
        """Every schema in its latest version."""
        return {each.name: self._control.category(each.name).schema for each in self._control.categories()}

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        answered = self._control.status().answered
        begin = loop.time()
        if answered == self._answered or begin < self._next:
            return
        found: _Found = {}
        latest = self._latest()
        for i, (client, kind, _, category, wanted) in enumerate(self._control.registrations(), 1):
            # Whoever subscribed to an older version has a twin of that in the latest.
            if kind == "subscription" and wanted.schema == latest.get(category) and not is_twin(category):
                mine = found.setdefault(category, {}).setdefault(client, {})
                mine.update(dict.fromkeys(map(encode_filter, wanted.filters)))
            if i % _TURN == 0:
                await asyncio.sleep(0)
        if found != self._found:
            self._found = found
            self._number += 1
        self._answered = answered
        took = loop.time() - begin
        self._next = begin + (took * _REST if took > 0.02 else 0.0)
