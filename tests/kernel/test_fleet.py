"""Switches on several machines: namespaces stand for machines, each with an agent, driven by one control plane."""

import asyncio
import random
import re
import time
from contextlib import suppress
from functools import partial

import pytest
from click.testing import CliRunner

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.cli.app import main
from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.kernel.agent import Agent
from sievenet.dataplane.kernel.beacon import Neighbour, beacon, read_beacon
from sievenet.dataplane.kernel.fleet import Fleet, RemoteSwitch
from sievenet.dataplane.kernel.machine import Machine, interfaces_of
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.dataplane.plane import LinkDown, LinkUp, SwitchDown, SwitchUp
from sievenet.errors import CodecError, InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.index import ROOT
from sievenet.network import Add, Delete, Flow, Modify, parse_topology
from sievenet.session.framing import frame
from sievenet.session.link import Link
from sievenet.session.message import Failure
from sievenet.testing.dataplane_contract import CAPACITY, CHECKS, TOPOLOGY, with_harness
from tests.access.harness import folder as access_folder
from tests.access.harness import now
from tests.fuzz import connection, damaged, wrong
from tests.kernel.machines import AgentThread, doors_of, make_wires, on_machines, remove_wires
from tests.kernel.test_tables import packet, random_flow
from tests.seeds import seeds

pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module")
def wires():
    wires = make_wires()
    yield wires
    remove_wires(wires)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_machines(wires, check):
    asyncio.run(with_harness(partial(on_machines, wires, capacity=CAPACITY), check))


async def until(condition, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def path(h):
    """A client at either end of the line, and flows between them."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h6", "b")
    for switch, port in (("s1", TOPOLOGY.port("s1", "s2")), ("s2", TOPOLOGY.port("s2", "s3")), ("s3", b.port)):
        await h.plane.apply(switch, [Add(Flow.of(1, ROOT, port))])
    return a, b


def test_a_switch_goes_on_without_its_agent_and_the_next_one_takes_it_over(wires):
    async def main():
        async with on_machines(wires, grace=0.4) as h:
            a, b = await path(h)
            await h.plane.permit("a", frozenset({1}))
            notices = h.plane.notices()
            before = await h.plane.table("s2")
            await h.send(a, [packet(a, 0, 1, 5)])
            await asyncio.to_thread(h.agents["s1"].end, keep=True)
            await asyncio.to_thread(h.agents["s2"].end, keep=True)
            assert {await anext(notices), await anext(notices)} == {SwitchDown("s1"), SwitchDown("s2")}
            with pytest.raises(Unavailable, match="its agent is not there"):
                await h.plane.apply("s2", [Delete(flow) for flow in before])
            await h.send(a, [packet(a, 1, 1, 6)])
            await h.plane.detach("b")
            for switch in ("s1", "s2"):
                h.agents[switch] = await asyncio.to_thread(AgentThread, wires, switch)
            assert {await anext(notices), await anext(notices)} == {SwitchUp("s1"), SwitchUp("s2")}
            assert await h.plane.table("s2") == before
            counted = (await h.plane.counters("s2")).flows
            assert [each.packets for each in counted.values()] == [2]
            b = await h.plane.attach("h6", "b", port=b.port)
            await h.send(a, [packet(a, 2, 1, 7), packet(a, 3, 2, 7)])
            await h.settle()
            assert [each.sequence for each in h.received(b)] == [0, 1, 2]
            await h.plane.counters("s1")
            assert h.plane.statistics().unadvertised == 1

    asyncio.run(main())


def test_events_go_on_while_a_new_control_plane_waits_for_agents(wires):
    async def main():
        async with on_machines(wires) as h:
            a, b = await path(h)
            await h.plane.close()
            await h.fleet.close()
            fleet = Fleet(wires.topology)
            await fleet.start(doors=doors_of(wires))
            try:
                await fleet.connected(60)
                await h.send(a, [packet(a, 0, 1, 5)])
                plane = KernelDataPlane(fleet)
                plane.start()
                await h.send(a, [packet(a, 1, 1, 5)])
                await h.settle()
                assert [each.sequence for each in h.received(b)] == [0, 1]
                # Whoever nobody has spoken of for long does not come back.
                assert h.agents["s1"].machine.switch.clients
                plane._forget_strangers()
                await until(lambda: not any(agent.machine.switch.clients for agent in h.agents.values()))
                await plane.close()
            finally:
                await fleet.close()

    asyncio.run(main())


def test_a_machine_that_was_switched_off_comes_back_empty_and_is_told_its_clients(wires):
    async def main():
        async with on_machines(wires, grace=0.4) as h:
            a, b = await path(h)
            notices = h.plane.notices()
            await asyncio.to_thread(h.agents["s1"].end)
            assert await anext(notices) == SwitchDown("s1")
            h.agents["s1"] = await asyncio.to_thread(AgentThread, wires, "s1")
            assert await anext(notices) == SwitchUp("s1")
            assert len(await h.plane.table("s1")) == 0
            await h.plane.apply("s1", [Add(Flow.of(1, ROOT, TOPOLOGY.port("s1", "s2")))])
            await h.send(a, [packet(a, 9, 1, 5)])
            await h.settle()
            assert [each.sequence for each in h.received(b)] == [9]

    asyncio.run(main())


def test_a_switch_that_is_taken_away_counts_as_lost_while_it_still_forwards(wires):
    async def main():
        async with on_machines(wires, grace=60.0) as h:
            a, b = await path(h)
            notices = h.plane.notices()
            leaving = asyncio.create_task(asyncio.to_thread(h.agents["s2"].leave))
            assert await anext(notices) == SwitchDown("s2")
            with pytest.raises(Unavailable, match="its agent is not there"):
                await h.plane.apply("s2", [])
            await h.send(a, [packet(a, 0, 1, 5)])
            await h.settle()
            assert [each.sequence for each in h.received(b)] == [0]
            await leaving
            await asyncio.to_thread(h.agents["s2"].end)
            h.agents["s2"] = await asyncio.to_thread(AgentThread, wires, "s2")
            assert await anext(notices) == SwitchUp("s2")

    asyncio.run(main())


def test_an_interface_that_vanishes_is_a_dead_link_until_it_is_back(wires):
    async def main():
        async with on_machines(wires) as h:
            a, b = await path(h)
            notices = h.plane.notices()
            at = wires.switch_namespace("s3")
            link = TOPOLOGY.link("s2", "s3")
            await asyncio.to_thread(ns.ip, at, [f"link del p{link.b_port}"])
            assert await anext(notices) == LinkDown("s2", "s3")
            other = wires.switch_namespace("s2")
            line = f"link add name p{link.a_port} mtu 9000 netns {other} type veth peer name p{link.b_port} mtu 9000"
            await asyncio.to_thread(ns.ip, None, [f"{line} netns {at}"])
            assert await anext(notices) == LinkUp("s2", "s3")
            await h.send(a, [packet(a, 4, 1, 5)])
            await h.settle()
            assert [each.sequence for each in h.received(b)] == [4]

    asyncio.run(main())


@pytest.mark.slow
def test_a_cable_that_leads_elsewhere_counts_as_dead(wires, caplog):
    """s2's interfaces in another order than its ports are."""

    async def main():
        async with on_machines(wires) as h:
            notices = h.plane.notices()
            await asyncio.to_thread(h.agents["s2"].end)
            h.agents["s2"] = await asyncio.to_thread(AgentThread, wires, "s2", ["p2", "p1", "p3", "p4"])
            found = {await asyncio.wait_for(anext(notices), 40) for _ in range(3)}
            assert found == {SwitchUp("s2"), LinkDown("s1", "s2"), LinkDown("s2", "s3")}
            await asyncio.to_thread(h.agents["s2"].end)
            h.agents["s2"] = await asyncio.to_thread(AgentThread, wires, "s2")
            await until(lambda: not h.plane.down()[1])

    asyncio.run(main())
    assert "port 1 of switch s3 leads to port 1 of switch s2, expected port 2 of switch s2" in caplog.text
    assert "is cabled as the topology says now" in caplog.text


def test_beacons_are_read_back_and_nothing_else_is():
    frame = beacon("s12", 345)
    assert read_beacon(frame) == Neighbour("s12", 345)
    rng = random.Random(1)
    for cut in range(len(frame)):
        assert read_beacon(frame[:cut]) in (None, Neighbour("s12", 345))
    for _ in range(500):
        bad = bytearray(frame)
        bad[rng.randrange(12, len(bad))] = rng.randrange(256)
        read_beacon(bytes(bad))
        assert read_beacon(frame[:12] + rng.randbytes(60)) is None


def test_of_two_agents_of_one_switch_the_later_one_speaks(wires):
    async def main():
        async with on_machines(wires) as h:
            await path(h)
            notices = h.plane.notices()
            first = h.agents["s2"]
            h.agents["s2"] = await asyncio.to_thread(AgentThread, wires, "s2")
            await until(lambda: first.error is not None)
            assert isinstance(first.error, Rejected)
            assert "Another agent speaks for switch s2" in str(first.error)
            assert await anext(notices) == SwitchUp("s2")
            assert len(await h.plane.table("s2")) == 1
            await asyncio.to_thread(first.end, keep=True)

    asyncio.run(main())


def test_wrong_agents_are_told_what_is_wrong(wires):
    async def main():
        async with on_machines(wires) as h:
            few = await asyncio.to_thread(AgentThread, wires, "s2", ["p1"])
            await until(lambda: few.error is not None)
            assert "4 interfaces for switch s2 (1 to s1" in str(few.error)
            await asyncio.to_thread(few.end, keep=True)
            assert not h.plane.down()[0]

    asyncio.run(main())


def said_to(fleet, data):
    """What a fleet answers to bytes, and that it closes."""

    async def main():
        await fleet.start()
        reader, writer = await asyncio.open_connection(*fleet.address)
        writer.write(data)
        framer = p.AGENTS.dialling()
        answers = []
        async with asyncio.timeout(30):
            while data_read := await reader.read(1 << 16):
                answers += framer.feed(data_read)
        writer.close()
        await fleet.close()
        return answers

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(200), "a frame of 1 to 4096 bytes"),
        (b"\xff" * 200, "a frame of 1 to 4096 bytes"),
        (b"\0\0\0\x03abc", "Expected a message"),
        (frame(p.Ready()), "[Hh]ello"),
        (frame(p.Hello(p.PROTOCOL + 1, Role.COMPONENT, "s1")), str(p.PROTOCOL)),
        (frame(p.Hello(p.PROTOCOL, Role.CLIENT, "s1", interfaces=4)), "a component as the agent"),
        (frame(p.Hello(p.PROTOCOL, Role.COMPONENT, "s9", interfaces=4)), r"needs an agent \(s1, s2, s3\)"),
        (frame(p.Hello(p.PROTOCOL, Role.COMPONENT, "s1\n", interfaces=4)), "Expected a message"),
        # Everybody's events would have to fit it.
        (frame(p.Hello(p.PROTOCOL, Role.COMPONENT, "s2", interfaces=4, mtu=68)), "an MTU of at least 1280"),
    ],
)
def test_whoever_is_no_agent_is_refused(data, expected):
    [answer] = said_to(Fleet(TOPOLOGY), data)
    assert isinstance(answer, Failure)
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(answer.message)


@pytest.mark.parametrize(
    "answer",
    [None, 7, {"flows": [], "ports": {}}, {"ports": {1: [0, 0, 0, 0, 1 << 63]}}, {"ports": {1: [-1, 0, 0, 0, 0]}}],
)
def test_counts_that_are_none_are_no_answer(answer):
    """Whatever an agent says, `status` can add it up and send it."""
    whole = {"flows": (), "departed": (0, 0, 0, 0, 0), "reasons": {}}

    async def main():
        switch = RemoteSwitch("s1")

        async def ask(*_):
            return {**whole, **answer} if isinstance(answer, dict) and "flows" not in answer else answer

        switch.ask = ask
        with pytest.raises(Unavailable, match="its agent answers with something else"):
            await switch.counters()
        with pytest.raises(Unavailable, match="its agent answers with something else"):
            await switch.table()

    asyncio.run(main())


def test_with_an_access_folder_agents_prove_which_switch_they_are(tmp_path):
    access = access_folder(tmp_path, '[members.alice]\nrole = "client"\n')
    for switch in ("s1", "s2"):
        access.certificate(switch, Role.COMPONENT, 10, now())
    keeper = Doorkeeper(access, "daemon")

    async def main():
        fleet = Fleet(TOPOLOGY, gate=keeper, tls=keeper.tls)
        await fleet.start()

        async def greet(member, name, role=Role.COMPONENT):
            login = load_login(access.login(member))
            ports = len(TOPOLOGY.ports(name))
            hello = p.Hello(p.PROTOCOL, role, name, token=login.token, interfaces=ports, mtu=1500)
            link, welcome = await Link.open(
                p.AGENTS, fleet.address, hello, lambda link, message: None, tls=login.dialling(), timeout=10
            )
            await link.close()
            return welcome

        assert (await greet("s1", "s1")).name == "s1"
        assert fleet.mtu == 1500
        with pytest.raises(Rejected):
            await greet("s1", "s2")
        with pytest.raises(Rejected):
            await greet("alice", "s2")
        with pytest.raises(Rejected):
            await greet("alice", "s2", Role.CLIENT)
        # Without TLS nobody is heard at all.
        hello = p.Hello(p.PROTOCOL, Role.COMPONENT, "s2", interfaces=4)
        with pytest.raises(SievenetError):
            await Link.open(p.AGENTS, fleet.address, hello, lambda link, message: None, timeout=2)
        await fleet.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["revoked", "expired", "no member"])
def test_an_agent_whose_login_no_longer_counts_is_sent_away(tmp_path, how):
    access = access_folder(tmp_path, "")
    for switch in ("s1", "s2"):
        access.certificate(switch, Role.COMPONENT, 10 if switch == "s1" else 100, now())
    late = 0.0
    keeper = Doorkeeper(access, "daemon", clock=lambda: time.time() + late)

    async def main():
        nonlocal late
        fleet = Fleet(TOPOLOGY, gate=keeper, tls=keeper.tls)
        await fleet.start()

        async def agent(switch):
            login = load_login(access.login(switch))
            ports = len(TOPOLOGY.ports(switch))
            hello = p.Hello(p.PROTOCOL, Role.COMPONENT, switch, interfaces=ports, mtu=1500)
            tls = login.dialling()
            return (await Link.open(p.AGENTS, fleet.address, hello, lambda *_: None, tls=tls, timeout=10))[0]

        links = {switch: await agent(switch) for switch in ("s1", "s2")}
        fleet.renew(keeper.tls, keeper.stands)
        await asyncio.sleep(0)
        assert all(fleet.remote[switch].connected for switch in links)
        if how == "revoked":
            access.revoke("s1")
        elif how == "expired":
            late = 11 * 86400.0
        else:
            members = access.path / "members.toml"
            members.write_text(members.read_text().replace("[members.s1]", "[members.s9]"))
        keeper.look()
        fleet.renew(keeper.tls, keeper.stands)
        async with asyncio.timeout(10):
            with suppress(SievenetError):
                await links["s1"].ended
        await until(lambda: not fleet.remote["s1"].connected)
        assert fleet.remote["s2"].connected
        with pytest.raises(Rejected):
            await agent("s1")
        await links["s2"].close()
        await fleet.close()

    asyncio.run(main())


def test_flows_travel_unchanged():
    rng = random.Random(3)
    for _ in range(300):
        flow = random_flow(rng, [1, 2, 1024])
        for kind in (Add, Modify, Delete):
            assert p.changes_of(p.wire_changes([kind(flow)])) == [kind(flow)]
    good = p.packed(flow)
    for bad in (
        p.WireFlow(1, b"\xff" * 16, bytes(16), 0, 1, 0, 0, ()),
        p.WireFlow(1, bytes(16), b"\x40" + bytes(15), 0, 1, 0, 0, ()),
        p.WireFlow(1, bytes(16), b"\xff" * 16, 4, 1, 0, 0, ()),
    ):
        with pytest.raises(CodecError, match="a value under a mask"):
            p.unpacked(bad)
    with pytest.raises(CodecError, match="a, m or d"):
        p.changes_of([("x", good)])


def test_interfaces_have_to_be_there():
    with pytest.raises(InvalidInput, match="a network interface of this machine"):
        interfaces_of("no-such-device")
    with pytest.raises(InvalidInput, match="a network interface of this machine"):
        interfaces_of("lo")
    with pytest.raises(InvalidInput, match="each once"):
        interfaces_of("lo,lo")
    with pytest.raises(InvalidInput, match="each once"):
        interfaces_of(" , ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["switch", "s1", "--interfaces", "eth0", "--control", "127.0.0.1:1"], r"needs root.*--dataplane embedded"),
        (["switch", "s1", "--interfaces", "eth0", "--control", "nowhere"], "an address such as"),
        (["up", "--dataplane", "kernel", "--interfaces", "eth0"], r"needs root.*--dataplane embedded"),
        (["up", "--interfaces", "eth0"], "give --dataplane kernel too"),
        (["up", "--switch", "s1"], "give its --interfaces too"),
        (["up", "--listen", "127.0.0.1:0"], "give --dataplane openflow or kernel"),
        (["up", "--dataplane", "kernel", "--interfaces", "eth0", "--switch", "s7"], r"of the topology \(s1\)"),
        (["up", "--dataplane", "kernel", "--listen", "0.0.0.0:7402"], "kernel.listen"),
        (["up", "--dataplane", "kernel", "--listen", "7402"], "kernel.listen"),
    ],
)
def test_what_is_missing_is_said(words, expected, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    done = CliRunner().invoke(main, [*words, *(("--port", "0", "--for", "1s") if words[0] == "up" else ())])
    assert done.exit_code == 2
    assert re.search(expected, done.output.replace("\n", " ")), done.output


def test_an_agent_that_reaches_nobody_says_so_once(caplog):
    async def main():
        agent = Agent(Machine("s1", ["lo"]), "127.0.0.1", 1)
        running = asyncio.create_task(agent.run())
        await until(lambda: "trying again" in caplog.text)
        await asyncio.sleep(0.7)  # another try
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert caplog.text.count("switch s1:") == 1


def test_a_fleet_without_agents_waits_and_then_counts_them_as_down():
    async def main():
        fleet = Fleet(parse_topology("line,switches=2"))
        await fleet.start()
        await fleet.connected(0.01)
        from sievenet.dataplane.kernel.plane import KernelDataPlane

        plane = KernelDataPlane(fleet)
        plane.start()
        assert plane.down()[0] == {"s1", "s2"}
        with pytest.raises(Unavailable, match="its agent is not there"):
            await plane.attach("h1", "a")
        await plane.close()
        await fleet.close()

    asyncio.run(main())


# -- agents that go wrong --------------------------------------------------------------------------

ASKED = (
    p.Ready(),
    p.Leaving(),
    p.Carrier(1, up=True, carries=False),
    p.Carrier(60_000, up=False, carries=True),
    p.Cabled(1, "s1", 9),
    p.Cabled(2, "nobody", 1),
    p.Cabled(60_000, "s1", 1),
    p.Carried(1),
    p.Refused(1, Failure(0, "Unavailable", "no")),
    p.Refused(2, Failure(0, "NoSuchError", "no")),
)


async def gone_wrong(rng, fleet, switch):
    """An agent of a switch: comes as one does, takes orders, and answers them with whatever it likes."""
    framer = p.AGENTS.dialling()
    hello = p.Hello(p.PROTOCOL, Role.COMPONENT, switch, interfaces=len(TOPOLOGY.ports(switch)), mtu=9000)
    async with connection(rng, fleet.address) as (reader, writer):
        writer.write(frame(hello) if rng.random() < 0.9 else damaged(rng, frame(hello)))
        if rng.random() < 0.8:
            writer.write(frame(p.Ready()))
        for _ in range(rng.randrange(1, 10)):
            with suppress(TimeoutError):
                data = await asyncio.wait_for(reader.read(1 << 20), 0.03)
                if not data:
                    break
                for order in framer.feed(data):
                    number = getattr(order, "order", 0)
                    what = rng.choice((None, 7, [], {}, [[1, b"", b"", 0, 0, 0, 0, []]], {"flows": [], "ports": {}}))
                    writer.write(frame(rng.choice((p.Carried(number, what), p.Carried(number), *ASKED))))
            sample = rng.choice(ASKED)
            writer.write(wrong(rng, sample) if rng.random() < 0.4 else frame(sample))


@pytest.mark.parametrize("seed", seeds(2))
def test_agents_that_go_wrong(wires, seed, caplog):
    """In the place of one that is away: the others go on, and when the true one is back everything is as it was."""
    rng = random.Random(seed)

    async def main():
        async with on_machines(wires, grace=0.4) as h:
            a, b = await path(h)
            notices = h.plane.notices()
            near = await h.plane.attach("h2", "near")
            await h.plane.apply("s1", [Add(Flow.of(2, ROOT, near.port))])
            await asyncio.to_thread(h.agents["s2"].end, keep=True)
            assert await asyncio.wait_for(anext(notices), 30) == SwitchDown("s2")
            for turn in range(8):
                await asyncio.gather(*(gone_wrong(rng, h.fleet, "s2") for _ in range(3)))
                await h.send(a, [packet(a, 100 + turn, 2, 5)])
                assert len(await h.plane.table("s1")) == 2
                with suppress(SievenetError):
                    await h.plane.counters("s2")
            h.agents["s2"] = await asyncio.to_thread(AgentThread, wires, "s2")
            await until(lambda: not h.plane.down()[0] and not h.plane.down()[1])
            await h.send(a, [packet(a, 1, 1, 5)])
            await h.settle()
            assert [each.sequence for each in h.received(near)] == list(range(100, 108))
            assert [each.sequence for each in h.received(b)] == [1]
            assert h.fleet._doors.errors == 0

    asyncio.run(main())
    assert not [each for each in caplog.records if "internal error" in each.message]
