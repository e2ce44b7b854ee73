"""Strangers who speak the protocol up to a point and then say something wrong, beside a pair whose events all arrive.

A stranger begins as a client or a neighbour would: hello, schemas, subscriptions, its own link states, tables, waves.
Then it goes wrong in one of many ways. As a neighbour it says nothing about other routers: a neighbour that lies about
others is believed for a while, as docs/howto/routers.md says. Whatever happens, the routers do not err, events of the
honest pair arrive once and in order, and at the end nothing of the strangers is left.
"""

import asyncio
import contextlib
import random

import msgspec
import pytest

from sievenet.routers import messages as m
from sievenet.routers import protocol as p
from sievenet.routers.limits import Limits
from sievenet.routers.routing import Settings
from sievenet.session.framing import frame
from tests.fabric.harness import eventually
from tests.fuzz import EXTREMES, OTHERS, framed, leaves, plain, put
from tests.routers.wire import (
    BATCH,
    CATEGORY,
    CONTENT,
    DATA,
    ITEM,
    SAMPLES,
    Stranger,
    client_hello,
    honest,
    router_hello,
    two_routers,
)
from tests.seeds import seeds

SCHEMES = ("covering", "cbcb", "bdrp", "edge", "merging", "simple", "identity")


def clients_say(rng, name):
    """What a good client says."""
    number = rng.randrange(4)
    return rng.choice(
        (
            p.Register(1, DATA),
            p.LookUp(2, "wire"),
            p.Subscribe(3, number, CATEGORY, CONTENT),
            p.Unsubscribe(4, number),
            p.Advertise(5, number, CATEGORY, CONTENT),
            p.Unadvertise(6, number),
            p.Publish(CATEGORY, rng.randrange(100), 1, BATCH),
            p.Volunteer(7, rng.random() < 0.5),
            p.Ask(8, "status"),
            p.Alive(),
        )
    )


def routers_say(rng, name):
    """What a good neighbour says."""
    number, item = rng.randrange(5), ITEM._replace(tag=f"{name}/c/{rng.randrange(3)}")
    return rng.choice(
        (
            m.Greeting(rng.randrange(3), 1, number, rng.randrange(3)),
            m.LinkStated(name, rng.randrange(1 << 40), rng.choice(((), ("a",), ("a", "z")))),
            m.Whole(1, number, (item,) * rng.randrange(2), (DATA,)),
            m.Delta(1, number, (item,), (), (DATA,)),
            m.Delta(1, number, (), (item,)),
            m.AskWhole(),
            m.Receivers(name, rng.randrange(1 << 40), rng.random() < 0.5, (item,), (DATA,)),
            m.SenderAsks(name, number, 1.0),
            m.UpdateReply(name, number, True, (item,), (DATA,)),
            m.Settle(name, number, number),
            m.Settled(name, number),
            m.Carried(name, rng.randrange(5), CATEGORY, bytes([number, *bytes(7)]), bytes(8), BATCH, (), number),
            m.Missed(number),
        )
    )


def own(sample, name):
    """A sample that says nothing about other routers."""
    for field in ("origin", "issuer"):
        if hasattr(sample, field):
            return msgspec.structs.replace(sample, **{field: name})
    return sample


def wrong(rng, role, name):
    """Bytes that no good peer would send."""
    sample = own(rng.choice(SAMPLES), name)
    data = plain(sample)
    kind = rng.randrange(8)
    if kind == 0 and (ways := list(leaves(data))):
        return framed(put(data, rng.choice(ways), rng.choice(EXTREMES)))
    if kind == 1 and len(data) > 1:
        field = rng.choice([key for key in data if key != "type"])
        # Whatever else it says, it may not speak for another router.
        return framed({**data, field: rng.choice(OTHERS)})
    if kind == 2:
        return frame(sample)  # whole, but perhaps not its turn
    whole = frame(sample)
    if kind == 3:
        at = rng.randrange(4, len(whole))
        flipped = bytes([whole[at] ^ (1 << rng.randrange(8))])
        return whole if b"x" not in whole[4:] else whole[:at] + flipped + whole[at + 1 :]
    if kind == 4:
        return whole[: rng.randrange(1, len(whole))]
    if kind == 5:
        return rng.randbytes(rng.randrange(1, 200))
    if kind == 6:
        return rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1\xc1", b"\x7f\xff\xff\xff" + bytes(100)))
    deep = 500
    return (2 * deep).to_bytes(4, "big") + b"\x91" * deep + b"\xc0" * deep


async def stranger(rng, server, number):
    """One connection, from its hello to whatever ends it."""
    role = rng.choice(("client", "router"))
    name = f"x{number}"
    hello, says = (client_hello, clients_say) if role == "client" else (router_hello, routers_say)
    connection = await Stranger.call(server.address)
    try:
        if rng.random() < 0.1:
            connection.say(wrong(rng, role, name))
        connection.say(hello(name))
        connection.say(*(says(rng, name) for _ in range(rng.randrange(8))))
        for _ in range(rng.choice((1, 1, 3, 10))):
            connection.say(wrong(rng, role, name))
            if rng.random() < 0.3:
                connection.say(*(says(rng, name) for _ in range(rng.randrange(3))))
        if rng.random() < 0.5:
            # Let it be taken, and perhaps be answered, before the connection ends.
            connection.say(p.Ask(99, "status"))
            with contextlib.suppress(TimeoutError):
                await connection.next(timeout=0.05)
    except ConnectionError:
        pass
    finally:
        if rng.random() < 0.5:
            connection.close()
        else:
            connection.writer.close()


@pytest.mark.parametrize("seed", seeds(len(SCHEMES)))
def test_strangers_who_go_wrong(seed):
    rng = random.Random(seed)

    async def main():
        settings = Settings(SCHEMES[seed % len(SCHEMES)], lease=6.0)
        async with (
            two_routers(settings, limits=Limits(hello=1.0, malformed=8)) as (a, b),
            honest(a.url, b.url, "one") as there,
            honest(b.url, a.url, "two") as back,
        ):
            number = 0
            for _ in range(6):
                for _ in range(3):
                    crowd = [stranger(rng, rng.choice((a, b)), number + i) for i in range(3)]
                    number += len(crowd)
                    await asyncio.gather(*crowd)
                await there.check(timeout=20.0)
                await back.check(timeout=20.0)
            names = {there.publisher.name, there.subscriber.name, back.publisher.name, back.subscriber.name}
            await eventually(lambda: {*a._registry.clients, *b._registry.clients} == names)
            await eventually(lambda: (set(a._registry.routers), set(b._registry.routers)) == ({"b"}, {"a"}))
            # A subscription settles, and what strangers wanted is gone.
            await back.subscriber.unsubscribe(await back.subscriber.subscribe("wire: n > 3"))
            await there.check()
            for node in (there.publisher, there.subscriber, back.publisher, back.subscriber):
                assert node.statistics().losses == 0
            assert a.errors == b.errors == 0
            assert a.listener._unfinished.total == b.listener._unfinished.total == 0

    asyncio.run(main())
