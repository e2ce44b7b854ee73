"""The selector: decides, every few seconds, what goes through matchers.

    reports of clients ─▶ what was seen ─▶ model ─▶ choice (CSA or SSA) ─▶ worth changing? ─▶ divert, release

What clients see is averaged over the last few intervals. What is diverted is not seen any more as false positives; so
of cells in diverted subspaces the last picture counts, as long as the matchers there have something to do. Latencies
are those that clients report, of both ways; so are the events of both ways, and if more go through matchers than was
chosen, less is chosen the next time. Another choice has to be better than the present one by the hysteresis.

The bound is on what clients measure. Every change costs some events a few milliseconds, so what is there stays as long
as the measured mean keeps the bound, whatever the model expects, and changes that hardly save anything are not made. If
the mean of an interval is above the bound, some is given back and nothing more is diverted, and for a while (`_strain`)
less is chosen than the model allows. For the same reason the subspaces stay
those of the last time, while they will do (`settled`). A matcher that comes to a switch where others are saves nothing,
and gets its share all the same: subspaces are cut if there are fewer than matchers, or change hands (`uneven`).

What each way takes by itself changes too, with the machine and with what else it carries. So a choice leaves twice as
much of the bound unused as the ways' means lately differed from one interval to the next: nothing where all is steady.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any, Final

import numpy as np

from sievenet.config import HybridConfig
from sievenet.control.descriptions import CELL_BITS, MAX_CELLS, Report
from sievenet.control.hybrid import Choice, Model, Observation, csa, ssa
from sievenet.control.hybrid.selection import allowed, numbered, settled
from sievenet.control.plane import ControlPlane
from sievenet.daemon.hybrid import Hybrid
from sievenet.daemon.latency import Latency
from sievenet.daemon.matchers import uneven
from sievenet.daemon.planes import AnyPlane
from sievenet.dataplane.plane import Attached
from sievenet.errors import SievenetError
from sievenet.index import Dz

__all__ = ["Selector"]

log = logging.getLogger("sievenet.daemon")

#: How much of the last picture stays when there is a new one, and counts that are forgotten.
_STAYS: Final = 0.5
_TINY: Final = 0.25
#: What a choice is expected to be wrong by at most, as a factor.
_MOST_EXCESS: Final = 3.0
#: What the limit is divided by at most while the bound is exceeded, how fast that grows, and how fast it goes back.
_MOST_STRAIN: Final = 8.0
_STRAINED: Final = 1.5
_RELIEVED: Final = 0.9
#: Times the mean deviation of latencies that a choice leaves unused: a mean rises by more in one interval of twenty.
_ROOM: Final = 2.0
#: What a change has to save more than before, as a share of all that could be saved.
_WORTH: Final = 0.01
#: Seconds that a matcher is expected to add before that is measured.
_GUESS: Final = 0.002

#: Cells of one client that are remembered between two choices.
_MOST_CELLS: Final = 16 * MAX_CELLS

#: Category, cell, publisher's number, subscriber.
_Key = tuple[int, int, int, str]
#: Wanted and not, where nothing came.
_NOTHING: Final = (0.0, 0.0)
#: Switches and subspaces.
Pairs = frozenset[tuple[str, Dz]]


class Selector:
    """One daemon's."""

    def __init__(self, control: ControlPlane, plane: AnyPlane, hybrid: Hybrid, config: HybridConfig) -> None:
        self._control, self._plane, self._hybrid, self.config = control, plane, hybrid, config
        self._fresh: dict[_Key, list[float]] = {}
        #: How many of them each client has told of.
        self._said_by: Counter[str] = Counter()
        self._seen: dict[_Key, tuple[float, float]] = {}
        self._network, self._matcher = Latency(), Latency()
        #: By category: what the present choice is worth per interval, and what it could be at most.
        self._worth: dict[int, tuple[Choice, float, float]] = {}
        #: By category: the subspaces that were chosen from the last time.
        self._regions: dict[int, list[Dz]] = {}
        self._received: dict[str, int] = {}
        #: What the limit is divided by, since the bound was exceeded.
        self._strain = 1.0
        self.changes = 0
        #: What the log has heard last of each switch where nothing could be diverted.
        self._said: dict[str, str] = {}
        #: Seconds that the last choice took.
        self.took = 0.0

    @property
    def wanted(self) -> bool:
        """Whether clients are to say what they see where."""
        return self.config.latency_bound != 0 and bool(self._hybrid.matchers)

    def report(self, client: str, report: Report) -> None:
        """Note what a client saw; of what it says only so much is remembered until the next choice."""
        for seen in report.cells if self.wanted else ():
            key = (seen.category, seen.cell, seen.publisher, client)
            if key not in self._fresh:
                if self._said_by[client] >= _MOST_CELLS or not self._control.is_category(seen.category):
                    continue
                self._said_by[client] += 1
            count = self._fresh.setdefault(key, [0.0, 0.0])
            count[0] += seen.wanted
            count[1] += seen.unwanted
        self._network.add(report.by_content.events, report.by_content.seconds)
        self._matcher.add(report.directed.events, report.directed.seconds)

    async def run(self) -> None:
        """Choose again and again."""
        while True:
            await asyncio.sleep(self.config.interval)
            try:
                await self.choose()
            except SievenetError as error:
                log.warning("hybrid filtering: %s", error)
            except Exception:
                log.exception("hybrid filtering could not choose")

    # -- choosing -------------------------------------------------------------------------

    async def choose(self) -> None:
        """Look at what was seen since the last time, and change what is worth it."""
        await self._hybrid.refresh()
        await self._remember()
        if self.config.latency_bound in (0, inf):
            self._strain = 1.0  # there is no bound to keep
        elif self._network.events + self._matcher.events:
            self._strain = min(_MOST_STRAIN, max(1.0, self._strain * (_STRAINED if self._slow() else _RELIEVED)))
        numbers = {key[0] for key in self._seen} | {n for m in self._hybrid.matchers.values() for n in m.serving}
        for number in sorted(filter(self._control.is_category, numbers)):
            # Only flows of one table can be diverted.
            if not self._control.changing(number) and self._control.numbered(number).plan.kind == "dz":
                await self._choose(number)
        self._network.turn()
        self._matcher.turn()

    async def _remember(self) -> None:
        busy = {}
        for name, matcher in self._hybrid.matchers.items():
            busy[name] = matcher.received > self._received.get(name, 0)
            self._received[name] = matcher.received
        kept: dict[int, list[Dz]] = {}
        for name, matcher in self._hybrid.matchers.items():
            for number, serving in matcher.serving.items():
                if busy[name]:
                    kept.setdefault(number, []).extend(serving.regions)
        fresh, self._fresh = self._fresh, {}
        self._said_by.clear()
        # There may be very many: events go on meanwhile.
        self._seen = await asyncio.to_thread(_merged, self._seen, fresh, kept)

    async def _choose(self, number: int) -> None:
        routes = self._control.routes(number, Dz(0, 0))
        if routes is None:
            return  # its partitions have different trees
        places = self._plane.clients()
        present = frozenset(
            (m.switch, dz) for m in self._hybrid.matchers.values() if number in m.serving for dz in m.regions(number)
        )
        where = Counter(m.switch for m in self._hybrid.matchers.values() if m.well(self._hybrid.now()))
        loop = asyncio.get_running_loop()
        begin = loop.time()
        tree = routes.tree
        before = self._regions.get(number, [])

        def chosen() -> tuple[Pairs, Choice, float, float, list[Dz]]:
            return self._chosen(_observed(self._seen, number, places), tree.path, where, present, before)

        found = await asyncio.to_thread(chosen)
        self.took = loop.time() - begin
        pairs, choice, removable, deliveries, self._regions[number] = found
        self._worth[number] = choice, removable, deliveries
        if pairs != present:
            await self._change(number, present - pairs, pairs - present)
        elif self._calm() and (moved := frozenset(uneven(self._hybrid.matchers.values(), number, self._hybrid.now()))):
            await self._change(number, moved, moved)

    async def _change(self, number: int, old: Pairs, new: Pairs) -> None:
        """Give these back to the network, then divert those."""
        self.changes += 1
        for switch, dz in sorted(old, key=str):
            await self._hybrid.release(number, dz, switch)
        for switch, dz in sorted(new, key=str):
            if not self._hybrid.at(switch):
                continue  # the last one there was given up meanwhile; that was said
            try:
                await self._hybrid.divert(number, dz, switch)
            except SievenetError as error:
                level = logging.DEBUG if self._said.get(switch) == str(error) else logging.WARNING  # once is enough
                log.log(level, "%s at %s is not diverted: %s", dz, switch, error)
                self._said[switch] = str(error)

    def _chosen(
        self, seen: list[Observation], path: Any, where: Mapping[str, int], present: Pairs, before: list[Dz]
    ) -> tuple[Pairs, Choice, float, float, list[Dz]]:
        """The pairs to have from now on, what they are worth, what there is in all, and the subspaces to choose from.

        ``where`` says how many matchers are at which switch: they share the subspaces there. ``before`` are the
        subspaces of the last time. Nothing is changed here.
        """
        model = Model.of(seen, path)
        most = self._limit(model.deliveries)
        # A little less than may be, if not everything may: not every change of what is measured shall be too much.
        limit = most if most >= model.deliveries else most / (1 + self.config.hysteresis)
        usable = np.array([switch in where for switch in model.switches], np.bool_)
        # Without a bound everything is filtered exactly, also where nothing has been seen yet.
        whole = self.config.method == "ssa" or self.config.latency_bound == inf
        count = max(where.values(), default=1) if whole else self.config.clusters
        weights = model.link + model.hosts
        regions = settled(before, model.cell, weights, CELL_BITS, count, count if whole else 0)
        if whole:
            choice = ssa(model, limit, usable)
            pairs = frozenset((switch, dz) for switch, _ in choice.pairs for dz in regions)
        else:
            small = model.collapsed(numbered(model.cell, CELL_BITS, regions))
            choice = csa(small, small.cell, len(regions), limit, usable)
            pairs = frozenset((switch, regions[i]) for switch, i in choice.pairs)
        now = _evaluated(model, present)
        better = choice.benefit > now.benefit * (1 + self.config.hysteresis)
        if self.config.latency_bound != inf:
            # A change costs events some time: it has to be worth it, and there has to be time left.
            better &= choice.benefit - now.benefit >= _WORTH * model.removable and not self._exceeded()
        if self._calm() and choice.benefit >= (1 - _WORTH) * now.benefit:
            better |= _wider(pairs, present, where)  # it saves no more, but somebody has nothing to do
        much = now.penalty > most and self._slow()
        if not better and much:
            # It would do to give some of it back, which disturbs fewer events than to have all of it elsewhere.
            less, left = _trimmed(model, present, limit)
            if left.benefit * (1 + self.config.hysteresis) >= choice.benefit:
                return less, left, model.removable, model.deliveries, regions
        if better or much or (present and not now.benefit and not choice.benefit):
            return pairs, choice, model.removable, model.deliveries, regions
        return present, now, model.removable, model.deliveries, regions

    def _limit(self, deliveries: float) -> float:
        most = allowed(deliveries, self.config.latency_bound - self._margin(), *self.latencies())
        return most if most >= deliveries and self._strain == 1.0 else most / self._excess() / self._strain

    def _margin(self) -> float:
        """Seconds by which the mean of all deliveries may rise by itself, because that of a way does."""
        ways = self._network, self._matcher
        events = sum(each.events for each in ways)
        return _ROOM * (sum(each.drift * each.events for each in ways) / events if events else self._network.drift)

    def _slow(self) -> bool:
        """Whether deliveries of this interval took longer than they may, on average; so it is if there were none."""
        return self._exceeded() or not self._network.events + self._matcher.events

    def _calm(self) -> bool:
        """Whether there is time for a change that saves nothing."""
        return self.config.latency_bound == inf or not self._exceeded()

    def _exceeded(self) -> bool:
        """Whether there were deliveries in this interval that took longer than they may, on average."""
        events = self._network.events + self._matcher.events
        return self._network.seconds + self._matcher.seconds > self.config.latency_bound * events

    def _excess(self) -> float:
        """How many times as much goes through matchers as the choices say, which are made from counts of the past."""
        chosen = sum(choice.penalty for choice, _, _ in self._worth.values())
        expected = chosen / max(_TINY, sum(deliveries for _, _, deliveries in self._worth.values()))
        directed, all_events = self._matcher.events, self._matcher.events + self._network.events
        if not directed or expected <= 0:
            return 1.0
        return min(_MOST_EXCESS, max(1.0, directed / all_events / expected))

    def latencies(self) -> tuple[float, float]:
        """Mean seconds by content and through matchers; the second a guess until it is measured."""
        network = self._network.value or 0.0
        measured = self._matcher.value
        return network, network + _GUESS if measured is None else max(measured, network)

    # -- for the operator -----------------------------------------------------------------

    def answer(self) -> dict[str, Any]:
        """What is filtered where, what it saves and what it costs."""
        now = self._hybrid.now()
        diverted = []
        for each in self._hybrid.matchers.values():
            for number, serving in each.serving.items():
                name = self._control.numbered(number).name if not self._control.changing(number) else str(number)
                diverted += [
                    {"category": name, "dz": str(dz), "switch": each.switch, "matcher": each.name}
                    for dz in sorted(serving.live, key=str)
                ]
        worth = {
            self._control.numbered(number).name: {
                "false_positives_saved": self._hybrid.concerns(number) * choice.benefit / self.config.interval,
                "of": removable / self.config.interval,
                "deliveries_through_matchers": self._hybrid.concerns(number) * choice.penalty / self.config.interval,
                "deliveries": deliveries / self.config.interval,
            }
            for number, (choice, removable, deliveries) in self._worth.items()
            if not self._control.changing(number)
        }
        return {
            "latency_bound": None if self.config.latency_bound == inf else self.config.latency_bound,
            "method": self.config.method,
            "clusters": self.config.clusters,
            "interval": self.config.interval,
            "latency_network": self._network.value,
            "latency_matcher": self._matcher.value,
            "latency_network_age": self._network.idle * self.config.interval,
            "latency_matcher_age": self._matcher.idle * self.config.interval,
            "diverted": diverted,
            "categories": worth,
            "changes": self.changes,
            "selection_seconds": self.took,
            "failures": self._hybrid.failures,
            "last_failure": self._hybrid.last_failure,
            "matchers": [
                {
                    "name": each.name,
                    "host": each.host,
                    "switch": each.switch,
                    "subscriptions": sum(len(serving.keys) for serving in each.serving.values()),
                    "subspaces": each.load,
                    "received": each.received,
                    "sent": each.sent,
                    "unwanted": each.unwanted,
                    "backlog": each.backlog,
                    "state": each.wrong(now) or ("well" if each.well(now) else f"resting: {each.trouble}"),
                }
                for each in self._hybrid.matchers.values()
            ],
        }


def _merged(
    before: dict[_Key, tuple[float, float]], fresh: dict[_Key, list[float]], kept: dict[int, list[Dz]]
) -> dict[_Key, tuple[float, float]]:
    """What was seen so far and what is new; ``kept`` are subspaces by category of which the last picture counts."""
    seen = {}
    for key in before | fresh:
        old, (wanted, unwanted) = before.get(key), fresh.get(key, _NOTHING)
        if old is not None:
            regions = kept.get(key[0])
            if regions and any(_holds(dz, key[1]) for dz in regions):
                wanted, unwanted = max(old[0], wanted), max(old[1], unwanted)
            else:
                wanted = old[0] * _STAYS + wanted * (1 - _STAYS)
                unwanted = old[1] * _STAYS + unwanted * (1 - _STAYS)
        if wanted + unwanted > _TINY:
            seen[key] = wanted, unwanted
    return seen


def _observed(
    seen: Mapping[_Key, tuple[float, float]], number: int, places: Mapping[str, Attached]
) -> list[Observation]:
    """What was seen of a category, by those who are there, of those who are there."""
    publishers = {each.publisher: (name, each.switch) for name, each in places.items()}
    return [
        Observation(*publishers[publisher], cell, places[client].switch, *counts)
        for (category, cell, publisher, client), counts in seen.items()
        if category == number and publisher in publishers and client in places
    ]


def _holds(dz: Dz, cell: int) -> bool:
    return dz.length <= CELL_BITS and cell >> (CELL_BITS - dz.length) == dz.bits


def _wider(pairs: Pairs, present: Pairs, where: Mapping[str, int]) -> bool:
    """Whether these leave fewer matchers without a subspace, at a switch where something is diverted."""
    new, old = (Counter(switch for switch, _ in each) for each in (pairs, present))
    return any(0 < old[switch] < min(count, new[switch]) for switch, count in where.items())


def _trimmed(model: Model, pairs: Pairs, limit: float) -> tuple[Pairs, Choice]:
    """As much of this as the limit allows: what is worth least for its penalty goes first."""
    worth = {pair: _evaluated(model, frozenset({pair})) for pair in pairs}
    rest = sorted(pairs, key=lambda pair: worth[pair].benefit / max(_TINY, worth[pair].penalty))
    left = _evaluated(model, frozenset(rest))
    while rest and left.penalty > limit:
        del rest[0]
        left = _evaluated(model, frozenset(rest))
    return frozenset(rest), left


def _evaluated(model: Model, pairs: Pairs) -> Choice:
    number = {name: i for i, name in enumerate(model.switches)}
    selected = np.zeros(len(model), np.bool_)
    for switch, dz in pairs:
        if switch in number and dz.length <= CELL_BITS:
            selected |= (model.node == number[switch]) & (model.cell >> (CELL_BITS - dz.length) == dz.bits)
    return Choice((), *model.saved(selected))
