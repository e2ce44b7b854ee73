"""Acknowledgements, faults, notices and time."""

import asyncio

import pytest

from sievenet.dataplane import ApplyFault, LinkDown, LinkUp, Packet, Simulator, SwitchDown, SwitchUp
from sievenet.dataplane.fabric import _LAST_PORT
from sievenet.errors import InvalidInput, Rejected, Unavailable
from sievenet.index import Dz
from sievenet.network import CLIENT_PORTS, Add, Flow, FlowTable, Line, LinkSettings
from sievenet.testing.virtual_time import Deadlock, VirtualLoop, run_virtual

FLOWS = [Flow.of(1, Dz(i, 2), 1) for i in range(4)]
ADDS = [Add(flow) for flow in FLOWS]


def now():
    return asyncio.get_running_loop().time()


def simulator(**options):
    return Simulator.on_loop(Line.build(switches=3), **options)


def test_control_delay_counts_both_ways():
    async def main():
        sim = simulator(control_delay=0.25)
        await sim.apply("s1", ADDS)
        assert now() == 0.5
        assert await sim.table("s1") == FlowTable(FLOWS)
        assert now() == 1.0

    run_virtual(main())


def test_a_switch_that_does_not_acknowledge():
    async def main():
        sim = simulator(ack_timeout=2.0)
        sim.inject_fault("s1", ApplyFault())
        with pytest.raises(Unavailable, match="did not acknowledge 4 flow changes within 2 s"):
            await sim.apply("s1", ADDS)
        assert now() == 2.0
        # It did what it was told, but that took reading the table to find out.
        assert await sim.table("s1") == FlowTable(FLOWS)
        await sim.apply("s1", ADDS)

    run_virtual(main())


def test_a_switch_that_loses_changes():
    async def main():
        sim = simulator()
        sim.inject_fault("s1", ApplyFault(applied=1))
        with pytest.raises(Unavailable):
            await sim.apply("s1", ADDS)
        assert await sim.table("s1") == FlowTable(FLOWS[:1])
        sim.inject_fault("s1", ApplyFault(applied=2, late=0.0))
        await sim.apply("s1", ADDS)  # acknowledged, and yet
        assert await sim.table("s1") == FlowTable(FLOWS[:2])

    run_virtual(main())


def test_late_acknowledgements():
    async def main():
        sim = simulator(ack_timeout=1.0)
        sim.inject_fault("s1", ApplyFault(late=0.5))
        sim.inject_fault("s1", ApplyFault(late=5.0), times=2)
        await sim.apply("s1", ADDS)
        assert now() == 0.5
        with pytest.raises(Unavailable):
            await sim.apply("s1", ADDS)
        sim.clear_faults()
        await sim.apply("s1", ADDS)
        await asyncio.sleep(10)  # the late one comes, and nobody minds

    run_virtual(main())


def test_the_channel_keeps_order():
    async def main():
        sim = simulator(control_delay=0.1)
        order = []

        async def do(name, call):
            await call
            order.append(name)

        await asyncio.gather(
            do("apply", sim.apply("s1", ADDS)), do("table", sim.table("s1")), do("again", sim.apply("s1", []))
        )
        assert order == ["apply", "table", "again"]

    run_virtual(main())


def test_rejection_travels_back():
    async def main():
        sim = simulator(control_delay=0.1, capacity=2)
        with pytest.raises(Rejected):
            await sim.apply("s1", ADDS)
        assert now() == 0.2
        assert await sim.table("s1") == FlowTable()

    run_virtual(main())


def test_a_switch_that_dies_fails_those_who_wait():
    async def main():
        sim = simulator(control_delay=0.5)
        waiting = asyncio.ensure_future(sim.apply("s1", ADDS))
        await asyncio.sleep(0.1)
        sim.switch_down("s1")
        with pytest.raises(Unavailable, match="went down"):
            await waiting
        assert now() == 0.1
        sim.switch_up("s1")
        await asyncio.sleep(2)
        sim.switch_down("s2")
        waiting = asyncio.ensure_future(sim.apply("s3", ADDS))
        await asyncio.sleep(0)
        await sim.close()
        with pytest.raises(Unavailable, match="closing"):
            await waiting

    run_virtual(main())


def test_faults_need_a_switch():
    async def main():
        sim = simulator()
        for call in (
            lambda: sim.inject_fault("s9", ApplyFault()),
            lambda: sim.switch_down("s9"),
            lambda: sim.link_down("s1", "s3"),
            lambda: sim.port_of("nobody"),
        ):
            with pytest.raises(InvalidInput):
                call()

    run_virtual(main())


def test_notices_are_bounded_and_never_hide_a_failure():
    async def main():
        sim = simulator()
        slow, gone = sim.notices(), sim.notices()
        await gone.aclose()
        for _ in range(50):
            sim.switch_down("s1")
            sim.switch_down("s1")  # no news
            sim.switch_up("s1")
            sim.link_down("s2", "s1")
            sim.link_up("s1", "s2")
        sim.link_down("s2", "s3")
        got = [await anext(slow) for _ in range(5)]
        assert got == [SwitchDown("s1"), SwitchUp("s1"), LinkDown("s1", "s2"), LinkUp("s1", "s2"), LinkDown("s2", "s3")]
        waiting = asyncio.ensure_future(anext(slow))
        await asyncio.sleep(0)
        await sim.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert [n async for n in sim.notices()] == []

    run_virtual(main())


def test_a_switch_may_keep_its_table():
    sim = Simulator(Line.build(switches=1))
    sim.apply_now("s1", ADDS)
    sim.switch_down("s1", keep_table=True)
    with pytest.raises(Unavailable):
        sim.table_now("s1")
    sim.switch_up("s1")
    assert sim.table_now("s1") == FlowTable(FLOWS)


def test_ports_go_round_before_they_are_reused():
    sim = Simulator(Line.build(switches=1))
    first = sim.attach_now("h1", "a").port
    sim.detach_now("a")
    assert first == CLIENT_PORTS
    assert sim.attach_now("h1", "a").port == CLIENT_PORTS + 1
    assert sim.attach_now("h1", "b", port=7).port == CLIENT_PORTS + 2  # that one is not for clients
    sim._next_port["s1"] = _LAST_PORT
    assert sim.attach_now("h1", "c").port == _LAST_PORT
    assert sim.attach_now("h1", "d").port == CLIENT_PORTS


def test_ports_run_out(monkeypatch):
    monkeypatch.setattr("sievenet.dataplane.fabric._LAST_PORT", CLIENT_PORTS + 1)
    sim = Simulator(Line.build(switches=1))
    sim.attach_now("h1", "a")
    sim.attach_now("h1", "b")
    with pytest.raises(Rejected, match="2 clients"):
        sim.attach_now("h1", "c")


# -- time ------------------------------------------------------------------------------------------


def run_lossy(seed):
    link = LinkSettings(delay=0.01, bandwidth=1e6, queue=20, loss=0.05, jitter=0.01, reorder=0.1)
    sim = Simulator(Line.build(switches=4, link=link), seed=seed)
    sim.attach_now("h1", "a")
    b = sim.attach_now("h4", "b")
    got = []
    sim.listen("b", lambda packet: got.append((sim.now, packet.sequence)))
    for i in range(1, 4):
        sim.apply_now(f"s{i}", [Add(Flow.of(1, Dz(0, 0), sim.topology.port(f"s{i}", f"s{i + 1}")))])
    sim.apply_now("s4", [Add(Flow.of(1, Dz(0, 0), b.port))])
    for i in range(300):
        sim.scheduler.call_at(i * 0.0004, sim.send, "a", Packet(1, i << 90, 1, i, 0, 0, b"x" * 50))
    sim.run()
    return got, [sim.counters_now(s) for s in sim.topology.switches]


def test_simulations_are_deterministic():
    first = run_lossy(7)
    assert first == run_lossy(7)
    assert first != run_lossy(8)
    sequence = [number for _, number in first[0]]
    assert len(set(sequence)) == len(sequence)
    assert 100 < len(sequence) < 290
    assert sequence != sorted(sequence)


def test_thousands_of_simulated_seconds():
    sim = Simulator(Line.build(switches=2, link=LinkSettings(delay=1.0)))
    a, b = sim.attach_now("h1", "a"), sim.attach_now("h2", "b")
    sim.apply_now("s1", [Add(Flow.of(1, Dz(0, 0), sim.topology.port("s1", "s2"), a.port))])
    sim.apply_now("s2", [Add(Flow.of(1, Dz(0, 0), b.port))])
    got = []
    sim.listen("b", got.append)
    for i in range(2000):
        sim.scheduler.call_at(float(i), sim.send, "a", Packet(1, 0, 1, i, 0))
    sim.run(until=1e6)
    assert (len(got), sim.now) == (2000, 1e6)


def test_a_simulator_on_a_loop_passes_its_time_there():
    async def main():
        with pytest.raises(InvalidInput):
            simulator().run()

    run_virtual(main())


def test_virtual_time_jumps():
    async def main():
        first = asyncio.create_task(asyncio.sleep(3600))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        assert now() == 60
        await first
        return now()

    assert run_virtual(main()) == 3600


def test_virtual_time_runs_the_same_way_twice():
    async def main():
        order = []

        async def tick(name, period):
            for _ in range(20):
                await asyncio.sleep(period)
                order.append((name, round(now(), 9)))

        await asyncio.gather(tick("a", 0.3), tick("b", 0.5), tick("c", 0.5))
        return order

    assert run_virtual(main()) == run_virtual(main())


def test_a_deadlock_is_an_error(monkeypatch):
    monkeypatch.setattr("sievenet.testing.virtual_time._PATIENCE", 0.01)
    loop = VirtualLoop()
    stuck = loop.create_task(asyncio.Event().wait())
    with pytest.raises(Deadlock, match="no timer is set"):
        loop.run_until_complete(stuck)
    stuck.cancel()
    loop.run_until_complete(asyncio.gather(stuck, return_exceptions=True))
    loop.close()


def test_sockets_work_in_virtual_time():
    async def main():
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(None, lambda: 5)
        await asyncio.sleep(1)
        return result

    assert run_virtual(main()) == 5


def test_what_is_under_way_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr("sievenet.dataplane.forwarding.MAX_BYTES", 10_000)
    sim = Simulator(Line.build(switches=2, link=LinkSettings(delay=1.0)))
    sim.attach_now("h1", "a")
    for i in range(100):
        sim.send("a", Packet(1, 0, 1, i, 0, 0, bytes(946)))
    assert sim.forwarding.in_flight_bytes == 10_000
    assert (sim.forwarding.in_flight, sim.forwarding.overflowed) == (10, 90)
    sim.run()
    assert sim.forwarding.in_flight_bytes == sim.forwarding.in_flight == 0
