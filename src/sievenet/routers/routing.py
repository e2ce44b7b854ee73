"""What a router asks of its routing scheme, and the scheme's view of the router.

    Context      what a scheme may know and do: its name, the overlay, the clock's last reading, sending, codecs
    Routing      a scheme at work: told of local changes and of messages, asked where events go on

`tree`, `cbcb` and `bdrp` are the three kinds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sievenet.content.codec import decode_filter, decode_schema, encode_filter, encode_schema
from sievenet.content.filter import Filter
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, SchemaError
from sievenet.routers.forest import Elimination
from sievenet.routers.forwarding import Forwarding
from sievenet.routers.messages import FromRouter, Item, category_of
from sievenet.routers.overlay import LinkStates
from sievenet.routers.schemes import Want
from sievenet.routers.shipment import Shipment
from sievenet.session.message import Message
from sievenet.transport.bloom import MAX_WIDTH

__all__ = [
    "FORESTS",
    "SCHEMES",
    "Catalogue",
    "Context",
    "ForestName",
    "Interface",
    "Routing",
    "Rows",
    "SchemeName",
    "Settings",
]

SchemeName = Literal["simple", "identity", "covering", "merging", "cbcb", "bdrp", "edge"]
SCHEMES: tuple[SchemeName, ...] = ("simple", "identity", "covering", "merging", "cbcb", "bdrp", "edge")
#: Schemas that a router takes from its neighbours.
MAX_SCHEMAS = 1 << 14
ForestName = Literal["plain", "multi", "balanced", "lean"]
#: Forests of local filters: whether filters of one subscription gather, and which redundant ones are dropped.
FORESTS: dict[ForestName, tuple[bool, Elimination]] = {
    "plain": (False, "none"),
    "multi": (False, "path"),
    "balanced": (True, "path"),
    "lean": (True, "all"),
}
#: ``("client", name)`` or ``("router", name)``.
Interface = tuple[str, str]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a router routes; all routers of an overlay have the same."""

    scheme: SchemeName = "covering"
    #: Subscriptions go only where overlapping advertisements came from (simple, identity, covering, merging).
    advertisements: bool = False
    #: Merging: largest share of a merger that nobody asked for; 0 merges perfectly only.
    bound: float = 0.0
    #: Seconds after which what was not renewed is forgotten.
    lease: float = 15.0
    #: Hops after which events are dropped.
    max_hops: int = 64
    #: Bits of a Bloom filter; 0 for what is usual: 256 (bdrp) or 1024 (edge).
    width: int = 0
    #: Levels of the bftree (edge), which divide the bits; 0 for an sbstree.
    height: int = 0
    #: Seconds between sender requests (cbcb); 0 sends none, and the lease alone undoes inflation.
    ask_every: float = 0.0
    #: The kind of forest for the filters of local clients (schemes with covering).
    forest: ForestName = "plain"

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise InvalidInput(expected=f"one of {', '.join(SCHEMES)}", got=self.scheme, where="scheme")
        if self.forest not in FORESTS:
            raise InvalidInput(expected=f"one of {', '.join(FORESTS)}", got=self.forest, where="forest")
        if not (self.lease > 0 and isfinite(self.lease)):
            raise InvalidInput(expected="a lease of more than 0 s", got=self.lease, where="lease")
        if not (self.ask_every >= 0 and isfinite(self.ask_every)):
            raise InvalidInput(expected="0 s or more between requests", got=self.ask_every, where="ask_every")
        if not 1 <= self.max_hops <= 255:
            raise InvalidInput(expected="1 to 255 hops", got=self.max_hops, where="max_hops")
        if not 0 <= self.bound < 1:
            raise InvalidInput(expected="a bound in [0, 1)", got=self.bound, where="bound")
        limit = 4096 if self.scheme == "edge" else MAX_WIDTH
        if self.width and (not 8 <= self.width <= limit or self.width % 8):
            raise InvalidInput(expected=f"a multiple of 8 up to {limit} bits", got=self.width, where="width")
        if self.height < 0 or (self.height and self.bits % self.height):
            raise InvalidInput(expected=f"a height that divides {self.bits}", got=self.height, where="height")

    @property
    def bits(self) -> int:
        """Bits of a Bloom filter."""
        return self.width or (1024 if self.scheme == "edge" else 256)

    @property
    def beat(self) -> float:
        """Seconds between greetings and between renewals."""
        return self.lease / 8


class Catalogue:
    """Schemas by category, and filters to bytes and back."""

    def __init__(self) -> None:
        self.schemas: dict[int, Schema | None] = {0: None}
        self.encoded: dict[int, bytes] = {}
        self._decoded: dict[tuple[int, bytes], Filter] = {}

    def add(self, schema: Schema | None) -> int:
        """Make a schema known; its category."""
        category = category_of(schema)
        if schema is not None and category not in self.schemas:
            self.schemas[category] = schema
            self.encoded[category] = encode_schema(schema)
        return category

    def learn(self, encoded: tuple[bytes, ...]) -> None:
        """Make schemas known that a neighbour sent; `SchemaError` if there are too many."""
        for each in encoded:
            schema = decode_schema(each)
            if len(self.schemas) >= MAX_SCHEMAS and category_of(schema) not in self.schemas:
                raise SchemaError(expected=f"at most {MAX_SCHEMAS} schemas in an overlay", got=schema.name)
            self.add(schema)

    def named(self, name: str) -> tuple[int, Schema]:
        """The newest version of the schema of a name."""
        found = [(s.version, c) for c, s in self.schemas.items() if s is not None and s.name == name]
        if not found:
            known = ", ".join(sorted({s.name for s in self.schemas.values() if s is not None})) or "none yet"
            raise SchemaError(expected=f"a known schema ({known})", got=name)
        category = max(found)[1]
        schema = self.schemas[category]
        assert schema is not None
        return category, schema

    def item(self, kind: int, category: int, want: Want) -> Item:
        """A filter as an entry of a channel."""
        return Item(kind, category, encode_filter(want.filter), want.tag)

    def want(self, item: Item) -> Want:
        """An entry's filter. Raises if it is malformed or its schema unknown."""
        key = (item.category, item.data)
        found = self._decoded.get(key)
        if found is None:
            if item.category not in self.schemas:
                raise SchemaError(expected="a known category", got=item.category)
            if len(self._decoded) > 1 << 17:
                self._decoded.clear()
            found = self._decoded[key] = decode_filter(self.schemas[item.category], item.data)
        return Want(found, item.tag)


@dataclass(slots=True)
class Context:
    """What a scheme shares with its router."""

    name: str
    settings: Settings
    states: LinkStates
    catalogue: Catalogue
    #: Number of this life of the router: larger than that of any before.
    incarnation: int
    forwardings: dict[int, Forwarding] = field(default_factory=dict)
    outbox: list[tuple[str, FromRouter]] = field(default_factory=list)
    #: Messages for clients that compute for the router.
    tells: list[tuple[str, Message]] = field(default_factory=list)
    now: float = 0.0
    #: The graph that this router works by (`Overlay.graph`), and those that it worked by before.
    graph: int = 0
    past: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    counts: dict[str, int] = field(default_factory=dict)

    def send(self, neighbour: str, message: FromRouter) -> None:
        """Send a message to a neighbour."""
        self.outbox.append((neighbour, message))
        kind = type(message).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def tell(self, client: str, message: Message) -> None:
        """Send a message to a client."""
        self.tells.append((client, message))

    def forwarding(self, category: int) -> Forwarding:
        """Who wants what, of one category."""
        found = self.forwardings.get(category)
        if found is None:
            found = self.forwardings[category] = Forwarding(self.catalogue.schemas[category])
        return found


class Routing(Protocol):
    """A scheme at work in one router."""

    #: As of `schemes.Scheme`: what the local table should pass on.
    tagged: bool
    covering: bool
    #: Whether what is wanted is broadcast by each router, not told from neighbour to neighbour.
    broadcasts: bool

    def local(self, kind: int, category: int, added: list[Want], removed: list[Want]) -> None:
        """What local clients want (or offer) changed."""

    def receive(self, neighbour: str, message: Any) -> None:
        """A message of the scheme's own protocol."""

    def topology_changed(self) -> None:
        """The graph is another one."""

    def announce(self) -> None:
        """Broadcast all that is wanted here."""

    def in_step(self, neighbour: str) -> bool:
        """Whether all that a neighbour told so far is held."""

    def lost(self, neighbour: str) -> None:
        """A neighbour is gone."""

    def greet(self, neighbour: str) -> tuple[int, int, int]:
        """Epoch, number and digest of what this neighbour was told."""

    def greeted(self, neighbour: str, epoch: int, number: int, digest: int) -> None:
        """What a neighbour says it has told."""

    def onward(self, shipment: Shipment, by: Interface, wanted: dict[Hashable, Rows]) -> list[tuple[str, Shipment]]:
        """Where events go on, given who wants which of them."""

    def elsewhere(self, category: int) -> list[Filter]:
        """What is wanted behind neighbours, as far as the matcher does not know it."""

    def settle_to(self, issuer: str, by: str | None) -> list[str]:
        """The neighbours that a wave of `Settle` of this issuer goes on to."""

    def tick(self) -> None:
        """Time has passed."""

    def flush(self) -> None:
        """Send what is due after a stimulus."""

    def size(self) -> int:
        """Entries of the routing table."""

    def tests(self) -> int:
        """Covering tests so far."""

    def explain(self, category: int, wanted: Filter) -> dict[str, Any]:
        """Where a filter sits, and to whom it was forwarded and why."""
