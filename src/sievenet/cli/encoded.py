"""The answer of `sievenet encode`, as data and as pages for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from sievenet.cli.picture import can_draw, draw, letter, paint
from sievenet.content import Attribute, Event, Subscription, ValueSet
from sievenet.index import Cell, CellSet, Dz, Plan
from sievenet.index.address import IPV4, IPV6, IPV6_MULTICAST

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["FAMILIES", "Answer", "EncodedCode", "answered", "codes_of", "pages", "summary", "volume"]

#: Kinds of addresses by their names on the command line; IPv4 has no room for a category.
FAMILIES: Final = {"ipv6": IPV6, "multicast": IPV6_MULTICAST, "ipv4": IPV4}


class EncodedCode(msgspec.Struct, frozen=True):
    """One bit string, where it leads, and what lies behind it."""

    #: Zeros, ones and, for a cell, stars.
    code: str
    #: How many of the bits are compared.
    length: int
    #: The same as addresses; a filter's have a prefix or a mask behind the slash.
    addresses: list[str]
    #: The content that it holds.
    box: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What content becomes."""

    content: str
    schema: str
    version: int
    kind: str
    bits: int
    dimensions: list[str]
    entries: list[EncodedCode]
    #: The part of the event space that a filter's entries hold.
    covered: float | None = None
    #: The part that it wants; null if free text is constrained, which has no measure.
    wanted: float | None = None


def codes_of(plan: Plan, content: Event | Subscription, budget: int) -> list[Dz | Cell]:
    """The bit strings of an event, or at most ``budget`` that enclose a filter."""
    return [*plan.encode(content)] if isinstance(content, Event) else [*plan.cover(content, budget)]


def answered(
    plan: Plan,
    content: Event | Subscription,
    codes: Sequence[Dz | Cell],
    category: int,
    families: Sequence[str] = ("ipv6",),
) -> Answer:
    """What is known about the bit strings of some content."""
    is_event = isinstance(content, Event)
    return Answer(
        content=str(content),
        schema=plan.schema.name,
        version=plan.schema.version,
        kind="event" if is_event else plan.kind,
        bits=plan.bits,
        dimensions=list(plan.dimensions),
        entries=[
            EncodedCode(
                code=str(code),
                length=code.length if isinstance(code, Dz) else code.checked,
                addresses=[_address(family, category, code, is_event) for family in families],
                box=str(plan.decode(code)).replace(f"{plan.schema.name}: ", ""),
            )
            for code in codes
        ],
        covered=None if isinstance(content, Event) else _covered(plan, codes),
        wanted=None if isinstance(content, Event) else volume(content),
    )


def _address(family: str, category: int, code: Dz | Cell, is_event: bool) -> str:
    """Where an event's packet goes, or what a switch compares: a prefix, or a value under a mask."""
    addressing = FAMILIES[family]
    number = category if addressing.category_bits else 0
    if isinstance(code, Cell):
        return str(addressing.match(number, code))
    return str(addressing.address(number, code) if is_event else addressing.flow(number, code))


def _covered(plan: Plan, codes: Sequence[Dz | Cell]) -> float:
    """The part of the event space behind bit strings, each event counted once."""
    cells = [code for code in codes if isinstance(code, Cell)]
    pieces = CellSet(cells).disjoint() if cells else codes
    return math.fsum(volume(plan.decode(piece)) or 0.0 for piece in pieces)


def pages(
    plan: Plan, answer: Answer, content: Event | Subscription, codes: Sequence[Dz | Cell]
) -> list[RenderableType]:
    """The answer for people: a table, a summary, and a picture of two dimensions."""
    from rich.table import Table

    drawn = can_draw(plan)
    table = Table(box=None, pad_edge=False)
    for heading in (*([""] if drawn else []), "cell" if answer.kind == "cells" else "dz", "address", "holds"):
        table.add_column(heading, overflow="fold")
    for number, entry in enumerate(answer.entries):
        name = [letter(number)] if drawn else []
        table.add_row(*name, entry.code or "(all)", "\n".join(entry.addresses), entry.box)
    found: list[RenderableType] = [answer.content, "", table]
    if answer.covered is not None:
        found += ["", summary(answer)]
    if drawn:
        found += ["", paint(draw(plan, codes, content))]
    return found


def summary(answer: Answer) -> str:
    """How many entries a filter has, and how much they hold."""
    count, covered = len(answer.entries), answer.covered or 0.0
    text = f"{count} {'entry' if count == 1 else 'entries'}, {100 * covered:.3g} % of the event space"
    return f"{text}, {covered / answer.wanted:.3g} times what is wanted" if answer.wanted else text


def volume(wanted: Subscription) -> float | None:
    """The part of the event space that is wanted; None if free text is constrained, which has no measure."""
    total = 0.0
    for number, each in enumerate(wanted.filters):
        pieces = [each]
        for earlier in wanted.filters[:number]:  # what an earlier filter has is counted already
            pieces = [rest for piece in pieces for rest in piece.minus(earlier)]
        for piece in pieces:
            assert piece.schema is not None
            parts = [_part(piece.schema[name], values) for name, values in piece.constraints.items()]
            if None in parts:
                return None
            total += math.prod(p for p in parts if p is not None)
    return total


def _part(attribute: Attribute, values: ValueSet) -> float | None:
    """The part of an attribute's domain that a constraint wants."""
    match attribute.type:
        case "bool":
            return sum(v in values for v in (False, True)) / 2
        case "str" if attribute.values is None:
            return None
        case "str":
            return sum(v in values for v in attribute.values or ()) / len(attribute.values or ())
        case _:
            whole = _length(attribute.domain)
            return _length(values) / whole if whole else 1.0


def _length(values: ValueSet) -> float:
    """The length of a set of numbers; whole ones have one cut between neighbours, so this counts them."""
    return math.fsum(float(stop[1]) - float(start[1]) for start, stop in values.stretches())
