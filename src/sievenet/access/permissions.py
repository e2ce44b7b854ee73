"""Permissions: what the rules of a member allow, decided by the algebra of filters.

All rules of an action and a category together allow the union of their filters. A wish (an advertisement or a
subscription) that the union covers is allowed as it is. One that goes beyond is cut to the union if a rule that
overlaps it says `narrow`; else it is refused, and the rule that comes nearest is named.

Covering by a union is hard in the worst case, and the wish comes from a stranger: the search is bounded by pieces, and
a wish that needs more is refused too. No mistake in that direction lets anything through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sievenet.access.rule import TRANSPORT, Action, Rule
from sievenet.content.codec import encode_subscription
from sievenet.content.cost import cost
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Rejected

__all__ = ["EVERYTHING", "NOTHING", "Decision", "Permissions", "Revision"]

#: Pieces of a wish that are looked at before it is refused as too involved.
_PIECES: Final = 4096
#: Steps (`content.cost`) that a narrowed wish may cost.
_COST: Final = 500_000


class Decision(NamedTuple):
    """What a wish became."""

    allowed: Subscription
    #: Whether it was more.
    narrowed: bool = False

    def content(self, wanted: bytes) -> bytes:
        """What is allowed in the codec's bytes, given those of the wish."""
        return encode_subscription(self.allowed) if self.narrowed else wanted

    @property
    def told(self) -> dict[str, bytes] | None:
        """What the client is told of a wish that was cut to what is allowed."""
        return {"narrowed": encode_subscription(self.allowed)} if self.narrowed else None


class Revision(NamedTuple):
    """What becomes of a registration when the rules change: it is cut to what is allowed, or ends for a reason."""

    allowed: Subscription | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Permissions:
    """The rules of one member, its groups' included; None instead of rules allows everything."""

    rules: tuple[Rule, ...] | None = ()
    #: Who they are for, as errors say it.
    name: str = ""

    def within(self, action: Action, schema: Schema) -> Subscription | None:
        """What is allowed in a version of a category; None if that is everything."""
        if self.rules is None:
            return None
        mine = [rule.of(schema) for rule in self.rules if rule.concerns(action, schema.name)]
        union = Subscription((each for found in mine for each in found), schema)
        return None if any(not each.constraints for each in union) else union

    def everything(self, action: Action) -> bool:
        """Whether all of every category is allowed, also of those that nobody knows yet."""
        return self.rules is None or any(
            rule.action == action and rule.category == "*" and rule.filter == "any" for rule in self.rules
        )

    def decide(self, action: Action, wanted: Subscription) -> Decision:
        """What of a wish is allowed; `Rejected`, with the rule, if it is not."""
        schema = wanted.schema
        assert schema is not None
        if self.everything(action):
            return Decision(wanted)
        allowed = self.within(action, schema)
        if allowed is None or _covers(allowed, wanted):
            return Decision(wanted)
        assert self.rules is not None
        mine = [rule for rule in self.rules if rule.concerns(action, schema.name)]
        near = [rule for rule in mine if rule.of(schema).overlaps(wanted)]
        if any(rule.narrow for rule in near):
            return Decision(_cut(allowed, wanted), narrowed=True)
        raise Rejected(self._refusal(action, schema, wanted, (near or mine)[:1]))

    def revise(self, action: Action, held: Subscription) -> Revision | None:
        """What becomes of a registration that these rules find; None if it stands as it is."""
        try:
            decision = self.decide(action, held)
        except Rejected as error:
            return Revision(None, str(error))
        return Revision(decision.allowed) if decision.narrowed else None

    def _refusal(self, action: Action, schema: Schema, wanted: Subscription, near: list[Rule]) -> str:
        who = self.name or "this client"
        text = str(wanted)
        asked = f"`{text if len(text) <= 200 else text[:199] + '…'}`"
        if schema.name.startswith(TRANSPORT):
            category = schema.name.removeprefix(TRANSPORT)
            return (
                f"Recovery and rate control in {category} need a rule that lets {who} have all of it, such as "
                f"`subscribe {category}: any`: repairs are of any event. Do without `recover`, `rate_control` and "
                "`transport`, or ask for that rule"
            )
        if not near:
            return f"No rule lets {who} {action} in {schema.name}; asked for {asked}"
        if near[0].unfit(schema):
            version = f"{schema.name} version {schema.version}"
            return f"The rule `{near[0]}` does not fit {version} and allows nothing in it: {near[0].unfit(schema)}"
        # A rule that says `narrow` and overlaps would have cut the wish.
        advice = "nothing of it is allowed" if near[0].narrow else "ask for less, or let the rule say `narrow`"
        return f"The rule `{near[0]}` does not let {who} {action} {asked}: {advice}"


#: Nothing is configured, or an operator's own part.
EVERYTHING: Final = Permissions(None)
NOTHING: Final = Permissions(())


def _covers(union: Subscription, wanted: Subscription) -> bool:
    """Whether a union covers a wish; False too if that takes more than `_PIECES` pieces to find out."""
    left = _PIECES
    for each in wanted.filters:
        pieces: list[tuple[Filter, list[Filter]]] = [(each, list(union.filters))]
        while pieces:
            piece, candidates = pieces.pop()
            left -= 1
            near = [mine for mine in candidates if mine.overlaps(piece)]
            if not near or left < 0:
                return False
            if not any(mine.covers(piece) for mine in near):
                first, *rest = near
                pieces += ((part, rest) for part in piece.minus(first))
    return True


def _cut(allowed: Subscription, wanted: Subscription) -> Subscription:
    parts: list[Filter] = []
    for mine in allowed.filters:
        for each in wanted.filters:
            part = mine.intersect(each)
            if not part.empty:
                parts.append(part)
                if len(parts) > _PIECES:
                    raise Rejected(f"Expected at most {_PIECES} filters when cut to what is allowed: ask for less")
    steps = cost(parts)
    if steps > _COST:
        raise Rejected(f"Expected filters of at most {_COST} steps when cut to what is allowed, got {steps}")
    return Subscription(parts, wanted.schema)
