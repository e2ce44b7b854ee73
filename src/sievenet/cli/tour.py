"""`sievenet tour`: content → bits → address → match, in one minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.output import json_option, show, show_json

if TYPE_CHECKING:
    from sievenet.content import Event, Filter

__all__ = ["tour"]

_EVENT = "stock: symbol=IBM, price=421.5, volume=42000"
_FILTER = "stock: price in [300, 650] and volume in 20000..70000"
_CATEGORY = 1
_BITS = 32
_BUDGET = 6


@click.command()
@click.option("--subscriptions", default=10_000, show_default=True, type=click.IntRange(1), help="For the matcher.")
@json_option
def tour(subscriptions: int, as_json: bool) -> None:
    """Take a short guided tour.

    From what an event says to the address of its packet, and from a filter to the entries of a switch and to the exact
    matcher at the edge. The first run compiles the fast parts, which takes some seconds.

    \b
    Examples:
      $ sievenet tour
      $ sievenet tour --subscriptions 1000 --json
    """
    from sievenet.content import parse_event, parse_filter
    from sievenet.workload.samples import load_schema

    stock = load_schema("stock")
    event, wanted = parse_event(_EVENT, stock), parse_filter(_FILTER, stock)
    facts: dict[str, Any] = {"event": str(event), "filter": str(wanted)}
    steps = (
        _content(event, wanted, facts),
        _algebra(wanted, facts),
        _bits(event, wanted, facts),
        _matching(event, subscriptions, facts),
    )
    for step in steps:
        for part in step:
            if not as_json:
                show(part)
    if as_json:
        show_json(facts)


def _heading(text: str) -> str:
    return f"\n── {text}"


def _content(event: Event, wanted: Filter, facts: dict[str, Any]) -> Iterator[Any]:
    """What is said."""
    from sievenet.content import explain

    answer = explain(wanted, event)
    facts["matches"] = answer.matches
    yield "The first run compiles the fast parts, which takes some seconds."
    yield _heading("An event is a point, a filter is a box; every answer can be explained")
    yield str(answer)


def _algebra(wanted: Filter, facts: dict[str, Any]) -> Iterator[Any]:
    """What filters know about each other."""
    from sievenet.content import parse_filter

    yield _heading("Filters know about each other, exactly; the network uses it to install little")
    other = parse_filter("stock: price in (650, 900] and volume in 20000..70000", wanted.schema)
    merged = wanted.merge(other)
    yield f"{other}: overlaps it: {_yes(wanted.overlaps(other))}"
    yield f"{merged.filter}: covers both: {_yes(merged.filter.covers(other))}, nothing else: {_yes(merged.perfect)}"
    facts["merged"], facts["perfect"] = str(merged.filter), merged.perfect


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _bits(event: Event, wanted: Filter, facts: dict[str, Any]) -> Iterator[Any]:
    """What it becomes in the network."""
    from sievenet.cli.encoded import answered, codes_of, pages, summary
    from sievenet.content import Subscription
    from sievenet.index import Plan

    plan = Plan.regular(event.schema, _BITS, ["price", "volume"])
    said = answered(plan, event, codes_of(plan, event, _BUDGET), _CATEGORY)
    yield _heading("An index plan turns content into bits, and bits into the address of the packet")
    yield str(plan)
    yield from pages(plan, said, event, codes_of(plan, event, _BUDGET))[1:3]
    facts["dz"], facts["address"] = said.entries[0].code, said.entries[0].addresses[0]

    yield _heading("A filter becomes a few prefixes that enclose it: entries of a switch's table")
    subscription = Subscription([wanted])
    codes = codes_of(plan, subscription, _BUDGET)
    asked = answered(plan, subscription, codes, _CATEGORY)
    yield from pages(plan, asked, subscription, codes)[1:]
    facts["entries"] = asked.entries
    facts["covered"], facts["wanted"] = asked.covered, asked.wanted
    yield "\nCapitals are wanted; small letters cross the network in vain and are dropped at the edge."

    masks = Plan.regular(event.schema, _BITS, ["price", "volume"], "cells")
    cells = answered(masks, subscription, codes_of(masks, subscription, _BUDGET), _CATEGORY)
    yield f"As value and mask (cells): {summary(cells)}."
    facts["covered_by_cells"] = cells.covered


def _matching(event: Event, subscriptions: int, facts: dict[str, Any]) -> Iterator[Any]:
    """Who wants it, exactly."""
    from sievenet.matcher import Matcher
    from sievenet.workload import Ticks

    yield _heading("At the edge, the matcher finds exactly who wants an event, among very many")
    market = Ticks(seed=1)
    matcher = Matcher(market.schema)
    matcher.add_many(range(subscriptions), market.subscriptions(subscriptions))
    ticks = market.events(10_000)
    matcher.match_batch(ticks)  # compiles on first use
    started = time.perf_counter()
    found = matcher.match_batch(ticks)
    seconds = time.perf_counter() - started
    facts["subscriptions"], facts["events"] = subscriptions, len(ticks)
    facts["matches_per_event"] = len(found.keys) / len(ticks)
    facts["events_per_second"] = len(ticks) / seconds
    yield (
        f"{subscriptions:,} subscriptions of a made-up market, {len(ticks):,} ticks: "
        f"{facts['matches_per_event']:.1f} matches per tick, {facts['events_per_second']:,.0f} ticks/s"
    )
    keys = matcher.match(event)
    yield f"{event}: wanted by {len(keys):,}, such as"
    for key in sorted(keys)[:3]:
        yield f"  {market.subscriptions(1, start=key)[0]}"
