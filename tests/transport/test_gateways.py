"""The transport through gateways: a publisher in a fabric, subscribers behind routers and in another fabric."""

import asyncio
import contextlib
import json
import signal

import pytest

import sievenet
from sievenet.client.transport.shim import MARK
from sievenet.gateway.gateway import Gateway
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.transport import Publishing
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run
from tests.transport.commands import Commands
from tests.transport.test_shell import QUICK, take

OPTIONS = Publishing(record=5, digest=0.05, log=1000, rate_control=True)


async def joined(stack, server, name):
    """A fabric, and its gateway at a router."""
    daemon = await stack.enter_async_context(fabric())
    node = await stack.enter_async_context(sievenet.connect(daemon.url, name=name))
    return daemon, await stack.enter_async_context(Gateway(node, server, every=0.02))


def test_order_recovery_and_rate_control_work_through_gateways():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            one = await enter(RouterServer("one", Settings(lease=8.0)))
            two = await enter(RouterServer("two", Settings(lease=8.0), neighbours=[one.address]))
            here, out = await joined(stack, one, "gw1")
            there, into = await joined(stack, two, "gw2")
            await eventually(lambda: all(len(s.router.states.overlay.links) == 2 for s in (one, two)))
            publisher = await enter(sievenet.connect(here.url, transport=OPTIONS))
            await publisher.schema(SCHEMA)
            advertisement = await publisher.advertise(SCHEMA)
            behind = await enter(sievenet.connect(two.url))
            far = await enter(sievenet.connect(there.url))
            gaps, feeds = [], []
            wishes = {"order": True, "recover": QUICK, "rate_control": True, "on_gap": gaps.append}
            for node in (behind, far):
                await node.schema(SCHEMA)
                feeds.append(await node.subscribe("reading: x >= 50", **wishes))
            plain = await far.subscribe("reading: x >= 50")
            # Both gateways want the events and the control messages of the other side.
            await eventually(lambda: len(out._feeds) == 2 and len(into._feeds) >= 1, timeout=20.0)
            await asyncio.sleep(0.2)
            leave, count = out._leave_fabric, 0

            async def losing(*arguments):
                nonlocal count
                count += 1
                if count % 7:
                    await leave(*arguments)

            out._leave_fabric = losing
            for x in range(200):
                await publisher.publish(reading(x, payload=b"p%d" % x))
            for feed in feeds:
                got = await take(feed, 150)
                assert [event["x"] for event in got] == list(range(50, 200))
                assert all(event.payload == b"p%d" % event["x"] for event in got)
                assert feed.statistics().transport.recovered > 0
            assert gaps == []
            assert advertisement.transport.repairs > 0
            out._leave_fabric = leave
            # Who did not ask for it gets events as they were published, also one that looks like a header.
            await publisher.publish(reading(999, payload=MARK + b"\x21"))
            while (event := (await plain.next()).event)["x"] < 999:
                assert event.payload == b"p%d" % event["x"]
            assert event.payload == MARK + b"\x21"

    run(main())


LOSSY = """
topology = "line,switches=3"
schemas = ["tick.json"]
[links]
loss = 0.03
reorder = 0.05
delay = 0.001
"""
TICK = {"name": "tick", "attributes": [{"name": name, "type": "int", "lo": 0, "hi": 9999} for name in ("n", "k")]}


@pytest.mark.slow
def test_a_gateway_between_commands(tmp_path):
    """`up`, `router --gateway`, `pub` and `sub` as processes: two publishers end soon after their last event."""
    count, wanted = 500, {"tick: k = 7": lambda k: k == 7, "tick: k >= 25": lambda k: k >= 25}
    (tmp_path / "tick.json").write_text(json.dumps(TICK))
    (tmp_path / "lossy.toml").write_text(LOSSY.replace("tick.json", str(tmp_path / "tick.json")))
    for i in range(2):
        rows = [json.dumps({"n": i * 1000 + n, "k": n % 50}) for n in range(count)]
        (tmp_path / f"{i}.jsonl").write_text("\n".join(rows))

    async def main():
        async with Commands.open(tmp_path) as commands:
            up = await commands.start("up", "--config", tmp_path / "lossy.toml", "--port", 0, "--data-port", 0)
            fabric_url = await up.url()
            router = await commands.start("router", "--listen", "127.0.0.1:0", "--gateway", fabric_url)
            url = await router.url()
            careful = ("--order", "--recover", "--json", "--schema", tmp_path / "tick.json")
            subscribers = [await commands.start("sub", text, *careful, "--url", url) for text in wanted]
            for each in subscribers:
                await each.says("subscribed")
            async with sievenet.connect(fabric_url, observer=True) as node:

                async def crossed():
                    categories = {
                        each["name"]: each["subscriptions"] for each in (await node.ask("status"))["categories"]
                    }
                    return categories.get("tick") and categories.get("sievenet.transport.tick")

                await eventually(crossed, timeout=30.0)
            saved = ("--log", 1000, "--digest", "50ms", "--linger", "5s", "--rate", 1000, "--url", fabric_url)
            files = [tmp_path / f"{i}.jsonl" for i in range(2)]
            publishers = [await commands.start("pub", "--schema", "tick", "--file", each, *saved) for each in files]
            for each in publishers:
                await each.ends()
                assert f"{count} " in each.text()

            def silent(subscriber, wants):
                """What was wanted, did not come, and is in no gap."""
                got = {event["n"] for event in subscriber.events("event")}
                ends = [(gap["from"], count if gap["to"] is None else gap["to"]) for gap in subscriber.events("gap")]
                told = {n for first, last in ends for n in range(first, last + 1)}
                due = {i * 1000 + n for i in range(2) for n in range(count) if wants(n % 50)}
                return {n for n in due - got if n % 1000 not in told}

            pairs = list(zip(subscribers, wanted.values(), strict=True))
            with contextlib.suppress(TimeoutError):  # then it is told when they end, as publishers are silent for long
                await eventually(lambda: not any(silent(*each) for each in pairs), timeout=20.0)
            for subscriber, wants in pairs:
                await subscriber.kill(signal.SIGINT)
                assert not silent(subscriber, wants), subscriber.text()
                for i in range(2):
                    got = [event["n"] for event in subscriber.events("event") if event["n"] // 1000 == i]
                    assert got == sorted(set(got))
                    assert all(wants(n % 1000 % 50) for n in got)
            assert any('"recovered":true' in each.text() for each in subscribers)

    run(main(), timeout=240.0)
