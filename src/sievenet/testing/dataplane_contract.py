"""What every data plane must do: one suite for the embedded, the simulated and the OpenFlow one.

A plane under test comes in a `Harness`, which also knows how to send and receive packets and
how to make things fail.  Each check is a coroutine function:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_contract(check):
        asyncio.run(with_harness(MyHarness, check))

The harness must be built on `TOPOLOGY`:

    h1,h2 ─ s1 ── s2 ── s3 ─ h5,h6
                  │
                h3,h4
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from sievenet.dataplane.plane import DataPlane, LinkDown, LinkUp, PortCount, SwitchDown, SwitchUp
from sievenet.errors import InvalidInput, Rejected, Unavailable
from sievenet.index import ROOT, Cell, Dz
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowTable, Match, Modify
from sievenet.testing.dataplane_harness import Harness
from sievenet.testing.dataplane_steps import (
    TOPOLOGY,
    cell_flow,
    code_of,
    dz_flow,
    expect,
    next_notice,
    numbers,
    packet_of,
    publish,
    three,
    toward,
)

__all__ = ["CAPACITY", "CHECKS", "TOPOLOGY", "Harness", "with_harness"]

#: Flows that fit each switch, if the plane under test can be limited.
CAPACITY: Final = 64


async def with_harness(
    factory: Callable[[], AbstractAsyncContextManager[Harness]], check: Callable[[Harness], Awaitable[None]]
) -> None:
    """Run one check on a fresh harness."""
    async with factory() as harness:
        await check(harness)


# -- tables ----------------------------------------------------------------------------------------


async def check_tables_start_empty(h: Harness) -> None:
    """A fresh switch holds nothing and forwards nothing."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h2", "b")
    assert len(await h.plane.table("s1")) == 0
    await publish(h, a, "101")
    assert h.received(b) == []


async def check_tables_read_back(h: Harness) -> None:
    """What was applied is what is read, for every kind of flow."""
    flows = [
        dz_flow("", 1),
        dz_flow("1011", 1, 2),
        dz_flow("1" * 112, 2),
        dz_flow("10", 2, category=2),
        Flow(Match(1, ROOT), frozenset({1}), TOP_PRIORITY, 2),
        Flow(Match(3, Cell.parse("1*0*")), frozenset({1}), 2),
        dz_flow("0"),
    ]
    await h.plane.apply("s2", [Add(flow) for flow in flows])
    assert await h.plane.table("s2") == FlowTable(flows)
    assert len(await h.plane.table("s1")) == 0
    await h.plane.apply("s2", [Delete(flow) for flow in flows])
    assert len(await h.plane.table("s2")) == 0


async def check_changes_in_order(h: Harness) -> None:
    """Later changes win; a second add replaces; deleting what is not there does nothing."""
    flow, other = dz_flow("10", 1), dz_flow("11", 1)
    await h.plane.apply("s1", [Delete(flow), Add(flow), Add(dz_flow("10", 2)), Add(other), Delete(other)])
    assert await h.plane.table("s1") == FlowTable([dz_flow("10", 2)])
    await h.plane.apply("s1", [Modify(dz_flow("10", 1, 2))])
    assert await h.plane.table("s1") == FlowTable([dz_flow("10", 1, 2)])
    await h.plane.apply("s1", [])
    assert await h.plane.table("s1") == FlowTable([dz_flow("10", 1, 2)])


async def check_unknown_switch(h: Harness) -> None:
    """A switch that does not exist is the caller's mistake."""
    await expect(InvalidInput, h.plane.apply("s99", [Add(dz_flow("1", 1))]))
    await expect(InvalidInput, h.plane.table("s99"))
    await expect(InvalidInput, h.plane.counters("s99"))


async def check_full_table(h: Harness) -> None:
    """A change that does not fit is refused as a whole."""
    if not h.limited:
        return
    flows = [Flow.of(1, Dz(i, 10), 1) for i in range(CAPACITY)]
    await h.plane.apply("s1", [Add(flow) for flow in flows])
    await expect(Rejected, h.plane.apply("s1", [Delete(flows[0]), Add(dz_flow("1", 1)), Add(dz_flow("11", 1))]))
    assert await h.plane.table("s1") == FlowTable(flows)
    await h.plane.apply("s1", [Delete(flows[0]), Add(dz_flow("1", 1)), Add(dz_flow("1", 2))])
    assert len(await h.plane.table("s1")) == CAPACITY


# -- packets ---------------------------------------------------------------------------------------


async def check_packets_follow_tables(h: Harness) -> None:
    """Across switches, to every port of the flow, unchanged, in order and once."""
    a, b, c = await three(h, "h1", "h6", "h3")
    await h.plane.apply("s1", [Add(dz_flow("1", toward("s1", "s2")))])
    await h.plane.apply("s2", [Add(dz_flow("10", toward("s2", "s3"), c.port)), Add(dz_flow("11", c.port))])
    await h.plane.apply("s3", [Add(dz_flow("1", b.port))])
    sent = [packet_of(a, i, bits) for i, bits in enumerate(["100", "110", "011", "101", "100"])]
    await h.send(a, sent)
    await h.settle()
    assert h.received(b) == [sent[0], sent[3], sent[4]]
    assert h.received(c) == [sent[0], sent[1], sent[3], sent[4]]
    assert h.received(a) == []


async def check_longest_wins(h: Harness) -> None:
    """Of nested flows the longest decides alone."""
    a, b, c = await three(h, "h1", "h2", "h2")
    await h.plane.apply("s1", [Add(dz_flow("1", b.port)), Add(dz_flow("10", c.port)), Add(dz_flow("101"))])
    await publish(h, a, "11", "100", "101")
    assert (numbers(h, b), numbers(h, c)) == ([0], [1])
    await h.plane.apply("s1", [Delete(dz_flow("10", c.port))])
    await publish(h, a, "100", first=3)
    assert numbers(h, b) == [0, 3]


async def check_tables_of_ports(h: Harness) -> None:
    """Cells in the tables of several ports: a packet leaves once by each port that has one for it."""
    if not h.plane.per_port:
        return
    a, b, c = await three(h, "h1", "h2", "h3")
    across, codes = toward("s1", "s2"), [f"{i:04b}" for i in range(16)]
    near = [
        cell_flow("1*0*", b.port),
        cell_flow("***1", b.port),
        cell_flow("1*0*", across),
        cell_flow("0*1*", across),
        cell_flow("1", a.port),
    ]
    far = [cell_flow("*1**", c.port), cell_flow("1", c.port)]
    await h.plane.apply("s1", [Add(flow) for flow in near])
    await h.plane.apply("s2", [Add(flow) for flow in far])
    assert (await h.plane.table("s1"), await h.plane.table("s2")) == (FlowTable(near), FlowTable(far))
    await publish(h, a, *codes)
    wanted = [i for i in range(16) if FlowTable(near).decide(1, code_of(codes[i]))]
    crossed = [i for i in wanted if across in FlowTable(near).ports(1, code_of(codes[i]))]
    arrived = [i for i in crossed if FlowTable(far).decide(1, code_of(codes[i]))]
    assert sorted(numbers(h, b)) == [i for i in wanted if b.port in FlowTable(near).ports(1, code_of(codes[i]))]
    assert sorted(numbers(h, c)) == arrived
    assert (await h.plane.counters("s1")).unmatched == 16 - len(wanted)
    assert (await h.plane.counters("s2")).unmatched == len(crossed) - len(arrived)
    # While a plan changes, a flow of the first table names the ports of all.
    catch = Flow(Match(1, ROOT), frozenset({b.port, across}), TOP_PRIORITY)
    await h.plane.apply("s1", [Add(catch), Delete(near[0]), Delete(near[2])])
    await publish(h, a, *codes, first=16)
    assert sorted(n for n in numbers(h, b) if n >= 16) == list(range(16, 32))
    await h.plane.apply("s1", [Delete(catch)])
    await publish(h, a, *codes, first=32)
    assert sorted(n for n in numbers(h, b) if n >= 32) == list(range(33, 48, 2))


async def check_no_way_back(h: Harness) -> None:
    """A packet never leaves by the port it came in by."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h2", "b")
    await h.plane.apply("s1", [Add(dz_flow("", a.port, b.port, toward("s1", "s2")))])
    await h.plane.apply("s2", [Add(dz_flow("", toward("s2", "s1")))])
    await publish(h, a, "1", "0")
    await publish(h, b, "1")
    assert (numbers(h, a), numbers(h, b)) == ([0], [0, 1])


async def check_in_ports_and_priority(h: Harness) -> None:
    """A catch-all above everything else holds for its in-port only."""
    a, b, c = await three(h, "h1", "h2", "h2")
    everything = Flow(Match(1, ROOT), frozenset({c.port}), TOP_PRIORITY, a.port)
    await h.plane.apply("s1", [Add(dz_flow("10", c.port)), Add(everything)])
    await publish(h, a, "01", "10")
    await publish(h, b, "01", "10", first=5)
    assert numbers(h, c) == [0, 1, 6]
    await h.plane.apply("s1", [Delete(everything)])
    await publish(h, a, "01", "10", first=10)
    assert numbers(h, c) == [0, 1, 6, 11]


async def check_masks(h: Harness) -> None:
    """Cells under any mask match what they say."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h2", "b")
    await h.plane.apply("s1", [Add(Flow(Match(1, Cell.parse("1*0*")), frozenset({b.port}), 2))])
    await publish(h, a, "1000", "1101", "0000", "1010", "1111")
    assert numbers(h, b) == [0, 1]
    await h.plane.apply("s1", [Add(Flow(Match(1, Cell.parse("***1")), frozenset(), 3))])
    await publish(h, a, "1000", "1101", first=5)
    assert numbers(h, b) == [0, 1, 5]


async def check_categories_apart(h: Harness) -> None:
    """Flows of one category say nothing about another."""
    a, b, c = await three(h, "h1", "h2", "h2")
    await h.plane.apply("s1", [Add(dz_flow("", b.port, category=1)), Add(dz_flow("1", c.port, category=2))])
    await publish(h, a, "1", category=2)
    await publish(h, a, "0", category=2, first=1)
    await publish(h, a, "1", category=1, first=2)
    await publish(h, a, "1", category=3, first=3)
    assert (numbers(h, b), numbers(h, c)) == ([2], [0])


async def check_permitted_categories(h: Harness) -> None:
    """A client publishes in the categories that it may, in any before somebody says which."""
    if not h.permits:
        return
    a, b, c = await three(h, "h1", "h2", "h1")
    await h.plane.apply("s1", [Add(dz_flow("", b.port, category=category)) for category in (1, 2)])
    # None: nobody has said anything.  Both are clients of one host.
    said = [(a, None), (a, {2}), (c, None), (a, {1, 2}), (a, set())]
    for step, (sender, categories) in enumerate(said):
        if categories is not None:
            await h.plane.permit(sender.client, frozenset(categories))
        for category in (1, 2):
            await publish(h, sender, "1", category=category, first=10 * step + category)
    await h.plane.detach("a")
    await publish(h, await h.plane.attach("h1", "a", port=a.port), "1", first=51)
    assert numbers(h, b) == [1, 2, 12, 21, 22, 31, 32, 51]


async def check_many_packets(h: Harness) -> None:
    """A burst arrives complete and in order."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h5", "b")
    await h.plane.apply("s1", [Add(dz_flow("", toward("s1", "s2")))])
    await h.plane.apply("s2", [Add(dz_flow("", toward("s2", "s3")))])
    await h.plane.apply("s3", [Add(dz_flow("", b.port))])
    for first in range(0, 1000, 100):
        await h.send(a, [packet_of(a, first + i, f"{i:07b}") for i in range(100)])
    await h.settle()
    assert numbers(h, b) == list(range(1000))


async def check_counters(h: Harness) -> None:
    """Flows and ports count packets; unmatched ones are counted too."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h2", "b")
    flow, idle = dz_flow("1", b.port), dz_flow("01", b.port)
    await h.plane.apply("s1", [Add(flow), Add(idle)])
    await publish(h, a, "10", "11", "00")
    counters = await h.plane.counters("s1")
    assert counters.flows[flow.key].packets == 2
    assert counters.flows[flow.key].bytes > 0
    assert counters.flows[idle.key].packets == 0
    assert counters.ports[a.port].received.packets == 3
    assert counters.ports[b.port].sent.packets == 2
    assert counters.unmatched == 1
    await h.plane.apply("s1", [Modify(dz_flow("1", b.port, toward("s1", "s2")))])
    await publish(h, a, "10", first=3)
    assert (await h.plane.counters("s1")).flows[flow.key].packets == 3


async def check_departed(h: Harness) -> None:
    """What clients have sent and got stays counted when they leave, and when others get their ports."""
    link = toward("s1", "s2")
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h2", "b")
    await h.plane.apply("s1", [Add(dz_flow("1", b.port, link))])
    await publish(h, a, "10", "11", "00")
    before = (await h.plane.counters("s1")).transmissions({link})
    assert before == 3 + 2  # from the one, to the other
    assert (await h.plane.counters("s2")).transmissions({toward("s2", "s1"), toward("s2", "s3")}) == 2
    await h.plane.detach("b")
    counters = await h.plane.counters("s1")
    assert b.port not in counters.ports
    assert (counters.departed.received.packets, counters.departed.sent.packets) == (0, 2)
    await h.plane.detach("a")
    counters = await h.plane.counters("s1")
    assert (counters.departed.received.packets, counters.departed.sent.packets) == (3, 2)
    assert counters.transmissions({link}) == before
    again = await h.plane.attach("h1", "c", a.port)
    counters = await h.plane.counters("s1")
    assert counters.ports[again.port] == PortCount()
    assert counters.clients.received.packets == 3
    assert counters.transmissions({link}) == before


# -- failures --------------------------------------------------------------------------------------


async def check_switch_failure(h: Harness) -> None:
    """A switch that is down says so, carries nothing, and comes back empty; both are noticed."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h5", "b")
    for switch, port in (("s1", toward("s1", "s2")), ("s2", toward("s2", "s3")), ("s3", b.port)):
        await h.plane.apply(switch, [Add(dz_flow("", port))])
    notices = h.plane.notices()
    await h.set_switch("s2", False)
    assert await next_notice(notices) == SwitchDown("s2")
    assert h.plane.down()[0] == {"s2"}
    await expect(Unavailable, h.plane.apply("s2", [Add(dz_flow("1", 1))]))
    await expect(Unavailable, h.plane.table("s2"))
    await publish(h, a, "1")
    assert h.received(b) == []
    await h.set_switch("s2", True)
    assert await next_notice(notices) == SwitchUp("s2")
    assert h.plane.down()[0] == frozenset()
    assert len(await h.plane.table("s2")) == 0
    await h.plane.apply("s2", [Add(dz_flow("", toward("s2", "s3")))])
    await publish(h, a, "1", first=1)
    assert numbers(h, b) == [1]


async def check_link_failure(h: Harness) -> None:
    """A link that is down carries nothing; tables stay."""
    a, b = await h.plane.attach("h1", "a"), await h.plane.attach("h3", "b")
    await h.plane.apply("s1", [Add(dz_flow("", toward("s1", "s2")))])
    await h.plane.apply("s2", [Add(dz_flow("", b.port))])
    notices = h.plane.notices()
    await h.set_link("s1", "s2", False)
    assert await next_notice(notices) == LinkDown("s1", "s2")
    assert h.plane.down()[1] == {("s1", "s2")}
    await publish(h, a, "1")
    assert h.received(b) == []
    await h.set_link("s2", "s1", True)
    assert await next_notice(notices) == LinkUp("s1", "s2")
    await publish(h, a, "1", first=1)
    assert numbers(h, b) == [1]


# -- clients ---------------------------------------------------------------------------------------


async def check_attaching(h: Harness) -> None:
    """A client has one port of its own until it leaves, and may ask for it again."""
    a = await h.plane.attach("h1", "a")
    assert a.switch == TOPOLOGY.attachment("h1").switch
    assert await h.plane.attach("h1", "a") == a
    b = await h.plane.attach("h1", "b")
    assert b.port != a.port
    await expect(Rejected, h.plane.attach("h2", "a"))
    await expect(InvalidInput, h.plane.attach("h99", "c"))
    await h.plane.detach("a")
    await h.plane.detach("nobody")
    again = await h.plane.attach("h1", "a", port=a.port)
    assert again.port == a.port
    assert (await h.plane.attach("h1", "c", port=a.port)).port not in (a.port, b.port)


async def check_detached_clients_get_nothing(h: Harness) -> None:
    """Packets to a port whose client has left are gone; others still get theirs."""
    a, b, c = await three(h, "h1", "h2", "h2")
    await h.plane.apply("s1", [Add(dz_flow("", b.port, c.port))])
    await publish(h, a, "1")
    await h.plane.detach("b")
    await publish(h, a, "1", first=1)
    assert (numbers(h, b), numbers(h, c)) == ([0], [0, 1])


async def check_cut_off_hosts(h: Harness) -> None:
    """Nobody attaches where the switch is down."""
    await h.set_switch("s3", False)
    await expect(Unavailable, h.plane.attach("h5", "a"))
    await h.set_switch("s3", True)
    assert (await h.plane.attach("h5", "a")).switch == "s3"


async def check_topology(h: Harness) -> None:
    """The plane knows its whole network, whatever is down."""
    await h.set_switch("s3", False)
    assert h.plane.topology == TOPOLOGY
    assert isinstance(h.plane, DataPlane)


#: All checks.
CHECKS: Final[tuple[Callable[[Harness], Awaitable[None]], ...]] = tuple(
    value for name, value in list(globals().items()) if name.startswith("check_")
)
