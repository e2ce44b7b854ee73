"""Hybrid filtering in a real fabric: subspaces through matchers and back, nothing lost, nothing twice, in order."""

import asyncio
import contextlib

import numpy as np
import pytest

import sievenet
from sievenet.client.matcher import MatcherNode
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.control.directed import twin_schema
from sievenet.control.protocol import Release
from sievenet.errors import Rejected, Unavailable
from sievenet.index import Dz, Plan
from tests.fabric.harness import SCHEMA, eventually, fabric, publisher, reading, run

EVERYTHING = Dz(0, 0)


@contextlib.asynccontextmanager
async def matching(daemon, name="m", host="h2"):
    node = MatcherNode(daemon.url, name=name, host=host)
    await node.start()
    try:
        yield node
    finally:
        await node.close()


def by_hand(**changes):
    """A fabric where a test diverts: the selector, which would take back what it has not chosen, does not look."""
    return fabric(hybrid__interval=3600.0, **changes)


def switch_of(daemon, host):
    return daemon.plane.topology.attachment(host).switch


async def traffic(pub, stop, sent, count=10):
    i = 0
    while not stop.is_set():
        events = [reading((i + k) * 37 % 1024, payload=b"%d" % (i + k)) for k in range(count)]
        await pub.publish_many(events)
        sent += [(e["x"], e.payload) for e in events]
        i += count
        await asyncio.sleep(0.002)


def x_of(event):
    return event["x"]


def payload_of(event):
    return event.payload


def dies(matcher):
    """As a process that is killed: its connection ends, and it does nothing."""
    matcher.node._session._link.writer.transport.abort()
    hangs(matcher)


def hangs(matcher):
    """As a process that is stopped: it takes packets and does nothing."""
    for each in matcher._tasks:
        each.cancel()


class Scene:
    """A publisher at one end of a line, a subscriber at the other, and a matcher in between if there is to be one."""

    def __init__(self, daemon, pub, far, matcher):
        self.daemon, self.pub, self.far, self.matcher = daemon, pub, far, matcher
        self.hybrid = daemon.service.components.hybrid
        self.number, self.switch = daemon.control.category("reading").number, switch_of(daemon, "h2")
        #: What the subscriber got, and what was published with `traffic`.
        self.got, self.sent = [], []

    async def divert(self, dz=EVERYTHING):
        await self.hybrid.divert(self.number, dz, self.switch)

    async def release(self, dz=EVERYTHING):
        await self.hybrid.release(self.number, dz, self.switch)

    async def publish(self, *numbers):
        await self.pub.publish_many([reading(x) for x in range(*numbers)])

    @contextlib.asynccontextmanager
    async def traffic(self, flow=traffic, lo=100, hi=900):
        """Events all the time; at the end all that was wanted of them has come, and nothing else."""
        stop = asyncio.Event()
        task = asyncio.create_task(flow(self.pub, stop, self.sent))
        yield
        stop.set()
        await task
        wanted = [mark for x, mark in self.sent if lo <= x <= hi]
        await eventually(lambda: len(self.got) >= len(wanted))
        assert sorted(self.got) == sorted(wanted)

    @property
    def wanted(self):
        return [mark for x, mark in self.sent if 100 <= x <= 900]


@contextlib.asynccontextmanager
async def scene(text="any", mark=x_of, names=("m",), **changes):
    """With a subscription, and matchers of these names."""
    async with (
        by_hand(**changes) as daemon,
        publisher(daemon, name="pub", host="h1") as pub,
        sievenet.connect(daemon.url, name="far", host="h3") as far,
        contextlib.AsyncExitStack() as stack,
    ):
        nodes = [await stack.enter_async_context(matching(daemon, name=name)) for name in names]
        found = Scene(daemon, pub, far, nodes[0] if nodes else None)
        await far.subscribe(f"reading: {text}", lambda e: found.got.append(mark(e)))
        yield found


def test_an_event_goes_through_a_matcher_to_those_who_want_it_and_to_nobody_else():
    async def main():
        async with (
            by_hand() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="near", host="h1") as near,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
            matching(daemon) as matcher,
        ):
            hybrid = daemon.service.components.hybrid
            got = {}
            for name, node, text in (("near", near, "x < 300"), ("far", far, "x in [200, 700] and y < 0.9")):
                got[name] = []
                await node.subscribe(f"reading: {text}", lambda e, name=name: got[name].append(e["x"]))
            number = daemon.control.category("reading").number
            await hybrid.divert(number, Dz(0, 0), switch_of(daemon, "h2"))
            assert (await daemon.answers.check())["ok"]
            for i in range(200):
                await pub.publish(reading(i * 5))
            wanted = [i * 5 for i in range(200) if 200 <= i * 5 <= 700]
            await eventually(lambda: len(got["far"]) == len(wanted))
            assert got["far"] == wanted
            assert got["near"] == [i * 5 for i in range(60)]
            # What only `near` wants was delivered before it came here, and is not sent back.
            await eventually(lambda: matcher.done() == matcher.received)
            assert matcher.sent == len(wanted)
            assert far.statistics().received.false_positives == 0
            assert far.statistics().received.directed == len(wanted)
            assert near.statistics().received.directed == 0
            # A subscription that comes now is served at once, and one that goes is not.
            more = []
            await far.subscribe("reading: x > 1000", lambda e: more.append(e["x"]))
            await pub.publish(reading(1023))
            await eventually(lambda: more == [1023])
            await hybrid.release(number, Dz(0, 0), switch_of(daemon, "h2"))
            await pub.publish(reading(1001))
            await eventually(lambda: more == [1023, 1001])
            assert far.statistics().received.directed == len(wanted) + 1

    run(main())


@pytest.mark.parametrize("bulk", [False, True])
def test_order_and_completeness_through_many_changes_of_way_under_traffic(bulk):
    """One by one, since they have payloads; or many at a time, as rows of bytes."""

    async def flood(pub, stop, sent):
        i = 0
        while not stop.is_set():
            events = [reading((i + k) * 37 % 1024, y=(i + k) / (1 << 20)) for k in range(200)]
            await pub.publish_many(events)
            sent += [(e["x"], e["y"]) for e in events]
            i += len(events)
            await asyncio.sleep(0.02)

    async def main():
        async with scene("x in [100, 900]", (lambda e: e["y"]) if bulk else payload_of) as line:
            async with line.traffic(flood if bulk else traffic):
                for _ in range(4):
                    await line.divert()
                    await asyncio.sleep(0.2)
                    await line.release()
                    await asyncio.sleep(0.05)
            assert line.got == line.wanted
            counts = line.far.statistics().received
            assert counts.directed > 100
            assert counts.hasty == 0
            assert line.hybrid.failures == 0

    run(main())


def test_a_matcher_that_dies_loses_nothing():
    async def main():
        async with scene("x in [100, 900]", payload_of, names=()) as line:
            async with line.traffic():
                for end in (hangs, dies):
                    matcher = MatcherNode(line.daemon.url, name=f"m-{end.__name__}", host="h2")
                    await matcher.start()
                    await line.divert()
                    await asyncio.sleep(0.1)
                    end(matcher)
                    await eventually(lambda: not line.hybrid.concerns(line.number))
                    await asyncio.sleep(0.1)
                    await matcher.close()
            assert line.got == line.wanted
            assert line.hybrid.failures == 2
            assert line.far.statistics().received.duplicates > 0

    run(main())


def test_what_a_dead_matcher_had_is_sent_again_though_another_gives_the_last_subspace_back_meanwhile():
    async def main():
        async with scene(names=("dies", "well")) as line:
            hybrid, halves = line.hybrid, Dz(0, 0).children
            for dz in halves:
                await line.divert(dz)
            hangs(line.matcher)
            await line.publish(0, 1024, 8)
            deploy, begun = hybrid._deploy, asyncio.Event()

            async def slowly(*where):
                if not begun.is_set():
                    begun.set()
                    await asyncio.sleep(0.5)
                await deploy(*where)

            hybrid._deploy = slowly
            failing = asyncio.create_task(hybrid.fail("dies", "a test says so"))
            await begun.wait()
            for dz in halves:
                await line.release(dz)
            assert not hybrid.concerns(line.number)
            await failing
            await eventually(lambda: len(line.got) >= 128, timeout=10)
            assert sorted(line.got) == list(range(0, 1024, 8))
            await eventually(lambda: not line.pub._publisher.retention)  # nothing is kept in the end

    run(main())


def test_a_matcher_that_dies_when_its_flow_is_gone_but_not_its_last_event_loses_nothing():
    async def main():
        async with scene() as line:
            await line.divert()
            hybrid, deploy = line.hybrid, line.hybrid._deploy

            async def then_dies(*where):
                if hybrid._deploy is then_dies:
                    hybrid._deploy = deploy
                    hangs(line.matcher)
                    await line.publish(100)
                    await eventually(lambda: line.matcher.received >= 100)
                await deploy(*where)

            hybrid._deploy = then_dies
            await line.release()
            await eventually(lambda: len(line.got) >= 100, timeout=10)
            assert line.got == list(range(100))
            assert hybrid.failures == 1

    run(main())


@pytest.mark.slow
def test_publishers_keep_what_no_matcher_has_passed_on_for_as_long_as_that_takes():
    async def main():
        async with scene() as line:
            await line.divert()
            got, pub, matcher = line.got, line.pub, line.matcher
            kept = pub._publisher.retention.kept[line.number]
            await line.publish(100)
            await eventually(lambda: len(got) == 100 and not kept.sent)  # passed on, and so forgotten
            # It says that it lives, but passes nothing on.
            matcher._until = asyncio.get_running_loop().time() + 3600
            await line.publish(100, 200)
            await eventually(lambda: matcher.received >= 200)
            # The connection of the publisher is lost meanwhile; it keeps what it kept.
            pub._session._link.writer.transport.abort()
            await eventually(lambda: pub.statistics().losses == 1 and pub.connected)
            await asyncio.sleep(5)
            assert kept.sent
            assert len(got) == 100
            matcher.node._session._link.writer.transport.abort()
            await eventually(lambda: len(got) == 200)
            assert got == list(range(200))

    run(main())


def test_what_did_not_fit_into_the_queue_for_a_matcher_is_sent_again_by_the_network():
    async def main():
        async with scene() as line:
            await line.divert()
            plane = line.daemon.plane
            plane._by_token[plane.clients()["m"].token].link.max_bytes = 10_000
            line.matcher.node.pause()  # it lives, and reads nothing: too slow
            for start in range(0, 4000, 200):
                await line.pub.publish_many([reading((start + i) % 1024) for i in range(200)])
                await asyncio.sleep(0.01)
            await eventually(lambda: len(line.got) >= 4000)
            assert line.got == [i % 1024 for i in range(4000)]
            assert "dropped" in line.hybrid.last_failure

    run(main())


def test_a_publisher_that_was_away_when_a_matcher_died_sends_again_when_it_is_back():
    async def main():
        async with scene() as line:
            await line.divert()
            hangs(line.matcher)
            await line.publish(100)
            orders, away = line.daemon.service.components.orders, [True]
            say = orders._say
            orders._say = lambda name, word: not (away[0] and name == "pub") and say(name, word)
            await line.hybrid.fail("m", "a test says so")
            assert not line.hybrid.concerns(line.number)
            assert not line.got
            away[0] = False
            line.pub._session._link.writer.transport.abort()
            await eventually(lambda: len(line.got) >= 100)
            assert line.got == list(range(100))

    run(main())


def test_the_fabric_chooses_by_itself_what_is_filtered_exactly_and_keeps_its_bound():
    async def main():
        async with (
            fabric(
                control__bits=4,
                listen__heartbeat=0.1,
                hybrid__interval=0.3,
                hybrid__latency_bound=float("inf"),
            ) as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
            matching(daemon, host="h1") as matcher,
        ):
            got, sent, stop = [], [], asyncio.Event()
            await far.subscribe("reading: x in [10, 30] and y < 0.9", lambda e: got.append(e.payload))
            task = asyncio.create_task(traffic(pub, stop, sent))
            await eventually(lambda: matcher.unwanted > 100, timeout=30)
            found = await far.ask("hybrid")
            assert found["diverted"][0]["switch"] == switch_of(daemon, "h1")
            assert found["categories"]["reading"]["false_positives_saved"] > 0
            assert found["matchers"][0]["state"] == "well"
            way = await far.ask("trace", "reading: x=20, y=0.5, kind=hot, ok=true")
            assert way["matchers"] == ["m"]
            assert [(each["client"], each["by_matcher"]) for each in way["delivered"]] == [("far", True)]
            # A bound below what the network alone needs: everything goes back.
            daemon.service.components.selector.config = daemon.config.hybrid.__class__(interval=0.3, latency_bound=1e-9)
            hybrid = daemon.service.components.hybrid
            await eventually(lambda: not any(m.load for m in hybrid.matchers.values()), timeout=30)
            stop.set()
            await task
            wanted = [payload for x, payload in sent if 10 <= x <= 30]
            await eventually(lambda: len(got) >= len(wanted))
            assert sorted(got) == sorted(wanted)
            assert hybrid.failures == 0

    run(main())


def test_a_category_that_is_removed_takes_its_diversions_along_and_twins_are_left_alone():
    async def main():
        async with scene("x < 300") as line:
            await line.divert()
            twin = twin_schema("reading")
            with pytest.raises(Rejected, match="daemon's own"):
                await line.pub.apply_plan(twin.name, Plan.regular(twin, 8).to_json())
            with pytest.raises(Rejected, match="daemon's own"):
                await line.pub.remove_schema(twin.name, force=True)
            assert "sievenet.directed.reading" not in (await line.far.ask("interests", "nobody "))["categories"]
            await line.pub.remove_schema("reading", force=True)
            assert line.daemon.control.diverted(line.number) == {}
            assert not line.hybrid.concerns(line.number)
            assert (await line.daemon.answers.check())["ok"]

    run(main())


def test_one_subspace_goes_back_while_others_stay_and_nobody_waits_for_long():
    async def main():
        async with scene("any", payload_of) as line:
            halves = Dz(0, 1), Dz(1, 1)
            for dz in halves:
                await line.divert(dz)
            async with line.traffic(lo=0, hi=1023):
                await asyncio.sleep(0.2)
                await line.release(halves[0])
                # It has ended by its marker, not by the clock.
                await eventually(lambda: not line.far._receiver.handovers, timeout=1.5)
                assert line.far.statistics().received.hasty == 0

    run(main())


@pytest.mark.parametrize("bound", [float("inf"), 60.0])
def test_a_matcher_that_comes_back_gets_its_share_again_and_nothing_is_lost(bound):
    """With and without a bound: the space as a whole, or subspaces that are chosen apart."""

    async def main():
        async with (
            fabric(control__bits=4, listen__heartbeat=0.1, hybrid__interval=0.3, hybrid__latency_bound=bound) as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
            matching(daemon, "a", "h1"),
        ):
            got, sent, stop, hybrid = [], [], asyncio.Event(), daemon.service.components.hybrid
            # Narrow ones everywhere: what they get in vain is all over the space.
            for x in range(8, 1024, 64):
                await far.subscribe(f"reading: x in [{x}, {x + 2}]", lambda e: got.append(e.payload))
            task = asyncio.create_task(traffic(pub, stop, sent))

            number, selector = daemon.control.category("reading").number, daemon.service.components.selector

            def loads():
                return {name: each.load for name, each in hybrid.matchers.items()}

            def everything():
                """Whether the first has what both had."""
                return loads()["a"] > 1 or hybrid.matchers["a"].regions(number) == {EVERYTHING}

            async with matching(daemon, "b", "h1"):
                await eventually(lambda: loads().get("a") and loads().get("b"))
                changes = selector.changes
            await eventually(lambda: "b" not in hybrid.matchers and selector.changes > changes and everything())
            async with matching(daemon, "b", "h1") as back:
                await eventually(lambda: loads().get("a") and loads().get("b"))
                begun = back.received
                await eventually(lambda: back.received > begun + 100)
                stop.set()
                await task
                wanted = [payload for x, payload in sent if x % 64 in (8, 9, 10)]
                await eventually(lambda: len(got) >= len(wanted))
                assert sorted(got) == sorted(wanted)

    run(main(), timeout=150)


def test_where_tables_have_no_room_for_a_matcher_nothing_is_diverted_and_nobody_waits_for_it(caplog):
    async def main():
        async with (
            fabric(
                data__capacity=1,
                control__bits=4,
                listen__heartbeat=0.1,
                hybrid__interval=0.2,
                hybrid__latency_bound=float("inf"),
            ) as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
            matching(daemon, host="h1"),
        ):
            got, sent, stop, states, loop = [], [], asyncio.Event(), [], asyncio.get_running_loop()
            await far.subscribe("reading: x in [10, 30]", lambda e: got.append(e.payload))
            task = asyncio.create_task(traffic(pub, stop, sent))

            async def resting():
                found = await far.ask("hybrid")
                assert found["diverted"] == []  # what is not possible is not claimed
                states.append(found["matchers"][0]["state"])
                return "is full" in states[-1]

            await eventually(resting)
            longest = 0.0
            for i in range(20):
                begin = loop.time()
                feed = await far.subscribe(f"reading: x = {500 + i}", lambda e: None)
                longest = max(longest, loop.time() - begin)
                await feed.close()
                await asyncio.sleep(0.05)
            assert longest < 3, states  # an order that cannot be carried out would be waited for, for 7 s
            # It is tried again, ever more rarely, and the log has heard it once.
            matcher, hybrid = daemon.service.components.hybrid.matchers["m"], daemon.service.components.hybrid
            rested, matcher.resting = matcher._rest, 0.0
            await eventually(lambda: matcher._rest == 2 * rested and matcher.resting > hybrid.now())
            assert sum("is not diverted" in each.message for each in caplog.records) == 1
            assert sum("matcher m:" in each.message for each in caplog.records) == 1
            stop.set()
            await task
            wanted = [payload for x, payload in sent if 10 <= x <= 30]
            await eventually(lambda: len(got) >= len(wanted))
            assert got == wanted

    run(main())


def test_a_subscription_that_goes_is_taken_from_each_of_several_matchers_and_no_other_is():
    async def main():
        async with (
            by_hand(listen__heartbeat=0.1) as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
            matching(daemon, name="m1", host="h1") as first,
            matching(daemon, name="m2", host="h2") as second,
        ):
            hybrid, got = daemon.service.components.hybrid, []
            number = daemon.control.category("reading").number
            low, high = Dz.parse("0"), Dz.parse("1")
            # The matchers know different subscriptions, and some under different numbers.
            early = [await far.subscribe(f"reading: x = {i}", lambda e: None) for i in range(1000, 1004)]
            await hybrid.divert(number, high, switch_of(daemon, "h1"))
            await far.subscribe("reading: x in [10, 20]", lambda e: got.append(e["x"]))
            both = [await far.subscribe(f"reading: y = {i / 8}", lambda e: None) for i in range(8)]
            await hybrid.divert(number, low, switch_of(daemon, "h2"))
            assert first.node.losses == second.node.losses == 0
            for feed in both + early:
                await feed.close()

            def held(node):
                return sum(len(served.matcher) for served in node._served.values())

            await eventually(lambda: held(second) == 1 and held(first) <= 1)
            await pub.publish_many([reading(x, y=0.3) for x in range(5, 25)])
            await eventually(lambda: len(got) >= 11)
            assert got == list(range(10, 21))
            assert second.node.losses == first.node.losses == hybrid.failures == 0

    run(main())


def test_packets_that_wait_behind_each_other_are_matched_together_but_never_past_the_end_of_a_way():
    def burst(category, first, count, size=8):
        found = Burst(category, *np.zeros((2, count), np.uint64), np.zeros((count, size), np.uint8))
        found.stamp(1, 1, np.arange(first, first + count, dtype=np.uint64), 0)
        return Arrivals(found.matrix)

    async def main():
        node = MatcherNode("sievenet://127.0.0.1:1", name="m", host="h1")
        end = Release(1, 5, "0", 1.0)
        for each in (burst(5, 0, 3), burst(5, 3, 4), end, burst(5, 7, 2), burst(6, 9, 1), burst(6, 10, 1, size=9)):
            node._enqueue(each)
        whole = node._next()
        assert whole.heads["sequence"].tolist() == list(range(7))
        assert node._next() is end
        assert [len(node._next()) for _ in range(3)] == [2, 1, 1]
        for first in (0, 4000, 4090):
            node._enqueue(burst(5, first, 4000 if not first else 90))
        assert [len(node._next()) for _ in range(2)] == [4090, 90]

    run(main())


@pytest.mark.parametrize("fate", ["well", "stopped", "killed"])
def test_a_publisher_that_leaves_waits_until_matchers_have_passed_on_what_it_sent(fate):
    async def main():
        async with by_hand() as daemon, sievenet.connect(daemon.url, name="far", host="h3") as far:
            hybrid, got = daemon.service.components.hybrid, []
            matcher = MatcherNode(daemon.url, name="m", host="h2")
            await matcher.start()
            async with publisher(daemon, name="pub", host="h1") as pub:
                await far.subscribe("reading: any", lambda e: got.append(e["x"]))
                number, switch = daemon.control.category("reading").number, switch_of(daemon, "h2")
                await hybrid.divert(number, Dz(0, 0), switch)
                if fate != "well":
                    matcher.node._take = lambda packets: None
                await pub.publish_many([reading(x) for x in range(500)])
                {"well": lambda matcher: None, "stopped": hangs, "killed": dies}[fate](matcher)
                left = asyncio.get_running_loop().time()
            took = asyncio.get_running_loop().time() - left
            await eventually(lambda: len(got) >= 500)
            assert got == list(range(500))
            assert hybrid.failures == (fate != "well")
            assert took < (1.5 if fate == "well" else 5.0)
            await matcher.close()

    run(main())


def test_a_publisher_that_leaves_is_told_what_a_matcher_did_not_confirm(monkeypatch):
    monkeypatch.setattr("sievenet.daemon.departure.LONGEST", 0.5)

    async def main():
        async with by_hand() as daemon, matching(daemon) as matcher:
            hybrid = daemon.service.components.hybrid
            pub = await sievenet.connect(daemon.url, name="pub", host="h1")
            standing = await pub.advertise(SCHEMA)
            number = daemon.control.category("reading").number
            await hybrid.divert(number, Dz(0, 0), switch_of(daemon, "h2"))
            matcher._finish = lambda order: asyncio.sleep(0)  # it is well, but says nothing
            await pub.publish_many([reading(x) for x in range(50)])
            await standing.close()  # takes back what it advertises: that waits too, and goes on
            await pub.advertise(SCHEMA)
            with pytest.raises(Unavailable, match=r"may not have reached everybody: m did not confirm within 0\.5 s"):
                await pub.close()
            assert not daemon.control.publishing(number)

    run(main())


@pytest.mark.parametrize("bulk", [False, True])
def test_a_young_subscription_gets_nothing_from_before_it_when_events_are_sent_again(bulk):
    async def main():
        async with (
            by_hand() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="old", host="h3") as old,
            sievenet.connect(daemon.url, name="young", host="h3") as young,
            matching(daemon) as matcher,
        ):
            hybrid, got = daemon.service.components.hybrid, {"old": [], "young": [], "more": []}
            await old.subscribe("reading: any", lambda e: got["old"].append(e["x"]))
            await hybrid.divert(daemon.control.category("reading").number, Dz(0, 0), switch_of(daemon, "h2"))

            async def publish(numbers):
                events = [reading(x) for x in numbers]
                if bulk:
                    await pub.publish_many(events)
                else:
                    for event in events:
                        await pub.publish(event)

            await publish(range(100))
            await eventually(lambda: len(got["old"]) == 100)
            # Several at once, who share a round of questions.
            wanted = ("reading: any", lambda e: got["young"].append(e["x"])), ("reading: x < 150", lambda e: got["more"].append(e["x"]))  # fmt: skip  # noqa: E501
            await asyncio.gather(*(young.subscribe(*each) for each in wanted))
            await publish(range(100, 200))
            await eventually(lambda: len(got["young"]) == 100)
            matcher.node._take = lambda packets: None  # it takes what comes next along
            await publish(range(200, 300))
            await hybrid.fail("m", "a test says so")
            await eventually(lambda: len(got["old"]) == 300 and len(got["young"]) >= 200)
            assert got["old"] == list(range(300))
            assert got["young"] == list(range(100, 300))
            assert got["more"] == list(range(100, 150))
            assert young.statistics().received.duplicates > 0

    run(main())


def test_before_a_plan_changes_subspaces_go_back_in_order():
    async def main():
        async with scene("x in [100, 900]", payload_of, control__forwarding_delay=0.05) as line:
            passing, slow = line.matcher._pass, 0.03

            async def late(packets):  # what it has is overtaken by whatever does not wait for it
                await asyncio.sleep(slow)
                await passing(packets)

            line.matcher._pass, line.matcher._rows = late, lambda packets: None
            async with line.traffic():
                for bits in (8, 6):
                    await line.divert()
                    await asyncio.sleep(0.1)
                    await line.daemon.control.apply_plan("reading", Plan.regular(SCHEMA, bits))
                    assert not line.hybrid.concerns(line.number)
            assert line.got == line.wanted
            assert line.hybrid.failures == 0

    run(main())


def test_what_a_matcher_had_when_its_diversions_ended_by_themselves_is_not_lost_if_it_dies():
    async def main():
        async with scene() as line:
            await line.divert()
            line.matcher.node._take = lambda packets: None
            await line.publish(100)
            await asyncio.sleep(0.05)
            line.daemon.control._controller.fleet.diversions.end([line.number])  # as other trees do
            assert not line.hybrid.concerns(line.number)
            dies(line.matcher)
            await eventually(lambda: len(line.got) >= 100)
            assert line.got == list(range(100))

    run(main())


def test_whoever_becomes_a_recipient_gets_nothing_twice_of_what_it_had_long_before():
    """Publishers send again what they kept, also of subspaces that others had through matchers."""

    async def main():
        async with scene("x >= 512") as it, sievenet.connect(it.daemon.url, name="low", host="h3") as low:
            got = []
            await low.subscribe("reading: x < 512", lambda e: got.append(e["y"]))
            await it.divert(Dz(0, 1))
            count = 6_000  # more than a client remembers that has nothing sent to it alone
            await it.pub.publish_many([reading(1023 * (i % 2), y=i / count) for i in range(count)])
            await eventually(lambda: len(got) == len(it.got) == count // 2)
            await it.divert(Dz(1, 1))
            assert it.pub._publisher.retention.kept[it.number].count == count  # nothing is forgotten yet
            dies(it.matcher)
            await eventually(lambda: not it.hybrid.concerns(it.number))
            await it.publish(600, 610)
            await eventually(lambda: it.got[-1] == 609)
            assert len(it.got) == count // 2 + 10
            assert len(got) == count // 2

    run(main())


def test_a_publisher_that_comes_while_a_matcher_is_given_up_keeps_what_it_sends():
    """Flows to a matcher are there until publishers have paused; one of them does not answer, which takes a while."""

    async def main():
        async with scene() as found:
            await found.divert()
            found.pub._publisher._obey = lambda *_: asyncio.sleep(3600)
            dies(found.matcher)
            await eventually(lambda: found.hybrid.failures == 1)
            assert found.daemon.control.diverted(found.number), "the flow is still there"
            async with publisher(found.daemon, name="newcomer", host="h1") as newcomer:
                await newcomer.publish_many([reading(x) for x in range(20)])
                await eventually(lambda: sorted(found.got) == list(range(20)))
                # Nobody keeps anything for ever.
                await eventually(lambda: not newcomer._publisher.retention, timeout=10.0)

    run(main())


class Held:
    """What a publisher is told by the daemon it does only when it is let go."""

    def __init__(self, node):
        self.free, obey = asyncio.Event(), node._publisher._obey

        async def later(*word):
            await self.free.wait()
            await obey(*word)

        node._publisher._obey = later


async def a_while(task):
    """Until something is done or, if it waits for something, a moment."""
    await asyncio.wait({task}, timeout=0.3)


def test_a_subscriber_that_comes_while_a_matcher_is_given_up_gets_nothing_from_before():
    async def main():
        async with scene() as it, sievenet.connect(it.daemon.url, name="young", host="h3") as young:
            got = []
            await it.divert()
            await it.publish(100)
            await eventually(lambda: len(it.got) == 100)
            held = Held(it.pub)
            dies(it.matcher)
            await eventually(lambda: it.hybrid.failures == 1)
            comes = asyncio.create_task(young.subscribe("reading: any", lambda e: got.append(e["x"])))
            await a_while(comes)
            held.free.set()
            await comes
            await it.publish(100, 110)
            await eventually(lambda: len(it.got) == 110 and got[-1:] == [109])
            assert got == list(range(100, 110))

    run(main())


def test_a_subscription_that_waits_for_a_matcher_to_be_given_up_can_be_taken_back():
    """Its end does not overtake it; nor is it entered for a connection that has come instead."""

    async def main():
        async with scene() as it, sievenet.connect(it.daemon.url, name="young", host="h3") as young:
            await it.divert()
            held = Held(it.pub)
            dies(it.matcher)
            await eventually(lambda: it.hybrid.failures == 1)
            comes = asyncio.create_task(young.subscribe("reading: any", lambda e: None))
            await a_while(comes)
            comes.cancel()
            await asyncio.wait({comes})
            held.free.set()
            number = it.daemon.control.category("reading").number
            await eventually(lambda: not it.hybrid._custody.mends(number))
            await young.subscribe("reading: x < 0", lambda e: None)
            await eventually(lambda: len(it.daemon.control.ids("young")[1]) == 1)

    run(main())


def test_a_subscription_under_way_when_a_matcher_is_given_up_gets_nothing_from_before():
    """It stands in the switches already."""

    async def main():
        async with scene() as it, sievenet.connect(it.daemon.url, name="young", host="h3") as young:
            got, subscribe, subscribed = [], it.daemon.control.subscribe, it.hybrid.subscribed
            await it.divert()
            await it.publish(100)
            await eventually(lambda: len(it.got) == 100)
            held, stands = Held(it.pub), asyncio.Event()

            async def first(*words):
                await subscribe(*words)
                dies(it.matcher)
                await eventually(lambda: it.hybrid.failures == 1)

            async def then(*words):
                stands.set()
                return await subscribed(*words)

            it.daemon.control.subscribe, it.hybrid.subscribed = first, then
            comes = asyncio.create_task(young.subscribe("reading: any", lambda e: got.append(e["x"])))
            await stands.wait()
            await a_while(comes)
            held.free.set()
            await comes
            await it.publish(100, 110)
            await eventually(lambda: len(it.got) == 110 and got[-1:] == [109])
            assert got == list(range(100, 110))

    run(main())


@pytest.mark.parametrize("keeps", [True, False])
def test_a_publisher_sends_nothing_while_there_may_be_flows_to_a_matcher_that_is_given_up(keeps):
    """It is too late to pause: what it sent before and after the flows are removed would come in the wrong order."""

    async def main():
        async with scene() as it, sievenet.connect(it.daemon.url, name="newcomer", host="h1") as newcomer:
            await newcomer.schema(SCHEMA)
            await it.divert()
            custody, paused = it.hybrid._custody, asyncio.Event()
            say, pause = custody._say, custody.pause

            async def deaf(number, client, *rest, **more):
                if client == "newcomer" and not (keeps or paused.is_set()):
                    raise Unavailable("it does not answer")
                return await say(number, client, *rest, **more)

            async def late(number):
                await paused.wait()
                await pause(number)

            async def publishes():
                await newcomer.advertise(SCHEMA)
                await newcomer.publish_many([reading(x) for x in range(20)])

            custody._say, custody.pause = deaf, late
            dies(it.matcher)
            await eventually(lambda: it.hybrid.failures == 1)
            comes = asyncio.create_task(publishes())
            await a_while(comes)
            assert not comes.done()
            paused.set()
            await comes
            await eventually(lambda: it.got == list(range(20)))

    run(main())


def test_publishers_keep_what_they_sent_from_the_moment_on_in_which_diversions_end_by_themselves():
    async def main():
        async with scene() as it:
            await it.divert()
            it.daemon.control._controller.fleet.diversions.end([it.number])
            it.hybrid._renew()
            assert it.number in it.hybrid._custody
            await eventually(lambda: not it.hybrid._custody.mends(it.number))
            it.hybrid._renew()
            assert it.number not in it.hybrid._custody

    run(main())


def test_a_plan_changes_when_what_a_matcher_lost_has_been_sent_again():
    """What publishers kept is addressed by the plan before."""

    async def main():
        async with scene("x < 100") as it:
            await it.divert()
            it.matcher.node._take = lambda packets: None
            await it.publish(100)
            held = Held(it.pub)
            dies(it.matcher)
            await eventually(lambda: it.hybrid.failures == 1)
            plan = Plan.regular(SCHEMA, 8, ("ok", "kind", "y", "x"))
            change = asyncio.create_task(it.daemon.control.apply_plan("reading", plan))
            await asyncio.wait({change}, timeout=1.5)
            held.free.set()
            await change
            await eventually(lambda: len(it.got) >= 100)
            assert it.got == list(range(100))

    run(main())
