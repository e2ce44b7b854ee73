"""From packets to queues: dedupe, decode, match, queue; false positives and their causes; full queues."""

import asyncio
import logging

import pytest

from sievenet.client.delivery import Delivery
from sievenet.client.edge import MANY, Edge
from sievenet.client.feed import Feed, Tally, Whole
from sievenet.client.receiver import Receiver
from sievenet.client.registrations import Registration
from sievenet.content import Attribute, Schema, parse_subscription
from sievenet.content.codec import encode_event
from sievenet.dataplane.packet import Packet
from sievenet.errors import Rejected
from sievenet.index import Plan

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=255), Attribute("y", "int", lo=0, hi=255)))
PLAN = Plan.regular(SCHEMA, 6)


def wanted(text):
    return parse_subscription(text, SCHEMA)


def packet(sequence, x, y=0, publisher=1, category=5, body=None):
    event = SCHEMA.event(x=x, y=y)
    [dz] = PLAN.encode(event)
    code = dz.bits << (128 - dz.length)
    return Packet(category, code, publisher, sequence, 1000, 0, encode_event(event) if body is None else body)


class Sink:
    def __init__(self):
        self.false_positives = 0
        self.got = []
        self.room = True

    def accept(self, delivery):
        if self.room:
            self.got.append(delivery.event["x"])
        return self.room


def receiving(*texts, **settings):
    edge = Edge(SCHEMA)
    edge.adopt(lambda: PLAN, 8)
    receiver = Receiver(**settings)
    receiver.enter(5, edge)
    sinks = []
    for key, text in enumerate(texts):
        edge.add(key, wanted(text))
        sinks.append(Sink())
        receiver.connect(key, sinks[-1])
    return receiver, edge, sinks


def test_each_event_goes_once_to_everyone_who_wants_it():
    receiver, _, (low, all_, high) = receiving("x < 100", "any", "x >= 100")
    receiver.take([packet(0, 5), packet(1, 200), packet(0, 5), packet(2, 99)], now=2000)
    assert low.got == [5, 99]
    assert all_.got == [5, 200, 99]
    assert high.got == [200]
    counts = receiver.statistics()
    assert (counts.received, counts.matched, counts.duplicates, counts.false_positives) == (4, 3, 1, 0)


def test_a_false_positive_is_counted_with_those_whose_cells_drew_it():
    # 6 bits on two dimensions of 256: cells of 32 by 32.
    receiver, _, (near, far) = receiving("x in [0, 10] and y in [0, 10]", "x in [128, 138] and y in [128, 138]")
    receiver.take([packet(0, 20, 20), packet(1, 140, 140), packet(2, 20, 5)], now=2000)
    assert (near.false_positives, far.false_positives) == (2, 1)
    assert receiver.statistics().false_positives == 3
    assert receiver.statistics().unexplained == 0


def test_what_no_cell_explains_is_said_so():
    receiver, _, (only,) = receiving("x in [0, 10]")
    receiver.take([packet(0, 255, 255)], now=2000)
    assert only.false_positives == 0
    assert receiver.statistics().unexplained == 1


def test_blame_waits_until_it_can_be_answered_and_no_event_does():
    ready = [False]
    receiver, _, (near, far) = receiving("x in [0, 10] and y in [0, 10]", "x >= 128", ready=lambda: ready[0])
    receiver.take([packet(0, 20, 20), packet(1, 200, 0)], now=2000)
    assert (far.got, near.false_positives, receiver.statistics().false_positives) == ([200], 0, 1)
    ready[0] = True
    receiver.take([packet(2, 20, 5)], now=2000)
    assert near.false_positives == 2


def test_blame_that_waits_is_bounded_and_can_be_asked_for(monkeypatch):
    monkeypatch.setattr("sievenet.client.receiver.PUZZLES", 3)
    receiver, _, (near,) = receiving("x in [0, 10] and y in [0, 10]", ready=lambda: False)
    receiver.take([packet(i, 20, 20) for i in range(5)], now=2000)
    receiver.explain()
    assert near.false_positives == 3
    counts = receiver.statistics()
    assert (counts.false_positives, counts.unexplained) == (5, 2)


def test_malformed_bodies_and_strange_categories_are_counted_and_left_out():
    receiver, _, (sink,) = receiving("any")
    receiver.take([packet(0, 1, body=b"\xff"), packet(1, 2, category=9), packet(2, 3)], now=0)
    assert sink.got == [3]
    counts = receiver.statistics()
    assert (counts.malformed, counts.strangers) == (1, 1)


def test_a_full_queue_that_waits_holds_everything_and_loses_nothing():
    receiver, _, (slow, quick) = receiving("x < 100", "any")
    slow.room = False
    receiver.take([packet(0, 200), packet(1, 5), packet(2, 201)], now=0)
    assert receiver.blocked
    receiver.take([packet(3, 6)], now=0)
    assert quick.got == [200, 5]
    assert not receiver.resume(0)
    slow.room = True
    assert receiver.resume(0)
    assert not receiver.blocked
    assert slow.got == [5, 6]
    assert quick.got == [200, 5, 201, 6]


def test_removed_subscriptions_get_nothing_more():
    receiver, edge, (first, second) = receiving("any", "any")
    edge.remove(0)
    edge.remove(0)
    receiver.disconnect(0)
    receiver.take([packet(0, 1)], now=0)
    assert (first.got, second.got) == ([], [1])
    receiver.forget()
    receiver.take([packet(1, 1)], now=0)
    assert receiver.statistics().strangers == 1


def test_many_subscriptions_match_like_few():
    texts = [f"x in [{i}, {i + 40}]" for i in range(0, 200, 5)]
    assert len(texts) > MANY
    edge = Edge(SCHEMA)
    for key, text in enumerate(texts):
        edge.add(key, wanted(text))
    for x in range(0, 256, 7):
        event = SCHEMA.event(x=x, y=0)
        assert sorted(edge.match(event)) == [k for k, text in enumerate(texts) if wanted(text).matches(event)]
    for key in range(len(texts)):
        edge.remove(key)
    assert len(edge.match(SCHEMA.event(x=1, y=1))) == 0


def test_an_edge_without_a_plan_blames_nobody_and_a_new_plan_counts_from_then_on():
    edge = Edge(SCHEMA)
    edge.add(1, wanted("x < 10"))
    assert edge.blame(0) == set()
    assert edge.learn(1)
    assert edge.blame(0) == set()
    edge.adopt(lambda: Plan.regular(SCHEMA, 4, kind="cells"), 0)
    assert edge.learn(1)
    assert edge.blame(0) == {1}
    edge.add(2, wanted("y < 10"))
    assert not edge.learn(0)
    assert edge.learn(1)
    assert edge.blame(0) == {1, 2}
    edge.remove(1)
    assert edge.blame(0) == {2}


def test_whose_cells_drew_events_in_is_worked_out_little_by_little(monkeypatch):
    covered, cover = [], Plan.cover
    monkeypatch.setattr(Plan, "cover", lambda self, *some, **more: covered.append(1) or cover(self, *some, **more))
    monkeypatch.setattr("sievenet.client.edge._DEAD", 100)
    edge, plan = Edge(SCHEMA), Plan.regular(SCHEMA, 8)
    edge.adopt(lambda: plan, 4)
    for key in range(300):
        edge.add(key, wanted(f"x in [{key % 200}, {key % 200 + 9}]"))
    learnt = [edge.learn(1) for _ in range(300)]
    assert learnt == [False] * 299 + [True]
    assert len(covered) == 300
    # Others come and go: what is known stays known.
    for key in range(300, 600):
        edge.remove(key - 300)
        edge.add(key, wanted(f"y in [{key % 200}, {key % 200 + 5}]"))
        edge.learn(1)
    assert len(covered) <= 1200
    while not edge.learn(10):
        pass
    for x, y in ((3, 100), (150, 7), (250, 250)):
        (dz,) = plan.encode(SCHEMA.event(x=x, y=y))
        expected = {
            key
            for key, each in edge.subscriptions.items()
            if any(member.covers(dz) for member in cover(plan, each, budget=4))
        }
        assert edge.blame(dz.bits << (128 - dz.length)) == expected


# -- feeds ----------------------------------------------------------------------------------


class Owner:
    def __init__(self):
        self.rooms = 0
        self.closed = []
        self.tally = Tally()

    async def unsubscribe(self, feed):
        self.closed.append(feed)
        feed.end()

    def room(self):
        self.rooms += 1

    def explain(self):
        pass


def feed_of(owner=None, **settings):
    return Feed(owner or Owner(), Registration("subscription", 1, "t", wanted("any"), b""), **settings)


def delivery(x):
    return Delivery(SCHEMA.event(x=x, y=0), 1, x, 1_000_000_000, 1_500_000_000)


def test_a_feed_is_an_iterator_that_ends_when_closed_and_empty():
    async def main():
        owner = Owner()
        async with feed_of(owner) as feed:
            for x in range(3):
                assert feed.accept(delivery(x))
            feed.end()
            assert [event["x"] async for event in feed] == [0, 1, 2]
            assert [d async for d in feed.deliveries()] == []
        assert owner.closed == []
        counts = feed.statistics()
        assert (counts.delivered, counts.dropped, counts.waiting) == (3, 0, 0)
        assert counts.latency_p50 == pytest.approx(0.5, rel=0.04)
        assert counts.false_positive_rate == 0.0

    asyncio.run(main())


def test_a_reader_that_waits_is_woken():
    async def main():
        feed = feed_of()
        reader = asyncio.create_task(feed.next())
        await asyncio.sleep(0)
        feed.accept(delivery(7))
        assert (await reader).event["x"] == 7
        assert delivery(7).latency == 0.5
        waiting = asyncio.create_task(feed.next())
        await asyncio.sleep(0)
        feed.end(Rejected("no more"))
        with pytest.raises(Rejected):
            await waiting
        assert feed.accept(delivery(8))  # after the end: taken and forgotten

    asyncio.run(main())


def test_drops_are_reported_each_time_to_who_asked():
    async def main():
        told = []
        feed = feed_of(queue=2, on_overflow=told.append)
        for x in range(5):
            feed.accept(delivery(x))
        assert [(o.dropped, o.total, o.policy) for o in told] == [(1, n, "drop_oldest") for n in (1, 2, 3)]
        assert (await feed.next()).event["x"] == 3

    asyncio.run(main())


def test_drops_are_logged_ever_less_often_if_nobody_asked(caplog):
    async def main():
        feed = feed_of(queue=1, when_full="drop_newest")
        for x in range(10):
            feed.accept(delivery(x))

    with caplog.at_level(logging.WARNING, "sievenet.client"):
        asyncio.run(main())
    assert len(caplog.records) == 4  # at 1, 2, 4 and 8


def test_a_reporter_that_fails_harms_nobody(caplog):
    async def main():
        feed = feed_of(queue=1, on_overflow=lambda notice: 1 / 0)
        assert feed.accept(delivery(1))
        assert feed.accept(delivery(2))

    asyncio.run(main())
    assert "on_overflow" in caplog.text


def test_waiting_tells_the_node_when_there_is_room():
    async def main():
        owner = Owner()
        feed = feed_of(owner, queue=1, when_full="wait")
        assert feed.accept(delivery(1))
        assert not feed.accept(delivery(2))
        assert owner.rooms == 0
        await feed.next()
        assert owner.rooms == 1
        assert feed.statistics().waits == 1

    asyncio.run(main())


def test_callbacks_plain_and_async_see_everything_and_survive_their_own_errors(caplog):
    async def main():
        seen = []

        def plain(event):
            seen.append(event["x"])
            if event["x"] == 1:
                raise RuntimeError("bad event")

        async def slow(event):
            await asyncio.sleep(0)
            plain(event)

        async def slow_whole(found):
            await slow(found.event)

        for callback in (plain, slow, Whole(lambda found: plain(found.event)), Whole(slow_whole)):
            seen.clear()
            feed = feed_of(callback=callback)
            for x in range(3):
                feed.accept(delivery(x))
            feed.end()
            await feed.drained()
            assert seen == [0, 1, 2]

    asyncio.run(main())
    assert "bad event" in caplog.text
