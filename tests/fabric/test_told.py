"""Whoever gets nothing is told why: the daemon is gone, or the switch of its host is down."""

import asyncio
import sys

import pytest

import sievenet
from sievenet.control.signals import SwitchChanged
from sievenet.errors import Unavailable
from tests.fabric.harness import SCHEMA, eventually, fabric, run


def test_a_node_is_told_that_its_switch_is_down(caplog):
    def said(text):
        return [each.message for each in caplog.records if text in each.message]

    async def main():
        async with (
            fabric(topology="line,switches=2") as daemon,
            sievenet.connect(daemon.url, host="h1") as other,
            sievenet.connect(daemon.url, host="h2") as node,
        ):
            await node.subscribe(SCHEMA)
            daemon.control._handle(SwitchChanged("s2", up=False))
            await eventually(lambda: said("switch s2 of this host is down"))
            daemon.control._handle(SwitchChanged("s2", up=True))
            await eventually(lambda: said("switch s2 of this host is back"))
            assert other.connected
        assert len(said("of this host")) == 2

    run(main())


def test_a_daemon_that_says_why_it_refuses_needs_no_guesses(monkeypatch):
    """A host whose switch is down: the hint that a stranger gets, to try TLS, would lead nowhere."""

    async def down(host, client):
        raise Unavailable("Switch s2 is down: its agent is not there")

    async def main():
        async with fabric(topology="line,switches=2") as daemon:
            monkeypatch.setattr(daemon.plane, "attach", down)
            with pytest.raises(Unavailable, match=r"its agent is not there$"):
                await sievenet.connect(daemon.url, host="h2", timeout=5, reconnect=False)

    run(main())


@pytest.mark.slow
def test_a_subscriber_without_a_daemon_says_so_and_fails():
    async def main():
        async with fabric() as daemon:
            await daemon.control.register_schema(SCHEMA)
            words = ("-m", "sievenet", "sub", "--url", daemon.url, "reading", "--for", "8s")
            process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.PIPE)
            async with asyncio.timeout(60):
                while b"subscribed to" not in await process.stderr.readline():
                    pass
        said = (await process.stderr.read()).decode()
        assert await process.wait() == 2
        assert "no connection to" in said
        assert "There was no connection in the end" in said

    run(main())
