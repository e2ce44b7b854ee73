"""All tables of a lane in one compiled call: the same as one by one."""

from __future__ import annotations

import random

import pytest

from sievenet.control.deployment import Deployment, Holdings, Rooms
from sievenet.control.registrations import Changes, Registrations
from sievenet.control.routes import Routes, Wires
from sievenet.network import Testbed, spanning_trees
from tests.seeds import seeds


class Side:
    """Registrations and the deployed tables that follow, in one call or one by one."""

    def __init__(self, limit: int, least: bool, together: bool, limited: slice = slice(-2)) -> None:
        topology = Testbed.build()
        wires = Wires(topology)
        self.wires, self.together = wires, together
        self.registrations = Registrations(1, wires, Routes(wires, spanning_trees(topology, 1)[0]))
        self.rooms = Rooms()
        self.holdings = Holdings(self.rooms, "lane", 1, 1, least=least)
        for switch in topology.switches[limited]:  # the others have no limit
            self.rooms.resize(switch, limit + 1)
            self.holdings.open(switch, ())
        self.hosts = [topology.attachment(host) for host in topology.hosts]

    def attach(self, host: int, port: int) -> int:
        return self.wires.attach(self.hosts[host].switch, port)

    def advance(self, refits: list[str] | None = None) -> tuple[object, ...]:
        found = self.registrations.changes(self.holdings.switches)
        if not self.together:
            found = Changes(
                {switch: list(some) for switch, some in found.first.items()},
                {switch: list(some) for switch, some in found.second.items()},
                dict(found.between),
                found.used,
            )
        needs = self.holdings.advance(found, refits or [])
        began: list[int] = []
        self.rooms.begin("lane", needs, lambda: began.append(1), lambda error: None)
        told = [{switch: list(some) for switch, some in step.items()} for step in (found.first, found.second)]
        self.rooms.found(next(iter(self.holdings.switches)), "lane", 3)  # somebody looked
        self.holdings.settle([*needs, "elsewhere"])
        self.rooms.cancel("lane")
        return needs, told[0], told[1], began

    def numbers(self) -> list[list[list[int]]]:
        return [self.rooms.tables.tolist(), self.rooms.part("lane").tolist()]


def test_room_that_is_never_made_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(Deployment, "prepare", lambda *_: None)
    side = Side(5, least=True, together=True)
    side.registrations.offer(side.attach(0, 7), [1])
    side.registrations.want(side.attach(1, 8), list(range(1 << 12, 2 << 12)))
    with pytest.raises(RuntimeError, match="expected room"):
        side.advance()


def test_more_ports_than_are_told_at_a_time():
    side = Side(500, least=True, together=True)
    side.registrations.offer(side.attach(0, 7), [1])
    for i in range(70):
        side.registrations.want(side.attach(1, 1000 + i), [1 << 9 | i])
    side.advance()
    assert max(len(side.holdings.table(switch)) for switch in side.holdings.switches) >= 70


def test_ports_that_are_known_and_not_used_yet_are_not_forgotten():
    """Where a table would have more ports than fit in a word, those that nobody uses lose their bits."""
    side = Side(500, least=True, together=True)
    side.registrations.offer(side.attach(0, 7), [1])
    for i in range(63):
        side.registrations.want(side.attach(1, 1000 + i), [1 << 9 | i])
        side.advance()
        side.registrations.unwant(side.attach(1, 1000 + i), [1 << 9 | i])
        side.advance()
    for i in range(3):
        side.registrations.want(side.attach(1, 2000 + i), [1 << 9 | i])
    side.advance()
    assert max(len(side.holdings.table(switch)) for switch in side.holdings.switches) >= 3


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("seed", seeds(6))
def test_one_call_does_what_many_do(seed, least):
    limit = (0, 1, 2, 5, 20, 60)[seed % 6]
    sides = [Side(limit, least, together) for together in (True, False)]
    ports = random.Random(seed)
    live: list[tuple[int, int, list[int]]] = []
    for side in sides:
        side.registrations.offer(side.attach(0, 7), [1])
    for round_ in range(60):
        for _ in range(ports.choice((1, 1, 4))):
            if live and ports.random() < 0.3:
                host, port, keys = live.pop(ports.randrange(len(live)))
                for side in sides:
                    side.registrations.unwant(side.attach(host, port), keys)
                continue
            host, port = ports.randrange(len(sides[0].hosts)), 1000 + ports.randrange(12 if round_ < 30 else 90)
            lengths = [ports.choice((2, 6, 9, 70)) for _ in range(3)]
            live.append((host, port, [1 << length | ports.getrandbits(length) for length in lengths]))
            for side in sides:
                side.registrations.want(side.attach(host, port), live[-1][2])
        one, other = (side.advance() for side in sides)
        assert one == other
        for switch, table in sides[0].holdings.items():
            assert table.table == sides[1].holdings[switch].table
            assert len(table) == table.told <= max(1, limit)
        assert sides[0].numbers() == sides[1].numbers()
    assert sides[0].holdings.merged == sides[1].holdings.merged
    assert not limit or limit > 20 or sides[0].holdings.merged


def _all_by_one_port(table):
    return {key: frozenset({1}) | ports for key, ports in table.items()}


@pytest.mark.parametrize("seed", seeds(4))
def test_limits_and_transforms_may_come_and_go(seed):
    """What is not for the one call, now and then, is done beside it."""
    sides = [Side(9, False, together) for together in (True, False)]
    random_ = random.Random(seed)
    switches = list(sides[0].holdings.switches)
    for side in sides:
        side.registrations.offer(side.attach(0, 7), [1])
    for _ in range(50):
        switch, what, limit = random_.choice(switches), random_.randrange(6), random_.randrange(1, 20)
        key = 1 << 9 | random_.getrandbits(9)
        host, port = random_.randrange(len(sides[0].hosts)), 1000 + random_.randrange(40)
        for side in sides:
            if what == 0:
                side.rooms.resize(switch, limit)
            elif what == 1 and switch in side.holdings:
                side.holdings.divert(switch, [_all_by_one_port] if limit % 2 else [])
            elif what == 2 and switch in side.holdings and switch != switches[0]:
                side.holdings.close(switch)
            elif what == 3 and switch not in side.holdings:
                side.holdings.open(switch, side.registrations.table(switch))
            side.registrations.want(side.attach(host, port), [key])
        one, other = (side.advance([switch]) for side in sides)
        assert one == other
        assert sides[0].numbers() == sides[1].numbers()
        for each, table in sides[0].holdings.items():
            assert table.table == sides[1].holdings[each].table
            assert len(table) <= max(1, sides[0].rooms.capacity[each] - 1)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("limit", range(2, 8))
def test_a_small_table_is_merged_no_further_than_it_must_be(limit, least):
    side, random_ = Side(limit, least, True, slice(1)), random.Random(limit)
    ((_, table),) = side.holdings.items()
    side.registrations.offer(side.attach(0, 7), [1])
    for _ in range(60):
        host, length = random_.randrange(len(side.hosts)), random_.choice((2, 4, 9, 30))
        key = 1 << length | random_.getrandbits(length)
        before = side.holdings.merged
        side.registrations.want(side.attach(host, 1000 + random_.randrange(12)), [key])
        side.advance()
        if side.holdings.merged > before:
            again = Deployment(1, table.ideal)
            again.remerge(table.merges)
            assert again.table == table.table
            again.relax(limit)
            assert len(again) == len(table)
    assert side.holdings.merged
