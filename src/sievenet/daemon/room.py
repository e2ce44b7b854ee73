"""How much room there is for schemas.

A restart makes every category anew, and a schema travels with all its versions: both must stay small, whoever
registers what.
"""

from __future__ import annotations

from collections.abc import Iterable

from sievenet.content.codec import encode_schema
from sievenet.content.schema import Schema
from sievenet.control.state import Category
from sievenet.errors import Rejected

__all__ = ["Room"]


class Room:
    """Bounds on the number of schemas and on their bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        #: Bytes of schemas by the numbers of their categories, which are not used again soon.
        self._sizes: dict[int, tuple[Schema, int]] = {}

    def check(self, schema: Schema, categories: Iterable[Category]) -> None:
        """`Rejected` if there is no room for another schema."""
        known: dict[int, tuple[Schema, int]] = {}
        for each in categories:
            size = self._sizes.get(each.number)
            if size is None or size[0] is not each.schema:
                size = each.schema, len(encode_schema(each.schema))
            known[each.number] = size
        self._sizes = known
        if len(known) >= self._most:
            raise Rejected(f"There are {len(known)} schemas, which is the limit: remove one first")
        total = sum(size for _, size in known.values()) + len(encode_schema(schema))
        if total > self._most_bytes:
            raise Rejected(
                f"Expected schemas of at most {self._most_bytes} bytes in all, got {total} with {schema.name}: "
                "remove one first, or make enumerations shorter"
            )
