"""The client library: connect, advertise, publish, subscribe.

`node` is where to begin: what an application can do in any network. `fabric_node` is a node among switches, `overlay`
one at a content router; `membership` keeps either connected (over `sievenet.session`). Below them, state
that touches no socket (`registrations`, `offers`, `outbox`, `receiver`, `edge`, `inbox`) and a thin shell for packets
(`ports`). `transport` stands between them and the application for those who want order, recovery or rate control. Names
are loaded when asked for; a compiler is loaded by components (`component`, `matcher`), by the first subscription, and
beside the event loop by whoever publishes many events together.

Imports only `access`, `cache`, `content`, `control`, `dataplane`, `errors`, `index`, `jit`, `matcher`, `routers`,
`session`, `tap` and `transport`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievenet.client.advertisement import Advertisement
    from sievenet.client.busyloop import busy_loop
    from sievenet.client.connector import Connecting, connect
    from sievenet.client.delivery import Delivery
    from sievenet.client.feed import Feed, FeedStatistics, Whole
    from sievenet.client.inbox import Overflow
    from sievenet.client.node import Node
    from sievenet.client.statistics import NodeStatistics

__all__ = [
    "Advertisement",
    "Connecting",
    "Delivery",
    "Feed",
    "FeedStatistics",
    "Node",
    "NodeStatistics",
    "Overflow",
    "Whole",
    "busy_loop",
    "connect",
]

_HOMES = {
    "Advertisement": "advertisement",
    "Connecting": "connector",
    "Delivery": "delivery",
    "Feed": "feed",
    "FeedStatistics": "feed",
    "Node": "node",
    "NodeStatistics": "statistics",
    "Overflow": "inbox",
    "Whole": "feed",
    "busy_loop": "busyloop",
    "connect": "connector",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sievenet.client' has no attribute {name!r}")
    value: object = getattr(import_module(f"sievenet.client.{home}"), name)
    globals()[name] = value
    return value
