"""Offloading as a part of routers: with clients of all sorts, tables and deliveries are as without them."""

import asyncio
import random
import subprocess
import sys

import pytest

import sievenet
from sievenet.client.overlay.volunteer import Helping
from sievenet.content import Attribute, Event, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import encode_schema
from sievenet.errors import CodecError, InvalidInput
from sievenet.routers import protocol
from sievenet.routers.messages import category_of
from sievenet.routers.offload.jobs import FixedSettings, RtoSettings, parse_offloading
from sievenet.routers.offload.messages import Answer, Assign, Claim, Compute, Computed, Relations, encode_answer
from sievenet.routers.offload.volunteer import Volunteer
from sievenet.routers.routing import Settings
from sievenet.routers.schemes import Covering
from sievenet.routers.server import RouterServer
from sievenet.routers.simulation import Network
from tests.fabric.harness import eventually
from tests.routers.bruteforce import check_poset

SPACE = Schema("space", (Attribute("x", "int", lo=0, hi=99), Attribute("y", "int", lo=0, hi=99)))
LINE = Schema("line", (Attribute("x", "int", lo=0, hi=999),))
LEASE = 8.0


def box(rng, schema=SPACE):
    sides = {}
    for attribute in schema.attributes:
        if rng.random() < 0.9:
            lo, hi = sorted(rng.sample(range(0, 101, 5), 2))
            sides[attribute.name] = ValueSet.interval(lo, hi - 1)
    return Filter(schema, sides)


# -- clients of all sorts -----------------------------------------------------------------------


def told(router):
    """What a router says of those who compute for it."""
    return router.intake.statistics()["offloading"]


def slow(volunteer, request):
    return 5.0, volunteer.compute(request)


def silent(volunteer, request):
    return None


def claiming_everything(volunteer, request):
    """Says that every filter of a vector covers every input."""
    honest = volunteer.compute(request)
    count = len(request.inputs)
    every = tuple(sorted(n for v in request.vectors for n in v.added)) or (0,)
    lie = encode_answer(Relations((every,) * count, ((),) * count))
    # No two sorts lie alike: together they could be a majority.
    pairs = encode_answer(tuple((i, i + 1) for i in range(count)))
    return 0.0, Computed(request.job, tuple(Answer(a.vector, lie) for a in honest.answers), pairs)


def denying(volunteer, request):
    """Says that nothing covers anything: links that hold are missing, which no check of links finds."""
    honest = volunteer.compute(request)
    count = len(request.inputs)
    lie = encode_answer(Relations(((),) * count, ((),) * count))
    return 0.0, Computed(request.job, tuple(Answer(a.vector, lie) for a in honest.answers), encode_answer(()))


def garbled(volunteer, request):
    honest = volunteer.compute(request)
    return 0.0, Computed(request.job, tuple(Answer(a.vector, b"\xc1") for a in honest.answers), b"\xc1")


MIXED = (None, None, None, slow, silent, claiming_everything, denying, garbled)


def posets(network):
    """The posets of all routers, with who told what to each."""
    for router in network.routers.values():
        for category, scheme in router.routing._schemes.items():
            covering = scheme
            while not isinstance(covering, Covering):
                covering = covering.inner
            yield router, category, covering


def check_tables(network):
    """Every poset is as brute force has it, from what channels and local clients say."""
    count = 0
    for router, category, covering in posets(network):
        wanted = {}
        for neighbour, holder in router.routing._holders.items():
            for item in holder.items:
                if item.kind == 0 and item.category == category:
                    wanted.setdefault(router.catalogue.want(item).filter, set()).add(neighbour)
        for want in router._local[0, category].wants() if (0, category) in router._local else ():
            wanted.setdefault(want.filter, set()).add("")
        check_poset(covering.poset, wanted)
        count += len(wanted)
    return count


class World:
    """A ring of routers with a tail; volunteers of many sorts at every router, and clients that come and go."""

    def __init__(self, offloading, kinds, seed, scheme="covering", **settings):
        self.rng = random.Random(seed)
        links = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
        self.network = Network(links, Settings(scheme, lease=LEASE, **settings), seed=seed, offloading=offloading)
        self.network.run(1.0)
        self.wishes = {}
        self.numbers = 0
        for router in "abcd":
            for i, kind in enumerate(kinds):
                self.network.attach(f"v{router}{i}", router)
                self.network.volunteer(f"v{router}{i}", kind)
            for i in range(2):
                self.network.attach(f"c{router}{i}", router)
                self.wishes[f"c{router}{i}"] = {}
        self.network.run(0.1)

    def churn(self, steps, schema=SPACE):
        network, rng = self.network, self.rng
        for _ in range(steps):
            name = rng.choice(sorted(self.wishes))
            mine = self.wishes[name]
            if mine and rng.random() < 0.3:
                number = rng.choice(sorted(mine))
                del mine[number]
                network.unsubscribe(name, number)
            else:
                self.numbers += 1
                mine[self.numbers] = Subscription([box(rng, schema) for _ in range(rng.choice((1, 1, 2)))])
                network.subscribe(name, self.numbers, mine[self.numbers])
            if rng.random() < 0.3:
                network.run(rng.random() * 0.1)

    def check(self, events=40):
        network = self.network
        for client in self.wishes:
            assert network.settle(client, 60.0), client
        network.delivered.clear()
        expected = {name: [] for name in self.wishes}
        for publisher in self.rng.sample(sorted(self.wishes), 3):
            points = [Event(SPACE, (self.rng.randrange(100), self.rng.randrange(100))) for _ in range(events)]
            named = network.publish(publisher, EventBatch.from_events(SPACE, points))
            for name, mine in self.wishes.items():
                wanted = [w for w in mine.values() if w.filters and w.schema == SPACE]
                expected[name] += [n for n, e in zip(named, points, strict=True) if any(w.matches(e) for w in wanted)]
        network.drain()
        for name, names in expected.items():
            assert sorted(network.delivered.get(name, [])) == sorted(names), name
        return sum(map(len, expected.values()))

    def count(self, name):
        found = [told(r).get("space", {}).get(name, 0) for r in self.network.routers.values()]
        return sum(found)


RTO = {"batch": 5, "vector": 8, "copies": 3, "timeout": 0.5, "mode": "always"}


@pytest.mark.parametrize("scheme", ["covering", "merging"])
@pytest.mark.parametrize("kinds", [(None,) * 4, MIXED], ids=["good", "mixed"])
def test_tables_and_deliveries_are_as_without_help(kinds, scheme):
    world = World(RtoSettings(**RTO), kinds, 1, scheme)
    for _ in range(3):
        world.churn(40)
        assert world.check() > 50
        assert check_tables(world.network) > 20
    assert world.count("offloaded") > 50
    if kinds is MIXED:
        assert world.count("late") > 0
        excluded = {name[-1] for r in world.network.routers.values() for name in told(r)["space"]["excluded"]}
        assert excluded <= set("34567")
        assert len(excluded) >= 3


def test_advertisements_categories_and_disguise_too():
    world = World(RtoSettings(**RTO, secret=b"hush"), MIXED, 2, advertisements=True)
    for client in world.wishes:
        world.network.advertise(client, 0, Subscription([Filter(SPACE)]))
    world.churn(30)
    world.churn(20, LINE)
    world.churn(10)
    world.check()
    check_tables(world.network)
    stats = [told(r) for r in world.network.routers.values()]
    assert sum(s["line"]["offloaded"] for s in stats if "line" in s) > 5
    assert world.count("offloaded") > 20


@pytest.mark.parametrize("liar", [claiming_everything, denying], ids=["claiming", "denying"])
def test_a_majority_that_lies_is_found_out_by_audits(liar):
    """Everything that it misplaced is put right when it is."""
    world = World(RtoSettings(**RTO, check=True, audit=0.2), (None, liar, liar, liar, liar), 3)
    for _ in range(3):
        world.churn(40)
        world.check()
    assert world.count("failed_audits") > 0
    for router in world.network.routers.values():
        found = told(router)
        if "space" in found and found["space"]["failed_audits"]:
            assert len(found["space"]["excluded"]) >= 2
    assert check_tables(world.network) > 50


@pytest.mark.parametrize("liar", [claiming_everything, denying], ids=["claiming", "denying"])
def test_with_checks_such_a_majority_loses_no_event(liar):
    world = World(RtoSettings(**RTO, check=True), (liar, liar, liar), 4)
    for _ in range(3):
        world.churn(30)
        world.check()


def test_clients_that_leave_and_routers_that_crash():
    world = World(RtoSettings(**RTO), (None,) * 3, 5)
    network = world.network
    for _ in range(2):
        world.churn(25)
        network.detach("va0")
        world.churn(10)
        network.attach("va0", "a")
        network.volunteer("va0")
    gone = [c for c, home in network._homes.items() if home == "b"]
    network.crash("b")
    for client in gone:
        world.wishes.pop(client, None)
    world.churn(10)
    network.run(1.5 * LEASE)
    network.start("b")
    network.run(1.5 * LEASE)
    world.churn(10)
    world.check()
    assert check_tables(network) > 30


def test_messages_lost_between_routers_do_not_matter_either():
    world = World(RtoSettings(**RTO), MIXED, 6)
    world.network.loss = 0.25
    world.churn(40)
    world.network.run(LEASE)
    world.network.loss = 0.0
    world.network.run(2.5 * LEASE)
    world.check()
    check_tables(world.network)


def test_choosing_by_itself_without_a_clock_searches():
    world = World(RtoSettings(batch=5), (None,) * 3, 7)
    world.churn(40)
    # Searching costs nothing here, so tables are filled as without clients; from time to time that is looked at.
    assert any(covering.placing is None for _, _, covering in posets(world.network))
    world.check()
    assert world.count("offloaded") == 0
    check_tables(world.network)
    world.network.run(10.0)
    assert all(covering.placing is not None for _, _, covering in posets(world.network))
    world.churn(10)
    world.check()


@pytest.mark.parametrize("mode", ["auto", "never", "always"])
def test_who_chooses_keeps_the_forest_in_front(mode):
    """Then the poset has what no other filter of the router's clients covers, as without offloading."""
    network = Network([("a", "b")], Settings(lease=LEASE), offloading=RtoSettings(mode=mode))
    network.run(1.0)
    network.attach("c", "a")
    wide, narrow = (Filter(LINE, {"x": ValueSet.interval(0, hi)}) for hi in (9, 5))
    for number, each in enumerate((wide, narrow)):
        network.subscribe("c", number, Subscription([each]))
    network.run(1.0)
    ((_, _, covering),) = [found for found in posets(network) if found[0].name == "a"]
    assert {e.filter for e in covering.poset} == ({wide, narrow} if mode == "always" else {wide})
    network.unsubscribe("c", 0)
    network.run(1.0)
    assert {e.filter for e in covering.poset} == {narrow}


# -- the fixed filterset -------------------------------------------------------------------------


def test_clients_place_their_own_filters():
    world = World(FixedSettings(size=64), (), 8)
    for client in world.wishes:
        world.network.volunteer(client)
    for _ in range(5):
        world.churn(60)
        world.network.run(0.2)
    assert world.check() > 50
    assert check_tables(world.network) > 150
    assert world.count("helped") > 20
    assert world.count("refuted") == 0


def test_false_claims_are_refuted():
    world = World(FixedSettings(size=64), (), 9)
    network = world.network
    for client in world.wishes:
        network.volunteer(client)
        honest = network._volunteers[client].claims
        network._volunteers[client].claims = lambda category, filters, honest=honest: tuple(
            Claim(each.version, preds=(0, 5), succs=(7,)) for each in honest(category, filters)
        )
    for _ in range(8):
        world.churn(60)
        world.check()
    assert world.count("refuted") > 5
    check_tables(network)


# -- values --------------------------------------------------------------------------------------


def test_settings_from_text():
    assert parse_offloading("rto") == RtoSettings()
    text = "rto, batch=5,wait=0.2,vector=50,copies=5,timeout=2.5,check=true,mode=always,secret=hush,audit=0.1"
    assert parse_offloading(text) == RtoSettings(5, 0.2, 50, 5, 2.5, True, "always", b"hush", 0.1)
    assert parse_offloading("ff,size=99,audit=0.5") == FixedSettings(99, 0.5)
    for wrong in (
        "magic",
        "rto,batch",
        "rto,size=3",
        "rto,batch=x",
        "rto,mode=so",
        "rto,batch=0",
        "ff,size=0",
        "ff,audit=2",
    ):
        with pytest.raises(InvalidInput):
            parse_offloading(wrong)
    for wrong in ({"timeout": 0}, {"audit": 2.0}, {"copies": 0}):
        with pytest.raises(InvalidInput):
            RtoSettings(**wrong)
    with pytest.raises(InvalidInput, match="poset"):
        Network([("a", "b")], Settings("cbcb"), offloading=RtoSettings())


def test_a_volunteer_reads_with_care():
    volunteer = Volunteer()
    with pytest.raises(CodecError, match="schema was given"):
        volunteer.compute(Compute(1, 77, (), ()))
    with pytest.raises(CodecError, match="the schema of category"):
        volunteer.assign(Assign(1, 77, (), encode_schema(SPACE)))
    category = category_of(SPACE)
    assert volunteer.claims(category, [Filter(SPACE)]) == ()
    volunteer.assign(Assign(1, category, (), encode_schema(SPACE)))
    assert volunteer.claims(category, [Filter(SPACE)]) == (Claim(1),)


# -- real processes ------------------------------------------------------------------------------


def workers(router, kinds):
    command = [sys.executable, "-m", "sievenet.routers.offload.shell", *map(str, router.address)]
    return [subprocess.Popen([*command, f"w{i}", *options]) for i, options in enumerate(kinds)]


def end(processes):
    for each in processes:
        each.terminate()
    for each in processes:
        each.wait(timeout=10)


def test_worker_processes_place_the_filters_of_a_router():
    """Seven processes, good, lying, silent and slow; one is killed on the way."""

    async def main():
        offloading = RtoSettings(batch=5, vector=20, copies=3, timeout=0.4, mode="always", wait=0.01)
        async with RouterServer("r", Settings(lease=4.0), offloading=offloading) as router:
            kinds = ([], [], [], [], ["--lying"], ["--silent"], ["--slow", "0.01"])
            processes = workers(router, kinds)
            try:
                await eventually(lambda: len(router.router.intake.clients) == len(kinds), timeout=60)
                rng = random.Random(1)
                async with sievenet.connect(router.url) as sub, sievenet.connect(router.url) as pub:
                    await sub.volunteer()
                    await sub.schema(SPACE)
                    wanted = list(dict.fromkeys(box(rng) for _ in range(120)))
                    feeds = await asyncio.gather(*(sub.subscribe(each) for each in wanted[:60]))
                    processes[0].kill()
                    feeds += await asyncio.gather(*(sub.subscribe(each) for each in wanted[60:]))
                    (scheme,) = router.router.routing._schemes.values()
                    check_poset(scheme.poset, {each: {""} for each in wanted})
                    found = router.router.statistics()["offloading"]["space"]
                    assert found["offloaded"] > 60
                    assert sub.helped()["answered"] > 0
                    await pub.advertise(SPACE)
                    events = [Event(SPACE, (rng.randrange(100), rng.randrange(100))) for _ in range(20)]
                    await pub.publish_many(events)
                    for feed in feeds:
                        for event in events:
                            if feed.subscription.matches(event):
                                assert await anext(feed) == event
                    await asyncio.gather(*(sub.unsubscribe(feed) for feed in feeds))
                    assert len(scheme.poset) == 0
            finally:
                end(processes)

    asyncio.run(main())


def test_clients_claim_places_over_real_connections():
    async def main():
        async with (
            RouterServer("r", Settings(lease=4.0), offloading=FixedSettings(size=64)) as router,
            sievenet.connect(router.url) as sub,
        ):
            await sub.schema(SPACE)
            await sub.volunteer()
            rng = random.Random(2)
            wanted = list(dict.fromkeys(box(rng) for _ in range(150)))
            await asyncio.gather(*(sub.subscribe(each) for each in wanted[:80]))
            await eventually(lambda: sub._helping.claims(category_of(SPACE), wanted[:1]))
            await asyncio.gather(*(sub.subscribe(each) for each in wanted[80:]))
            (scheme,) = router.router.routing._schemes.values()
            check_poset(scheme.poset, {each: {""} for each in wanted})
            found = router.router.statistics()["offloading"]["space"]
            assert found["helped"] > 20
            assert found["refuted"] == 0

    asyncio.run(main())


def test_a_volunteer_is_one_at_the_next_router_too():
    """After a lost connection it volunteers again, and what it held for the old router is forgotten."""

    async def main():
        offloading = RtoSettings(batch=2, vector=10, copies=1, mode="always", wait=0.01)
        async with RouterServer("r", Settings(lease=4.0), offloading=offloading) as router:
            port = router.address[1]
            node = await sievenet.connect(router.url, name="v")
            await node.schema(SPACE)
            await node.volunteer()
            await node.volunteer()
            feeds = [await node.subscribe(box(random.Random(i))) for i in range(6)]
            assert node.helped()["answered"] > 0
        async with RouterServer("r", Settings(lease=4.0), port=port, offloading=offloading) as router:
            await eventually(lambda: "v" in router.router.intake.clients and node.connected)
            (scheme,) = router.router.routing._schemes.values()
            await eventually(lambda: len(scheme.poset) == len({feed.subscription for feed in feeds}))
            check_poset(scheme.poset, {each: {""} for feed in feeds for each in feed.subscription})
            await node._link.call(lambda number: protocol.Volunteer(number, False))
            assert not router.router.intake.clients
            await node.close()

    asyncio.run(main())


def test_what_a_volunteer_cannot_do_is_counted():
    async def main():
        sent = []
        helping = Helping(sent.append, 100)
        for job in range(20):
            helping.take(Compute(job, 77, (), ()))
        helping.take(Compute(30, 0, (), ()))
        await eventually(lambda: helping.malformed == 16)
        helping.take(Compute(31, 0, (), ()))
        await eventually(lambda: sent)
        assert [each.job for each in sent] == [31]
        assert helping.statistics() == {"answered": 1, "left_out": 5, "malformed": 16}
        helping.take(Compute(32, 0, (), ()))
        helping.renew()
        helping.take(Compute(33, 0, (), ()))
        await eventually(lambda: len(sent) == 2)
        assert sent[1].job == 33
        await helping.close()

    asyncio.run(main())


def test_the_worker_command():
    async def main():
        offloading = parse_offloading("rto,batch=2,vector=10,copies=1,mode=always,wait=0.01")
        async with RouterServer("r", Settings(lease=4.0), offloading=offloading) as router:
            command = [sys.executable, "-m", "sievenet", "worker", "--url", router.url, "--json", "--name", "w"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                await eventually(lambda: "w" in router.router.intake.clients, timeout=20.0)
                async with sievenet.connect(router.url) as sub:
                    await sub.schema(SPACE)
                    rng = random.Random(3)
                    await asyncio.gather(*(sub.subscribe(box(rng)) for _ in range(12)))
                assert router.router.statistics()["offloading"]["space"]["offloaded"] > 4
            finally:
                process.terminate()
                output, _ = process.communicate(timeout=20)
            assert '"answered"' in output

    asyncio.run(main())
