"""Directed delivery: events for recipients instead of by content.

Matchers and caches know exactly who should have an event. For each category X there is, when one of them asks for it, a
*twin* category ``sievenet.directed.X``. Its only attribute is the number of a *recipient*: a client, or a group of
clients with the same need. Its payload is a packet of X as it was published, byte for byte:

    packet of the twin    head │ opening, version │ recipient u32 │ length │ packet of X
                                                                              │
                        category, code, publisher, incarnation, sequence, departure, encoded event

To the control plane the twin is a category like any other: recipients subscribe to their numbers, components advertise
all of it, and its codes are the numbers themselves, 32 bits, so that a recipient is one dz and one flow per switch.
What is inside keeps its publisher and number. Receivers take both ways for one stream; see `client.directed`.

Who may do what:

    component ── Twin(X), Direct(X, clients) ──▶ daemon      the twin, and a number that reaches these clients
    daemon ───── Directed(twin, numbers) ──────▶ client      "subscribe to these numbers in this twin, and to no others"
    client ───── Subscribe(twin, number) ──────▶ daemon      granted for its own numbers only
    component ── packets of the twin ──────────▶ network     nobody else may advertise there

`Direct` is answered when the clients' subscriptions stand: from then on what is sent to the number reaches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ValueSet

__all__ = ["BITS", "OVERHEAD", "PREFIX", "RECIPIENT", "everybody", "is_twin", "recipients", "twin_schema"]

PREFIX: Final = "sievenet.directed."
#: Length of a recipient's number, in bits: all of them are in the code.
BITS: Final = 32
RECIPIENT: Final = "recipient"
#: Bytes, at most, by which a packet of a twin is longer than the one inside.
OVERHEAD: Final = 64
_LONGEST: Final = 64


def is_twin(name: str) -> bool:
    """Whether a category is the twin of another."""
    return name.startswith(PREFIX)


def twin_schema(category: str) -> Schema:
    """The schema of a category's twin.

    >>> twin_schema("stock").name
    'sievenet.directed.stock'
    """
    name = PREFIX + category
    if len(name) > _LONGEST:
        name = PREFIX + blake2b(category.encode(), digest_size=16).hexdigest()
    return Schema(name, (Attribute(RECIPIENT, "int", lo=0, hi=(1 << BITS) - 1),))


def everybody(twin: Schema) -> Subscription:
    """What a component advertises."""
    return Subscription([Filter(twin)], twin)


def recipients(twin: Schema, numbers: Iterable[int]) -> Subscription:
    """What a recipient subscribes to."""
    return Subscription([Filter(twin, {RECIPIENT: ValueSet.of(*sorted(numbers))})], twin)
