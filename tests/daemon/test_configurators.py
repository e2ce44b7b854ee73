"""Configurators as real processes that are killed and paused while requests come in."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import random
import signal

import pytest

from sievenet.access.identity import Role
from sievenet.config import Config, DataConfig, ListenConfig
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.control.config import ControlConfig
from sievenet.control.configurators import messages as m
from sievenet.daemon import Daemon
from sievenet.daemon.configurators import Configurators
from sievenet.daemon.crew import keep_running
from sievenet.errors import Rejected
from sievenet.session.framing import frame
from sievenet.session.link import Link
from sievenet.testing.virtual_time import run_virtual
from tests.fuzz import connection, damaged, wrong
from tests.seeds import seeds

SCHEMA = Schema("grid", (Attribute("x", "int", lo=0, hi=255), Attribute("y", "int", lo=0, hi=255)))
PATIENCE = 120.0


def config(**control) -> Config:
    settings = ControlConfig(bits=12, partitions=16, lease=3600.0, **control)
    return Config(topology="testbed", listen=ListenConfig(port=0), data=DataConfig(port=0), control=settings)


async def until(what) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():
            await asyncio.sleep(0.02)


class Twins:
    """A daemon with configurators, and one without that is asked for the same."""

    def __init__(self, daemon: Daemon, other: Daemon) -> None:
        self.daemons = (daemon, other)
        self.control = daemon.control
        self.random = random.Random(3)
        self.clients = [f"c{i}" for i in range(4)]
        self.live: list[tuple[str, int]] = []
        self.next = 0

    async def open(self) -> None:
        for each in self.daemons:
            await each.control.register_schema(SCHEMA)
            for client, host in zip(self.clients, each.plane.topology.hosts, strict=False):
                await each.control.join(client, host)
                await each.control.advertise(client, 0, Subscription([Filter(SCHEMA, {})]))

    def shown(self):
        return self.control.configurators()

    def processes(self) -> dict[str, int]:
        return {each["name"]: each["process"] for each in self.shown()["configurators"]}

    async def requests(self, count: int) -> None:
        """Subscribe and unsubscribe, many at a time; every request is granted."""
        r, work = self.random, []
        for _ in range(count):
            if self.live and r.random() < 0.3:
                key = self.live.pop(r.randrange(len(self.live)))
                work += [each.control.unsubscribe(*key) for each in self.daemons]
                continue
            self.next += 1
            x, y = r.randrange(200), r.randrange(200)
            box = {"x": ValueSet.interval(x, x + 40), "y": ValueSet.interval(y, y + 40)}
            key = r.choice(self.clients), self.next
            wanted = Subscription([Filter(SCHEMA, box)])
            work += [each.control.subscribe(*key, wanted) for each in self.daemons]
            self.live.append(key)
            if len(work) > 40:
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*work)
                work = []
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*work)

    async def requests_until(self, what) -> None:
        """Requests until something is so: on a busy machine a configurator may be given up for a moment."""
        async with asyncio.timeout(PATIENCE):
            while not what():
                await self.requests(20)

    def owners(self) -> set[str]:
        return {each["owner"] for each in self.shown()["partitions"]}

    def answered(self) -> int:
        return sum(each["answered"] for each in self.shown()["configurators"])

    async def check(self) -> None:
        one, other = self.daemons
        for switch in one.plane.topology.switches:
            held = [await each.plane.table(switch) for each in self.daemons]
            assert held[0].by_key() == held[1].by_key()
            assert held[0].by_key() == {flow.key: flow for flow in one.control.table(switch)}
        assert sum(len(other.control.table(s)) for s in other.plane.topology.switches) > 50


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sna-lb"])
def test_killed_and_paused(mode):
    async def main() -> None:
        async with Daemon(config(mode=mode, configurators=2, patience=2.0)) as daemon, Daemon(config()) as other:
            twins = Twins(daemon, other)
            await twins.open()
            await twins.requests(30)  # nobody has come yet: the daemon works alone
            await until(lambda: len(twins.processes()) == 2)
            await twins.requests_until(lambda: twins.owners() == {"configurator-1", "configurator-2"})
            await twins.requests_until(lambda: twins.answered() > 0)
            await twins.check()
            # Killed in the middle of requests: its partitions are taken over, and another process comes.
            doomed = twins.processes()["configurator-1"]
            work = asyncio.ensure_future(twins.requests(60))
            await asyncio.sleep(0.05)
            os.kill(doomed, signal.SIGKILL)
            await work
            await until(lambda: twins.processes().get("configurator-1", doomed) != doomed)
            assert twins.shown()["taken_over"] > 0
            await twins.requests(30)
            await twins.check()
            # All paused: the daemon gives them up and works alone.
            paused = list(twins.processes().values())
            for process in paused:
                os.kill(process, signal.SIGSTOP)
            try:
                await twins.requests(30)
                assert not any(each["well"] for each in twins.shown()["configurators"])
                await twins.check()
            finally:
                for process in paused:
                    os.kill(process, signal.SIGCONT)
            # They wake up; what they may still say of it is too late.
            await until(lambda: all(each["well"] for each in twins.shown()["configurators"]))
            answered = twins.answered()
            await twins.requests_until(lambda: twins.answered() > answered)
            assert twins.shown()["puzzled"] == 0
            await twins.check()
            status = await daemon.answers.status()
            assert len(status["control"]["partitions"]) == 16
            last = list(twins.processes().values())
        for process in last:  # they end with the daemon
            with pytest.raises(ProcessLookupError):
                os.kill(process, 0)

    asyncio.run(main())


def test_a_configurator_that_cannot_be_started_is_tried_again(monkeypatch, caplog):
    tries = []

    class Process:
        returncode = 0

        async def wait(self):
            await asyncio.Event().wait()

    async def start(*_, **__):
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 4:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return Process()

    async def main() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        running = asyncio.create_task(keep_running("configurator-1", []))
        await asyncio.sleep(60.0)
        assert not running.done()
        running.cancel()

    run_virtual(main())
    pauses = [b - a for a, b in itertools.pairwise(tries)]
    assert pauses == sorted(pauses)
    assert len(pauses) == 3
    assert "configurator-1 cannot be started: Too many open files" in caplog.text


def test_nobody_else_is_let_in(monkeypatch):
    async def main() -> None:
        from sievenet.daemon import crew as module

        monkeypatch.setattr(module.sys, "executable", "/bin/false")  # no process of ours comes
        async with Daemon(config(mode="sna", configurators=1)) as daemon:
            say = daemon.control.consult
            assert say is not None
            listener = say.__self__._listener
            for secret, role in (("", Role.COMPONENT), ("guess", Role.COMPONENT), (say.__self__._secret, Role.CLIENT)):
                hello = m.Hello(m.PROTOCOL, role, "configurator-1", token=secret)
                with pytest.raises(Rejected, match="that this daemon started"):
                    await Link.open(m.CONFIGURATORS, listener.address, hello, lambda *_: None, timeout=20.0)
            assert daemon.control.configurators()["configurators"] == []

    asyncio.run(main())


def test_whoever_closes_takes_back_what_it_handed_out():
    """Else requests of the last moments would wait for configurators that are gone, and those be called silent."""

    class Control:
        def __init__(self) -> None:
            self.consult, self.gone, self.awaited = None, [], 0

        def configurator_gone(self, name: str) -> None:
            assert self.consult is not None
            self.gone.append(name)

    async def main() -> None:
        control = Control()
        staff = Configurators(control, 0)
        control.consult = staff._say
        staff._peers = {"configurator-1": object(), "configurator-2": object()}
        await staff.close()
        assert control.gone == ["configurator-1", "configurator-2"]
        assert control.consult is None

    asyncio.run(main())


async def gone_wrong(rng, listener, secret):
    """A configurator: takes what it is given, answers with what is no answer, and is gone; or it has no secret."""
    framer = m.CONFIGURATORS.dialling()
    token = rng.choice((secret, secret, secret, "guess"))
    hello = m.Hello(m.PROTOCOL, Role.COMPONENT, f"configurator-{rng.randrange(1, 4)}", token=token)
    number = lambda: rng.choice((0, 1, 2, 7, 1 << 61))  # noqa: E731
    async with connection(rng, listener.address) as (reader, writer):
        writer.write(frame(hello) if rng.random() < 0.9 else damaged(rng, frame(hello)))
        for _ in range(rng.randrange(1, 12)):
            with contextlib.suppress(TimeoutError):
                data = await asyncio.wait_for(reader.read(1 << 20), 0.05)
                if not data:
                    break
                for order in framer.feed(data):
                    if not isinstance(order, m.Order):
                        continue
                    which = order.partition, order.epoch, order.serial
                    junk = rng.randbytes(rng.randrange(1, 200)), rng.randbytes(4 * rng.randrange(1, 60))
                    sample = rng.choice((m.Puzzled(*which, "why?"), m.Answer(*which, *junk, rng.randbytes(3))))
                    writer.write(frame(sample) if rng.random() < 0.5 else wrong(rng, sample))
            if rng.random() < 0.3:
                stale = m.Answer(number(), number(), number(), b"", b"", b"")
                writer.write(wrong(rng, rng.choice((stale, m.Dropped(number()), m.Puzzled(1, 1, number(), "")))))


@pytest.mark.parametrize("seed", seeds(2))
def test_configurators_that_go_wrong(seed, monkeypatch, caplog):
    """What they answer is refused and worked out by the daemon; its switches hold what those of another one hold."""
    rng = random.Random(seed)

    async def main() -> None:
        from sievenet.daemon import crew as module

        monkeypatch.setattr(module.sys, "executable", "/bin/false")  # those who come are ours
        changed = config(mode="sna", configurators=2, patience=0.3)
        async with Daemon(changed) as daemon, Daemon(config()) as other:
            consult = daemon.control.consult
            assert consult is not None
            configurators = consult.__self__
            twins = Twins(daemon, other)
            await twins.open()
            for _ in range(8):
                crowd = [gone_wrong(rng, configurators._listener, configurators._secret) for _ in range(3)]
                await asyncio.gather(twins.requests(15), *crowd)
            await until(lambda: not configurators._listener.connections)
            await twins.requests(15)
            await twins.check()
            assert configurators._listener.errors == daemon.server.errors == 0
            assert not [each for each in caplog.records if "internal error" in each.message]

    asyncio.run(main())
