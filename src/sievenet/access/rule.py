"""Rules: what a member may publish or subscribe to, as content.

    rule = ( "publish" | "subscribe" ) ( category | "*" ) ":" filter { "or" filter } [ "narrow" ]

The filter is of the filter language (`any` for everything; the only one that ``*`` takes). It is read for each schema
that it meets, since a category may have several versions: a rule that does not fit a version allows nothing in it.
With ``narrow``, a wish that goes beyond what is allowed is cut to it; without, it is refused.

A rule with `any` also allows to talk about its category for order and recovery (`sievenet.transport.CATEGORY`), where
repairs of any event travel. Whoever may have only a part of a category has to do without recovery.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from sievenet.content.filter import Filter, Subscription
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.errors import FilterError, InvalidInput

__all__ = ["TRANSPORT", "Action", "Rule", "parse_rule"]

Action = Literal["publish", "subscribe"]

_RULE: Final = re.compile(r"\s*(publish|subscribe)\s+(\*|[A-Za-z_][A-Za-z0-9_.-]*)\s*:\s*(.*?)(\s+narrow)?\s*\Z", re.S)
#: What the categories begin with in which transports talk about other categories.
TRANSPORT: Final = "sievenet.transport."
#: Schemas for which a rule is remembered as filters.
_MANY: Final = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `of` says what it allows in a category."""

    action: Action
    category: str
    filter: str
    narrow: bool = False
    _read: dict[Schema, Subscription] = field(default_factory=dict, compare=False, repr=False)
    #: Why it does not fit a schema.
    _unfit: dict[Schema, str] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.action} {self.category}: {self.filter}{' narrow' if self.narrow else ''}"

    def concerns(self, action: Action, category: str) -> bool:
        """Whether it says something about an action in a category."""
        if self.action == action and self.category in ("*", category):
            return True
        # Whoever may have all of a category may take part in recovering it, which is publishing and subscribing too.
        return self.filter == "any" and category == TRANSPORT + self.category

    def of(self, schema: Schema) -> Subscription:
        """What it allows in a version of its category: nothing in one that it does not fit."""
        found = self._read.get(schema)
        if found is None:
            try:
                found = _everything(schema) if self.filter == "any" else parse_subscription(self.filter, schema)
            except FilterError as error:
                found = Subscription((), schema)
                self._unfit[schema] = str(error).partition("\n")[0]
            if len(self._read) >= _MANY:
                self._read.clear()
                self._unfit.clear()
            self._read[schema] = found
        return found

    def unfit(self, schema: Schema) -> str:
        """Why it allows nothing in a version of its category; empty if it fits."""
        self.of(schema)
        return self._unfit.get(schema, "")


def _everything(schema: Schema) -> Subscription:
    return Subscription([Filter(schema)], schema)


def parse_rule(text: str, where: str = "rule") -> Rule:
    """A rule from its text.

    >>> parse_rule('publish stock: symbol in {"IBM"} narrow').narrow
    True
    >>> str(parse_rule("subscribe  stock :  any"))
    'subscribe stock: any'
    """
    found = _RULE.match(text)
    if found is None:
        raise InvalidInput(
            expected="`publish` or `subscribe`, a category or *, a colon and a filter", got=text, where=where
        )
    action, category, wanted, narrow = found.groups()
    if category == "*" and wanted != "any":
        raise InvalidInput(expected="`any` for all categories", got=wanted, where=where)
    try:
        parse_subscription(wanted)
    except FilterError as error:
        raise InvalidInput(f"Expected a filter in the rule `{text}`: {error}", where=where) from None
    return Rule("publish" if action == "publish" else "subscribe", category, wanted, narrow is not None)
