"""Matchers as the daemon knows them: where each is, what it serves, and whether it is well."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final

from sievenet.control.protocol import Matched
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.dataplane.plane import Attached
from sievenet.index import Cell, Dz

__all__ = ["BACKLOG", "FLIGHT", "SILENCE", "Matcher", "Serving", "flight_of", "queue_of", "uneven"]

#: Seconds without a sign of life after which a matcher is given up.
SILENCE: Final = 1.0
#: Packets that may wait at a matcher, at two signs of life in a row, before it has too much to do.
BACKLOG: Final = 20_000
#: Seconds that a matcher is left alone after it was given up: the first time, and at most if it is the same each time.
REST: Final = 5.0
LONGEST: Final = 80.0
#: Seconds that a packet takes through the network, and a little; and from a socket's buffer into a process.
FLIGHT: Final = 0.1
_READ: Final = 0.005
#: Seconds that a packet may take from its publisher to a matcher, with what may wait for it at a switch.
WAY: Final = 2.0


class Serving:
    """What one matcher holds of one category."""

    def __init__(self) -> None:
        #: The key of each subscription and what it says, by client and id.
        self.keys: dict[tuple[str, int], tuple[int, bytes]] = {}
        self._next = 0
        #: The subspaces that are diverted to it, or about to be; and those of them for which it is ready.
        self.regions: set[Dz] = set()
        self.live: set[Dz] = set()
        #: Whether it was told everything since it (re)connected.
        self.begun = False

    def key(self, client: str, id: int, content: bytes) -> int:
        """A key for a subscription; it keeps the one that it has."""
        key, _ = self.keys.get((client, id), (self._next, b""))
        self._next = max(self._next, key + 1)
        self.keys[client, id] = key, content
        return key

    def has(self, client: str, id: int, content: bytes) -> bool:
        """Whether the matcher was told of a subscription as it is."""
        return self.keys.get((client, id), (0, None))[1] == content

    def wants(self, keys: Iterable[int]) -> bool:
        """Whether a subscription that is registered at these dz or cells has to do with the subspaces."""
        if not self.regions:
            return False
        cells = [Cell.of_key(key).masked for key in keys]
        return any(not (v ^ w) & m & n for v, m in (r.masked for r in self.regions) for w, n in cells)


def queue_of(plane: object, name: str) -> tuple[int, int]:
    """The packets that wait for a component at its switch, and those dropped there, where a plane knows that."""
    if isinstance(plane, EmbeddedDataPlane) and name in plane.clients():
        return plane.waiting(name)
    return 0, 0


def flight_of(plane: object) -> tuple[float, float]:
    """Seconds that packets by content may take to clients behind others that do, and those that go to a matcher.

    In the embedded plane a packet is through all switches at once, if its links take no time, and waits for its client
    in the same queue as those that follow. So what a matcher sends later cannot overtake it. What was sent to the
    matcher is in its socket's buffer, and read before it does anything else for long.
    """
    if isinstance(plane, EmbeddedDataPlane) and plane.forwarding.immediate:
        return 0.0, _READ
    return FLIGHT, FLIGHT


class Matcher:
    """One matcher."""

    def __init__(self, name: str, attached: Attached, now: float) -> None:
        self.name, self.switch, self.port = name, attached.switch, attached.port
        self.host = attached.host
        self.serving: dict[int, Serving] = {}
        self.heard = now
        #: Until when it is given nothing, and why.
        self.resting = 0.0
        self.trouble = ""
        self._rest = 0.0
        self._busy = 0
        #: Packets for it that were dropped, in all and since it was given something.
        self._dropped = self._lost = 0
        self.received = self.sent = self.unwanted = self.backlog = 0
        self.seconds = 0.0
        #: When it had received how many packets, oldest first, that it has not all passed on.
        self._came: deque[tuple[float, int]] = deque()
        #: What was sent to it before that, it has passed on.
        self.passed = -inf

    def beat(self, report: Matched, now: float, queue: tuple[int, int] = (0, 0)) -> None:
        """A sign of life; with the packets that wait for it at its switch, and those that were dropped there."""
        self.heard = now
        waiting, dropped = queue
        self._lost += dropped - self._dropped if self.load else 0
        self._dropped = dropped
        self.received += report.received
        self.sent += report.sent
        self.unwanted += report.unwanted
        self.backlog, self.seconds = report.backlog + waiting, report.seconds
        self._busy = self._busy + 1 if self.backlog > BACKLOG else 0
        self._came.append((now, self.received + waiting))
        while self._came and self._came[0][1] <= self.received - report.backlog:
            self.passed = self._came.popleft()[0] - WAY

    def wrong(self, now: float) -> str:
        """Why it has to be given up; empty if it is well."""
        if now - self.heard > SILENCE:
            return f"no sign of life for {now - self.heard:.1f} s"
        if self._lost:
            return f"{self._lost} packets for it were dropped"
        if self._busy >= 2:
            return f"{self.backlog} packets wait"
        return ""

    def well(self, now: float) -> bool:
        """Whether it can be given more."""
        return now >= self.resting and not self.wrong(now) and not self.backlog > BACKLOG // 2

    def rest(self, reason: str, now: float) -> None:
        """It is given up for a while; twice as long as before if it never served in between."""
        self._rest = min(LONGEST, 2 * self._rest) if self._rest else REST
        self.resting, self.trouble = now + self._rest, reason
        self._busy = self._lost = 0

    def serves(self) -> None:
        """A subspace is diverted to it."""
        self._rest = 0.0

    def give_up(self, number: int) -> bool:
        """Nothing of a category goes to it any more; whether something did, or was about to."""
        serving = self.serving.get(number)
        if serving is None or not serving.regions:
            return False
        serving.regions.clear()
        serving.live.clear()
        serving.begun = False
        return True

    def live(self, number: int) -> set[Dz]:
        """What it is ready for of a category."""
        return self.serving[number].live if number in self.serving else set()

    def regions(self, number: int) -> set[Dz]:
        """What is diverted to it of a category."""
        return self.serving[number].regions if number in self.serving else set()

    @property
    def load(self) -> int:
        """Subspaces that are diverted to it."""
        return sum(len(each.regions) for each in self.serving.values())


def uneven(matchers: Iterable[Matcher], number: int, now: float) -> list[tuple[str, Dz]]:
    """Switches and subspaces of a category that the matcher with most at a switch should give to the one with fewest.

    None while that one has at least half as many: one that is new or back has nothing, and would have nothing for long.
    """
    at: dict[str, list[Matcher]] = {}
    for each in matchers:
        if each.well(now):
            at.setdefault(each.switch, []).append(each)
    found = []
    for switch, some in at.items():
        most, fewest = max(some, key=lambda each: each.load), min(each.load for each in some)
        if 2 * fewest < most.load:
            regions = sorted(most.regions(number), key=str)
            found += [(switch, dz) for dz in regions[: (most.load - fewest) // 2]]
    return found
