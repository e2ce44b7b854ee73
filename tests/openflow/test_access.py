"""Members only, on real switches (Open vSwitch, and the kernel's): logins, rules, rules that change under traffic."""

import asyncio

import pytest

import sievenet
from sievenet.content.parser import parse_subscription
from sievenet.dataplane.packet import Packet
from sievenet.errors import Rejected, Unavailable
from tests.access import harness as access
from tests.access.test_revision import change
from tests.openflow.test_fabric import POINT, every_plane, fabric, folder  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]

RULES = """
[members.alice]
role = "client"
rules = ["publish point: x < 500"]
[members.bob]
role = "client"
rules = ["subscribe point: x < 400 narrow"]
[members.olga]
role = "operator"
rules = ["publish *: any", "subscribe *: any"]
"""


def want(text):
    return parse_subscription(text, POINT)


async def numbers(feed, due):
    """The numbers that came until all that are due have: a switch that has to decide first is overtaken by others."""
    found = set()
    async with asyncio.timeout(60):
        while not due <= found:
            found.add((await feed.next()).event["n"])
    return found


@every_plane
def test_members_meet_their_rules_on_switches(folder, plane):  # noqa: F811
    members = access.folder(folder, RULES)

    async def main():
        async with fabric(folder, dataplane=plane, access__folder=str(members.path)) as daemon:

            def join(member, host, **settings):
                return access.join(daemon, members, member, host=host, **settings)

            assert daemon.url.startswith("sievenets://")
            with pytest.raises(Unavailable, match="login"):
                await sievenet.connect(daemon.url.replace("sievenets", "sievenet"), timeout=8, reconnect=False)
            async with join("alice", "h1") as alice, join("bob", "h3") as bob, join("olga", "h2") as olga:
                with pytest.raises(Rejected, match="does not let alice publish"):
                    await alice.advertise(POINT)
                with pytest.raises(Rejected, match="No rule lets bob publish"):
                    await bob.advertise(POINT)
                await alice.advertise(want("x < 500"))
                narrow = await bob.subscribe(want("x < 900"), queue=100_000)  # cut to x < 400
                wide = await olga.subscribe(POINT, queue=100_000)
                sent, stop = [], asyncio.Event()

                async def publish():
                    while not stop.is_set():
                        sent.append(len(sent) * 37 % 500)
                        await alice.publish(POINT.event(x=sent[-1], n=len(sent) - 1))
                        await asyncio.sleep(0.002)

                traffic = asyncio.create_task(publish())
                while len(sent) < 100:
                    await asyncio.sleep(0.01)
                change(members, "x < 400 narrow", "x < 200 narrow")
                while "x <= 199" not in str(daemon.control.registrations_of(bob.name)[1]):
                    await asyncio.sleep(0.01)
                await asyncio.sleep(3)  # switches and bob's own library follow
                told = len(sent)
                while len(sent) < told + 200:
                    await asyncio.sleep(0.01)
                stop.set()
                await traffic
                # What stayed allowed came without a gap; what is not allowed any more came before the change only.
                got = await numbers(narrow, {n for n, x in enumerate(sent) if x < 200})
                assert {n for n in got if sent[n] >= 200} <= set(range(told))
                assert all(sent[n] < 400 for n in got)
                await numbers(wide, set(range(len(sent))))
                assert bob.statistics().losses == alice.statistics().losses == 0
                # The login counts no more: whoever has it is out.
                members.revoke("bob")
                async with asyncio.timeout(60):
                    while bob.connected:
                        await asyncio.sleep(0.05)
                assert (await olga.ask("check"))["ok"]

    asyncio.run(main())


@every_plane
def test_what_switches_check_of_a_client_that_keeps_no_rules(folder, plane):  # noqa: F811
    """Its library checks nothing: a category that it does not advertise is stopped by the kernel's switches alone."""
    members = access.folder(folder, RULES)

    async def main():
        async with (
            fabric(folder, dataplane=plane, access__folder=str(members.path)) as daemon,
            access.join(daemon, members, "alice", host="h1") as alice,
            access.join(daemon, members, "olga", host="h2") as olga,
            access.join(daemon, members, "olga", host="h3", name="olga.o") as other,
        ):
            secret = sievenet.Schema("secret", POINT.attributes)
            await other.advertise(secret)
            await alice.advertise(want("x < 500"))
            hidden = await olga.subscribe(secret)
            feed = await olga.subscribe(POINT)
            [sample] = other._outbox.packets(secret.event(x=1, n=7), 1)
            mine = alice._outbox
            forged = Packet(sample.category, sample.code, mine.publisher, 1, 1, 0, sample.body, mine.incarnation)
            alice._session.port.send([forged])
            await alice._session.port.flushed(0)
            await alice.publish(POINT.event(x=1, n=1))
            assert (await asyncio.wait_for(feed.next(), 30)).event["n"] == 1
            await other.publish(secret.event(x=1, n=8))
            got = [(await asyncio.wait_for(hidden.next(), 30)).event["n"]]
            if plane == "kernel":
                assert got == [8]  # the switch dropped what alice does not advertise
            assert got[0] in (7, 8)

    asyncio.run(main())
