"""A client that loses its connection and comes back: all comes, nothing comes twice, and what is missing is told."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sievenet
from sievenet.routers import messages as m
from sievenet.routers import protocol as p
from sievenet.routers.limits import Limits
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.routers.session import Sessions
from tests.fabric.harness import eventually
from tests.proxy import Proxy
from tests.routers.wire import CATEGORY, CONTENT, DATA, SCHEMA, Stranger, client_hello

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("give"), st.integers(1, 5), st.integers(1, 40)),
        st.tuples(st.just("take"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("break"), st.integers(0, 3), st.integers(0, 1)),
    ),
    max_size=60,
)


@given(st.lists(STEPS, min_size=1, max_size=3), st.integers(20, 120), st.integers(50, 200))
def test_what_a_client_takes_and_what_it_is_told_to_miss_is_everything(clients, kept, in_all):
    """Connections that break anywhere: each event is taken once and in order, or counted as missing."""
    sessions = Sessions(Limits(kept=kept, kept_in_all=in_all))
    states = [(sessions.begin(), steps, [], [], [0]) for steps in clients]
    for turn in range(60):
        for session, steps, way, had, missed in states:
            if turn >= len(steps):
                continue
            match steps[turn]:
                case ("give", events, size):
                    first = session.given
                    frame = bytes([len(way) % 256]) * size
                    session.keep(frame, events)
                    way.append((first, session.given))
                case ("take", frames, confirm):
                    for each in way[:frames]:
                        had.append(each)
                    del way[:frames]
                    if confirm:
                        session.confirm(sum(end - begin for begin, end in had) + missed[0])
                case ("break", _, _):
                    taken = sum(end - begin for begin, end in had) + missed[0]
                    again, missing = session.resume(taken)
                    missed[0] += missing
                    # Those that were on their way are gone; the last of all frames come again.
                    del way[: len(way) - len(again)]
                    assert len(way) == len(again)
            assert sessions.size <= in_all
            assert session.size <= kept
    for session, _, way, had, missed in states:
        everything = had + way
        assert everything == sorted(set(everything))
        assert sum(end - begin for begin, end in everything) + missed[0] == session.given
        sessions.end(session)
        sessions.end(session)
    assert sessions.size == 0


def numbers(first, count, who="x"):
    return [SCHEMA.event(n=n, who=who) for n in range(first, first + count)]


@contextlib.asynccontextmanager
async def through_a_proxy(lease=20.0, **limits):
    """A router, a publisher at it, and a subscriber whose connection can be cut."""
    async with (
        RouterServer("a", Settings(lease=lease), limits=Limits(**limits)) as a,
        Proxy(a.address) as proxy,
        sievenet.connect(a.url, name="publisher") as publisher,
        sievenet.connect(f"sievenet+router://127.0.0.1:{proxy.port}", name="subscriber") as subscriber,
        asyncio.timeout(60),
    ):
        await publisher.schema(SCHEMA)
        await publisher.advertise(SCHEMA)
        await subscriber.schema(SCHEMA)
        got = []
        await subscriber.subscribe("wire: n >= 0", callback=lambda event: got.append(event["n"]))
        yield a, proxy, publisher, subscriber, got


def test_what_was_on_its_way_or_came_meanwhile_is_sent_when_the_client_is_back():
    async def main():
        async with through_a_proxy() as (a, proxy, publisher, subscriber, got):
            first = 0
            for _ in range(3):
                await publisher.publish_many(numbers(first, 50))
                await eventually(lambda first=first: len(got) == first + 50)
                # Some are lost in buffers, where the router cannot know.
                proxy.hold()
                await publisher.publish_many(numbers(first + 50, 50))
                await eventually(lambda first=first: a._registry.clients["subscriber"].session.given == first + 100)
                proxy.cut()
                await eventually(lambda: not subscriber.connected and a._registry.clients["subscriber"].absent)
                for n in range(first + 100, first + 150):
                    await publisher.publish_many(numbers(n, 1))
                assert (await publisher.ask("status"))["away"]["subscriber"] >= 100
                proxy.mend()
                await eventually(lambda: subscriber.connected)
                first += 150
                await eventually(lambda first=first: len(got) == first)
            assert got == list(range(450))
            counts = subscriber.statistics()
            assert (counts.losses, counts.missed, counts.away) == (3, 0, 0.0)
            assert a.dropped == 0

    asyncio.run(main())


def test_who_has_confirmed_some_and_comes_back_misses_nothing_and_says_so():
    async def main():
        async with through_a_proxy() as (a, proxy, publisher, subscriber, got):
            for turn in range(3):
                for n in range(turn * 40, turn * 40 + 40):  # one by one: every 32nd frame is confirmed
                    await publisher.publish_many(numbers(n, 1))
                    await eventually(lambda n=n: len(got) == n + 1)
                session = a._registry.clients["subscriber"].session
                assert 0 < session.unconfirmed < session.given
                proxy.cut()
                await eventually(lambda: not subscriber.connected)
                proxy.mend()
                await eventually(lambda: subscriber.connected)
                assert subscriber.statistics().missed == 0
                assert a._registry.clients["subscriber"].session.unconfirmed == 0  # it said how many it had taken
            assert got == list(range(120))

    asyncio.run(main())


def test_what_does_not_fit_is_told():
    async def main():
        async with through_a_proxy(kept=2000) as (a, proxy, publisher, subscriber, got):
            proxy.cut()
            await eventually(lambda: not subscriber.connected)
            for n in range(200):
                await publisher.publish_many(numbers(n, 1))
                # One by one: what comes together is one frame.
                await eventually(lambda n=n: a._registry.clients["subscriber"].session.given == n + 1)
            proxy.mend()
            await eventually(lambda: subscriber.connected)
            await publisher.publish_many(numbers(200, 1))
            await eventually(lambda: got and got[-1] == 200)
            assert 0 < subscriber.statistics().missed == 201 - len(got) < 200
            assert got == list(range(201 - len(got), 201))

    asyncio.run(main())


def test_a_client_that_stays_away_is_forgotten_after_a_lease():
    async def main():
        async with through_a_proxy(lease=1.0) as (a, proxy, publisher, subscriber, got):
            proxy.cut()
            await eventually(lambda: not subscriber.connected)
            await publisher.publish_many(numbers(0, 7))
            await eventually(lambda: "subscriber" not in a._registry.clients)
            assert a._sessions.size == 0
            assert a.router.statistics()["clients"] == 1
            proxy.mend()
            await eventually(lambda: subscriber.connected)
            await publisher.publish_many(numbers(7, 1))
            await eventually(lambda: got == [7])
            counts = subscriber.statistics()
            assert counts.missed == 7
            assert counts.away > 0.5

    asyncio.run(main())


@pytest.mark.parametrize("polite", [True, False])
def test_a_goodbye_forgets_at_once_and_another_one_gets_the_name_alone(polite):
    async def main():
        async with RouterServer("a", Settings(lease=60.0)) as a:
            first = await Stranger.call(a.address, client_hello("x"), p.Register(1, DATA))
            ticket = (await first.hear("Welcome"))["ticket"]
            first.say(p.Subscribe(2, 1, CATEGORY, CONTENT))
            assert await first.hear("Done")
            if polite:
                first.say(p.Goodbye("done"))
                await eventually(lambda: a.router.statistics()["clients"] == 0)
            else:
                first.close()
                await eventually(lambda: a._registry.clients["x"].absent)
                assert a.router.routing.size() == 1
            second = await Stranger.call(a.address, client_hello("x", ticket=b"wrong"))
            assert not (await second.hear("Welcome")).get("resumed")
            assert a.router.routing.size() == 0
            # The ticket of a session that is over is worth nothing.
            third = await Stranger.call(a.address, client_hello("x", ticket=ticket))
            assert "taken" in (await third.hear("Failure"))["message"]
            # Who claims to have taken what it was never given hurts nobody.
            second.say(m.Received((1 << 62) - 1), p.Ask(3, "status"))
            assert (await second.hear("Done"))["answer"]["errors"] == 0
            for each in (second, third):
                each.close()

    asyncio.run(main())


def test_clients_that_vanish_are_kept_within_bounds():
    async def main():
        async with RouterServer("a", Settings(lease=60.0), limits=Limits(connections=5)) as a:
            for k in range(12):
                stranger = await Stranger.call(a.address, client_hello(f"x{k}"), p.Register(1, DATA))
                stranger.say(p.Subscribe(2, 1, CATEGORY, CONTENT))
                assert await stranger.hear("Done")
                stranger.close()
                await eventually(lambda k=k: a._registry.clients[f"x{k}"].absent)
            assert sorted(a._registry.clients) == ["x10", "x11", "x7", "x8", "x9"]

    asyncio.run(main())


def test_a_welcome_that_is_lost_costs_nothing():
    async def main():
        async with RouterServer("a", Settings(lease=60.0)) as a:
            first = await Stranger.call(a.address, client_hello("x"), p.Register(1, DATA))
            ticket = (await first.hear("Welcome"))["ticket"]
            first.say(p.Subscribe(2, 1, CATEGORY, CONTENT))
            assert await first.hear("Done")
            for _ in range(3):
                # The router has made a new ticket, and the client does not know.
                again = await Stranger.call(a.address, client_hello("x", ticket=ticket))
                assert (await again.hear("Welcome"))["resumed"]
                again.close()
            last = await Stranger.call(a.address, client_hello("x", ticket=ticket), p.Alive(), p.Ask(1, "status"))
            assert await last.hear("Done")
            # It has said something, so it has the new one: the old one is worth nothing.
            thief = await Stranger.call(a.address, client_hello("x", ticket=ticket))
            assert "taken" in (await thief.hear("Failure"))["message"]
            for each in (first, last, thief):
                each.close()

    asyncio.run(main())


def test_what_is_taken_back_while_away_is_taken_back():
    async def main():
        async with through_a_proxy() as (a, proxy, _, subscriber, _):
            feed = await subscriber.subscribe("wire: n = 5")
            proxy.cut()
            await eventually(lambda: not subscriber.connected)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(feed.close(), 0.05)
            assert len(a._registry.clients["subscriber"].entries) == 2
            proxy.mend()
            await eventually(lambda: subscriber.connected)
            assert len(a._registry.clients["subscriber"].entries) == 1

    asyncio.run(main())
