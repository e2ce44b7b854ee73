"""Sievenet: publish/subscribe in which the network itself filters by content.

Interests become flow entries in switches and an event's content becomes the destination address of its packet, so a
plain packet match is a content match. The packages below this one are in layers, each importing only from those below
it, from `errors` and `content` up to `client`, `daemon` and `cli`: docs/topics/architecture.md has them all.

Importing `sievenet` itself imports none of them: a name is looked up in its package when it is first asked for, so
that the command line starts quickly and the core never pulls in Spark, a web server or a compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievenet import sync
    from sievenet.client import Delivery, Feed, Node, connect
    from sievenet.content import (
        Attribute,
        Event,
        EventBatch,
        Filter,
        Record,
        Schema,
        Subscription,
        ValueSet,
        explain,
        parse_event,
        parse_filter,
        parse_subscription,
    )
    from sievenet.daemon import fabric
    from sievenet.errors import SievenetError
    from sievenet.matcher import Matcher

__version__ = "0.1.0.dev0"

__all__ = [
    "Attribute",
    "Delivery",
    "Event",
    "EventBatch",
    "Feed",
    "Filter",
    "Matcher",
    "Node",
    "Record",
    "Schema",
    "SievenetError",
    "Subscription",
    "ValueSet",
    "__version__",
    "connect",
    "explain",
    "fabric",
    "parse_event",
    "parse_filter",
    "parse_subscription",
    "sync",
]

#: Where each public name lives.
_HOMES = {
    "Attribute": "content",
    "Delivery": "client",
    "Event": "content",
    "EventBatch": "content",
    "Feed": "client",
    "Filter": "content",
    "Matcher": "matcher",
    "Node": "client",
    "Record": "content",
    "Schema": "content",
    "SievenetError": "errors",
    "Subscription": "content",
    "ValueSet": "content",
    "connect": "client",
    "explain": "content",
    "fabric": "daemon",
    "parse_event": "content",
    "parse_filter": "content",
    "parse_subscription": "content",
    "sync": "sync",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sievenet' has no attribute {name!r}")
    module = import_module(f"sievenet.{home}")
    value: object = module if name == home else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
