"""What an application may say when it advertises or subscribes, what that means, and what it takes to match events."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from sievenet.content.filter import Filter, Subscription
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, SchemaError

__all__ = ["Wanted", "matching_loaded", "understood"]

#: What `advertise` and `subscribe` take: text, a filter, a subscription, or a schema for all of its events.
Wanted = str | Filter | Subscription | Schema

#: Characters of a schema's name.
_LONGEST: Final = 256
_PREFIX: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(?::|$)")


async def understood(
    wanted: Wanted, look_up: Callable[[str | Schema], Awaitable[Schema]], *, schemaless: bool
) -> tuple[Schema | None, Subscription]:
    """What is wanted, of a schema that the network knows; of none only where ``schemaless`` filters are welcome."""
    match wanted:
        case str():
            named = _PREFIX.match(wanted)
            if named is None:
                if schemaless:
                    return None, parse_subscription(wanted)
                raise SchemaError(expected="a schema's name and `:` in front", got=wanted)
            if len(named[1]) > _LONGEST:
                raise SchemaError(expected=f"a schema's name of at most {_LONGEST} characters", got=named[1])
            schema = await look_up(named[1])
            if named.end() == len(wanted) and not wanted.rstrip().endswith(":"):
                return schema, Subscription([Filter(schema)])
            return schema, parse_subscription(wanted, {schema.name: schema})
        case Schema():
            schema = await look_up(wanted)
            return schema, Subscription([Filter(schema)])
        case Filter() | Subscription():
            every = Subscription([wanted]) if isinstance(wanted, Filter) else wanted
            if every.schema is not None:
                return await look_up(every.schema), every
            if schemaless:
                return None, every
            raise SchemaError("Expected a filter of a schema, got a schemaless one", where="subscribe")
    raise InvalidInput(expected="text, a filter, a subscription or a schema", got=wanted)


async def matching_loaded() -> None:
    """Load what events are matched with, beside the event loop. Whoever subscribes to nothing does without it."""
    if (name := "sievenet.matcher.warmup") not in sys.modules:
        await asyncio.to_thread(importlib.import_module, name)  # and with it numba, which takes a while
    from sievenet.matcher.warmup import EVENTS

    await EVENTS.ready()
