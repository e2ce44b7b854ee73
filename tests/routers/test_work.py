"""Turns at a router: events that lead to much work hold their publisher back, and nobody else."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.login import load_login
from sievenet.content import EventBatch, Filter, Subscription, ValueSet
from sievenet.content.batch_codec import encode_batch
from sievenet.content.codec import encode_subscription
from sievenet.content.event import Record
from sievenet.routers import messages as m
from sievenet.routers import protocol as p
from sievenet.routers import work
from sievenet.routers.forwarding import Forwarding
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.routers.shipment import Shipment
from sievenet.routers.work import Line
from sievenet.testing.virtual_time import run_virtual
from tests.access.harness import folder
from tests.fabric.harness import eventually
from tests.routers import wire
from tests.routers.wire import CATEGORY, DATA, SCHEMA, Stranger, client_hello, honest
from tests.session.test_limits import leave, visit

EVERYTHING = encode_subscription(Subscription([Filter(SCHEMA, {})]))
ROWS, FRAMES, READERS = 1000, 48, 5
BATCH = encode_batch(EventBatch.of(SCHEMA, {"n": list(range(ROWS)), "who": ["loud"] * ROWS}))


async def taken(reader, publisher):
    """The numbers of the events that a subscriber gets of a publisher, once all have come."""
    got = []
    while len(got) < ROWS * FRAMES:
        message = await reader.hear("Carried")
        if message["publisher"] == publisher:
            got += np.frombuffer(message["sequences"], "<i8").tolist()
    return got


def test_nobody_waits_for_the_deliveries_of_another(monkeypatch):
    """While one client's events are worked off, a hello is answered and others' events pass; all arrive."""
    monkeypatch.setattr(work, "SHARE", 1e-9)  # a turn is the smallest piece, on whatever machine

    async def main():
        async with (
            RouterServer("a", Settings(lease=60.0)) as a,
            asyncio.timeout(120),
            honest(a.url, a.url) as pair,
        ):
            await pair.check(1)
            readers = [await Stranger.call(a.address, client_hello()) for _ in range(READERS)]
            for each in readers:
                each.say(p.Register(1, DATA), p.Subscribe(2, 1, CATEGORY, EVERYTHING))
                assert (await each.hear("Done"))["request"] == 2
            before = a.router.counts.events
            loud = await Stranger.call(a.address, client_hello())
            publisher = (await loud.hear("Welcome"))["publisher"]
            loud.say(p.Register(1, DATA), p.Advertise(2, 1, CATEGORY, EVERYTHING))
            await loud.hear("Done")
            loud.say(*(p.Publish(CATEGORY, ROWS * n, 1, BATCH) for n in range(FRAMES)))
            while a.router.counts.events == before:
                await asyncio.sleep(0)
            newcomer = await Stranger.call(a.address, client_hello())
            assert await newcomer.hear("Welcome")
            await pair.check(1)
            assert a.router.counts.events - before < ROWS * FRAMES / 2
            results = await asyncio.gather(*(taken(each, publisher) for each in readers))
            for each in results:
                assert each == list(range(ROWS * FRAMES))
            await pair.check(3)
            assert not a.errors
            for each in (*readers, loud, newcomer):
                each.close()

    asyncio.run(main())


def test_what_a_client_publishes_last_is_passed_on_though_it_has_not_read_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "SHARE", 1e-9)  # its connection closes between two turns
    login = load_login(folder(tmp_path).login("daemon"))

    async def main():
        async with RouterServer("a", Settings(lease=60.0), tls=login.listening()) as a:
            words = (client_hello("c"), p.Register(1, DATA), p.Advertise(2, 1, CATEGORY, EVERYTHING))
            stream = await asyncio.to_thread(visit, a.address, login.dialling(), *words)
            try:
                await eventually(lambda: any(peer.entries for peer in a.listener.connections))
                [peer] = a.listener.connections
                before = a.router.counts.events
                # Little enough to come in one go.
                events = [p.Publish(CATEGORY, number, 1, wire.BATCH) for number in range(3)]
                leave(peer, stream, *[m.Received(0)] * 3, *events)
                await eventually(lambda: a.router.counts.events == before + 3 or peer not in a.listener.connections)
                assert a.router.counts.events == before + 3
            finally:
                stream.close()

    asyncio.run(main())


def test_who_has_used_least_time_is_next_in_line():
    async def main():
        line, order = Line(), []
        line.spent("loud", 1.0)
        assert not line.free

        async def turn(party, what):
            await line.turn(party)
            order.append(what)
            line.spent(party, 1.0)

        jobs = [asyncio.create_task(turn("loud", each)) for each in range(3)]
        jobs += [asyncio.create_task(turn("quiet", "quiet"))]
        given_up = asyncio.create_task(turn("quiet", "given up"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(*jobs)
        assert order == ["quiet", 0, 1, 2]
        await asyncio.sleep(0.001)
        assert line.free

    run_virtual(main())


@given(st.integers(1, 20), st.integers(1, 25))
def test_what_is_cut_is_whole(count, rows):
    whole = Shipment.publish("r", 1, 0, 5, 5, [Record({"n": i}) for i in range(count)])
    piece, rest = whole.cut(rows)
    parts = [piece] if rest is None else [piece, rest]
    assert len(piece) == min(rows, count)
    assert [n for each in parts for n in each.sequences.tolist()] == whole.sequences.tolist()
    assert tuple(e for each in parts for e in each.events) == whole.events


@pytest.mark.parametrize("seed", range(5))
def test_each_interface_gets_each_row_once_however_many_of_its_filters_match(seed):
    rng = np.random.default_rng(seed)
    events = EventBatch.of(SCHEMA, {"n": rng.integers(0, 50, 40).tolist(), "who": ["x"] * 40})
    table, wanted = Forwarding(SCHEMA), {}
    for _ in range(30):
        interface = f"i{rng.integers(0, 6)}"
        least = int(rng.integers(0, 60))
        table.add(interface, Filter(SCHEMA, {"n": ValueSet.interval(least, 1 << 20)}))
        wanted[interface] = min(least, wanted.get(interface, least))
    found = {interface: rows.tolist() for interface, rows in table.interfaces(events).items()}
    expected = {i: [r for r, e in enumerate(events) if e["n"] >= least] for i, least in wanted.items()}
    assert found == {i: rows for i, rows in expected.items() if rows}
