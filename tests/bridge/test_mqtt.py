"""The bridge with a real broker: there and back, no loops, broker and bridge killed, nothing lost in silence."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
from urllib.parse import unquote

import pytest

import sievenet
from sievenet import programs
from sievenet.bridge.broker import Address, parse_broker
from sievenet.bridge.mapping import Mapping, load_mapping
from sievenet.bridge.mqtt import Bridge
from sievenet.content import Attribute, Schema
from sievenet.errors import InvalidInput, Unavailable
from tests.access.harness import RULES, folder, guarded, join
from tests.fabric.harness import eventually, fabric, run
from tests.fuzz import damaged
from tests.proxy import Proxy
from tests.seeds import seeds

SCHEMA = Schema(
    "sensor",
    (Attribute("station", "str"), Attribute("value", "float", lo=-100, hi=100), Attribute("n", "int", lo=0, hi=10**6)),
)
MAPPING = """
[[in]]
topic = "in/{station}"
category = "sensor"

[[out]]
filter = "sensor: value > 30"
topic = "alerts/{station}"
"""


class Mosquitto:
    """A broker that can be killed and started again at the same port."""

    def __init__(self, folder, lasting=True, settings=""):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.address = Address("127.0.0.1", self.port)
        self._file = folder / "mosquitto.conf"
        # Saved at once: what was acknowledged survives a kill.
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\nmax_queued_messages 100000\n"
            f"persistence {str(lasting).lower()}\npersistence_location {folder}/\n"
            f"autosave_on_changes true\nautosave_interval 1\n{settings}"
        )
        self.process = None

    async def start(self):
        command = programs.command("mosquitto", "-c", str(self._file))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def there():
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", self.port)) == 0

        await eventually(there)
        return self

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def publish(self, topic, lines, qos=1):
        """Publish lines with the broker's own client."""
        words = ("mosquitto_pub", "-V", "5", "-p", str(self.port), "-q", str(qos), "-t", topic, "-l")
        subprocess.run(programs.command(*words), input="\n".join(lines).encode(), check=True, timeout=30)

    @contextlib.asynccontextmanager
    async def watch(self, topic):
        """What comes under a topic, read by the broker's own client: [topic, message]."""
        words = ("mosquitto_sub", "-V", "5", "-p", str(self.port), "-q", "1", "-t", topic, "-t", "ready", "-v")
        process = await asyncio.create_subprocess_exec(*programs.command(*words), stdout=subprocess.PIPE)
        seen = []

        async def read():
            while line := await process.stdout.readline():
                seen.append(line.decode().strip().split(" ", 1))

        task = asyncio.create_task(read())
        try:
            # It says nothing when it has subscribed.
            async def ready():
                await asyncio.to_thread(self.publish, "ready", ["x"])
                return bool(seen)

            await eventually(ready)
            await asyncio.sleep(0.05)
            seen[:] = []
            yield seen
        finally:
            process.kill()
            await process.wait()
            await task


@contextlib.asynccontextmanager
async def brokered(tmp_path, lasting=True, settings=""):
    broker = Mosquitto(tmp_path, lasting, settings)
    try:
        yield await broker.start()
    finally:
        broker.kill()


@contextlib.asynccontextmanager
async def bridged(
    daemon, broker, mapping=MAPPING, client_id="bridge", network="net", login=None, timeout=30, **options
):
    import tomllib

    import msgspec

    async with sievenet.connect(daemon.url, name=client_id, login=login, timeout=timeout) as node:
        await node.schema(SCHEMA)
        made = Bridge(
            node,
            msgspec.convert(tomllib.loads(mapping), Mapping),
            broker.address,
            client_id=client_id,
            network=network,
            **options,
        )
        async with made:
            yield made


@contextlib.asynccontextmanager
async def scene(tmp_path):
    """A broker, a fabric and a bridge between them, with a node beside it and its feed of all that comes."""
    async with (
        brokered(tmp_path) as broker,
        fabric() as daemon,
        bridged(daemon, broker) as bridge,
        sievenet.connect(daemon.url) as node,
    ):
        yield broker, bridge, node, await node.subscribe("sensor")


@contextlib.asynccontextmanager
async def member(tmp_path, rules="", **settings):
    """The same where members are known: the bridge is one of them, dan, and the node is olga's."""
    allowed = "role = 'client'\nrules = ['publish *: any', 'subscribe *: any']\n"
    access = folder(tmp_path, f"{RULES}[members.dan]\n{allowed}{rules}")
    async with brokered(tmp_path) as broker, guarded(access) as daemon, join(daemon, access, "olga") as node:
        await node.schema(SCHEMA)
        feed = await node.subscribe("sensor")
        settings["login"] = access.login("dan")
        async with bridged(daemon, broker, client_id="dan.bridge", **settings) as bridge:
            yield broker, bridge, access, feed


def lines(numbers, value=1.0):
    return [json.dumps({"value": value, "n": n}) for n in numbers]


def test_there_and_back(tmp_path):
    async def main():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            bridged(daemon, broker) as bridge,
            sievenet.connect(daemon.url) as node,
            broker.watch("alerts/#") as alerts,
        ):
            feed = await node.subscribe("sensor")
            await asyncio.to_thread(broker.publish, "in/attic", [*lines(range(3)), "nonsense", *lines([3], 40.0)])
            found = [await asyncio.wait_for(anext(feed), 20) for _ in range(4)]
            assert [(e["station"], e["n"], e["value"]) for e in found] == [
                ("attic", 0, 1.0), ("attic", 1, 1.0), ("attic", 2, 1.0), ("attic", 3, 40.0)
            ]  # fmt: skip
            # What others publish goes out too; what the filter does not want, does not.
            await node.advertise(SCHEMA)
            for value in (10.0, 50.0):
                await node.publish(SCHEMA.event(station="x/y", value=value, n=9))
            await eventually(lambda: len(alerts) == 2)
            assert [(topic, json.loads(text)["n"]) for topic, text in alerts] == [
                ("alerts/attic", 3),
                ("alerts/x%2Fy", 9),
            ]
            await eventually(lambda: bridge.statistics()["sent"] == 2)
            found = bridge.statistics()
            assert (found["received"], found["published"], found["bad"]) == (5, 4, 1)

    run(main())


def test_events_that_a_broker_would_close_the_connection_for_cost_themselves(tmp_path):
    """Control characters, what is no character, a topic of the broker's own, a message that is too large."""
    hard = ["a\nb", "\x01", "\x7f", "\x85", "\ufffe", "\ufdd0", "\U0010ffff", "$SYS", "a/+/#", "%2F", "ä"]

    async def main():
        async with brokered(tmp_path, settings="max_packet_size 3000\n") as broker, fabric() as daemon:
            mapping = MAPPING.replace('topic = "alerts/{station}"', 'topic = "{station}"')
            async with (
                bridged(daemon, broker, mapping) as bridge,
                sievenet.connect(daemon.url) as node,
                broker.watch("#") as seen,
                broker.watch("$SYS") as own,
            ):
                await node.advertise(SCHEMA)
                events = [SCHEMA.event(station=each, value=50.0, n=n) for n, each in enumerate(hard)]
                large = SCHEMA.event(station="x" * 4000, value=50.0, n=99)
                for event in (*events, large, SCHEMA.event(station="last", value=50.0, n=100)):
                    await node.publish(event)
                await eventually(lambda: any(topic == "last" for topic, *_ in seen))
                alerts = {json.loads(text)["n"]: topic for topic, text in seen if text.startswith("{")}
                assert {unquote(topic): n for n, topic in alerts.items()} == {
                    each: n for n, each in enumerate(hard)
                } | {"last": 100}
                assert alerts[0] == "a%0Ab"
                assert not own
                assert bridge.statistics()["bad"] == 1
                assert bridge.statistics()["connections"] == 1

    run(main())


def test_nothing_goes_round_in_circles(tmp_path):
    """Two bridges of one network, each of which takes what the other gives: a message crosses once."""
    circle = '[[in]]\ntopic = "{station}/s"\ncategory = "sensor"\n[[out]]\nfilter = "sensor"\ntopic = "{station}/s"\n'

    async def main():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            bridged(daemon, broker, circle, "one") as one,
            bridged(daemon, broker, circle, "two") as two,
            broker.watch("+/s") as seen,
        ):
            await asyncio.to_thread(broker.publish, "a/s", lines([1]))
            # Both take it and publish an event each; each of these is given out by both, and taken by none.
            await eventually(lambda: len(seen) >= 5, timeout=20)
            await eventually(lambda: one.broker.loops + two.broker.loops >= 4)
            await asyncio.sleep(0.3)
            assert len(seen) == 5
            assert one.received == two.received == 1

    run(main())


@pytest.mark.slow
def test_a_killed_broker_comes_back_and_everything_acknowledged_arrives(tmp_path):
    async def main():
        async with scene(tmp_path) as (broker, bridge, node, feed):
            await node.advertise(SCHEMA)
            await asyncio.to_thread(broker.publish, "in/a", lines(range(200)))
            await eventually(lambda: bridge.published >= 200)
            broker.kill()
            # While it is away, events that match wait in the bridge.
            for n in range(50):
                await node.publish(SCHEMA.event(station="out", value=50.0, n=n))
            await broker.start()
            async with broker.watch("alerts/#") as alerts:
                await eventually(lambda: bridge.broker.connections >= 2, timeout=30)
                await asyncio.to_thread(broker.publish, "in/a", lines(range(200, 300)))
                await eventually(lambda: bridge.statistics()["sent"] == 50, timeout=20)
                got = set()
                async with asyncio.timeout(30):
                    while got != set(range(300)):
                        event = await anext(feed)
                        if event["station"] == "a":
                            got.add(event["n"])
                # Who subscribed after the broker's restart may have missed the first of them.
                assert {json.loads(text)["n"] for _, text in alerts} <= set(range(50))
            assert bridge.statistics()["dropped_out"] == 0

    run(main(), timeout=100)


@pytest.mark.slow
def test_a_killed_bridge_finds_what_it_had_not_acknowledged(tmp_path):
    """As a process from the shell, killed in mid-stream with signal 9: every message of QoS 1 arrives all the same."""
    (tmp_path / "m.toml").write_text(MAPPING)
    (tmp_path / "sensor.json").write_bytes(SCHEMA.to_json())

    async def main():
        async with (
            brokered(tmp_path, lasting=False) as broker,
            fabric() as daemon,
            sievenet.connect(daemon.url) as node,
        ):
            await node.schema(SCHEMA)
            feed = await node.subscribe("sensor", queue=100_000)
            got = set()

            async def collect():
                async for event in feed:
                    got.add(event["n"])

            task = asyncio.create_task(collect())

            async def start():
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "sievenet", "bridge", "mqtt", str(tmp_path / "m.toml"),
                    "--broker", f"mqtt://127.0.0.1:{broker.port}", "--client-id", "b", "--json",
                    env={**os.environ, "SIEVENET_URL": daemon.url},
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
                assert b"ways in" in await process.stderr.readline()
                return process

            first = await start()
            sent = asyncio.create_task(asyncio.to_thread(broker.publish, "in/a", lines(range(5000))))
            await eventually(lambda: len(got) > 100, timeout=20)
            first.kill()
            await first.wait()
            await sent
            second = await start()
            await eventually(lambda: len(got) == 5000, timeout=40)
            second.send_signal(signal.SIGTERM)
            out, _ = await second.communicate()
            assert json.loads(out)["bad"] == 0
            task.cancel()

    run(main(), timeout=120)


def test_messages_wait_for_a_network_that_is_away(tmp_path):
    async def main():
        async with scene(tmp_path) as (broker, bridge, _, feed):
            publish, failures = bridge._node.publish, [Unavailable("away")] * 3

            async def flaky(event):
                if failures:
                    raise failures.pop()
                await publish(event)

            bridge._node.publish = flaky
            await asyncio.to_thread(broker.publish, "in/a", lines([7]))
            assert (await asyncio.wait_for(anext(feed), 20))["n"] == 7
            await eventually(lambda: (bridge.published, bridge.bad) == (1, 0))

    run(main())


def test_events_before_were_dropped_and_this_one_is_not(tmp_path):
    """The network tells late that it dropped some, over a quota: the event that learns of it is published."""

    async def main():
        async with scene(tmp_path) as (broker, bridge, _, feed):
            bridge._node._allowance.told({"over_quota": 5})
            await asyncio.to_thread(broker.publish, "in/a", lines([7]))
            assert (await asyncio.wait_for(anext(feed), 20))["n"] == 7
            # Nobody knows that it was not among them: it may come twice.
            await eventually(lambda: bridge.published == 1)
            found = bridge.statistics()
            assert (found["bad"], found["refused"]) == (0, 5)

    run(main())


def test_messages_of_qos_1_over_a_quota_come_later_and_all(tmp_path):
    """None is acknowledged before the network has its event; some may come twice, none is lost."""

    async def main():
        async with member(tmp_path, "quota = { events = 60 }\n") as (broker, bridge, _, feed):
            await asyncio.to_thread(broker.publish, "in/a", lines(range(150)))
            seen = []
            while len(set(seen)) < 150:
                seen.append((await asyncio.wait_for(anext(feed), 20))["n"])
            assert bridge.refused > 0, "otherwise this shows nothing"
            assert bridge.bad == 0
            # What comes twice was in a batch of which something was dropped.
            assert len(seen) < 300
            assert bridge.published >= 150

    run(main())


def test_a_bridge_that_is_shut_out_keeps_its_messages_at_the_broker(tmp_path):
    async def main():
        async with member(tmp_path, timeout=0.5) as (broker, bridge, access, feed):
            await asyncio.to_thread(broker.publish, "in/a", lines([1]))
            assert (await asyncio.wait_for(anext(feed), 20))["n"] == 1
            access.revoke("dan")
            await eventually(lambda: not bridge._node.connected)
            await asyncio.to_thread(broker.publish, "in/a", lines([2, 3]))
            await asyncio.sleep(1.5)
            access.token("dan", None)  # the login's file is read again
            assert [(await asyncio.wait_for(anext(feed), 30))["n"] for _ in range(2)] == [2, 3]
            assert bridge.bad == 0

    run(main())


def test_a_flood_without_acknowledgements_is_dropped_and_counted(tmp_path):
    """Messages of QoS 0 that the network does not take: a bounded number waits, the rest is counted."""
    mapping = MAPPING.replace('category = "sensor"', 'category = "sensor"\nqos = 0', 1)

    async def main():
        async with (
            brokered(tmp_path, lasting=False) as broker,
            fabric() as daemon,
            bridged(daemon, broker, mapping, limit=20_000) as bridge,
        ):
            publish, free = bridge._node.publish, asyncio.Event()

            async def slow(event):
                await free.wait()
                await publish(event)

            bridge._node.publish = slow
            taken, in_loop = [], bridge.broker._in_loop

            def counted(call, *arguments):
                if call == bridge.broker._taken:
                    taken.append(call)
                in_loop(call, *arguments)

            bridge.broker._in_loop = counted
            await asyncio.to_thread(broker.publish, "in/a", lines(range(1000)), 0)
            await eventually(lambda: len(taken) + bridge.broker.dropped == 1000)
            assert bridge.broker.dropped > 0
            assert bridge.broker._waiting[0] <= 20_000
            # So do messages that are all topic.
            dropped = bridge.broker.dropped
            await asyncio.to_thread(broker.publish, f"in/{'x' * 9_000}", ["-"] * 50, 0)
            await eventually(lambda: bridge.broker.dropped >= dropped + 50)
            free.set()
            await eventually(lambda: bridge.published + bridge.statistics()["dropped_in"] == 1050)
            assert bridge.published > 10
            assert bridge.broker._waiting == [0, 0]

    run(main())


def test_messages_that_come_again_with_each_connection_wait_once(tmp_path):
    """The network does not take them, and the connection to the broker breaks again and again."""

    async def main():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            Proxy(("127.0.0.1", broker.port)) as proxy,
            sievenet.connect(daemon.url) as node,
        ):
            proxy.address = Address("127.0.0.1", proxy.port)
            async with bridged(daemon, proxy) as bridge:
                bridge.broker._client.reconnect_delay_set(0.05, 0.1)
                feed = await node.subscribe("sensor")
                publish, free = bridge._node.publish, asyncio.Event()

                async def slow(event):
                    await free.wait()
                    await publish(event)

                bridge._node.publish = slow
                await asyncio.to_thread(broker.publish, "in/a", lines(range(100)))
                for _ in range(6):
                    await eventually(lambda: bridge._messages.qsize() >= 60)
                    made = bridge.statistics()["connections"]
                    proxy.cut()
                    proxy.mend()
                    await eventually(lambda made=made: bridge.statistics()["connections"] > made)
                    await eventually(lambda: bridge._connection == bridge.broker.connections)
                    assert bridge._messages.qsize() <= 64
                free.set()
                seen = set()
                while len(seen) < 100:
                    seen.add((await asyncio.wait_for(anext(feed), 30))["n"])
                await eventually(lambda: bridge.broker._waiting == [0, 0])

    run(main(), timeout=60)


def test_a_broker_that_reads_nothing_fills_no_memory(tmp_path):
    """Of QoS 0 too: what it has not read waits in the bounded queue of the subscription."""
    mapping = MAPPING + "qos = 0\n"

    async def main():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            bridged(daemon, broker, mapping) as bridge,
            sievenet.connect(daemon.url) as node,
        ):
            await node.advertise(SCHEMA)
            os.kill(broker.process.pid, signal.SIGSTOP)
            try:
                station, feed = "x" * 4_000, bridge._feeds[0][2]

                async def waits():
                    """More comes than the sockets' buffers hold."""
                    for n in range(50):
                        await node.publish(SCHEMA.event(station=station, value=50.0, n=n))
                    return feed.statistics().waiting > 200

                await eventually(waits, 30)
                assert len(bridge.broker._client._out_packet) <= 64
            finally:
                os.kill(broker.process.pid, signal.SIGCONT)
            await eventually(lambda: not feed.statistics().waiting, 30)

    run(main(), timeout=90)


def test_a_bridge_that_ends_gives_the_broker_what_waits_first(tmp_path):
    async def test():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            sievenet.connect(daemon.url) as node,
            broker.watch("alerts/#") as seen,
        ):
            async with bridged(daemon, broker) as bridge:
                await node.advertise(SCHEMA)
                events = [SCHEMA.event(station="attic", value=50.0, n=n) for n in range(1500)]
                await node.publish_many(events)
                (_, _, feed) = bridge._feeds[0]
                await eventually(lambda: feed.statistics().delivered == len(events))
                assert feed.waiting > 0
            await eventually(lambda: len(seen) == len(events))
            assert [json.loads(message)["n"] for _, message in seen] == list(range(len(events)))
            assert (bridge.statistics()["sent"], bridge.statistics()["dropped_out"]) == (len(events), 0)

    run(test())


def test_what_a_bridge_that_ends_could_not_give_the_broker_is_counted(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("sievenet.bridge.mqtt._LAST", 0.2)

    async def test():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            sievenet.connect(daemon.url) as node,
        ):
            async with bridged(daemon, broker) as bridge:
                await node.advertise(SCHEMA)
                broker.kill()
                await eventually(lambda: not bridge.broker.connected)
                await node.publish_many([SCHEMA.event(station="attic", value=50.0, n=n) for n in range(100)])
                await eventually(lambda: bridge._feeds[0][2].statistics().delivered == 100)
            assert (bridge.statistics()["sent"], bridge.statistics()["dropped_out"]) == (0, 100)
            assert "before the MQTT broker had 100 events" in caplog.text

    run(test())


def test_a_broker_that_is_not_there_is_told(tmp_path):
    (tmp_path / "m.toml").write_text(MAPPING)

    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node:
            await node.schema(SCHEMA)
            bridge = Bridge(
                node, load_mapping(tmp_path / "m.toml"), Address("127.0.0.1", 1), client_id="x", network="n"
            )
            with pytest.raises(Unavailable, match=r"No MQTT broker at 127\.0\.0\.1:1"):
                await bridge.start(timeout=0.5)

    run(main())


def test_why_a_broker_is_none_is_told(tmp_path):
    """A port that closes, as one with TLS does; and one whose certificate nobody here trusts."""
    (tmp_path / "m.toml").write_text(MAPPING)
    access = folder(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(access.login("daemon"))

    async def close(reader, writer):
        writer.close()

    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node:
            await node.schema(SCHEMA)
            for tls, said in ((None, "mqtts://"), (context, "--authority")):
                async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=tls) as server:
                    address = Address("127.0.0.1", server.sockets[0].getsockname()[1], tls is not None)
                    bridge = Bridge(node, load_mapping(tmp_path / "m.toml"), address, client_id="x", network="n")
                    with pytest.raises(Unavailable, match=said):
                        await bridge.start(timeout=2.0)

    run(main())


@pytest.mark.parametrize("url", ["", "http://x", "mqtt://", "mqtt://user:secret@x", "mqtt://x:99999", "mqtt://x/path"])
def test_bad_addresses(url):
    with pytest.raises(InvalidInput, match="mqtt://HOST:PORT") as told:
        parse_broker(url)
    assert "secret" not in str(told.value)


class Damaging(Proxy):
    """Passes on what bridge and broker say, sound up to a point; then some of it is damaged, while it is told to."""

    def __init__(self, target, rng):
        super().__init__(target)
        self._rng, self.damages = rng, True
        self.address = None

    async def __aenter__(self):
        await super().__aenter__()
        self.address = Address("127.0.0.1", self.port)
        return self

    async def _pass(self, reader, writer, may=None):
        sound = self._rng.randrange(1, 6)
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                sound -= 1
                if self.damages and sound < 0 and may is not None:
                    data = damaged(self._rng, data) if self._rng.random() < 0.8 else self._rng.randbytes(30)
                if data:
                    writer.write(data)
                if self.damages and sound < -3:
                    break
        writer.close()


@pytest.mark.parametrize("seed", seeds(2))
def test_a_broker_that_goes_wrong(tmp_path, seed, caplog):
    """Whatever it says, the bridge connects again, and once it says what it should, messages go both ways."""
    rng = random.Random(seed)

    async def main():
        async with (
            brokered(tmp_path) as broker,
            fabric() as daemon,
            Damaging(("127.0.0.1", broker.port), rng) as proxy,
            sievenet.connect(daemon.url) as node,
        ):
            proxy.damages = False
            async with bridged(daemon, proxy) as bridge:
                bridge.broker._client.reconnect_delay_set(0.05, 0.1)
                found = []
                await node.subscribe("sensor", lambda event: found.append(event["n"]))
                proxy.damages = True
                for turn in range(12):
                    proxy.cut()
                    proxy.mend()
                    made = bridge.statistics()["connections"]
                    await asyncio.to_thread(broker.publish, "in/attic", lines(range(turn, turn + 3)))
                    with contextlib.suppress(TimeoutError):
                        await eventually(lambda made=made: bridge.statistics()["connections"] > made, 1.0)
                    await asyncio.sleep(0.1)
                proxy.damages = False
                proxy.cut()
                proxy.mend()
                async with broker.watch("alerts/#") as alerts:
                    await asyncio.to_thread(broker.publish, "in/cellar", lines(range(1000, 1020), 40.0))
                    await eventually(lambda: {*range(1000, 1020)} <= {*found}, 30)
                    await eventually(lambda: len(alerts) >= 20, 30)
                assert not any(task.done() for task in bridge._tasks)

    run(main())
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
