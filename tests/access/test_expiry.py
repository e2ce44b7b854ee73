"""Logins that expire while somebody is connected with them: whoever it is goes, others stay and lose nothing."""

import asyncio
import datetime
import time

import pytest

import sievenet
from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.daemon import revision
from sievenet.errors import Rejected
from sievenet.routers.server import RouterServer
from tests.access.harness import folder, guarded, join, now
from tests.fabric.harness import SCHEMA, eventually, reading, run, take
from tests.web.harness import served

RULES = """
[members.short]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
[members.long]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
"""


class Clock:
    """The time of day, until somebody turns it forward."""

    def __init__(self):
        self.days = 0

    def __call__(self):
        return time.time() + 86400.0 * self.days


def short_lived(tmp_path, kind):
    """A folder in which one member's login counts for three days."""
    access = folder(tmp_path, RULES)
    access.revoke("short")
    if kind == "token":
        access.token("short", None, now().date() + datetime.timedelta(days=3))
    else:
        access.certificate("short", None, 3, now())
    return access


def turned(keeper):
    clock = Clock()
    keeper._clock = keeper._members._clock = clock
    return clock


@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_a_client_of_a_daemon(tmp_path, monkeypatch, kind):
    """Its connection ends, its session a moment later, and its sealed datagrams bring nothing from then on."""
    monkeypatch.setattr(revision, "_GRACE", 0.5)
    access = short_lived(tmp_path, kind)

    async def main():
        async with (
            guarded(access) as daemon,
            join(daemon, access, "long") as other,
            join(daemon, access, "long") as source,
            join(daemon, access, "short", name="short", reconnect=False) as client,
        ):
            clock = turned(daemon.keeper)
            feed, got = await other.subscribe(SCHEMA), []
            await client.subscribe(SCHEMA, got.append)
            await client.advertise(SCHEMA)
            await source.advertise(SCHEMA)
            await client.publish(reading(x=1))
            assert (await take(feed, 1))[0]["x"] == 1
            clock.days = 2
            await asyncio.sleep(2.5)  # looked at twice
            assert "short" in daemon.plane.clients()
            clock.days = 5
            await eventually(lambda: "short" not in daemon.plane.clients())
            assert not client.connected
            with pytest.raises(Rejected, match="expired"):
                await join(daemon, access, "short", reconnect=False)
            had = len(got)
            await source.publish(reading(x=2))
            assert (await take(feed, 1))[0]["x"] == 2
            assert len(got) == had
            assert other.statistics().losses == source.statistics().losses == 0

    run(main())


@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_a_client_of_a_router(tmp_path, kind):
    access = short_lived(tmp_path, kind)
    access.certificate("a", Role.COMPONENT, 10, now())

    async def main():
        clock = Clock()
        async with RouterServer("a", keeper=Doorkeeper(access, "a", clock=clock)) as a:

            def enter(member, **settings):
                return sievenet.connect(a.url, login=access.login(member), **settings)

            async with enter("long") as other, enter("short", name="short", reconnect=False) as client:
                feed = await other.subscribe(SCHEMA)
                await client.subscribe(SCHEMA)
                await client.advertise(SCHEMA)
                await client.publish(reading(x=1))
                assert (await take(feed, 1))[0]["x"] == 1
                clock.days = 5
                # Not even as one that is away, for which events are kept.
                await eventually(lambda: "short" not in a._registry.clients)
                with pytest.raises(Rejected, match="expired"):
                    await enter("short", reconnect=False)
                assert other.statistics().losses == 0

    run(main())


def test_whoever_reads_by_http(tmp_path):
    access = short_lived(tmp_path, "token")
    bearer = {"Authorization": f"Bearer {load_login(access.login('short')).token}"}

    async def main():
        async with served(access__folder=str(access.path)) as (daemon, _, http):
            clock = turned(daemon.keeper)
            async with http.get("/subscribe?filter=reading", headers=bearer) as stream:
                assert stream.status == 200
                clock.days = 5
                async with asyncio.timeout(20):
                    async for _ in stream.content:
                        pass  # until it ends
            async with http.get("/status", headers=bearer) as response:
                assert response.status == 401

    run(main())
