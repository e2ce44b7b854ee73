"""What is said: schemas, events, filters, and the exact algebra of filters.

Everything here is an immutable value.
The idea to know first is in `valueset`: a constraint is a set of values on one line.

    number → valueset → line → schema → event     values, sets of them, and their keys
    antichain → filter, cost                      filters, unions of them, and what they cost
    batch                                         many events as columns
    text, lexer, parser, event_parser, explain    for people
    binary, filter_codec, codec, batch_codec      for machines

Imports only `errors`.
"""

from sievenet.content.batch import Column, EventBatch, StringColumn
from sievenet.content.batch_codec import MAX_BATCH, decode_batch, encode_batch
from sievenet.content.codec import (
    decode_event,
    decode_filter,
    decode_record,
    decode_schema,
    decode_subscription,
    encode_event,
    encode_filter,
    encode_record,
    encode_schema,
    encode_subscription,
)
from sievenet.content.event import MAX_PAYLOAD, Event, Record
from sievenet.content.event_parser import parse_event
from sievenet.content.explain import ConstraintAnswer, Explanation, FilterAnswer, explain
from sievenet.content.filter import Filter, Matchable, Merge, Subscription
from sievenet.content.parser import parse_filter, parse_subscription
from sievenet.content.schema import MAX_ATTRIBUTES, Attribute, AttributeType, Schema
from sievenet.content.text import filter_text, literal, subscription_text, values_text
from sievenet.content.valueset import (
    ABSENT,
    ALL,
    BOOLS,
    EMPTY,
    MAX_STRING,
    NUMBERS,
    PRESENT,
    STRINGS,
    Cut,
    Value,
    ValueSet,
)

__all__ = [
    "ABSENT",
    "ALL",
    "BOOLS",
    "EMPTY",
    "MAX_ATTRIBUTES",
    "MAX_BATCH",
    "MAX_PAYLOAD",
    "MAX_STRING",
    "NUMBERS",
    "PRESENT",
    "STRINGS",
    "Attribute",
    "AttributeType",
    "Column",
    "ConstraintAnswer",
    "Cut",
    "Event",
    "EventBatch",
    "Explanation",
    "Filter",
    "FilterAnswer",
    "Matchable",
    "Merge",
    "Record",
    "Schema",
    "StringColumn",
    "Subscription",
    "Value",
    "ValueSet",
    "decode_batch",
    "decode_event",
    "decode_filter",
    "decode_record",
    "decode_schema",
    "decode_subscription",
    "encode_batch",
    "encode_event",
    "encode_filter",
    "encode_record",
    "encode_schema",
    "encode_subscription",
    "explain",
    "filter_text",
    "literal",
    "parse_event",
    "parse_filter",
    "parse_subscription",
    "subscription_text",
    "values_text",
]
