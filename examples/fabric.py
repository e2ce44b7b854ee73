"""A whole fabric in one program: ten switches, a publisher, and two subscribers with different interests."""

import asyncio

import sievenet
from sievenet.workload.samples import load_schema


async def fabric() -> None:
    stock = load_schema("stock")
    # `sievenet up` runs the same network as a daemon of its own.
    async with (
        sievenet.fabric("testbed") as net,
        sievenet.connect(net.url, name="market", host="h1") as market,
        sievenet.connect(net.url, name="ann", host="h4") as ann,
        sievenet.connect(net.url, name="bob", host="h8") as bob,
    ):
        await market.advertise(stock)
        dear = await ann.subscribe("stock: price > 420")
        ibm = await bob.subscribe('stock: symbol = "IBM" and volume in [1000, 5000]')
        # Both subscribe calls have returned: whatever is published from here on is delivered.
        await market.publish(stock.event(symbol="IBM", price=421.5, volume=1200))
        await market.publish(stock.event(symbol="GE", price=500.0, volume=10))
        await market.publish(stock.event(symbol="IBM", price=99.0, volume=4000))
        for name, feed in (("ann", dear), ("bob", ibm)):
            for _ in range(2):
                print(f"{name} gets {await anext(feed)}")
        print(f"bob's exact filter dropped {ibm.statistics().false_positives} of what the network let through")


def main() -> None:
    asyncio.run(fabric())


if __name__ == "__main__":
    main()
