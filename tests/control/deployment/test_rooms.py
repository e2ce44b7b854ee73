"""Who has how much of which switch: columns of numbers say the same as a number for each holder and switch."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from sievenet.control.deployment import Rooms
from tests.seeds import seeds

SWITCHES = [f"s{number}" for number in range(9)]


class Plain:
    """The same, number by number."""

    def __init__(self) -> None:
        self.share: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.holds: defaultdict[tuple[str, str], int] = defaultdict(int)

    def others(self, numbers: dict[tuple[str, str], int], switch: str, who: str) -> int:
        return sum(entries for (each, at), entries in numbers.items() if at == switch and each != who)

    def fits(self, rooms: Rooms, who: str, needs: dict[str, int]) -> bool:
        for switch, entries in needs.items():
            capacity = rooms.capacity.get(switch)
            if capacity is None or self.others(self.holds, switch, "") > capacity:
                continue
            room = capacity - self.others(self.holds, switch, who)
            spare = not any(at == switch and each != who and share for (each, at), share in self.share.items())
            if entries > room or (self.share[who, switch] >= room and not spare):
                return False
        return True


class Party:
    """One that never has less, and needs the spare entry."""

    def refit(self, switch: str) -> None: ...

    def steady(self, switch: str) -> bool:
        return False

    def least(self, switch: str) -> int:
        return 0

    def put_back(self) -> None: ...


@pytest.mark.parametrize("seed", seeds(8))
def test_numbers_are_those_of_each_holder(seed):
    rooms, plain, random_ = Rooms(), Plain(), random.Random(seed)
    names = ["a", "b", "c"]
    for who in names:
        rooms.join(who, Party())
    for _ in range(150):
        switch, who, entries = random_.choice(SWITCHES), random_.choice(names), random_.randrange(12)
        match random_.randrange(7):
            case 0:
                rooms.resize(switch, random_.choice((None, 6, 20, 40)))
            case 1:
                rooms.share(switch, who, entries)
                plain.share[who, switch] = entries
            case 2:
                rooms.hold(switch, who, entries)
                plain.holds[who, switch] = max(entries, plain.holds[who, switch])
            case 3:
                rooms.found(switch, who, entries)
                plain.holds[who, switch] = entries
            case 4:
                rooms.settle(switch, who, entries)
                plain.share[who, switch] = plain.holds[who, switch] = entries
            case 5 if entries == 0:
                rooms.leave(who)
                rooms.join(who, Party())
                for numbers in (plain.share, plain.holds):
                    numbers.update({(each, at): 0 for each, at in numbers if each == who})
            case _:
                needs = {each: random_.randrange(9) for each in random_.sample(SWITCHES, 3)}
                began: list[bool] = []
                fits = plain.fits(rooms, who, needs)
                rooms.begin(
                    who, needs, lambda began=began: began.append(True), lambda _, began=began: began.append(False)
                )
                rooms.cancel(who)
                assert (True in began) == fits
                for each, most in needs.items() if fits else ():
                    plain.holds[who, each] = max(most, plain.holds[who, each])
        for at in SWITCHES:
            capacity = rooms.capacity.get(at)
            for each in names:
                room = None if capacity is None else capacity - plain.others(plain.holds, at, each)
                limit = None if capacity is None else capacity - 1 - plain.others(plain.share, at, each)
                assert (rooms.room(at, each), rooms.limit(at, each)) == (room, limit)
