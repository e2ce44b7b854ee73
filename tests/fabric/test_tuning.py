"""A fabric that tunes itself: nothing is lost while it changes, and what goes wrong in a search hurts nobody."""

import asyncio
import json
import sys
import time

import pytest
from click.testing import CliRunner

import sievenet
from sievenet.cli import main
from sievenet.control import protocol as p
from sievenet.tuning import worker
from sievenet.workload import Ticks
from tests.fabric.harness import SCHEMA, eventually, fabric, fabric_in_thread, publisher, reading, run

QUICK = {
    "control__forwarding_delay": 0.05,
    "tuning__mode": "auto",
    "tuning__least": 200,
    "tuning__watch": 0.5,
    "tuning__pause": 1.0,
    "tuning__share": 1.0,
    "tuning__seconds": 1.0,
    "tuning__every": 0.1,
    "listen__heartbeat": 0.1,
}


@pytest.mark.slow
def test_nothing_is_lost_while_a_fabric_tunes_itself():
    """Drifting traffic, subscribers that come and go, several changes: everybody gets exactly what it wants."""
    ticks = Ticks(seed=11)
    schema = ticks.schema
    wanted = ticks.subscriptions(24).filters()

    async def main():
        async with fabric(topology="testbed", **QUICK) as daemon:
            nodes = [await sievenet.connect(daemon.url, host=f"h{i + 2}") for i in range(4)]
            market = await sievenet.connect(daemon.url, host="h1")
            await market.advertise(schema)
            got = []
            for i, each in enumerate(wanted):
                seen = []
                got.append((each, seen))
                await nodes[i % 4].subscribe(each, seen.append, queue=100_000)
            published, done = [], asyncio.Event()

            async def publish():
                at = 0
                while not done.is_set():
                    for event in ticks.events(100, start=at % 40_000):
                        await market.publish(event)
                        published.append(event)
                        if len(published) % 4 == 0:
                            await asyncio.sleep(0.004)
                    at += 1000  # ten times as quick as the market: it drifts
                    await asyncio.sleep(0)

            async def tuned(count):
                changes = [each for each in daemon.tuner.changes if each.state == "applied"]
                return len(changes) >= count

            task = asyncio.create_task(publish())
            first = await daemon.answers.status()
            assert first["tuning"]["mode"] == "auto"
            await eventually(lambda: tuned(1), timeout=120)
            change = daemon.tuner.changes[0]
            await eventually(lambda: change.measured_after is not None, timeout=20)
            # What somebody wants anew gives reason to look again; it is served like all the rest meanwhile.
            more, begin = ticks.subscriptions(36).filters()[24:], len(published)
            late = []
            for i, each in enumerate(more):
                seen = []
                await nodes[i % 4].subscribe(each, seen.append, queue=100_000)
                late.append((each, seen, len(published)))
            await eventually(lambda: len(published) > begin + 3000, timeout=30)
            done.set()
            await task
            for node in nodes:
                assert node.connected
            # Everything that is wanted and no more, once: brute force over all that was published.
            for each, seen in got:
                expected = [event for event in published if each.matches(event)]
                await eventually(lambda seen=seen, expected=expected: len(seen) >= len(expected), timeout=10)
                assert seen == expected
            for each, seen, since in late:
                after = [event for event in published[since:] if each.matches(event)]
                await eventually(lambda seen=seen, after=after: len(seen) >= len(after), timeout=10)
                assert seen[len(seen) - len(after) :] == after
            status = (await daemon.answers.status())["tuning"]
            told = status["changes"][0]
            assert told["after"] < 0.95 * told["before"]
            assert told["measured_after"] < told["measured_before"], told
            assert status["share"] > 0
            for node in (*nodes, market):
                await node.close()

    run(main(), timeout=250)


def test_samples_are_taken_from_those_who_publish_only():
    async def main():
        async with fabric(**{**QUICK, "tuning__least": 10**6}) as daemon, publisher(daemon, name="source") as source:
            number = daemon.control.category("reading").number
            for i in range(300):
                await source.publish(reading(x=i))
            await eventually(lambda: daemon.tuner.samples.events(number, asyncio.get_running_loop().time()) > 0)
            pieces = daemon.tuner.samples.pieces(number)
            assert {piece.publisher for piece in pieces} == {"source"}
            await eventually(lambda: sum(piece.seen for piece in daemon.tuner.samples.pieces(number)) == 300)
            # Somebody who advertises nothing is not believed; what is too large is not taken at all.
            before = len(daemon.tuner.samples.pieces(number))
            async with sievenet.connect(daemon.url) as other:
                link = other._session._link
                link.send(p.Sample(number, 10, 10, b"lies"))
                link.send(p.Sample(4711, 10, 10, b"lies"))
                await other.schema(SCHEMA)
                await other.ask("status")
            assert len(daemon.tuner.samples.pieces(number)) == before

    run(main())


def test_without_tuning_nobody_samples():
    async def main():
        async with fabric() as daemon, publisher(daemon) as source:
            await source.publish(reading())
            assert source._loopback.sampler.size == 0
            assert (await daemon.answers.status())["tuning"]["mode"] == "off"

    run(main())


@pytest.mark.parametrize(
    ("program", "patience", "told"),
    [
        ("import time; time.sleep(60)", 0.3, "took longer than 0.3 s"),
        ("raise SystemExit('no plan today')", 30.0, "no plan today"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 30.0, "exit code -9"),
    ],
)
def test_a_search_that_fails_hurts_nobody(monkeypatch, caplog, program, patience, told):
    monkeypatch.setattr(worker, "command", lambda: [sys.executable, "-c", program])

    async def main():
        settings = {**QUICK, "tuning__least": 20, "tuning__watch": 0.0, "tuning__patience": patience}
        async with fabric(**settings) as daemon, publisher(daemon) as source:
            node = await sievenet.connect(daemon.url, host="h3")
            seen = []
            # More values than entries: the network lets others through as well.
            await node.subscribe(f"reading: x in {{{', '.join(map(str, range(1, 1024, 17)))}}}", seen.append)
            sent = 0
            async with asyncio.timeout(30):
                while not daemon.tuner.failures:
                    await source.publish(reading(x=sent % 1024))
                    sent += 1
                    await asyncio.sleep(0.005)
            expected = [n % 1024 for n in range(sent) if n % 1024 in range(1, 1024, 17)]
            await eventually(lambda: len(seen) >= len(expected))
            assert [event["x"] for event in seen] == expected
            await node.close()

    run(main())
    assert told in caplog.text


@pytest.mark.slow
def test_a_suggested_plan_can_be_applied(tmp_path, monkeypatch):
    ticks = Ticks(seed=11)
    with fabric_in_thread(topology="testbed", **{**QUICK, "tuning__mode": "suggest"}) as daemon:
        monkeypatch.setenv("SIEVENET_URL", daemon.url)

        def call(*arguments, code=0):
            result = CliRunner().invoke(main, arguments, prog_name="sievenet")
            assert result.exit_code == code, result.output
            return result.output

        with sievenet.sync.connect(daemon.url, host="h1") as market:
            market.schema(ticks.schema)
            assert "Expected a category with a suggested plan" in call("plan", "suggested", "stock", code=2)
            with sievenet.sync.connect(daemon.url, host="h8") as node:
                for each in ticks.subscriptions(8).filters():
                    node.subscribe(each)
                market.advertise(ticks.schema)
                end, status = time.monotonic() + 120, {}
                while not status or status["tuning"]["suggested"] != ["stock"]:
                    assert time.monotonic() < end, status["tuning"]
                    market.publish_many(ticks.events(10))
                    status = json.loads(call("status", "--json"))
                assert status["categories"][0]["epoch"] == 1, "it only suggests"
                assert "sievenet plan suggested stock" in call("status")
                (tmp_path / "plan.json").write_text(call("plan", "suggested", "stock"))
                assert "epoch 2 in use" in call("plan", "apply", str(tmp_path / "plan.json"))
