"""Pacing, waiting for rounds, and the plane with pretended switches."""

import asyncio
import contextlib
import json
import random
import socket
import ssl
import struct
import subprocess

import pytest

from sievenet import programs
from sievenet.config import load_config
from sievenet.daemon import planes
from sievenet.daemon.daemon import Daemon
from sievenet.dataplane.openflow import channel as channels
from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow.effect import Pause, Rounds, appctl
from sievenet.dataplane.openflow.numbers import V13, V14, Multipart, Type
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane
from sievenet.errors import InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.index import Dz
from sievenet.network import Add, Flow, parse_topology
from tests.fabric.harness import eventually
from tests.fuzz import damaged
from tests.seeds import seeds

# -- rounds ----------------------------------------------------------------------------------------


class Process:
    """A pretended ovs-vswitchd: answers what it is told to."""

    def __init__(self, path, answer=None):
        self.path, self.answer, self.asked = path, answer or {"id": 0, "result": "done", "error": None}, []

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.asked.append(json.loads(await reader.read(1000))["method"])
        if self.answer != "silence":
            writer.write(json.dumps(self.answer).encode())
        writer.close()


def test_pauses():
    async def main():
        begin = asyncio.get_running_loop().time()
        await Pause(0.01).settled(None)
        assert asyncio.get_running_loop().time() - begin >= 0.009

    asyncio.run(main())


def test_rounds_are_shared(tmp_path):
    async def main():
        pokes = []

        async def poke():
            pokes.append(len(process.asked))
            await asyncio.sleep(0)

        async with Process(tmp_path / "ctl") as process:
            rounds = Rounds(lambda: process.path)
            await rounds.settled(poke)
            assert process.asked == ["revalidator/wait"] * 2
            assert len(pokes) >= 3
            await asyncio.gather(*(rounds.settled(poke) for _ in range(20)))
            # Those who came together waited together.
            assert len(process.asked) <= 6

    asyncio.run(main())


class Cache(Process):
    """One whose rounds begin and end when they are asked for, whoever listens."""

    def __init__(self, path):
        super().__init__(path)
        self.waiting = []

    async def _serve(self, reader, writer):
        end = asyncio.Event()
        self.waiting.append(end)
        await end.wait()
        await super()._serve(reader, writer)

    async def go_round(self):
        """Those who wait by now are told."""
        while self.waiting:
            self.waiting.pop().set()


def test_rounds_that_end_before_the_question_is_heard_are_asked_for_again(tmp_path):
    async def main():
        async with Cache(tmp_path / "ctl") as cache, asyncio.timeout(4.0):
            await Rounds(lambda: cache.path).settled(cache.go_round)
            assert cache.asked == ["revalidator/wait"] * 2

    asyncio.run(main())


def test_processes_that_refuse(tmp_path):
    async def main():
        with pytest.raises(Unavailable):
            await appctl(tmp_path / "nobody", "version")
        async with Process(tmp_path / "a", {"id": 0, "result": None, "error": "no"}) as process:
            with pytest.raises(Unavailable, match="refuses version: no"):
                await appctl(process.path, "version")
        async with Process(tmp_path / "b", "silence") as process:
            with pytest.raises(Unavailable, match="no whole answer"):
                await appctl(process.path, "version")
        async with Process(tmp_path / "c", {"result": "x" * 200_000}) as process:
            assert len(await appctl(process.path, "version")) == 200_000

    asyncio.run(main())


# -- pretended switches ----------------------------------------------------------------------------


class PretendedSwitch:
    """Says hello, has three ports, acknowledges everything, refuses what it is told to."""

    def __init__(self, datapath, version=V13, bundles=False, refuse=()):
        self.datapath, self.version, self.bundles, self.refuse = datapath, version, bundles, refuse
        self.flow_mods = 0
        self.entries = 1

    async def run(self, port, tls=None):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        self.writer.write(m.hello(1, (self.version,)))
        framer = m.Framer()
        while data := await self.reader.read(65536):
            for found in framer.feed(data):
                answer = self.answer(found)
                if answer:
                    self.writer.write(answer)

    def answer(self, found):
        version = self.version
        match found.type:
            case Type.FEATURES_REQUEST:
                body = struct.pack(">QIBBxxII", self.datapath, 0, 2, 0, 0, 0)
                return m.message(version, Type.FEATURES_REPLY, found.xid, body)
            case Type.BARRIER_REQUEST:
                return m.message(version, Type.BARRIER_REPLY, found.xid)
            case Type.EXPERIMENTER:
                return m.message(version, Type.ERROR, found.xid, struct.pack(">HH", 1, 3))
            case Type.FLOW_MOD:
                self.flow_mods += 1
                if self.flow_mods in self.refuse:
                    return m.message(version, Type.ERROR, found.xid, struct.pack(">HH", 5, 1))
            case Type.MULTIPART_REQUEST:
                (kind,) = struct.unpack_from(">H", found.body)
                head = struct.pack(">HH4x", kind, 0)
                return m.message(version, Type.MULTIPART_REPLY, found.xid, head + self.body(kind))
        return b""

    def body(self, kind):
        if kind == Multipart.PORT_DESC:
            return b"".join(struct.pack(">I4x6s2x16sII24x", i, b"abcdef", b"p", 0, 0) for i in (1, 2, 3))
        if kind == Multipart.TABLE:
            return struct.pack(">B3xIQQ", 0, self.entries, 0, 0)
        return b""


async def plane_with(switch, **options):
    plane = OpenFlowDataPlane(parse_topology("line,switches=1"), {1: "s1"}, ack_timeout=0.5, **options)
    _, port = await plane.start(port=0)
    return plane, port, asyncio.create_task(switch.run(port))


def test_a_switch_without_bundles():
    """Changes are carried out one by one, and what was refused in part is undefined."""

    async def main():
        switch = PretendedSwitch(1, refuse={7})
        plane, _, task = await plane_with(switch)
        try:
            await plane.connected(5)
            before = switch.flow_mods
            await plane.apply("s1", [Add(Flow.of(1, Dz(1, 1), 1))])
            assert switch.flow_mods == before + 1
            switch.refuse = {switch.flow_mods + 2}
            with pytest.raises(Unavailable, match="table full"):
                await plane.apply("s1", [Add(Flow.of(1, Dz(i, 4), 1)) for i in range(3)])
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


def test_a_switch_that_asks_and_never_reads_fills_no_memory():
    async def main():
        plane, port, task = await plane_with(PretendedSwitch(1))
        try:
            await plane.connected(5)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(m.hello(1, (V13,)))
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(30):
                    while not writer.is_closing():
                        writer.write(m.echo_request(V13, 1, bytes(60_000)) * 20)
                        await writer.drain()
            held = [each for each in plane._doors._inside if each.connection.state != "ready"]
            assert sum(each._writer.transport.get_write_buffer_size() for each in held) < 4 << 20
            await plane.apply("s1", [Add(Flow.of(1, Dz(1, 1), 1))])
            assert reader is not None
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


def test_connections_that_introduce_nobody_keep_no_switch_out(monkeypatch):
    monkeypatch.setattr(channels, "_MOST", 5)

    async def main():
        plane, port, task = await plane_with(PretendedSwitch(1))
        try:
            await plane.connected(5)
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
            async with asyncio.timeout(20):
                for reader, _ in held[:8]:
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
            await plane.apply("s1", [Add(Flow.of(1, Dz(1, 1), 1))])
            assert len(plane._doors._inside) == 5
            for _, writer in held:
                writer.close()
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


class GoneWrong(PretendedSwitch):
    """Speaks the protocol up to a point: then what it answers is damaged, late, twice or of another request."""

    def __init__(self, datapath, rng):
        super().__init__(datapath, rng.choice((V13, V14)))
        self._rng, self._sound = rng, rng.randrange(12)

    def answer(self, found):
        answer, rng = super().answer(found), self._rng
        self._sound -= 1
        if self._sound >= 0 or not answer:
            return answer
        other = m.message(self.version, rng.randrange(40), rng.choice((0, found.xid)), rng.randbytes(rng.randrange(80)))
        return rng.choice((damaged(rng, answer), answer + answer, other + answer, b"", rng.randbytes(20)))


@pytest.mark.parametrize("seed", seeds(3))
def test_switches_that_go_wrong(seed, caplog):
    """Strangers, or in the place of a switch that is away; the other one goes on, and the true one is up in the end."""
    rng = random.Random(seed)

    async def main():
        plane = OpenFlowDataPlane(parse_topology("line,switches=2"), {1: "s1", 2: "s2"}, ack_timeout=0.3)
        _, port = await plane.start(port=0)
        honest = [asyncio.create_task(PretendedSwitch(1).run(port))]
        try:
            await eventually(lambda: "s1" not in plane.down()[0])
            for turn in range(10):
                crowd = [asyncio.create_task(GoneWrong(rng.choice((2, 2, 77)), rng).run(port)) for _ in range(3)]
                await plane.apply("s1", [Add(Flow.of(1, Dz(turn, 6), 1))])
                await asyncio.wait(crowd, timeout=rng.choice((0.05, 0.4)))
                with contextlib.suppress(SievenetError):
                    await plane.apply("s2", [Add(Flow.of(1, Dz(turn, 6), 1))])
                for each in crowd:
                    each.cancel()
                await asyncio.gather(*crowd, return_exceptions=True)
            honest.append(asyncio.create_task(PretendedSwitch(2).run(port)))
            await plane.connected(20)

            async def applied(switch):
                with contextlib.suppress(Unavailable):  # by the last of the crowd, whose end nobody has seen yet
                    await plane.apply(switch, [Add(Flow.of(1, Dz(1, 1), 1))])
                    return True

            for switch in ("s1", "s2"):
                await eventually(lambda switch=switch: applied(switch))
        finally:
            for task in honest:
                task.cancel()
            await plane.close()

    asyncio.run(main())
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_somebody_at_the_tables():
    async def main():
        switch = PretendedSwitch(1)
        plane, _, task = await plane_with(switch, audit=0.02)
        try:
            await plane.connected(5)
            notices = plane.notices()
            switch.entries = 5
            notice = await asyncio.wait_for(anext(notices), 5)
            assert (type(notice).__name__, plane.tampered) == ("SwitchUp", 1)
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


def test_strangers_and_silence():
    async def main():
        plane, port, task = await plane_with(PretendedSwitch(99))
        try:
            with pytest.raises(Unavailable, match="s1 did not connect"):
                await plane.connected(0.3)
            assert plane.strangers == 1
            with pytest.raises(Unavailable):
                await plane.attach("h1", "a")
            with pytest.raises(Unavailable, match="Cannot listen"):
                await plane.start(port=port)
            assert plane.down()[0] == {"s1"}
            assert plane.counters_now("s1").flows == {}
            assert plane.statistics().packets == 0
            assert plane.endpoint is None
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


def test_a_switch_that_acknowledges_nothing():
    async def main():
        switch = PretendedSwitch(1, V14)
        plane, _, task = await plane_with(switch)
        try:
            # Version 1.4 has bundles; this one never answers about them.
            switch.body = lambda kind: b"" if kind != Multipart.TABLE else struct.pack(">B3xIQQ", 0, 1, 0, 0)
            await plane.connected(5)
            with pytest.raises(Unavailable, match="did not acknowledge"):
                await plane.apply("s1", [Add(Flow.of(1, Dz(1, 1), 1))])
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


def test_packets_for_a_switch_that_does_not_read_are_counted():
    async def main():
        switch = PretendedSwitch(1)
        plane, _, task = await plane_with(switch)
        try:
            await plane.connected(5)
            task.cancel()
            while not plane.statistics().unsent:
                plane.send_packet("s1", 1, bytes(60_000))
            switch.writer.transport.abort()
            while plane._switches["s1"].channel is not None:
                await asyncio.sleep(0.001)
            assert plane.statistics().shown()["unsent"] == 1
        finally:
            await plane.close()

    asyncio.run(main())


def test_names_are_kept_and_hosts_too():
    async def main():
        plane, _, task = await plane_with(PretendedSwitch(1), secret=b"k" * 32)
        again, _, other = await plane_with(PretendedSwitch(1), secret=b"k" * 32)
        try:
            await plane.connected(5)
            await again.connected(5)
            first = await plane.attach("h1", "somebody")
            # A controller that comes back gives the same numbers, in whatever order.
            await again.attach("h1", "another")
            assert await again.attach("h1", "somebody") == first
            with pytest.raises(Rejected):
                await plane.attach("h2", "somebody")
            await plane.detach("somebody")
            assert plane.clients() == {}
        finally:
            task.cancel()
            other.cancel()
            await plane.close()
            await again.close()

    asyncio.run(main())


def test_tls(tmp_path):
    """Switches may have to prove who they are."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *programs.command(
                "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"
            ),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.load_verify_locations(certificate)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    client.load_cert_chain(certificate, key)

    async def main():
        plane = OpenFlowDataPlane(parse_topology("line,switches=1"), {1: "s1"})
        _, port = await plane.start(port=0, tls=server)
        task = asyncio.create_task(PretendedSwitch(1).run(port, client))
        try:
            await plane.connected(5)
        finally:
            task.cancel()
            await plane.close()

    asyncio.run(main())


@pytest.mark.parametrize("tunnel", [True, False])
def test_a_daemon_finds_switches_that_connect(tunnel, monkeypatch, caplog):
    """With or without the means for in-band control, which need root."""

    def refuse(port):
        raise Unavailable("Operation not permitted")

    if not tunnel:
        monkeypatch.setattr(planes, "open_tunnel", refuse)

    async def main():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        switch = PretendedSwitch(7)

        async def keep_connecting():
            while True:
                with contextlib.suppress(OSError):
                    await switch.run(port)
                await asyncio.sleep(0.01)

        task = asyncio.create_task(keep_connecting())
        config = load_config(
            dataplane="openflow", openflow__listen=f"127.0.0.1:{port}", openflow__switches=1, listen__port=0
        )
        try:
            async with Daemon(config) as daemon:
                assert daemon.plane.topology.hosts == ("h1", "h2", "h3")
                assert (await daemon.answers.status())["switches"][0]["up"]
                if not tunnel:
                    assert "through their switches: Operation not permitted" in caplog.text
        finally:
            task.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"openflow__listen": "nowhere"},
        {"openflow__listen": "127.0.0.1:99999"},
        {"openflow__certificate": "a"},
        {"openflow__certificate": "/no/c", "openflow__key": "/no/k", "openflow__authority": "/no/a"},
    ],
)
def test_settings_that_make_no_sense(wrong):
    async def main():
        with pytest.raises(InvalidInput):
            await Daemon(load_config(dataplane="openflow", listen__port=0, **wrong)).start()

    asyncio.run(main())
