"""What could hold a daemon up: a filter that takes long, a broken record, a client that never confirms a plan."""

import asyncio
import contextlib
import json
import socket
import time

import pytest

import sievenet
from sievenet.content import Filter, Subscription
from sievenet.content.codec import encode_subscription
from sievenet.control import protocol as p
from sievenet.control.covering import Coverer
from sievenet.index import Plan
from sievenet.session.framing import frame
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run
from tests.fabric.test_kill import Lives, free_port

#: Seconds of pure calculation.
LONG = 1.5

HARD = "reading: x < 10 or " + " or ".join(f"x in {i * 10}..{i * 10 + 5} and y < {1 / (i + 1)}" for i in range(2, 90))


def slow():
    """Hard filters take long."""
    search = Coverer.search

    def searched(self, content, wants):
        if len(content.filters) > 8:
            end = time.thread_time() + LONG
            while time.thread_time() < end:
                pass
        return search(self, content, wants)

    Coverer.search = searched


def broken():
    """Hard filters meet a mistake of ours."""
    search = Coverer.search

    def searched(self, content, wants):
        if len(content.filters) > 8:
            raise RuntimeError("a mistake")
        return search(self, content, wants)

    Coverer.search = searched


@pytest.mark.slow
def test_nobody_waits_for_a_hard_filter_and_a_broken_one_is_set_aside(tmp_path):
    async def main():
        port = free_port(socket.SOCK_STREAM)
        settings = {
            "topology": "line,switches=3",
            "state": str(tmp_path),
            "listen__port": port,
            "data__port": free_port(socket.SOCK_DGRAM),
            "control__lease": 4.0,
        }
        async with Lives.open(settings) as lives:
            await lives.start(patch="tests.fabric.test_stall:slow")
            url = f"sievenet://127.0.0.1:{port}"
            node = await sievenet.connect(url, name="node", host="h3")
            other = await sievenet.connect(url, name="other", host="h1")
            await other.advertise(SCHEMA)
            easy = await node.subscribe("reading: x > 1000")
            hard = asyncio.create_task(node.subscribe(HARD))
            begin = time.monotonic()
            pauses = []
            while not hard.done():
                asked = time.monotonic()
                await other.ask("status")
                feed = await other.subscribe("reading: x > 500")  # requests that are cheap are not held up
                await feed.close()
                pauses.append(time.monotonic() - asked)
            took = time.monotonic() - begin
            await hard
            assert took >= LONG
            assert len(pauses) > 10, (took, pauses)
            assert max(pauses) < took / 2

            lives.kill()
            answer = await lives.start(patch="tests.fabric.test_stall:broken")
            assert answer["recovered"]["node"] == [[], [1]]
            await eventually(lambda: node.connected and other.connected, timeout=20)
            status = await other.ask("status")
            (aside,) = status["set_aside"]
            assert aside["what"].startswith("subscribe client node id 2")
            assert "a mistake" in aside["error"]
            (line,) = (tmp_path / "journal.db.aside").read_text().splitlines()
            assert json.loads(line)["what"] == aside["what"]
            await other.publish(reading(1001))
            assert (await anext(easy))["x"] == 1001
            await node.close()
            await other.close()

    run(main(), timeout=120)


def test_a_client_that_never_confirms_a_plan_is_cut_off_over_the_wire():
    async def main():
        async with fabric(control__adoption=0.5, control__forwarding_delay=0.05) as daemon:
            reader, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
            framer, heard = p.CONTROL.dialling(), []

            async def listen():
                with contextlib.suppress(ConnectionResetError):  # it is renewing its lease when it is cut off
                    while data := await reader.read(65536):
                        heard.extend(framer.feed(data))

            listening = asyncio.create_task(listen())
            writer.write(frame(p.Hello(p.PROTOCOL, name="stubborn")))
            async with sievenet.connect(daemon.url) as node:
                await node.schema(SCHEMA)
                everything = encode_subscription(Subscription([Filter(SCHEMA, {})]))
                writer.write(frame(p.Advertise(1, 1, daemon.control.category("reading").number, everything)))
                await eventually(lambda: p.Done(1) in heard)
                change = asyncio.create_task(node.apply_plan("reading", Plan.regular(SCHEMA, 12).to_json()))
                number = 2
                while not change.done():
                    writer.write(frame(p.Renew(number)))
                    number += 1
                    await asyncio.sleep(0.05)
                assert (await change)["epoch"] == 2
                await listening
                assert heard[-1] == p.Goodbye("the new plan of reading was not confirmed within 0.5 s")
                assert "stubborn" not in daemon.plane.clients()
                writer.close()

    run(main(), timeout=30)
