"""Content, bits, matches: what Sievenet does to an event and a filter, on one page."""

from sievenet.content import Attribute, Schema, explain, parse_filter
from sievenet.index import Plan
from sievenet.matcher import Matcher
from sievenet.workload import Ticks


def main() -> None:
    """Run the page."""
    # What events of a category may say.
    stock = Schema(
        "stock",
        (
            Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")),
            Attribute("price", "float", lo=0, hi=1000),
            Attribute("volume", "int", lo=0, hi=100_000),
        ),
    )

    # An event is a point, a filter is a box.
    event = stock.event(symbol="IBM", price=421.5, volume=42_000)
    wanted = parse_filter("price in [300, 650] and volume in 20000..70000", stock)
    print(explain(wanted, event))

    # A plan says how content becomes bits: here the domains are halved in turn, up to 32 times.
    plan = Plan.regular(stock, bits=32, dimensions=["price", "volume"])
    (dz,) = plan.encode(event)
    print(f"\nthe event's bits:     {dz}")

    # A filter becomes a few prefixes that enclose it. A larger budget encloses it more closely.
    for budget in (1, 4, 16):
        entries = plan.cover_dz(wanted, budget)
        volume = entries.volume()
        print(f"the filter's entries: {len(entries):>2}, holding {volume:.0%} of the event space")
        # Whatever the budget: what the filter wants, the entries let through.
        assert entries.covers(dz)

    # Entries let more through than is wanted. At the edge the matcher is exact, for very many filters at once.
    market = Ticks(seed=1)
    matcher = Matcher(market.schema)
    matcher.add_many(range(10_000), market.subscriptions(10_000))
    ticks = market.events(1_000)
    matches = matcher.match_batch(ticks)
    print(f"\n{ticks[0]}: wanted by {len(matches[0])} of {len(matcher):,} subscribers")


if __name__ == "__main__":
    main()
