"""The answer of `sievenet encode`, as data and as pages for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sievenet.cli.picture import can_draw, draw, letter, paint
from sievenet.content import Attribute, Event, Subscription, ValueSet
from sievenet.index import Cell, CellSet, Dz, Plan

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Answer", "Entry", "answered", "codes_of", "pages", "summary", "volume"]


class Entry(msgspec.Struct, frozen=True):
    """One bit string, where it leads, and what lies behind it."""

    #: Zeros, ones and, for a cell, stars.
    code: str
    #: How many of the bits are compared.
    length: int
    #: The same as addresses; a prefix or mask behind the slash.
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
    entries: list[Entry]
    #: The part of the event space that a filter's entries hold.
    covered: float | None = None
    #: The part that it wants; null if free text is constrained, which has no measure.
    wanted: float | None = None


def codes_of(plan: Plan, content: Event | Subscription, budget: int) -> list[Dz | Cell]:
    """The bit strings of an event, or at most ``budget`` that enclose a filter."""
    return [*plan.encode(content)] if isinstance(content, Event) else [*plan.cover(content, budget)]


def answered(plan: Plan, content: Event | Subscription, codes: Sequence[Dz | Cell], category: int) -> Answer:
    """What is known about the bit strings of some content."""
    return Answer(
        content=str(content),
        schema=plan.schema.name,
        version=plan.schema.version,
        kind="event" if isinstance(content, Event) else plan.kind,
        bits=plan.bits,
        dimensions=list(plan.dimensions),
        entries=[_entry(plan, code, category) for code in codes],
        covered=None if isinstance(content, Event) else _covered(plan, codes),
        wanted=None if isinstance(content, Event) else volume(content),
    )


def _entry(plan: Plan, code: Dz | Cell, category: int) -> Entry:
    box = str(plan.decode(code)).replace(f"{plan.schema.name}: ", "")
    length = code.length if isinstance(code, Dz) else code.checked
    return Entry(str(code), length, addresses(category, code), box)


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


def addresses(category: int, code: Dz | Cell) -> list[str]:
    """Where packets go (an event), or what a switch compares (a filter): prefix or mask behind the slash."""
    from ipaddress import IPv6Address

    cell = code if isinstance(code, Cell) else code.cell(code.length)
    shift = 96 - cell.width
    address = IPv6Address(0xFF0E << 112 | category << 96 | cell.value << shift)
    if isinstance(code, Dz):
        return [f"{address}/{32 + code.length}"]
    return [f"{address}/{IPv6Address(0xFFFF_FFFF << 96 | cell.mask << shift)}"]
