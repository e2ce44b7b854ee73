"""A short guided tour: what an event says, and what filters know about events and about each other."""

from sievenet import Attribute, Filter, Schema, Subscription, ValueSet


def main() -> None:
    """Show the content model at work."""
    stock = Schema(
        "stock",
        (
            Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")),
            Attribute("price", "float", lo=0, hi=1000),
            Attribute("volume", "int", lo=0, hi=1_000_000),
        ),
    )
    print(f"1. A schema says what events may say: {', '.join(f'{a.name} ({a.describes})' for a in stock.attributes)}")

    event = stock.event(symbol="IBM", price=421.5, volume=1200)
    print(f"2. An event is a point: {event}")

    dear = Filter(stock, {"price": ValueSet.interval(420, 1000)})
    busy = Filter(stock, {"volume": ValueSet.interval(1000, 5000)})
    apple = Filter(stock, {"symbol": ValueSet.of("AAPL")})
    print("3. A filter is a box; does it match?")
    for words, item in (("price at least 420", dear), ("volume 1000 to 5000", busy), ("symbol AAPL", apple)):
        print(f"   {words:<22} {'yes' if item.matches(event) else 'no'}")

    both = dear.intersect(busy)
    print(
        f"4. Filters know each other: dear covers dear-and-busy: {dear.covers(both)}; the reverse: {both.covers(dear)}"
    )

    either = Subscription((dear, apple))
    print(f"5. A subscription is an or of filters: dear or AAPL matches: {either.matches(event)}")


if __name__ == "__main__":
    main()
