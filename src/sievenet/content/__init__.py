"""What is said: schemas, events, filters, and the exact algebra of filters.

Everything here is an immutable value and imports nothing of Sievenet but `errors`.
The idea to know first is in `valueset`: a constraint is a set of values on one line.
"""

from sievenet.content.batch import Column, EventBatch, StringColumn
from sievenet.content.event import MAX_PAYLOAD, Event, Record
from sievenet.content.filter import Filter, Matchable, Merge, Subscription
from sievenet.content.schema import Attribute, AttributeType, Schema
from sievenet.content.valueset import (
    ABSENT,
    ALL,
    BOOLS,
    EMPTY,
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
    "MAX_PAYLOAD",
    "NUMBERS",
    "PRESENT",
    "STRINGS",
    "Attribute",
    "AttributeType",
    "Column",
    "Cut",
    "Event",
    "EventBatch",
    "Filter",
    "Matchable",
    "Merge",
    "Record",
    "Schema",
    "StringColumn",
    "Subscription",
    "Value",
    "ValueSet",
]
