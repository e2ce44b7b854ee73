"""What one client can do to a daemon, over the wire: each of these once stopped or fooled it."""

import asyncio
import contextlib
import errno
import logging
import threading
import time

import pytest

import sievenet
from sievenet.config import load_config
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import encode_subscription
from sievenet.control import protocol as p
from sievenet.control.commands import Register, encode_command
from sievenet.control.journal import MemoryJournal
from sievenet.daemon import clearance as clearances
from sievenet.errors import CodecError, Rejected
from sievenet.index import Plan
from sievenet.session.complaints import Complaints
from sievenet.session.framing import frame
from tests.fabric.harness import SCHEMA, eventually, fabric, run


class Wire:
    """A client of bare frames."""

    def __init__(self, reader, writer):
        self._reader, self.writer = reader, writer
        self._framer = p.CONTROL.dialling()
        self._heard = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, daemon, **hello):
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
        wire = cls(reader, writer)
        wire.say(p.Hello(p.PROTOCOL, **hello))
        try:
            yield wire
        finally:
            writer.close()

    def say(self, message):
        self.writer.write(frame(message))

    async def hear(self):
        while not self._heard:
            data = await asyncio.wait_for(self._reader.read(65536), 20)
            if not data:
                return None
            self._heard += self._framer.feed(data)
        return self._heard.pop(0)

    async def ask(self, message):
        self.say(message)
        return await self.hear()


def test_a_subscription_that_costs_too_much_is_refused_before_the_work_is_done():
    wide = Schema("wide", tuple(Attribute(f"a{i}", "int", lo=0, hi=1 << 20) for i in range(64)))
    filters = [
        Filter(wide, {f"a{i}": ValueSet.interval(j * 7 + i, 1000 + j * 11 + i) for i in range(64)}) for j in range(200)
    ]

    async def main():
        async with fabric(listen__max_cost=20_000) as daemon, Wire.open(daemon, name="greedy") as wire:
            await wire.hear()
            await wire.ask(p.Register(1, wide))
            number = daemon.control.category("wide").number
            answer = await wire.ask(p.Subscribe(2, 1, number, encode_subscription(Subscription(filters, wide))))
            while not isinstance(answer, p.Failure):
                answer = await wire.hear()
            assert answer.kind == CodecError.__name__
            assert "at most 20000 steps" in answer.message
            assert not daemon.control.member("greedy").subscriptions

    run(main())


def test_counts_of_heartbeats_are_bounded_and_status_goes_on():
    async def main():
        async with fabric() as daemon, Wire.open(daemon, name="boaster") as wire:
            await wire.hear()
            for i in range(3):
                answer = await wire.ask(p.Renew(i + 1, p.Report(published=(1 << 63) - 1)))
                assert isinstance(answer, p.Failure)
            most = p.Report(published=1 << 40, latency_p50=float("nan"), latency_p99=float("inf"))
            assert await wire.ask(p.Renew(9, most)) == p.Done(9)
            async with sievenet.connect(daemon.url, observer=True) as node:
                traffic = (await node.ask("status"))["traffic"]
                assert (traffic["published"], traffic["latency_p50"]) == (1 << 40, None)

    run(main())


def test_an_old_ticket_is_worth_nothing_once_somebody_else_has_the_name():
    async def main():
        async with fabric() as daemon:
            async with Wire.open(daemon, name="ann") as before:
                ticket = (await before.hear()).ticket
                assert await before.ask(p.Leave(1)) == p.Done(1)
            async with sievenet.connect(daemon.url, name="ann"), Wire.open(daemon, name="ann", ticket=ticket) as thief:
                answer = await thief.hear()
                assert isinstance(answer, p.Failure)
                assert "taken" in answer.message

    run(main())


@pytest.mark.parametrize("name", ["ann\n", "\nann", "ann\0", ""])
def test_a_name_is_what_it_seems(name):
    async def main():
        async with fabric() as daemon, Wire.open(daemon, name=name) as wire:
            assert isinstance(await wire.hear(), p.Failure)
            assert not daemon.plane.clients()

    run(main())


def test_observers_change_nothing_and_operators_do():
    plan = Plan.regular(SCHEMA, 8).to_json()

    async def main():
        async with (
            fabric(control__forwarding_delay=0.05) as daemon,
            sievenet.connect(daemon.url, operator=True) as boss,
            sievenet.connect(daemon.url, observer=True) as node,
        ):
            await boss.schema(SCHEMA)
            other = Schema("other", SCHEMA.attributes)
            for change in (node.schema(other), node.apply_plan("reading", plan), node.remove_schema("reading")):
                with pytest.raises(Rejected):
                    await change
            assert (await boss.apply_plan("reading", plan))["epoch"] == 2
            await boss.remove_schema("reading")
            assert not list(daemon.control.categories())

    run(main())


def test_an_operator_from_another_machine_is_refused(monkeypatch):
    monkeypatch.setattr("sievenet.access.identity.Credentials.near", False)

    async def main():
        async with fabric() as daemon:
            with pytest.raises(Rejected, match="own machine"):
                await sievenet.connect(daemon.url, operator=True, reconnect=False)
            async with sievenet.connect(daemon.url) as node:
                await node.schema(SCHEMA)
                with pytest.raises(Rejected, match="Expected an operator"):
                    await node.remove_schema("reading")

    run(main())


def test_schemas_have_bounds():
    async def main():
        limits = {"listen__max_schemas": 3, "listen__max_schema_bytes": 2000}
        async with fabric(**limits) as daemon, sievenet.connect(daemon.url) as node:
            with pytest.raises(Rejected, match="at most 2000 bytes"):
                await node.schema(Schema("big", (Attribute("k", "str", values=tuple(map(str, range(1000)))),)))
            for i in range(3):
                await node.schema(Schema(f"s{i}", (Attribute("x", "bool"),)))
            with pytest.raises(Rejected, match="3 schemas, which is the limit"):
                await node.schema(SCHEMA)
            await node.schema(Schema("s1", (Attribute("x", "bool"),)))  # known already
            await node.remove_schema("s0")
            await node.schema(Schema("s3", (Attribute("x", "bool"),)))

    run(main())


def test_silent_observers_keep_nobody_out():
    async def main():
        async with fabric(listen__max_observers=3) as daemon, contextlib.AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(Wire.open(daemon, role="observer")) for _ in range(3)]
            for wire in wires:
                assert isinstance(await wire.hear(), p.Welcome)
            assert isinstance(await wires[0].ask(p.Ask(1, "status")), p.Done)
            async with sievenet.connect(daemon.url, observer=True) as node:
                await node.ask("status")
            assert isinstance(await wires[1].hear(), p.Goodbye)
            assert isinstance(await wires[0].ask(p.Ask(2, "status")), p.Done)

    run(main())


def test_requests_that_wait_are_bounded_in_bytes():
    """A client sends far more than is worked on: it waits in its own socket, and nothing is lost."""

    async def main():
        async with (
            fabric(listen__max_held=100_000, listen__max_open=1) as daemon,
            Wire.open(daemon, name="busy") as wire,
        ):
            await wire.hear()
            most = 0
            handle = daemon.service.handle

            async def watched(peer, message):
                nonlocal most
                (desk,) = daemon.service._desks.values()
                most = max(most, desk._held)
                return await handle(peer, message)

            daemon.service.handle = watched
            for i in range(200):
                wire.say(p.Ask(i + 1, "trace", "x" * 20_000))
            answers = [await wire.hear() for _ in range(200)]
            assert {answer.request for answer in answers} == set(range(1, 201))
            assert most <= 100_000 + 21_000
            (desk,) = daemon.service._desks.values()
            assert desk._held == 0

    run(main())


def test_whoever_does_not_read_is_cut_off():
    async def main():
        async with fabric(listen__unread=0.2) as daemon:
            _, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port, limit=1)
            writer.write(frame(p.Hello(p.PROTOCOL, role="observer")))
            await eventually(lambda: daemon.service._everyone)
            (peer,) = daemon.service._everyone
            for _ in range(200):
                peer.send(p.Done(1, "x" * 100_000))
            await eventually(lambda: not daemon.service._everyone)
            writer.close()

    run(main())


def test_however_many_ask_for_the_topology_looking_is_rare(monkeypatch):
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, observer=True) as node:
            now, looks = [1e9], []
            look = daemon.answers._picture._look

            def slow():
                looks.append(now[0])
                now[0] += 0.1  # a large network
                return look()

            monkeypatch.setattr(daemon.answers._picture, "_look", slow)
            monkeypatch.setattr("sievenet.daemon.picture.time.monotonic", lambda: now[0])
            for _ in range(100):
                daemon.answers.topology()
                now[0] += 0.05
            assert len(looks) <= 4
            monkeypatch.undo()
            assert (await node.ask("topology"))["hosts"]

    run(main())


def test_a_lack_of_file_descriptors_is_told_once(caplog):
    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(Complaints())
        for _ in range(1000):
            error = OSError(errno.EMFILE, "Too many open files")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
        loop.call_exception_handler({"message": "something else"})

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [r.getMessage() for r in caplog.records if "ulimit" in r.getMessage()] == [
        "no connection can be accepted: Too many open files (see `ulimit -n`)"
    ]
    assert len(caplog.records) == 2


def test_a_welcome_stays_small_however_many_schemas_there_are():
    """Neither a newcomer nor one that comes back is told what it does not work with."""

    async def main():
        wide = tuple(
            Schema(f"s{i}", (Attribute("k", "str", values=tuple(map(str, range(i, i + 500)))),)) for i in range(40)
        )
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, sievenet.connect(daemon.url) as user:
            for schema in (*wide, SCHEMA):
                await node.schema(schema)
            async with Wire.open(daemon) as wire:
                assert len(frame(await wire.hear())) < 1000
            await user.advertise("s7")
            daemon.service.goodbye("for a test")
            while user.connected:
                await asyncio.sleep(0.01)
            await user.publish(wide[7].event(k="7"))
            assert [category.schema.name for category in user._catalog] == ["s7"]

    run(main())


def test_nobody_fills_a_flow_table_alone():
    """Whoever asks for more than fits gets it, merged; others get through as before, unless there is a share."""

    async def main():
        for share in (0, 100):
            async with (
                fabric(data__capacity=200, control__share=share) as daemon,
                contextlib.AsyncExitStack() as stack,
            ):
                source, greedy, modest = [
                    await stack.enter_async_context(sievenet.connect(daemon.url, host=f"h{i}")) for i in (1, 2, 3)
                ]
                await source.advertise(SCHEMA)
                asked = [greedy.subscribe(f"reading: x = {x} and y > 0.1") for x in range(110)]
                refused = [
                    each for each in await asyncio.gather(*asked, return_exceptions=True) if isinstance(each, Rejected)
                ]
                assert bool(refused) == bool(share)
                if refused:
                    assert "at most 100 entries in flow tables for one client" in str(refused[0])
                feed = await modest.subscribe("reading: x = 1000")
                await source.publish(SCHEMA.event(x=1000, y=0.5, kind="hot", ok=True))
                assert (await anext(feed))["x"] == 1000
                for switch in daemon.plane.topology.switches:
                    assert len(await daemon.plane.table(switch)) <= 200

    run(main())


def test_registrations_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(clearances, "_HELD", 20_000)

    async def main():
        async with fabric() as daemon, Wire.open(daemon) as wire:
            assert isinstance(await wire.hear(), p.Welcome)
            await daemon.control.register_schema(SCHEMA)
            number = daemon.control.category(SCHEMA.name).number
            wide = Subscription([Filter(SCHEMA, {"x": ValueSet.interval(3 * i, 3 * i + 1)}) for i in range(200)])
            for id in range(200):
                answer = await wire.ask(p.Subscribe(7, id, number, encode_subscription(wide)))
                if not isinstance(answer, p.Done):
                    break
            assert "registrations of at most" in answer.message
            assert 1 < id < 100
            # Whoever takes something back has room again.
            for other in range(id):
                assert isinstance(await wire.ask(p.Unsubscribe(7, other)), p.Done)
            assert isinstance(await wire.ask(p.Subscribe(7, 1000, number, encode_subscription(wide))), p.Done)

    run(main())


def test_the_values_of_a_large_schema_are_decoded_once_and_not_by_the_loop(monkeypatch):
    """Each time takes milliseconds, in which nobody else is served."""
    values = tuple(f"value-{i:05}" for i in range(5_000))
    by_loop, main_thread = [], threading.get_ident()

    def noted(kind, name):
        work = getattr(kind, name)

        def call(*arguments, **options):
            if threading.get_ident() == main_thread:
                by_loop.append(f"{kind.__name__}.{name}")
            return work(*arguments, **options)

        monkeypatch.setattr(kind, name, staticmethod(call))

    async def main():
        async with fabric() as daemon, Wire.open(daemon) as wire:
            assert isinstance(await wire.hear(), p.Welcome)
            wide = Schema("wide", (Attribute("v", "str", values=values), Attribute("x", "int", lo=0, hi=9)))
            data = frame(p.Register(1, wide))
            for kind, name in ((Schema, "from_json"), (Plan, "from_json"), (Plan, "regular")):
                noted(kind, name)
            wire.writer.write(data)
            await eventually(lambda: any(each.name == "wide" for each in daemon.control.categories()))
            monkeypatch.undo()
            assert daemon.control.category("wide").schema == wide
            assert by_loop == []

    run(main())


def test_a_restart_with_as_many_categories_as_there_may_be():
    """35,000 categories once made a restart take longer than any client waits; now there can be 4,096."""
    most = load_config().listen.max_schemas
    records = []
    for i in range(most):
        schema = Schema(f"c{i}", (Attribute("x", "bool"),))
        command = Register(i + 1, schema.to_json(), Plan.regular(schema, 8).to_json(), 1, 8)
        records.append(encode_command(command))

    async def main():
        begin = time.process_time()
        async with fabric(journal=MemoryJournal(records)) as daemon:
            assert time.process_time() - begin < 15
            async with sievenet.connect(daemon.url) as node:
                assert (await node.schema("c4000")).name == "c4000"
                with pytest.raises(Rejected, match=f"{most} schemas, which is the limit"):
                    await node.schema(SCHEMA)

    run(main())
