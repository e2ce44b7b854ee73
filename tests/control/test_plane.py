"""The control plane as its callers see it: answers, refusals, leases, stalls, recovery."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet, encode_subscription
from sievenet.control.commands import Subscribe, decode_command, encode_command
from sievenet.control.config import ControlConfig
from sievenet.control.signals import Tick
from sievenet.dataplane.fabric import ApplyFault
from sievenet.errors import CodecError, InvalidInput, PlanError, Rejected, SchemaError, Unavailable
from sievenet.index import Plan
from sievenet.network import Flow, Line, LinkSettings, Ring, Star
from sievenet.network.flow import Add
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, OTHER, SCHEMA, World

EVERYTHING = Subscription([Filter(SCHEMA, {})])


def box(x: tuple[int, int], y: tuple[int, int] = (0, 15)) -> Subscription:
    return Subscription([Filter(SCHEMA, {"x": ValueSet.interval(*x), "y": ValueSet.interval(*y)})])


def virtual(test):
    """Run a coroutine function as a test, in virtual time."""

    def run():
        run_virtual(test())

    run.__name__ = test.__name__
    return run


def line(**config) -> World:
    link = LinkSettings(delay=0.001)
    return World(Line.build(switches=3, link=link), 1, msgspec.structs.replace(CONFIG, **config))


@virtual
async def test_names_and_sessions():
    world = line()
    await world.open()
    session = await world.control.join("ann", "h1")
    assert (session.client, session.host, session.lease) == ("ann", "h1", CONFIG.lease)
    with pytest.raises(Rejected, match="taken"):
        await world.control.join("ann", "h2")
    await world.control.subscribe("ann", 1, box((0, 3)))
    again = await world.control.join("ann", "h2", resume=True)
    assert again == session
    assert world.control.registrations_of("ann") == ({}, {1: box((0, 3))})
    assert list(world.control.registrations()) == [("ann", "subscription", 1, "grid", box((0, 3)))]
    with pytest.raises(InvalidInput):
        await world.control.join("bob", "nowhere")
    await world.control.leave("ann")
    with pytest.raises(Rejected, match="join first"):
        await world.control.renew("ann")
    with pytest.raises(Rejected, match="join first"):
        await world.control.subscribe("ann", 1, box((0, 3)))
    assert world.control.registrations_of("ann") == ({}, {})
    assert world.plane.clients() == {}


@virtual
async def test_taking_back_concerns_the_partitions_that_were_asked():
    world = line(partitions=8)
    await world.open()
    control = world.control
    await control.join("ann", "h1")
    await control.join("bob", "h3")
    await control.advertise("bob", 1, EVERYTHING)
    (space,) = control._controller.spaces.values()
    seen: list[int] = []
    for number, lane in enumerate(space.lanes):

        def register(part, number=number, known=lane.register):
            seen.append(number)
            known(part)

        lane.register = register
    await control.subscribe("ann", 1, box((0, 1), (0, 1)))
    (asked,) = seen
    await control.unsubscribe("ann", 1)
    assert seen == [asked, asked]
    # Taken back before it is registered anywhere: the lane is told all the same.
    await asyncio.gather(control.subscribe("ann", 2, box((0, 1), (0, 1))), control.unsubscribe("ann", 2))
    assert seen == [asked] * 4
    assert not any(space.table(switch) for switch in world.plane.topology.switches)


@virtual
async def test_members_are_counted_without_being_read():
    world = line()
    await world.open()
    await world.control.register_schema(OTHER)
    await world.control.join("ann", "h1")
    await world.control.join("bob", "h2")
    await world.control.advertise("ann", 1, EVERYTHING)
    await world.control.subscribe("ann", 4, box((0, 3)))
    await world.control.subscribe("ann", 5, Subscription([Filter(OTHER, {})]))
    await world.control.subscribe("bob", 1, box((2, 3)))
    await world.control.unsubscribe("bob", 1)
    ann, bob = world.control.members()
    assert (ann.client, ann.host, set(ann.advertisements), set(ann.subscriptions)) == ("ann", "h1", {1}, {4, 5})
    assert ann.by_category == {"grid": (1, 1), OTHER.name: (0, 1)}
    assert (bob.by_category, len(bob.subscriptions)) == ({}, 0)
    assert world.control.member("ann") == ann
    assert world.control.member("eve") is None


@virtual
async def test_an_unexpected_error_is_told_to_whoever_asked_and_nobody_else():
    world = line()
    await world.open()
    name = await world.join("h1")
    coverer = world.control._controller.dispatcher.coverer(world.control.category("grid"))
    usual = coverer.at_once
    coverer.many = lambda contents: {}  # each by itself
    coverer.at_once = lambda said, wants: 1 // 0 if said == box((0, 1)) else usual(said, wants)
    outcome = await asyncio.gather(
        world.control.subscribe(name, 1, box((0, 1))),
        world.control.subscribe(name, 2, box((0, 2))),
        return_exceptions=True,
    )
    assert isinstance(outcome[0], Unavailable)
    assert "ZeroDivisionError" in str(outcome[0])
    assert outcome[1] is None
    assert world.control.status().waiting == 0
    await world.control.unsubscribe(name, 1)  # whether it took effect is unknown: it can be taken back
    await world.control.unsubscribe(name, 2)


@virtual
async def test_nobody_waits_for_ever_when_the_controller_fails():
    world = line()
    await world.open()
    name = await world.join("h1")
    lane = world.control._controller.spaces[1].lanes[0]
    lane.pump = lambda: 1 // 0
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        await world.control.subscribe(name, 1, box((0, 1)))
    del lane.pump
    await world.control.subscribe(name, 2, box((0, 1)))
    assert world.control.status().waiting == 0


@virtual
async def test_leases_last_longer_when_nobody_listened():
    world = line(lease=10.0)
    await world.open()
    ended: list[str] = []
    world.control.on_expired(ended.append)
    await world.join("h1")
    controller, now = world.control._controller, asyncio.get_running_loop().time()
    world.control._carry_out(controller.handle(Tick(), now + 25.0))  # as after 25 seconds of sleep
    assert controller.next_deadline() == pytest.approx(now + 35.0)
    await asyncio.sleep(34)
    assert ended == []
    await asyncio.sleep(2)
    assert len(ended) == 1


@virtual
async def test_repeating_a_request_is_harmless():
    world = line()
    await world.open()
    name = await world.join("h1")
    await asyncio.gather(*(world.control.subscribe(name, 7, box((0, 3))) for _ in range(3)))
    await world.control.subscribe(name, 7, box((0, 3)))
    with pytest.raises(Rejected, match="another subscription 7"):
        await world.control.subscribe(name, 7, box((0, 4)))
    await world.control.advertise(name, 7, EVERYTHING)
    with pytest.raises(Rejected, match="another advertisement 7"):
        await world.control.advertise(name, 7, box((0, 4)))
    for _ in range(2):
        await world.control.unsubscribe(name, 7)
        await world.control.unadvertise(name, 7)
    assert world.control.status().subscriptions == 0


@virtual
async def test_bad_input_is_told_to_whoever_gave_it():
    world = line()
    await world.open()
    name = await world.join("h1")
    with pytest.raises(SchemaError, match="registered category"):
        await world.control.subscribe(name, 1, Subscription([Filter(OTHER, {})]))
    stranger = Schema("grid", (Attribute("x", "int", lo=0, hi=3),))
    with pytest.raises(SchemaError, match="another one"):
        await world.control.subscribe(name, 1, Subscription([Filter(stranger, {})]))
    with pytest.raises(SchemaError, match="without a schema"):
        await world.control.subscribe(name, 1, Subscription([Filter(None, {})]))
    with pytest.raises(Rejected, match="another schema"):
        await world.control.register_schema(stranger)
    with pytest.raises(SchemaError, match="grid"):
        world.control.category("nothing")
    with pytest.raises(PlanError, match="plan for grid"):
        await world.control.apply_plan("grid", Plan.regular(OTHER, 4))
    with pytest.raises(InvalidInput):
        world.control.table("s99")
    assert (await world.control.register_schema(SCHEMA)).number == 1
    assert (await world.control.register_schema(OTHER)).number == 2
    assert world.control.status().refused > 0


@virtual
async def test_a_lease_that_ends_takes_everything_back():
    world = line(lease=10.0)
    await world.open()
    ended = []
    world.control.on_expired(ended.append)
    quick, slow = await world.join("h1"), await world.join("h3")
    await world.control.advertise(quick, 1, EVERYTHING)
    await world.control.subscribe(slow, 1, EVERYTHING)
    assert len(world.plane.table_now("s2")) == 1
    for _ in range(6):
        await asyncio.sleep(4)
        await world.control.renew(quick)
    assert ended == [slow]
    assert len(world.plane.table_now("s2")) == 0
    assert world.control.status().clients == 1


@virtual
async def test_a_full_disk_hurts_only_who_asks():
    world = line(lease=10.0)
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    await world.subscribe(b, box((0, 7)))
    world.journal.failing = Rejected("The disk is full")
    for attempt in (
        world.control.subscribe(b, 100, EVERYTHING),
        world.control.unadvertise(a, 1),
        world.control.join("late", "h2"),
        world.control.register_schema(OTHER),
        world.control.apply_plan("grid", Plan.regular(SCHEMA, 3)),
    ):
        with pytest.raises(Rejected, match="disk is full"):
            await attempt
    await world.settle()
    world.check_tables()
    await world.check_deliveries()
    await asyncio.sleep(11)  # leases end, and cannot be written down
    assert world.control.status().clients == 2
    world.journal.failing = None
    await asyncio.sleep(2)
    assert world.control.status().clients == 0


@virtual
async def test_a_full_table_is_made_to_fit():
    world = World(Line.build(switches=3), 1, CONFIG, capacity=3)
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    corners = [box(x, y) for x in ((0, 3), (12, 15)) for y in ((0, 3), (12, 15))]
    await asyncio.gather(*(world.control.subscribe(b, i + 50, each) for i, each in enumerate(corners)))
    world.subscriptions = {(b, i + 50): each for i, each in enumerate(corners)}
    world.check_tables()
    assert len(world.plane.table_now("s1")) <= 2
    await world.check_deliveries()
    await world.crash()  # the merges are found in the switches again
    world.check_tables()
    broad = await world.subscribe(b, EVERYTHING)
    world.check_tables()
    await world.control.unsubscribe(b, broad)
    del world.subscriptions[b, broad]
    for number in (50, 53):
        await world.control.unsubscribe(b, number)
        del world.subscriptions[b, number]
    await world.settle()
    world.check_tables()
    world.capacity = None  # two of four fit as they are
    world.check_tables()
    await world.check_deliveries()


@virtual
async def test_what_does_not_fit_at_all_is_refused_and_others_get_through():
    """A switch that holds one entry serves one category."""
    world = World(Line.build(switches=3), 1, CONFIG, capacity=1)
    await world.open(SCHEMA, OTHER)
    a, b = await world.join("h1"), await world.join("h3")
    everything = Subscription([Filter(OTHER, {})])
    await world.advertise(a, EVERYTHING)
    await world.advertise(a, everything)
    await world.subscribe(b, box((0, 3), (0, 3)))
    with pytest.raises(Rejected, match="full"):
        await world.control.subscribe(b, 77, everything)
    await world.subscribe(b, box((12, 15), (0, 3)))
    await world.settle()
    world.check_tables()
    await world.check_deliveries()
    assert 77 not in world.control.registrations_of(b)[1]


@virtual
async def test_a_switch_that_does_not_answer_stalls_its_partition_alone():
    world = line(partitions=2)
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    world.plane.inject_fault("s2", ApplyFault(applied=0, late=None))
    stalled = asyncio.ensure_future(world.subscribe(b, box((0, 3))))
    await asyncio.sleep(0.1)
    other = asyncio.ensure_future(world.subscribe(b, box((12, 15))))
    behind = asyncio.ensure_future(world.subscribe(b, box((4, 7))))
    await asyncio.sleep(0.1)
    assert other.done()
    assert not stalled.done()
    assert not behind.done()
    await asyncio.gather(stalled, behind)
    await world.settle()
    world.check_tables()


@virtual
async def test_undefined_is_shown_until_the_switch_answers():
    world = line()
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    world.plane.inject_fault("s2", ApplyFault(applied=0, late=None), times=4)
    waiting = asyncio.ensure_future(world.subscribe(b, box((0, 3))))
    await asyncio.sleep(1.5)
    assert world.control.status().undefined == {"grid": ("s2",)}
    await waiting
    assert world.control.status().undefined == {}
    world.check_tables()


@virtual
async def test_a_switch_that_restarts_unseen_is_put_right():
    world = line()
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    await world.subscribe(b, box((0, 3)))
    stray = Flow.of(1, Plan.regular(SCHEMA, 4).encode(world.event())[0], 1)
    world.plane.apply_now("s2", [Add(stray)])
    from sievenet.dataplane.plane import SwitchUp

    world.plane._notices.tell(SwitchUp("s2"))
    world.plane._notices.tell(SwitchUp("s99"))
    await asyncio.sleep(0.1)
    world.check_tables()


@virtual
async def test_flows_of_nobody_are_swept_at_the_start():
    world = line()
    stray = Flow.of(77, Plan.regular(SCHEMA, 4).encode(world.event())[0], 1)
    world.plane.apply_now("s2", [Add(stray)])
    await world.open()
    await asyncio.sleep(0.1)
    assert len(world.plane.table_now("s2")) == 0


@virtual
async def test_accepted_requests_survive_a_crash_at_any_moment():
    for moment in range(0, 30, 2):
        world = World(Star.build(arms=3, link=LinkSettings(delay=0.001)), moment, CONFIG, control_delay=0.002)
        await world.open()
        names = [await world.join() for _ in range(3)]
        await world.advertise(names[0], EVERYTHING)
        tasks = [asyncio.ensure_future(world.subscribe(names[i % 3], world.content())) for i in range(20)]
        tasks += [asyncio.ensure_future(world.drop()) for _ in range(3)]
        await asyncio.sleep(moment / 2000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        answered = set(world.subscriptions)
        await world.crash()
        held = {(n, i) for n, kind, i, _, _ in world.control.registrations() if kind == "subscription"}
        # What was answered is there.  What was under way may be, and what was being taken back may not be any more.
        assert answered <= held
        for name, kind, number, _, content in world.control.registrations():
            (world.subscriptions if kind == "subscription" else world.advertisements)[name, number] = content
        kept = {(n, i) for n, _, i, _, _ in world.control.registrations()}
        world.advertisements = {k: v for k, v in world.advertisements.items() if k in kept}
        world.check_tables()
        await world.check_deliveries()


@virtual
async def test_a_snapshot_keeps_the_journal_short():
    world = line(snapshot=2000)
    await world.open(SCHEMA, OTHER)
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    kept = await world.subscribe(b, box((2, 5)))
    for i in range(300):
        await world.control.subscribe(b, 1000 + i, box((i % 8, 9)))
        await world.control.unsubscribe(b, 1000 + i)
    await world.settle()
    assert len(world.journal.records) < 200
    await world.crash()
    assert set(world.control.registrations_of(b)[1]) == {kept}
    world.check_tables()


@virtual
async def test_too_many_waiting_requests_are_refused():
    world = line(waiting=5)
    await world.open()
    name = await world.join("h1")
    results = await asyncio.gather(
        *(world.control.subscribe(name, i, box((0, 1))) for i in range(9)), return_exceptions=True
    )
    assert sum(isinstance(r, Rejected) for r in results) == 4


@virtual
async def test_closing_tells_those_who_wait():
    world = World(Line.build(switches=3), 1, CONFIG, control_delay=0.5)
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    waiting = asyncio.ensure_future(world.control.subscribe(b, 1, EVERYTHING))
    await asyncio.sleep(0.1)
    await world.control.close()
    with pytest.raises(Unavailable, match="closing"):
        await waiting
    with pytest.raises(Unavailable, match="closed"):
        await world.control.subscribe(b, 2, EVERYTHING)


@virtual
async def test_a_client_whose_switch_is_down_at_the_start_is_served_later():
    world = World(Ring.build(switches=4), 2, CONFIG)
    await world.open()
    a, b = await world.join("h1"), await world.join("h3")
    await world.advertise(a, EVERYTHING)
    await world.subscribe(b, box((0, 9)))
    await world.plane.detach(b)
    world.plane.switch_down("s3")
    await asyncio.sleep(0.1)
    await world.crash()
    assert b not in world.plane.clients()
    world.plane.switch_up("s3")
    await asyncio.sleep(1)
    world.plane.listen(b, lambda packet: world.received.setdefault(packet.sequence, []).append(b))
    await world.settle()
    world.check_tables()
    await world.check_deliveries()


def test_settings_are_checked():
    for wrong in ({"partitions": 3}, {"spread": 2}, {"bits": 0}, {"lease": 0}, {"batch": 0}, {"snapshot": -1}):
        with pytest.raises(InvalidInput, match="control"):
            ControlConfig(**wrong)


def test_commands_that_are_none():
    with pytest.raises(CodecError, match="journal"):
        decode_command(b"\xc1")
    command = Subscribe("a", 1, 2, encode_subscription(EVERYTHING))
    assert decode_command(encode_command(command)) == command
