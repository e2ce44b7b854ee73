"""Turns: whoever says much, or too much, or comes too often, waits; others have their turn meanwhile."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sievenet
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.access.quota import Quota, TooFast, Usage
from sievenet.content import Attribute, Schema
from sievenet.control import protocol as p
from sievenet.daemon.questions import Questions
from sievenet.session.apart import Apart
from sievenet.session.framing import LARGE, frame
from sievenet.session.pace import Pace
from sievenet.session.shares import Shares
from sievenet.session.turns import Turns
from sievenet.testing.virtual_time import run_virtual
from tests.access.harness import folder, guarded, join
from tests.access.test_table import Wire as BareWire
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run, take
from tests.fabric.test_attacks import Wire


@contextlib.asynccontextmanager
async def bare(daemon, access, member):
    """A member's connection of bare frames."""
    login = load_login(access.login(member))
    found = BareWire(p.CONTROL, *await asyncio.open_connection(*daemon.server.address, ssl=login.dialling()))
    try:
        found.say(p.Hello(p.PROTOCOL, Role.CLIENT, token=login.token))
        assert isinstance(await found.hear(), p.Welcome)
        yield found
    finally:
        found.writer.close()


@given(st.lists(st.sampled_from((10, 100, LARGE + 10, 3 * LARGE)), max_size=30), st.integers(1, 5), st.integers(1, 9))
def test_messages_are_the_same_however_many_are_taken_at_once(sizes, most, pieces):
    data = b"".join(frame(p.Ask(i + 1, "trace", "x" * min(size, 65_000))) for i, size in enumerate(sizes))
    whole, sliced, found = p.CONTROL.listening(1 << 20), p.CONTROL.listening(1 << 20), []
    step = max(1, len(data) // pieces)
    for at in range(0, len(data), step):
        sliced.add(data[at : at + step])
        while sliced.front:
            some = list(sliced.feed(b"", most))
            assert 1 <= len(some) <= most
            assert len(some) == 1 or all(len(frame(each)) <= LARGE + 4 for each in some)
            found += some
    assert found == list(whole.feed(data))
    assert sliced.pending == 0


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 5))
def test_a_message_that_is_left_out_says_its_number_and_the_others_are_read(skipped, length):
    framer = p.CONTROL.listening(1 << 20)
    framer.add(b"".join(frame(p.Ask(i + 1, "trace", "x" * (i + 1) ** length)) for i in range(len(skipped))))
    for i, leave_out in enumerate(skipped):
        number = framer.skip() if leave_out else next(iter(framer.feed(b"", 1))).request
        assert number == i + 1
    assert framer.pending == 0


@given(st.data())
def test_whoever_always_waits_has_as_much_time_as_others(data):
    """Of two that always have something to say, neither is ahead by more than one longest turn; others come and go."""
    shares, spent, longest = Shares(), {"a": 0.0, "b": 0.0, "c": 0.0}, 0.0
    for party in "ab":
        shares.wait(party, party)
    for _ in range(data.draw(st.integers(1, 40))):
        if data.draw(st.booleans()):
            shares.wait("c", "c")
        party, what = shares.next()
        assert party == what
        took = data.draw(st.sampled_from((0.0, 0.001, 0.01, 1.0)))
        shares.spent(party, took)
        spent[party] += took
        longest = max(longest, took)
        if party != "c":
            shares.wait(party, party)
        assert abs(spent["a"] - spent["b"]) <= longest + 1e-9


def test_whoever_was_away_saves_nothing_up():
    shares = Shares()
    for _ in range(10):
        shares.wait("busy", 1)
        shares.next()
        shares.spent("busy", 1.0)
    for i in range(3):
        shares.wait("new", i)
        shares.wait("busy", i)
    order = []
    while (found := shares.next()) is not None:
        order.append(found[0])
        shares.spent(found[0], 1.0)
    assert order[0] == "new"
    assert all(order[:i].count("new") - order[:i].count("busy") <= 2 for i in range(7))


def test_a_round_has_so_many_messages_and_one_that_gives_up_stops_nobody():
    async def main():
        turns, order, rounds = Turns(16), [], []
        loop = asyncio.get_running_loop()

        async def take_turns(name, number):
            for _ in range(number):
                await turns.begin(name)
                if not rounds or loop.iteration != rounds[-1][0]:
                    rounds.append((loop.iteration, []))
                rounds[-1][1].append(name)
                order.append(name)
                turns.end(name, 16)

        def tick():
            loop.iteration += 1
            loop.call_soon(tick)

        loop.iteration = 0
        tick()
        names = [f"party-{i}" for i in range(12)]
        tasks = [asyncio.create_task(take_turns(name, 20)) for name in names]
        while len(order) < 60:
            await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(order.count(name) == 20 for name in names if name != names[1])
        assert order.count(names[1]) < 20
        assert max(len(some) for _, some in rounds) <= 4  # of 16 messages each

    asyncio.run(main())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 0.5)), max_size=80), st.integers(2, 50))
def test_no_address_comes_more_often_than_it_may(steps, rate):
    """In any stretch of time at most a second's worth more begin than the rate allows, and never two at once."""
    pace, now, begun = Pace(rate), 0.0, {"a": [], "b": []}
    for address, pause in steps:
        now += pause
        wait = pace.wait(address, now)
        if wait is not None:
            assert wait <= 5.0
            begun[address].append(now + wait)
    for times in begun.values():
        for i, first in enumerate(times):
            for j, last in enumerate(times[i:], 1):
                assert j <= rate * (last - first) + rate + 2, (i, j)


def test_a_flood_of_connections_keeps_nobody_out_for_longer_than_it_lasts():
    pace = Pace(10, patience=2.0)
    waits = [pace.wait("a", 0.0) for _ in range(1000)]
    assert None in waits
    assert max(each for each in waits if each is not None) <= 2.0
    assert pace.wait("b", 0.5) < 0.1
    assert pace.wait("a", 4.0) < 0.1


def test_a_flood_that_leads_to_nothing_is_slow_and_is_forgotten_when_it_ends():
    """Six hundred connections that were no TLS kept everybody at their address out for a minute."""
    pace, begun, now = Pace(100, patience=5.0), [], 0.0
    for _ in range(2_000):
        now += 0.01
        if (wait := pace.wait("a", now)) is not None:
            begun.append(now + wait)
        for _ in [each for each in begun if now - 0.01 < each <= now]:
            pace.failed("a", now)
    assert sum(each > 10.0 for each in begun) <= 200  # ten per second, and not a hundred
    assert pace.wait("b", now) < 0.1
    waits = [pace.wait("a", now + later) for later in (0.5, 1.0, 1.5)]
    assert any(each is not None for each in waits)
    assert pace.wait("a", now + 7.0) < 0.1


def test_a_connection_that_lasted_gives_its_place_back():
    pace = Pace(2)
    for _ in range(50):
        assert pace.wait("a", 10.0) < 0.2
        pace.stayed("a")


def test_whoever_says_much_is_heard_in_turns():
    async def main():
        async with fabric() as daemon, Wire.open(daemon, name="loud") as wire:
            await wire.hear()
            taken, take_them = [], daemon.service.take
            daemon.service.take = lambda peer, some: (taken.append(len(some)), take_them(peer, some))[1]
            wire.writer.write(b"".join(frame(p.Ask(i + 1, "topology")) for i in range(500)))
            answers = [await wire.hear() for _ in range(500)]
            assert {each.request for each in answers} == set(range(1, 501))
            assert max(taken) <= 16

    run(main())


def test_a_member_over_its_quota_is_not_read_and_its_heartbeats_go_on(tmp_path):
    """Refusing costs as well: a flood is refused a few times per second, not as fast as it comes."""
    rules = '[members.loud]\nrole = "client"\nrules = ["subscribe *: any"]\nquota = { requests = 20 }\n'
    access = folder(tmp_path, rules)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "loud", name="loud") as loud:
            handled, handle = [], daemon.service.check
            daemon.service.check = lambda peer, message, size: (handled.append(message), handle(peer, message, size))[1]
            begin = time.monotonic()
            asked = [asyncio.create_task(loud.ask("topology")) for _ in range(1500)]
            await eventually(lambda: any(isinstance(each, p.Renew) for each in handled), timeout=20)
            seconds = time.monotonic() - begin
            questions = [each for each in handled if isinstance(each, p.Ask)]
            assert 20 <= len(questions) <= 20 * seconds + 16 * (seconds / 0.02 + 2)
            assert loud.connected
            assert loud.statistics().losses == 0
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    run(main())


def test_requests_of_a_kind_that_come_too_fast_are_answered_together_and_all_are_counted(tmp_path):
    rules = '[members.loud]\nrole = "client"\nrules = ["subscribe *: any"]\nquota = { requests = 4 }\n'
    access = folder(tmp_path, rules)

    async def main():
        async with (
            guarded(access, access__audit=str(tmp_path / "audit")) as daemon,
            bare(daemon, access, "loud") as loud,
        ):
            checked, check = [], daemon.service.check
            daemon.service.check = lambda peer, message, size: (checked.append(message), check(peer, message, size))[1]
            count = 160
            loud.writer.write(b"".join(frame(p.Ask(i, "topology")) for i in range(count)))
            answers = [await loud.hear() for _ in range(count)]
            refused = sum(isinstance(each, p.Failure) for each in answers)
            assert {each.request for each in answers} == set(range(count))
            assert refused > count // 2
            assert len(checked) < count // 2
            # One more that is refused later tells of those before it.
            await asyncio.sleep(0.3)
            loud.writer.write(b"".join(frame(p.Ask(i, "topology")) for i in range(50)))
            refused += sum(isinstance(each, p.Failure) for each in [await loud.hear() for _ in range(50)])
        records = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        told = [each for each in records if each["what"] == "Ask"]
        counted = len(told) + sum(each.get("refused_before", 0) for each in told)
        assert counted <= refused
        assert counted > count // 2

    run(main())


def test_of_a_member_over_its_quota_few_messages_are_taken_at_a_time(tmp_path):
    """Refusing sixteen in one turn took half a millisecond, fifty times a second, and events waited for that."""
    rules = '[members.loud]\nrole = "client"\nrules = ["subscribe *: any"]\nquota = { requests = 20 }\n'
    access = folder(tmp_path, rules)

    async def main():
        async with guarded(access) as daemon, bare(daemon, access, "loud") as loud:
            taken, take_them = [], daemon.service.take

            def take_some(peer, some):
                taken.append((peer.hasty, len(some)))
                return take_them(peer, some)

            daemon.service.take = take_some
            loud.writer.write(b"".join(frame(p.Renew(i + 1)) for i in range(400)))
            answered = [await loud.hear() for _ in range(400)]
            assert any(isinstance(each, p.Failure) for each in answered)
            assert max(number for hasty, number in taken if not hasty) == 16
            assert max(number for hasty, number in taken if hasty) == 4
            # Whoever is within its quota again is heard as before.
            await asyncio.sleep(1.5)
            taken.clear()
            for i in range(2):
                loud.writer.write(frame(p.Renew(1000 + i)))
                assert isinstance(await loud.hear(), p.Done)
            loud.writer.write(b"".join(frame(p.Renew(2000 + i)) for i in range(16)))
            assert all(isinstance(each, p.Done) for each in [await loud.hear() for _ in range(16)])
            assert not taken[-1][0]

    run(main())


def test_large_requests_count_for_more(tmp_path):
    rules = '[members.big]\nrole = "client"\nrules = ["publish *: any"]\nquota = { requests = 30 }\n'
    access = folder(tmp_path, rules)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "big") as big:
            wide = [
                Schema(f"s{i}", (Attribute("v", "str", values=tuple(f"{i}-{j:06}" for j in range(20_000))),))
                for i in range(4)
            ]
            begin = time.monotonic()
            refused = 0
            for schema in wide:
                try:
                    await big.schema(schema)
                except sievenet.errors.Rejected as error:
                    assert "at most 30 requests per second" in str(error)  # noqa: PT017
                    refused += 1
            assert refused or time.monotonic() - begin > 1.0

    run(main())


def test_a_large_message_over_the_quota_is_not_even_decoded(tmp_path):
    rules = '[members.big]\nrole = "client"\nrules = ["publish *: any"]\nquota = { requests = 3 }\n'
    access = folder(tmp_path, rules)  # each message costs what comes in four seconds
    wide = Schema("wide", (Attribute("v", "str", values=tuple(f"{j:06}" for j in range(20_000))),))

    async def main():
        async with guarded(access) as daemon, bare(daemon, access, "big") as found:
            taken, take_them = [], daemon.service.take
            daemon.service.take = lambda peer, some: (taken.extend(some), take_them(peer, some))[1]
            for i in range(6):
                found.writer.write(frame(p.Register(i + 1, wide)))
            answers = [await found.hear() for _ in range(6)]
            refused = [each for each in answers if "3 requests per second" in getattr(each, "message", "")]
            assert {each.request for each in answers} == set(range(1, 7))
            assert refused
            assert len(taken) == 6 - len(refused)

    run(main())


def test_whoever_had_a_large_message_decoded_waits_for_its_next_and_others_do_not(monkeypatch):
    async def at_once(work, *arguments):
        return work(*arguments)

    async def main():
        apart, order, clock = Apart(), [], asyncio.get_running_loop().time
        monkeypatch.setattr("sievenet.session.apart.time", SimpleNamespace(monotonic=clock))
        await apart.run("loud", lambda: order.append(1))
        waiting = [asyncio.create_task(apart.run("loud", lambda: order.append(2))) for _ in range(2)]
        await apart.run("quiet", lambda: order.append(3))
        for _ in range(3):
            await apart.run(None, lambda: order.append(4))
        assert clock() == 0
        await asyncio.gather(*waiting)
        assert clock() == pytest.approx(1.0)  # half a second each
        assert order == [1, 3, 4, 4, 4, 2, 2]

    monkeypatch.setattr("sievenet.session.apart._timed", lambda work: (work(), 0.0025))
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    run_virtual(main())


def test_whoever_sends_without_a_pause_while_it_is_not_read_fills_no_memory(tmp_path):
    rules = '[members.big]\nrole = "client"\nquota = { requests = 1000 }\n'
    access = folder(tmp_path, rules)
    data = frame(p.Ask(1, "trace", "x" * 60_000)) + frame(p.Ask(2, "status"))

    def flood(address):
        """In a thread: as fast as the other side takes it, until that ends."""
        login = load_login(access.login("big"))
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address) as raw,
            login.dialling().wrap_socket(raw, server_hostname=address[0]) as tls,
        ):
            tls.sendall(frame(p.Hello(p.PROTOCOL, Role.CLIENT, token=login.token)))
            while True:
                tls.sendall(data)

    async def main():
        async with guarded(access) as daemon:
            held, end = [], time.monotonic() + 2.0
            threading.Thread(target=flood, args=(daemon.server.address,), daemon=True).start()
            while time.monotonic() < end:
                await asyncio.sleep(0.005)
                held += [len(each.reader._buffer) + each.callee.pending for each in daemon.server.connections]
                # A reader that is full stops the transport that it reads from, not the one below, which TLS lets go on.
                assert all(each.reader._transport is each.writer.transport for each in daemon.server.connections)
            assert 50_000 < max(held) < 1 << 20

    run(main())


def test_a_peer_that_vanished_while_it_was_not_read_is_forgotten(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon, bare(daemon, access, "alice") as found:
            [connection] = daemon.server.connections
            go_on = asyncio.Event()
            unread = asyncio.create_task(connection.unread(go_on.wait()))
            await asyncio.sleep(0.01)
            found.writer.transport.abort()
            await asyncio.sleep(0.05)
            daemon.server._look_after(connection, time.monotonic() + 100, 0.0)
            assert connection.closing
            go_on.set()
            await unread
            await asyncio.sleep(0.05)
            daemon.server._look_after(connection, time.monotonic() + 101, 0.0)
            await eventually(lambda: not daemon.server.connections)

    run(main())


def test_while_a_connection_is_not_read_nothing_of_it_wakes_anybody(tmp_path):
    """Behind TLS too: what comes is not even taken in to be decrypted later."""
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon, bare(daemon, access, "alice") as found:
            [connection] = daemon.server.connections
            below = connection.writer.transport._ssl_protocol
            go_on = asyncio.Event()
            unread = asyncio.create_task(connection.unread(go_on.wait()))
            await asyncio.sleep(0.01)
            for i in range(20):
                found.say(p.Ask(i, "topology"))
                await asyncio.sleep(0.002)
            assert below._incoming.pending == 0
            go_on.set()
            await unread
            assert {(await found.hear()).request for _ in range(20)} == set(range(20))

    run(main())


def test_heartbeats_count_when_there_are_far_too_many():
    usage = Usage(Quota(requests=10), "of loud")
    for _ in range(60):
        usage.heartbeat(0.0)
    with pytest.raises(TooFast):
        usage.heartbeat(0.0)
    usage.heartbeat(1.0)


def test_a_member_that_comes_again_and_again_leaves_few_sessions_behind(tmp_path):
    rules = '[members.shy]\nrole = "client"\nrules = ["subscribe *: any"]\nquota = { connections = 3 }\n'
    access = folder(tmp_path, rules)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "shy", name="shy.stays") as stays:
            await daemon.control.register_schema(SCHEMA)
            feed = await stays.subscribe(SCHEMA)
            for _ in range(8):
                async with bare(daemon, access, "shy"):
                    pass
                assert len(daemon.plane.clients()) <= 3
            assert "shy.stays" in daemon.plane.clients()
            assert stays.connected
            await feed.close()

    run(main())


def plain(answer):
    return msgspec.msgpack.decode(answer)


def test_who_asks_without_end_waits_for_itself_and_others_get_fresh_answers():
    async def main():
        async with fabric() as daemon:
            check = daemon.answers.check

            async def slow():
                end = time.thread_time() + 0.005
                while time.thread_time() < end:
                    pass
                return await check()

            daemon.answers.check = slow
            questions, answered = Questions(daemon.answers), 0

            async def mallory():
                nonlocal answered
                while True:
                    await questions.answer("check", "", "mallory")
                    answered += 1

            flood, begin = [asyncio.create_task(mallory()) for _ in range(20)], time.monotonic()
            await asyncio.sleep(0.5)
            for _ in range(2):
                asked = time.monotonic()
                assert plain(await questions.answer("check", "", "alice"))["ok"]
                assert time.monotonic() - asked < 0.5
            assert answered <= 1 + (0.03 + 0.01 * (time.monotonic() - begin)) / 0.005
            for each in flood:
                each.cancel()
            await asyncio.gather(*flood, return_exceptions=True)

    run(main())


def test_answers_are_given_in_small_pieces():
    async def main():
        async with fabric() as daemon:
            turns, asking = 0, asyncio.create_task(Questions(daemon.answers).answer("status", ""))
            while not asking.done():
                await asyncio.sleep(0)
                turns += 1
            switches = plain(asking.result())["switches"]
            assert turns > len(switches) / 2

    run(main())


def test_answers_take_a_small_share_of_the_time():
    async def main():
        async with fabric() as daemon:
            looked, status = [], daemon.answers.status

            async def slow():
                looked.append(time.monotonic())
                end = time.thread_time() + 0.02
                while time.thread_time() < end:
                    pass
                return await status()

            daemon.answers.status = slow
            questions, begin = Questions(daemon.answers), time.monotonic()
            fresh = plain(await questions.answer("status", ""))
            while time.monotonic() < begin + 1.0:
                found = plain(await questions.answer("status", ""))
                assert found.keys() == fresh.keys()
                await asyncio.sleep(0)
            assert 2 <= len(looked) <= 1 + (0.25 + 0.05 * (time.monotonic() - begin)) / 0.02
            # Others are answered too, a little later.
            assert plain(await asyncio.wait_for(questions.answer("check", ""), 5))["ok"]

    run(main())


def test_a_flood_that_nobody_wants_is_hardly_read_and_costs_others_nothing():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url) as pub,
            sievenet.connect(daemon.url) as sub,
        ):
            feed = await sub.subscribe(SCHEMA)
            await pub.advertise(SCHEMA)
            for x in range(3):
                await pub.publish(reading(x=x))
            await take(feed, 3)
            before, begin = daemon.plane.statistics(), time.monotonic()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.connect(daemon.plane.endpoint)
                for x in range(100):
                    for _ in range(200):
                        stranger.send(bytes(30))
                    await pub.publish(reading(x=x))
                assert [each["x"] for each in await take(feed, 100)] == list(range(100))
                after, seconds = daemon.plane.statistics(), time.monotonic() - begin
                assert after.malformed - before.malformed <= 64 * (seconds / 0.01 + 2)
                assert after.packets - before.packets == 100
            # The socket is read again: somebody who comes now is heard.
            async with sievenet.connect(daemon.url) as late:
                await late.advertise(SCHEMA)
                await late.publish(reading(x=7))
                assert (await take(feed, 1))[0]["x"] == 7
            await eventually(lambda: not daemon.plane._sockets._resting)

    run(main())
