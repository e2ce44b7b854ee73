"""A plan change waits for clients, but not for ever, and not for those that left; in virtual time."""

import asyncio

import msgspec
import pytest

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Identity, Role
from sievenet.config import ListenConfig
from sievenet.content import Filter, Subscription
from sievenet.content.codec import encode_subscription
from sievenet.control import protocol as p
from sievenet.daemon.clearance import Clearance
from sievenet.daemon.reports import Reports
from sievenet.daemon.service import Service
from sievenet.daemon.ticket import Tickets
from sievenet.errors import Rejected
from sievenet.index import Plan
from sievenet.network import Line, LinkSettings
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, SCHEMA, World

LEASE, ADOPTION = 8.0, 20.0
CLIENT = Identity(Role.CLIENT)
ALL = encode_subscription(Subscription([Filter(SCHEMA, {})]))


class FakePeer:
    """A connection whose client is played by the test."""

    identity, address = CLIENT, "127.0.0.1"

    def __init__(self, service):
        self.service = service
        self.client = self.door = None
        self.sent = []
        self.reason = None

    def send(self, message):
        self.sent.append(message)

    def goodbye(self, reason):
        self.reason = reason
        self.gone = asyncio.ensure_future(self.service.lost(self))

    async def say(self, message):
        return await self.service.handle(self, message)

    async def look_up(self):
        return (await self.say(p.LookUp(1, SCHEMA.name))).category

    async def adopt(self):
        for message in self.sent:
            if isinstance(message, p.PlanChanged):
                await self.say(p.PlanAdopted(message.category.number, message.category.epoch))


class Fabric:
    """A control plane with a service in front of it."""

    async def open(self):
        config = msgspec.structs.replace(CONFIG, lease=LEASE, adoption=ADOPTION)
        self.world = World(Line.build(switches=3, link=LinkSettings(delay=0.001)), 1, config)
        self.world.plane.max_body = 1000
        self.tickets = Tickets()
        await self.start()
        await self.world.control.register_schema(SCHEMA)
        return self

    async def start(self):
        await self.world.start()
        self.world.control._on_plan.clear()
        clearance = Clearance(Doorkeeper(), self.world.control, self.world.plane)
        self.service = Service(
            self.world.control, self.world.plane, self.tickets, None, Reports(), ListenConfig(), clearance
        )

    async def join(self, name, ticket=b""):
        peer = FakePeer(self.service)
        peer.welcome = await self.service.hello(peer, p.Hello(p.PROTOCOL, name=name, ticket=ticket), CLIENT)
        self.service.welcomed(peer)
        return peer

    async def publisher(self, name):
        peer = await self.join(name)
        await peer.say(p.Advertise(1, 1, 1, ALL))
        return peer

    def change(self, bits):
        return asyncio.create_task(self.world.control.apply_plan("grid", Plan.regular(SCHEMA, bits)))


async def renewing(peer):
    """The heartbeats of a client that does nothing else."""
    try:
        while True:
            await peer.say(p.Renew(1))
            await asyncio.sleep(1.0)
    except Rejected:
        return


def test_whoever_renews_but_never_confirms_is_cut_off_with_the_reason():
    async def main():
        fabric = await Fabric().open()
        silent, good = await fabric.publisher("silent"), await fabric.publisher("good")
        beats = [asyncio.create_task(renewing(each)) for each in (silent, good)]
        await asyncio.sleep(3 * LEASE)
        begin = asyncio.get_running_loop().time()
        change = fabric.change(5)
        await asyncio.sleep(1.0)
        await good.adopt()
        report = await change
        took = asyncio.get_running_loop().time() - begin
        assert ADOPTION <= took < ADOPTION + 5
        assert report.epoch == 2
        assert silent.reason == "the new plan of grid was not confirmed within 20 s"
        assert good.reason is None
        assert [m.client for m in fabric.world.control.members()] == ["good"]
        assert fabric.world.control.status().transitions == {}
        # It is forgotten: the next change does not wait for it, and it may come back under its name.
        begin = asyncio.get_running_loop().time()
        change = fabric.change(6)
        await asyncio.sleep(1.0)
        good.sent = good.sent[-1:]
        await good.adopt()
        await change
        assert asyncio.get_running_loop().time() - begin < 5
        again = await fabric.join("silent", silent.welcome.ticket)
        assert (await again.look_up()).epoch == 3
        await asyncio.gather(beats[0])
        beats[1].cancel()

    run_virtual(main())


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_client_that_left_but_stays_connected_is_not_waited_for(when):
    async def main():
        fabric = await Fabric().open()
        gone = await fabric.publisher("gone")
        if when == "before":
            await gone.say(p.Leave(2))
        begin = asyncio.get_running_loop().time()
        change = fabric.change(5)
        await asyncio.sleep(1.0)
        if when == "while":
            await gone.say(p.Leave(2))
        await change
        assert asyncio.get_running_loop().time() - begin < 5
        with pytest.raises(Rejected, match="has left"):
            await gone.say(p.Renew(3))

    run_virtual(main())


def test_confirming_what_does_not_exist_is_remembered_by_nobody():
    async def main():
        fabric = await Fabric().open()
        liar = await fabric.publisher("liar")
        for number in range(100):
            await liar.say(p.PlanAdopted(number, 99))
        assert fabric.service._adoption._epochs == {}

    run_virtual(main())


def test_after_a_crash_the_change_waits_for_publishers_of_the_earlier_life():
    """The catch-all flows stay until those that encode with the old plan have come back, or their lease has ended."""

    async def main():
        fabric = await Fabric().open()
        publisher = await fabric.publisher("publisher")
        fabric.change(5)
        while fabric.world.control.status().transitions.get("grid") != "telling":
            await asyncio.sleep(0.01)
        old = fabric.world.control
        old._closed = True
        for task in [*old._tasks, old._listening]:
            task.cancel()
        await fabric.start()
        await asyncio.sleep(LEASE / 2)
        assert fabric.world.control.status().transitions == {"grid": "telling"}
        again = await fabric.join("publisher", publisher.welcome.ticket)
        info = again.sent[-1].category
        await again.say(p.PlanAdopted(info.number, info.epoch))
        await asyncio.sleep(2.0)
        assert fabric.world.control.status().transitions == {}

    run_virtual(main())


def test_a_client_that_comes_back_during_a_change_is_told_again_whether_or_not_it_knows_the_category():
    """Nothing but what it is told makes it confirm: it looks up only what it works with."""

    async def main():
        fabric = await Fabric().open()
        publisher, looker = await fabric.publisher("publisher"), await fabric.join("looker")
        beats = [asyncio.create_task(renewing(publisher))]
        begin = asyncio.get_running_loop().time()
        change = fabric.change(5)
        await asyncio.sleep(1.0)
        await publisher.adopt()
        await fabric.service.lost(looker)  # its connection broke before it read the news
        again = await fabric.join("looker", looker.welcome.ticket)
        assert [type(message) for message in again.sent] == [p.PlanChanged]
        await again.adopt()
        assert (await change).epoch == 2
        assert asyncio.get_running_loop().time() - begin < 5
        assert (await fabric.join("late")).sent == []
        beats[0].cancel()

    run_virtual(main())
