"""A control plane shared by NATS: real servers, daemons and configurators, killed and paused while requests come in."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from sievenet.client import connect
from sievenet.config import AccessConfig, Config, NatsConfig
from sievenet.control.store.leadership import read_leader
from sievenet.control.store.nats import NatsStore
from sievenet.daemon import Daemon
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.testing.nats_server import nats_cluster, nats_server
from tests.access.harness import folder
from tests.daemon.test_configurators import PATIENCE, SCHEMA, Twins, config, until


def shared(url: str, name: str, lease: float = 2.0, **control) -> Config:
    nats = NatsConfig(url=url, name=name, lease=lease, silence=1.0)
    return msgspec.structs.replace(config(**control), nats=nats)


@contextlib.contextmanager
def processes():
    """Starts `sievenet` commands; they end with the block."""
    started: list[subprocess.Popen] = []

    def start(*words: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "sievenet", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for each in started:
            each.send_signal(signal.SIGCONT)
            each.kill()
            each.wait()
            each.stdout.close()


def said(process: subprocess.Popen, what: str) -> bool:
    """Whether a process says something before it ends; on a slow machine it says first that it loads code."""
    return any(what in line for line in process.stdout)


@pytest.mark.slow
def test_configurators_and_nats_fail(tmp_path):
    async def main() -> None:
        with nats_server(tmp_path) as server, processes() as start:
            names = [start("configurator", "--nats", server.url, "--name", f"c{i}") for i in (1, 2)]
            async with Daemon(config()) as other:
                async with Daemon(shared(server.url, "one", mode="sna-lb", patience=2.0)) as daemon:
                    twins = Twins(daemon, other)
                    await twins.open()
                    await twins.requests(20)  # nobody may have come yet: the daemon works alone
                    await until(lambda: len(twins.processes()) == 2)
                    await twins.requests_until(lambda: twins.owners() == {"c1", "c2"})
                    await twins.check()
                    # Killed in the middle of requests: the other one takes over from the log.
                    work = asyncio.ensure_future(twins.requests(40))
                    await asyncio.sleep(0.03)
                    names[0].kill()
                    await work
                    await until(lambda: set(twins.processes()) == {"c2"})
                    assert twins.shown()["taken_over"] > 0
                    await twins.check()
                    # Paused until it is given up, and longer: it wakes up in epochs that count no more.
                    await twins.requests_until(lambda: twins.owners() == {"c2"})
                    work = asyncio.ensure_future(twins.requests(40))
                    await asyncio.sleep(0.03)
                    names[1].send_signal(signal.SIGSTOP)
                    await work
                    await until(lambda: not twins.processes())
                    epoch = twins.shown()["epoch"]
                    await twins.requests(20)
                    names[1].send_signal(signal.SIGCONT)
                    await until(lambda: set(twins.processes()) == {"c2"})
                    await twins.requests_until(lambda: twins.owners() == {"c2"})
                    assert twins.shown()["epoch"] > epoch
                    assert twins.shown()["puzzled"] == 0
                    await twins.check()
                    # NATS is killed, and comes back: requests wait.
                    work = asyncio.ensure_future(twins.requests(40))
                    await asyncio.sleep(0.03)
                    await asyncio.to_thread(server.stop, signal.SIGKILL)
                    await asyncio.sleep(0.3)
                    await asyncio.to_thread(server.start)
                    await work
                    await twins.requests(20)
                    assert daemon.deposed is None
                    await twins.check()
                    status = await daemon.answers.status()
                    assert (status["shared"]["leader"], status["shared"]["term"]) == ("one", 1)
                    assert len(status["control"]["partitions"]) == 16
                # The daemon restarts: everything is there again.
                async with Daemon(shared(server.url, "one", mode="sna")) as daemon:
                    twins.daemons, twins.control = (daemon, other), daemon.control
                    await twins.check()
                    await until(lambda: len(twins.processes()) == 1)
                    await twins.requests_until(lambda: twins.owners() == {"c2"})
                    await twins.check()
                    assert (await daemon.answers.status())["shared"]["term"] == 2

    asyncio.run(main())


@pytest.mark.slow
def test_a_daemon_that_was_paused_leads_no_more(tmp_path):
    async def main() -> None:
        with nats_server(tmp_path) as server, processes() as start:
            file = tmp_path / "sievenet.toml"
            file.write_text(f'[nats]\nurl = "{server.url}"\nname = "first"\nlease = 1.0\n')
            first = start("up", "--config", str(file), "--schema", "stock", "--port", "0", "--data-port", "0")
            store = await NatsStore.open(server.url)

            async def leader() -> str:
                found, _ = await read_leader(store)
                return "" if found is None else found.url

            async with asyncio.timeout(PATIENCE):
                while not (url := await leader()):
                    assert first.poll() is None, first.stdout.read()
                    await asyncio.sleep(0.05)
            async with connect(url, reconnect=False, timeout=PATIENCE) as node:
                await node.subscribe("stock: price > 420")
                # A lease long enough that a busy machine alone deposes nobody.
                waits = Daemon(msgspec.structs.replace(shared(server.url, "second", lease=6.0), schemas=()))
                second = asyncio.ensure_future(waits.start())
                await asyncio.sleep(1.5)
                assert not second.done()  # the first one leads
                first.send_signal(signal.SIGSTOP)
                async with asyncio.timeout(PATIENCE):
                    await second
                try:
                    assert [each.name for each in waits.control.categories()] == ["stock"]
                    assert sum(len(member.subscriptions) for member in waits.control.members()) == 1
                    first.send_signal(signal.SIGCONT)
                    with pytest.raises(SievenetError):
                        await node.subscribe("stock: price > 10")  # never granted by one that leads no more
                    assert await asyncio.to_thread(first.wait, PATIENCE) == 2
                    assert "Another daemon leads now" in first.stdout.read()
                    assert sum(len(member.subscriptions) for member in waits.control.members()) == 1
                finally:
                    await waits.close()
            await store.close()

    asyncio.run(main())


def test_a_daemon_that_takes_over_waits_for_its_port(tmp_path, caplog):
    async def main() -> None:
        with nats_server(tmp_path) as server, socket.create_server(("127.0.0.1", 0)) as held:
            plain = shared(server.url, "second")
            listen = msgspec.structs.replace(plain.listen, port=held.getsockname()[1])
            second = Daemon(msgspec.structs.replace(plain, listen=listen))
            async with Daemon(shared(server.url, "first")):
                starting = asyncio.ensure_future(second.start())
                await until(lambda: "waiting to take over" in caplog.text)
            await until(lambda: "leads, but cannot start" in caplog.text)
            assert not starting.done()
            held.close()
            async with asyncio.timeout(PATIENCE):
                await starting
            async with connect(second.url) as node:
                await node.subscribe(SCHEMA)
            await second.close()

    asyncio.run(main())


def test_a_daemon_that_takes_over_knows_who_was_shut_out_while_it_waited(tmp_path, monkeypatch, caplog):
    """From its first moment, and not from its next look at the access folder."""
    monkeypatch.setattr("sievenet.daemon.daemon._LOOK", 3600.0)
    access = folder(tmp_path)
    let = AccessConfig(folder=str(access.path))

    async def main() -> None:
        with nats_server(tmp_path / "nats") as server:
            second = Daemon(msgspec.structs.replace(shared(server.url, "second"), access=let))
            async with Daemon(msgspec.structs.replace(shared(server.url, "first"), access=let)) as first:
                starting = asyncio.ensure_future(second.start())
                await until(lambda: "waiting to take over" in caplog.text)
                async with connect(first.url, login=access.login("alice")):
                    pass
                access.revoke("alice")
                members = access.path / "members.toml"
                members.write_text(members.read_text().replace("[members.eye]", "[members.other]"))
            async with asyncio.timeout(PATIENCE):
                await starting
            with pytest.raises(Rejected, match="does not count here"):
                await connect(second.url, login=access.login("alice"), reconnect=False)
            with pytest.raises(Rejected, match=r"no member here|does not count"):
                await connect(second.url, login=access.login("eye"), observer=True, reconnect=False)
            await second.close()

    asyncio.run(main())


def test_nobody_is_shown_the_password_of_nats(tmp_path, caplog):
    settings = "authorization { user: fabric, password: s3cret }"

    async def main() -> None:
        with nats_server(tmp_path, settings) as server, processes() as start:
            url = server.url.replace("nats://", "nats://fabric:s3cret@")
            configurator = start("configurator", "--nats", url, "--name", "c1")
            async with Daemon(shared(url, "one", mode="sna")) as daemon, connect(daemon.url, observer=True) as anybody:
                shared_by = (await anybody.ask("status"))["shared"]
                assert shared_by["store"] == server.url
                assert await asyncio.to_thread(said, configurator, f"serves fabric sievenet at {server.url}\n")
            with pytest.raises(Unavailable, match="Expected a NATS server") as refused:
                await NatsStore.open(url.replace("s3cret", "s3cret2"), wait=1.0)
            assert "s3cret" not in str(refused.value)

    asyncio.run(main())
    assert "s3cret" not in caplog.text


@pytest.mark.slow
def test_a_cluster_loses_its_leader(tmp_path):
    async def main() -> None:
        with nats_cluster(tmp_path) as servers:
            url = ",".join(each.url for each in servers)
            async with Daemon(config()) as other:
                async with Daemon(shared(url, "one")) as daemon:
                    twins = Twins(daemon, other)
                    await twins.open()
                    await twins.requests(10)
                    js = daemon._reign._store._js
                    info = await js.stream_info("sievenet-sievenet")
                    assert info.config.num_replicas == 3
                    doomed = next(each for each in servers if each.name == info.cluster.leader)
                    work = asyncio.ensure_future(twins.requests(30))
                    await asyncio.sleep(0.02)
                    await asyncio.to_thread(doomed.stop, signal.SIGKILL)
                    await work
                    assert daemon.deposed is None
                    await twins.requests(10)
                    await twins.check()
                async with Daemon(shared(url, "two")) as daemon:
                    twins.daemons = (daemon, other)
                    await twins.check()

    asyncio.run(main())


def test_a_journal_on_disk_is_taken_in_once(tmp_path):
    async def main() -> None:
        alone = msgspec.structs.replace(config(), state=str(tmp_path / "state"))
        async with Daemon(alone) as daemon:
            await daemon.control.register_schema(SCHEMA)
            await daemon.control.join("c1", daemon.plane.topology.hosts[0])
        with nats_server(tmp_path / "nats") as server:
            both = msgspec.structs.replace(shared(server.url, "one"), state=alone.state)
            for _ in range(2):
                async with Daemon(both) as daemon:
                    assert [each.name for each in daemon.control.categories()] == [SCHEMA.name]
                    assert [each.client for each in daemon.control.members()] == ["c1"]
            assert not (tmp_path / "state/journal.db").exists()
            assert (tmp_path / "state/journal.db.in-nats").exists()

    asyncio.run(main())


@pytest.mark.slow
def test_a_daemon_that_waits_ends_when_it_is_asked_to(tmp_path):
    with nats_server(tmp_path) as server, processes() as start:
        words = ("up", "--topology", "line,switches=2", "--nats", server.url, "--port", "0", "--data-port", "0")
        first = start(*words)
        assert said(first, "is up")
        for number in (signal.SIGTERM, signal.SIGINT):
            second = start(*words)
            assert said(second, "waiting to take over")
            second.send_signal(number)
            assert second.wait(PATIENCE) == 0
        assert first.poll() is None
