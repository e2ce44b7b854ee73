"""What one connection can do to others: nothing. Numbers at their ends, wrong messages, names, silence, hoarding."""

import asyncio
import time

import msgspec
import pytest

from sievenet.access.identity import Identity, Role
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import encode_schema, encode_subscription
from sievenet.control.configurators.messages import CONFIGURATORS
from sievenet.control.protocol import CONTROL
from sievenet.dataplane.kernel.protocol import AGENTS
from sievenet.errors import CodecError, InvalidInput, Rejected, Unavailable
from sievenet.routers import messages as m
from sievenet.routers import overlay, routing
from sievenet.routers import protocol as p
from sievenet.routers.core import Router
from sievenet.routers.limits import Limits
from sievenet.routers.outputs import Send
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.routers.shipment import Shipment
from sievenet.session.callee import Callee
from sievenet.session.framing import Malformed, frame
from sievenet.session.limits import Admission, Unfinished
from sievenet.session.message import failure
from tests.fabric.harness import eventually
from tests.routers.wire import (
    CATEGORY,
    DATA,
    SAMPLES,
    SCHEMA,
    Stranger,
    client_hello,
    extremes,
    honest,
    router_hello,
    two_routers,
)


def names(messages):
    return [type(each).__name__ for each in messages]


def test_there_is_a_sample_of_every_message():
    assert {type(each) for each in SAMPLES} == {p.Hello, *p.ROUTING.taken}


# -- numbers -------------------------------------------------------------------------------


def met():
    """Routers a and x, pure, that are neighbours; a knows the category."""
    a = Router("a", Settings(), 0.0, incarnation=10**12)
    a.register(SCHEMA)
    a.connected("x", 0.0)
    return a


@pytest.mark.parametrize("scheme", ["covering", "cbcb", "bdrp", "edge"])
@pytest.mark.parametrize("sample", SAMPLES, ids=names(SAMPLES))
def test_no_number_of_a_neighbour_is_too_large_to_pass_on(sample, scheme):
    """Whatever number is accepted, all that the router says afterwards can be said, and be read by its neighbours."""
    router = Router("a", Settings(scheme), 0.0, incarnation=10**12)
    router.register(SCHEMA)
    for neighbour in ("x", "b"):
        router.connected(neighbour, 0.0)
    framer = p.ROUTING.listening(p.MAX_PEER_FRAME)
    now = 0.0
    for path, data in extremes(sample):
        (message,) = framer.feed(data)
        outputs = []
        if not isinstance(message, Malformed) and type(message) in m.FromRouter.__args__:
            now += 0.001
            outputs = router.receive("x", message, now)
            outputs += router.tick(now + 100.0 if now > 1 else now)
        for output in outputs:
            if isinstance(output, Send):
                (said,) = framer.feed(frame(output.message))
                assert said == output.message, (path, said)


def test_a_stated_number_leaves_room_for_the_truth():
    """Somebody states what a hears, with a number as large as may be: a can still say how it is."""
    for number in (1 << 63, (1 << 64) - 1):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(
                msgspec.msgpack.encode({"type": "LinkStated", "origin": "a", "number": number, "neighbours": []}),
                type=m.LinkStated,
            )
    a = met()
    for number in ((1 << 62) - 1, (10**12 + 10**9) << 16):
        a.receive("x", m.LinkStated("a", number, ()), 1.0)
    assert a.counts.malformed == 2
    assert a.states.number("a") < (10**12 + 1) << 16
    # What may be true, though it is a lie, is outdone.
    a.receive("x", m.LinkStated("a", (10**12 + 10**6) << 16, ()), 1.0)
    assert a.states.number("a") > (10**12 + 10**6) << 16
    assert a.states.overlay.links["a"] == ()
    a.receive("x", m.LinkStated("x", 5, ("a",)), 1.0)
    assert a.states.overlay.links["a"] == ("x",)


@pytest.mark.parametrize("last", [-1, 1 << 63, (1 << 63) - 1, (1 << 62) + 1])
def test_numbers_of_events_are_checked(last):
    whole = Shipment.publish("x", 1, CATEGORY, 5, 1, [1]).sequences.tobytes()
    wrong = (last % (1 << 64)).to_bytes(8, "little")
    batch = next(each.batch for each in SAMPLES if isinstance(each, m.Carried))
    for sequences, departures in ((wrong, whole), (whole, wrong)):
        if (sequences is whole and last == (1 << 62) + 1) or (last == (1 << 63) - 1 and sequences is whole):
            continue
        with pytest.raises(CodecError):
            Shipment.of(m.Carried("x", 1, CATEGORY, sequences, departures, batch), SCHEMA)


@pytest.mark.parametrize("role", ["client", "router"])
def test_extreme_numbers_disturb_nobody(role):
    """Every message with every number at its ends, to a running router, with an honest pair beside it."""

    async def main():
        limits = Limits(malformed=1 << 20)
        async with two_routers(limits=limits) as (a, b), honest(a.url, b.url) as pair:
            hello = client_hello("x") if role == "client" else router_hello()
            for sample in SAMPLES:
                stranger = await Stranger.call(a.address, hello)
                assert await stranger.hear("Welcome")
                stranger.say(*(data for _, data in extremes(sample)))
                stranger.say(frame(p.Ask(77, "status")) if role == "client" else b"")
                if role == "client" and not isinstance(sample, p.Goodbye):
                    while (answer := await stranger.hear("Done")) is not None and answer["request"] != 77:
                        pass
                await pair.check(timeout=20.0)
                stranger.say(p.Goodbye("done"))
                await stranger.ended()
                stranger.close()
                await eventually(lambda: "x" not in a._registry.of(role))
            assert a.errors == b.errors == 0
            await pair.subscriber.unsubscribe(await pair.subscriber.subscribe("wire: n > 3"))

    asyncio.run(main())


@pytest.mark.slow
def test_one_frame_does_not_break_an_overlay():
    async def main():
        async with two_routers() as (a, b), honest(a.url, b.url) as pair:
            stranger = await Stranger.call(a.address, router_hello())
            assert await stranger.hear("Welcome")
            wrong = {"type": "LinkStated", "origin": "a", "number": (1 << 64) - 1, "neighbours": []}
            body = msgspec.msgpack.encode(wrong)
            stranger.say(len(body).to_bytes(4, "big") + body)
            await eventually(lambda: any(each.callee.malformed for each in a.listener.connections))
            await pair.check()
            feed = await pair.subscriber.subscribe("wire: n = 1000")
            await pair.publisher.publish(SCHEMA.event(n=1000, who="x"))
            assert (await feed.next()).event.values == (1000, "x")
            stranger.close()

    asyncio.run(main())


def test_an_error_ends_its_connection_alone(monkeypatch, caplog):
    def broken(*_arguments):
        raise ZeroDivisionError

    async def main():
        async with two_routers() as (a, b), honest(a.url, b.url) as pair:
            with monkeypatch.context() as patch:
                patch.setattr(a._service, "_register", broken)
                stranger = await Stranger.call(a.address, client_hello("x"), p.Register(1, b""))
                answer = await stranger.hear("Failure")
                assert "internal error" in answer["message"]
                await stranger.ended()
                patch.setattr(a.router, "tick", broken)
                patch.setattr(a.listener, "_look_after", broken)
                await eventually(lambda: a.errors > 2)
            await pair.check()
            assert "please report" in caplog.text

    asyncio.run(main())


def test_routers_do_not_complain_about_complaints():
    """A malformed message on a link is counted; answering it could go on for ever."""

    async def main():
        async with RouterServer("a", Settings(lease=8.0), limits=Limits(malformed=5)) as a:
            stranger = await Stranger.call(a.address, router_hello())
            assert await stranger.hear("Welcome")
            stranger.say(p.Failure(0, "Rejected", "what?"), b"\0\0\0\2\xc1\xc1")
            await eventually(lambda: any(each.callee.malformed for each in a.listener.connections))
            stranger.say(*[b"\0\0\0\2\xc1\xc1"] * 5)
            assert "at most 5 malformed" in (await stranger.hear("Failure"))["message"]
            await stranger.ended()

    asyncio.run(main())


# -- bounds --------------------------------------------------------------------------------


def test_admission_counts_in_all_and_per_address():
    doors = Admission(Limits(connections=3, per_address=2))

    def enter(name, address):
        doors.enter(name, address)
        doors.welcome(name)

    enter("a", "one")
    enter("b", "one")
    with pytest.raises(Rejected, match="at most 2 connections from one"):
        doors.enter("c", "one")
    enter("c", "two")
    with pytest.raises(Rejected, match="at most 3 connections,"):
        doors.enter("d", "three")
    doors.leave("a")
    enter("d", "three")
    assert doors.turned_away == 2
    for each in "abcd":
        doors.leave(each)
    assert not doors._inside
    assert not doors._addresses
    assert not doors._strangers
    with pytest.raises(InvalidInput, match=r"limits\.hello"):
        Limits(hello=0)


def test_strangers_make_room_where_most_of_them_come_from():
    doors = Admission(Limits(connections=6, per_address=4))
    for name, address in (("x1", "loud"), ("x2", "loud"), ("y", "quiet"), ("x3", "loud"), ("m", "loud")):
        assert doors.enter(name, address) is None
    doors.welcome("m")
    # One machine is full: its own stranger that came first goes. All is full: that of the address with most of them.
    assert doors.enter("x4", "loud") == "x1"
    assert doors.enter("z", "third") is None
    assert doors.enter("w", "third") == "x2"
    doors.leave("x2")  # its end comes later, and counts once
    for name in ("x3", "x4", "y", "z", "w"):
        doors.welcome(name)
    with pytest.raises(Rejected, match="at most 6 connections,"):
        doors.enter("last", "third")
    assert doors.turned_away == 3


def test_whoever_hoards_most_goes_first():
    held = Unfinished(Limits(unfinished=100, frame=10))
    assert held.note("small", 10, 0.0, whole=False) is None
    assert held.note("large", 80, 0.0, whole=False) is None
    assert held.note("small", 30, 1.0, whole=False) == "large"
    held.note("large", 0, 2.0, whole=True)
    assert held.total == 30
    # Time counts from the first byte of a frame, not from the last that came.
    assert held.note("small", 31, 9.0, whole=False) is None
    assert held.late(9.0) == []
    assert held.late(11.0) == ["small"]
    held.note("small", 31, 11.0, whole=True)
    assert held.late(12.0) == []


def test_strangers_have_to_say_hello_and_to_finish():
    async def main():
        limits = Limits(hello=0.3, frame=0.3, per_address=4, unfinished=1 << 16)
        async with RouterServer("a", Settings(lease=8.0), limits=limits) as a, honest(a.url, a.url) as pair:
            begin = time.monotonic()
            silent = await Stranger.call(a.address)
            slow = await Stranger.call(a.address, b"\0\0\0\7abc")
            for each in (silent, slow):
                assert "Expected a hello" in (await each.hear("Failure"))["message"]
                await each.ended()
            assert time.monotonic() - begin < 5
            # They make room for whoever says hello; those who are welcome do not.
            crowd = [await Stranger.call(a.address) for _ in range(2)]
            others = [await Stranger.call(a.address, client_hello(f"other{i}")) for i in range(2)]
            for each in others:
                assert await each.hear("Welcome")
            for each in crowd:
                assert await each.next() is None
            refused = await Stranger.call(a.address, client_hello())
            assert "at most 4 connections" in (await refused.hear("Failure"))["message"]
            for each in others:
                each.close()
            await eventually(lambda: len(a.listener.connections) == 2)
            begun = await Stranger.call(a.address, client_hello("begun"))
            assert await begun.hear("Welcome")
            begun.say(b"\0\0\1\0abc")
            assert "rest of a frame" in (await begun.hear("Failure"))["message"]
            large = await Stranger.call(a.address, b"\0\1\0\0")
            assert "frame of 1 to 4096" in (await large.hear("Failure"))["message"]
            hoard = await Stranger.call(a.address, client_hello("hoard"))
            assert await hoard.hear("Welcome")
            hoard.say(b"\0\2\0\0" + bytes(100_000))
            assert "unfinished frames in all" in (await hoard.hear("Failure"))["message"]
            await pair.check()
            assert a.listener._unfinished.total == 0
            assert (await pair.publisher.ask("status"))["turned_away"] == 3

    asyncio.run(main())


def test_schemas_and_routers_that_neighbours_tell_of_are_bounded(monkeypatch):
    monkeypatch.setattr(routing, "MAX_SCHEMAS", 3)
    monkeypatch.setattr(overlay, "MAX_ROUTERS", 3)
    a = met()
    others = [type(SCHEMA)(f"s{i}", SCHEMA.attributes) for i in range(5)]
    for number, each in enumerate(others):
        a.receive("x", m.LinkStated("x" if not number else f"y{number}", 1, ("a",)), 1.0)
        a.receive("x", m.Whole(1, number, (), (encode_schema(each), DATA)), 1.0)
    # Schemaless and `SCHEMA` were known before.
    assert [s.name for s in a.catalogue.schemas.values() if s is not None] == ["wire", "s0"]
    assert sorted(a.states.overlay.links) == ["a", "x", "y1"]


def test_schemas_and_registrations_are_bounded():
    async def main():
        limits = Limits(schemas_per_client=1, registrations=2)
        async with RouterServer("a", Settings(lease=8.0), limits=limits) as a, honest(a.url, a.url) as pair:
            other = type(SCHEMA)("other", SCHEMA.attributes)
            with pytest.raises(Rejected, match="at most 1 schemas of one client"):
                await pair.publisher.schema(other)
            await pair.subscriber.schema(SCHEMA)
            await pair.subscriber.schema(other)
            feed = await pair.subscriber.subscribe("wire: n = 1")
            with pytest.raises(Rejected, match="at most 2 registrations"):
                await pair.subscriber.subscribe("wire: n = 2")
            await feed.close()
            await pair.subscriber.subscribe("wire: n = 2")
            await pair.check()

    asyncio.run(main())


def test_a_subscription_that_costs_too_much_is_refused_before_the_work_is_done(monkeypatch):
    wide = Schema("wide", tuple(Attribute(f"a{i}", "int", lo=0, hi=1 << 20) for i in range(64)))
    filters = [
        Filter(wide, {f"a{i}": ValueSet.interval(j * 7 + i, 1000 + j * 11 + i) for i in range(64)}) for j in range(100)
    ]
    content = encode_subscription(Subscription(filters, wide))

    async def main():
        async with two_routers(limits=Limits(cost=20_000)) as (a, b), honest(a.url, b.url) as pair:
            stranger = await Stranger.call(a.address, client_hello("x"), p.Register(1, encode_schema(wide)))
            number = (await stranger.hear("CategoryIs"))["category"]
            with monkeypatch.context() as patch:  # nobody begins to work on them
                patch.setattr("sievenet.content.codec.Subscription", None)
                for say in (p.Subscribe(2, 1, number, content), p.Advertise(3, 1, number, content)):
                    stranger.say(say)
                    assert "at most 20000 steps" in (await stranger.hear("Failure"))["message"]
            await pair.check()
            stranger.close()

    asyncio.run(main())


def test_whoever_had_something_done_that_took_long_waits_for_its_next_and_others_do_not():
    async def main():
        async with two_routers() as (a, b), honest(a.url, b.url) as pair:
            stranger = await Stranger.call(a.address, client_hello("x"))
            assert await stranger.hear("Welcome")
            work = a._service.request

            def long(peer, message):
                end = time.thread_time() + 0.1
                while peer.name == "x" and time.thread_time() < end:
                    pass
                work(peer, message)

            a._service.request = long
            stranger.say(p.Ask(1, "status"))
            assert (await stranger.hear("Done"))["request"] == 1
            a._service.request = work
            peer = a._registry.clients["x"]
            assert a._rest.wait(peer.party, time.monotonic()) > 1.0  # twenty times as long, but for a slow machine
            a._rest.worked(peer.party, 100.0, time.monotonic())
            stranger.say(p.Ask(2, "status"))
            await pair.check()
            await pair.publisher.ask("status")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stranger.hear("Done"), 0.3)
            a._rest._until.clear()
            assert (await stranger.hear("Done"))["request"] == 2
            stranger.close()

    asyncio.run(main())


def test_others_are_heard_between_requests_that_come_together():
    async def main():
        async with RouterServer("a", Settings(lease=8.0)) as a, honest(a.url, a.url) as pair:
            stranger = await Stranger.call(a.address, client_hello("x"))
            assert await stranger.hear("Welcome")
            order, work = [], a._service.request

            def noted(peer, message):
                order.append(peer.name)
                work(peer, message)

            a._service.request = noted
            stranger.say(*(p.Ask(i, "status") for i in range(8_000)))  # less than is read at once
            await pair.publisher.ask("status")
            assert order.index(pair.publisher.name) < 4_000
            for i in range(8_000):  # in order, and none is left out
                assert (await stranger.hear("Done"))["request"] == i
            stranger.close()

    asyncio.run(main())


# -- words ---------------------------------------------------------------------------------


def test_the_log_names_a_neighbour_that_goes_wrong(caplog):
    for dialled, first in ((False, router_hello("x")), (True, p.Welcome(p.PROTOCOL, "me", b"t", 1.0, "x"))):
        callee = Callee(p.ROUTING, Limits(), 0.0, dialled=dialled)
        assert callee.receive(frame(first), 0.0).greeting == first
        callee.welcomed(Identity(Role.COMPONENT), 0.0)
        caplog.clear()
        callee.receive(frame(p.Ask(1, "status")), 0.0)
        assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["from component x"]


def test_a_hoard_is_ended_once_in_the_log(caplog):
    async def main():
        async with RouterServer("a", Settings(lease=8.0)) as a:
            stranger = await Stranger.call(a.address, client_hello("x"))
            assert await stranger.hear("Welcome")
            (peer,) = a.listener.connections
            for _ in range(3):
                a.listener._end(peer, Unavailable("enough"))
            await stranger.ended()

    asyncio.run(main())
    assert [each.getMessage() for each in caplog.records if "ended" in each.getMessage()] == [
        "connection of x ended: enough"
    ]


def test_a_neighbour_that_complains_without_end_fills_no_log(caplog):
    """As one does that refuses our login at each of its tries to connect."""

    async def main():
        async with RouterServer("a", Settings(lease=8.0)) as a:
            stranger = await Stranger.call(a.address, router_hello())
            assert await stranger.hear("Welcome")
            stranger.say(*(failure(0, Rejected("The certificate was revoked")) for _ in range(90)))
            await eventually(lambda: a._complain.count == 90)

    asyncio.run(main())
    assert len([each for each in caplog.records if "The certificate was revoked" in each.getMessage()]) == 1


def test_a_wrong_version_gets_a_hint_about_routers_only_where_it_may_be_one():
    for protocol, hint in ((p.ROUTING, True), (CONTROL, True), (CONFIGURATORS, False), (AGENTS, False)):
        callee = Callee(protocol, Limits(), 0.0)
        wrong = protocol.hello(protocol.version + 1, Role.COMPONENT, "x")
        end = callee.receive(frame(wrong), 0.0).end
        assert f"version {protocol.version}, got {protocol.version + 1}" in str(end)
        assert ("sievenet+router" in str(end)) is hint
