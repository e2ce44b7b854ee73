"""What clients send, read with what a router knows: schemas, events, filters to explain."""

from __future__ import annotations

from typing import Any

from sievenet.content.batch_codec import decode_batch
from sievenet.content.codec import decode_record
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.errors import CodecError, InvalidInput, SchemaError
from sievenet.routers.core import Router
from sievenet.routers.protocol import Publish
from sievenet.routers.shipment import MAX_ROWS, MAX_SEQUENCE, Shipment

__all__ = ["answer", "explain", "schema_of", "shipment_of"]


def answer(router: Router, about: str, of: str, extra: dict[str, Any]) -> Any:
    """The answer to a client's question; ``extra`` is what the process around the router counts."""
    if about == "status":
        return {**router.statistics(), **extra}
    if about == "explain":
        return explain(router, of)
    raise InvalidInput(expected="status, explain or reach", got=about, where="ask")


def schema_of(router: Router, category: int) -> Schema | None:
    """The schema of a category that somebody registered."""
    schemas = router.catalogue.schemas
    if category not in schemas:
        raise SchemaError(expected="a registered category", got=category)
    return schemas[category]


def shipment_of(router: Router, publisher: int, message: Publish) -> Shipment:
    """The events of a client's message."""
    schema = schema_of(router, message.category)
    events: Any
    if schema is None:
        events = tuple(map(decode_record, message.records))
    else:
        events = decode_batch(schema, message.batch)
    if not 0 < len(events) <= MAX_ROWS:
        raise CodecError(expected=f"1 to {MAX_ROWS} events", got=len(events), where="publish")
    if message.first + len(events) > MAX_SEQUENCE:
        raise CodecError(expected=f"numbers of events up to {MAX_SEQUENCE}", got=message.first, where="publish")
    return Shipment.publish(router.name, publisher, message.category, message.first, message.departure, events)


def explain(router: Router, text: str) -> list[dict[str, Any]]:
    """`Router.explain` of each filter of a text; its schema is known here, or it is schemaless."""
    name, colon, _ = text.partition(":")
    category, schema = router.catalogue.named(name.strip()) if colon else (0, None)
    wanted = parse_subscription(text, None if schema is None else {schema.name: schema})
    return [router.explain(category, each) for each in wanted.filters]
