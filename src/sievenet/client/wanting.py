"""What an application may say when it advertises or subscribes, and what that means."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from sievenet.content.filter import Filter, Subscription
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, SchemaError

if TYPE_CHECKING:
    from sievenet.client.catalog import Category

__all__ = ["Wanted", "understood"]

#: What `advertise` and `subscribe` take: text, a filter, a subscription, or a schema for all of its events.
Wanted = str | Filter | Subscription | Schema

_PREFIX: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(?::|$)")


async def understood(
    wanted: Wanted, look_up: Callable[[str | Schema], Awaitable[Category]]
) -> tuple[Category, Subscription]:
    """What is wanted, of a category that the daemon knows."""
    match wanted:
        case str():
            named = _PREFIX.match(wanted)
            if named is None:
                raise SchemaError(expected="a schema's name and `:` in front", got=wanted)
            category = await look_up(named[1])
            if named.end() == len(wanted) and not wanted.rstrip().endswith(":"):
                return category, Subscription([Filter(category.schema)])
            return category, parse_subscription(wanted, {category.schema.name: category.schema})
        case Schema():
            category = await look_up(wanted)
            return category, Subscription([Filter(category.schema)])
        case Filter() | Subscription():
            if wanted.schema is None:
                raise SchemaError("Expected a filter of a schema, got a schemaless one", where="subscribe")
            category = await look_up(wanted.schema)
            return category, Subscription([wanted]) if isinstance(wanted, Filter) else wanted
    raise InvalidInput(expected="text, a filter, a subscription or a schema", got=wanted)
