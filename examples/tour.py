"""A short guided tour: what an event says, what filters know about each other, and who wants the event."""

import time

from sievenet import Attribute, Matcher, Schema, explain, parse_filter, parse_subscription
from sievenet.workload import Ticks


def main() -> None:
    """Take the tour."""
    content()
    matching()


def content() -> None:
    """What is said: schema, event, filter, subscription."""
    stock = Schema(
        "stock",
        (
            Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")),
            Attribute("price", "float", lo=0, hi=1000),
            Attribute("volume", "int", lo=0, hi=1_000_000),
        ),
    )
    heading("A schema says what events may say")
    for attribute in stock.attributes:
        print(f"{attribute.name:<8} {attribute.describes}")

    heading("An event is a point, a filter is a box")
    event = stock.event(symbol="IBM", price=421.5, volume=1200)
    dear = parse_filter("price > 420", stock)
    busy = parse_filter("volume in 1000..5000", stock)
    print(event)
    for each in (dear, busy):
        print(f"{each}: {'matches' if each.matches(event) else 'does not match'}")

    heading("Filters know about each other, exactly")
    both = dear.intersect(busy)
    merged = dear.merge(parse_filter("price in [300, 420]", stock))
    print(f"both at once:  {both}")
    print(f"covered by the first: {dear.covers(both)}; covering it: {both.covers(dear)}")
    print(f"merged with a price in [300, 420]: {merged.filter} ({'perfect' if merged.perfect else 'imperfect'})")

    heading("A subscription is an or of filters; every answer can be explained")
    print(explain(parse_subscription('price > 500 or symbol in {"AAPL", "IBM"} and volume < 2000', stock), event))


def matching() -> None:
    """Who wants it: ten thousand subscriptions, asked about a thousand ticks of a made-up market at once."""
    heading("The matcher finds who wants an event, among very many, exactly")
    market = Ticks(seed=1)
    interests = market.subscriptions(10_000)
    matcher = Matcher(market.schema)
    matcher.add_many(range(len(interests)), interests)
    print("compiling on first use …")
    ticks = market.events(1000)
    matcher.match_batch(ticks)
    start = time.perf_counter()
    found = matcher.match_batch(ticks)
    seconds = time.perf_counter() - start
    tick = ticks[0]
    print(f"{len(interests):,} subscriptions, such as {interests[0]}")
    print(f"{tick}: wanted by {len(matcher.match(tick)):,}")
    print(f"{len(ticks):,} ticks: {int(found.counts.sum()):,} matches in {seconds * 1000:.1f} ms")


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n── {text}")


if __name__ == "__main__":
    main()
