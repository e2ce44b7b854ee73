"""Hybrid filtering: subspaces go through exact matchers, and back, without losing an event.

To *divert* a subspace at a switch with a matcher:

    1. every publisher of the category keeps what it sends until matchers have passed it on (`custody`)
    2. every subscriber whose cells meet the subspace is a recipient of the twin (`Recipients`)
    3. the matcher holds all their subscriptions, and says so (`Serve`)
    4. it waits a moment with its first event, so that what is on its way by content arrives before (`Await`)
    5. one flow at one switch (`control.diversions`)

A subscription that comes later is answered when the matchers of its subspaces have it too. To go *back*, the matcher
tells its recipients first (`Release`), the flow is removed, and the matcher ends its way after its last event
(`Finish`): see `client.handover`.

A matcher that *fails* (its connection ends, it is silent, it has too much to do) may have lost events:

    publishers pause ─▶ its flows are removed ─▶ publishers send again what they kept, and go on

so that what was lost is delivered in its place, and duplicates are removed by receivers. If something that is needed
cannot be had (a client does not answer), the subspaces concerned go back to plain forwarding. Nobody waits for that.

Every step but the last holds the lock of its category, so that there is one change at a time; changes of plans and
trees end all diversions by themselves (`control.diversions`), and say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from sievenet.control import protocol as p
from sievenet.control.plane import ControlPlane
from sievenet.daemon.custody import PATIENCE, Custody
from sievenet.daemon.departure import Departure
from sievenet.daemon.matchers import FLIGHT, Matcher, Serving, flight_of, queue_of
from sievenet.daemon.orders import Orders, Unable, quietly
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.recipients import Recipients, info_of
from sievenet.daemon.sides import Sides
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.index import Dz
from sievenet.session.lifetime import Tasks

__all__ = ["Hybrid"]

log = logging.getLogger("sievenet.daemon")

#: Subscriptions told at a time.
_CHUNK: Final = 500
_OWNER: Final = "hybrid"
#: Seconds between looks, and between words to publishers about what they may forget.
LOOK: Final = 0.1
RENEW: Final = 1.0


class Hybrid:
    """Diverts and takes back; what is worth it is decided elsewhere."""

    def __init__(self, control: ControlPlane, plane: AnyPlane, recipients: Recipients, orders: Orders) -> None:
        self._control, self._plane, self._recipients, self._orders = control, plane, recipients, orders
        self.matchers: dict[str, Matcher] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._custody = Custody(orders, control.publishing)
        if not isinstance(plane, EmbeddedDataPlane):  # that one has ended with its daemon, and its publishers' numbers
            self._custody.inherit(control.published())
        self.departure = Departure(self, self._custody, orders, lambda name: queue_of(plane, name)[0], FLIGHT)
        self._sides = Sides(control, plane)
        self._tasks = Tasks()
        control.on_undiverted(self._ended)
        control.before_plan(self.end)
        #: What happened, for the operator: the latest last.
        self.failures = 0
        self.last_failure = ""

    # -- matchers -------------------------------------------------------------------------

    async def volunteer(self, name: str) -> None:
        """A component is a matcher, new or back."""
        attached = self._plane.clients().get(name)
        if attached is None:
            raise Unavailable(f"{name} has no place in the network")
        if name in self.matchers:
            await self.fail(name, "it connected again")
        self.matchers[name] = Matcher(name, attached, self.now())
        log.info("matcher %s at %s", name, attached.switch)

    def beat(self, name: str, report: p.Matched) -> None:
        """A sign of life."""
        if name in self.matchers:
            self.matchers[name].beat(report, self.now(), queue_of(self._plane, name))

    def lost(self, name: str) -> None:
        """A connection has ended."""
        self._orders.gone(name)
        self._custody.lost(name)
        if name in self.matchers:
            self._spawn(self._lose(self.matchers[name]))

    def left(self, name: str) -> None:
        """A client is gone."""
        self._custody.left(name)

    def welcomed(self, name: str) -> None:
        """A client is there, perhaps again, and what was said on an older connection counts no more."""
        self._custody.lost(name)
        self._spawn(self._custody.welcomed(name))

    async def _lose(self, matcher: Matcher) -> None:
        try:
            await self.fail(matcher.name, "its connection ended")
        finally:
            if self.matchers.get(matcher.name) is matcher:  # and not one that has come meanwhile
                del self.matchers[matcher.name]

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        return self._tasks.begin(quietly(work))

    async def watch(self) -> None:
        """Look after matchers, for ever."""
        last = renewed = self.now()
        while True:
            await asyncio.sleep(LOOK)
            # If this process was held up for long, that time does not count as their silence.
            held, last = self.now() - last - LOOK, self.now()
            for matcher in self.matchers.values() if held > LOOK else ():
                matcher.heard += held
            for name, matcher in list(self.matchers.items()):
                wrong = matcher.wrong(self.now())
                if wrong and matcher.load:
                    self._orders.gone(name, wrong)  # whoever waits for it holds a lock
                    self._spawn(self.fail(name, wrong))
            if self.now() - renewed >= RENEW:
                renewed = self.now()
                self._renew()

    def _renew(self) -> None:
        """Let publishers forget what has been passed on."""
        for number in self._custody:
            passed = [each.passed for each in self.matchers.values() if each.regions(number)]
            if passed:
                self._spawn(self._custody.renew(number, min(passed)))
            else:
                self._forget(number)

    async def close(self) -> None:
        """Stop; switches go back to plain forwarding."""
        await self._tasks.close()
        await self._custody.close()
        for number in self._custody:
            for switch in self._control.diverted(number):
                await self._control.divert(number, switch, {})

    @staticmethod
    def now() -> float:
        """By the loop's clock."""
        return asyncio.get_running_loop().time()

    def _lock(self, number: int) -> asyncio.Lock:
        return self._locks.setdefault(number, asyncio.Lock())

    # -- there ----------------------------------------------------------------------------

    def at(self, switch: str) -> list[Matcher]:
        """The matchers at a switch that can be given more, the least busy first."""
        now = self.now()
        well = [each for each in self.matchers.values() if each.switch == switch and each.well(now)]
        return sorted(well, key=lambda each: (each.load, each.name))

    async def divert(self, number: int, dz: Dz, switch: str) -> None:
        """Hand a subspace to a matcher at a switch; `SievenetError` says what is in the way."""
        async with self._lock(number):
            found = self.at(switch)
            if not found:
                raise Rejected(f"Expected a matcher at {switch}, got none that is well")
            if self._control.changing(number):
                raise Rejected(f"The plan of category {number} is being changed")
            if any(each.switch == switch and dz in each.regions(number) for each in self.matchers.values()):
                return
            matcher = found[0]
            serving = matcher.serving.setdefault(number, Serving())
            serving.regions.add(dz)
            epoch, routes = self._control.epoch(number), self._control.routes(number, dz)
            try:
                await self._custody.begin(number, self._control.publishing(number))
                await self._serve(matcher, number, serving)
                there, _ = flight_of(self._plane)
                await self._orders.give(matcher.name, lambda n: p.Await(n, there), PATIENCE)
                if dz not in serving.regions or self._control.changing(number) or epoch != self._control.epoch(number):
                    raise Unavailable(f"{matcher.name} was given up, or the plan changed meanwhile")
                if routes is None or routes is not self._control.routes(number, dz):
                    raise Unavailable("Expected one spanning tree per category, unchanged meanwhile")
                serving.live.add(dz)
                await self._deploy(number, switch)
                matcher.serves()
            except BaseException as error:
                if isinstance(error, Unable):
                    matcher.rest(str(error), self.now())  # there is no room for its packets, say
                serving.regions.discard(dz)
                serving.live.discard(dz)
                await self._deploy(number, switch)
                self._forget(number)
                raise

    async def _serve(self, matcher: Matcher, number: int, serving: Serving) -> None:
        """Tell a matcher all that it has to know for its subspaces and does not; returns when it does."""
        whole = not serving.begun
        if whole:
            serving.keys.clear()
        wanted = [
            (client, id, content)
            for client, id, content, keys in self._control.contents(number)
            if not serving.has(client, id, content) and serving.wants(keys)
        ]
        if wanted or whole:
            await self._tell(matcher, number, serving, wanted, whole)
        serving.begun = True

    async def _tell(
        self, matcher: Matcher, number: int, serving: Serving, wanted: list[tuple[str, int, bytes]], whole: bool
    ) -> None:
        """Have a matcher match these subscriptions."""
        category = self._control.numbered(number)
        numbers = await self._recipients.each(_OWNER, category.name, {client for client, _, _ in wanted})
        sides = self._sides.of(number, matcher, {client for client, _, _ in wanted})
        added = [
            p.Interest(serving.key(client, id, content), numbers[client], sides[client], content)
            for client, id, content in wanted
        ]
        publishers = self._sides.publishers(number, matcher, self._control.publishing(number))
        info = info_of(category)
        try:
            for start in range(0, max(1, len(added)), _CHUNK):
                chunk, first = tuple(added[start : start + _CHUNK]), whole and not start
                order = lambda n: p.Serve(n, info, chunk, whole=first, publishers=publishers)  # noqa: E731, B023
                await self._orders.give(matcher.name, order, PATIENCE + 5.0)
        except BaseException:
            for client, id, _ in wanted:
                serving.keys.pop((client, id), None)
            raise

    async def _deploy(self, number: int, switch: str) -> None:
        """Divert at a switch what its matchers are there for."""
        wanted = {dz: m.port for m in self.matchers.values() if m.switch == switch for dz in m.live(number)}
        await self._control.divert(number, switch, wanted)

    # -- and back -------------------------------------------------------------------------

    async def release(self, number: int, dz: Dz, switch: str) -> None:
        """Give a subspace back to the network, in order."""
        async with self._lock(number):
            for matcher in [each for each in self.matchers.values() if each.switch == switch]:
                if dz in matcher.regions(number):
                    await self._release(number, dz, matcher)

    async def end(self, number: int) -> None:
        """Give all of a category back, in order: its plan is about to change."""
        for matcher in list(self.matchers.values()):
            for dz in sorted(matcher.regions(number), key=str):
                await self.release(number, dz, matcher.switch)
        await self.settled(number)  # what is sent again is addressed by this plan

    async def _release(self, number: int, dz: Dz, matcher: Matcher) -> None:
        try:
            order = lambda n: p.Release(n, number, str(dz), PATIENCE)  # noqa: E731
            serial = await self._orders.give(matcher.name, order, PATIENCE)
            matcher.live(number).discard(dz)
            await self._deploy(number, matcher.switch)
            await self.departure.drained(matcher.name)
            _, back = flight_of(self._plane)
            await self._orders.give(matcher.name, lambda n: p.Finish(n, serial, back), PATIENCE)
            matcher.regions(number).discard(dz)  # until now it may have had events: had it died, they were sent again
        except Unavailable as error:
            await self._fail(number, matcher, str(error))
        self._forget(number)

    def _forget(self, number: int) -> None:
        """If nothing is diverted any more, publishers need not keep anything."""
        if not self.concerns(number):
            for client in self._custody.end(number):
                self._spawn(self._custody.tell(number, client))

    async def fail(self, name: str, reason: str) -> None:
        """A matcher is given up: everything that was diverted to it is forwarded, and sent again."""
        matcher = self.matchers.get(name)
        if matcher is None or not matcher.load:
            return
        # Not behind locks: whoever holds one may be waiting for others, and every moment counts.
        await asyncio.gather(*(self._fail(number, matcher, reason) for number in list(matcher.serving)))

    async def _fail(self, number: int, matcher: Matcher, reason: str) -> None:
        if not matcher.give_up(number):
            return
        log.warning("matcher %s is given up: %s", matcher.name, reason)
        self.failures += 1
        self.last_failure = f"{matcher.name}: {reason}"
        matcher.rest(reason, self.now())
        with self._custody.mending(number):
            await self._custody.pause(number)
            try:
                await self._deploy(number, matcher.switch)
            except SievenetError as error:  # the switch, or this daemon, is about to go
                log.warning("the flows to %s are not removed: %s", matcher.name, error)
            await self._custody.again(number)
        self._forget(number)
        if matcher.load:
            self._spawn(self.fail(matcher.name, reason))

    def _ended(self, number: int, switch: str) -> None:
        """Diversions have ended by themselves (other trees): all that was prepared for them is void."""
        for matcher in self.matchers.values():
            if matcher.switch == switch and matcher.give_up(number):
                work = self.departure.outlived(number, matcher.name, partial(self._deploy, number, switch))
                self._custody.mend(number, self._spawn(work))

    async def removed(self, number: int, force: bool) -> None:
        """A category is about to be removed, if nobody uses it or that does not matter."""
        if force:
            for matcher in self.matchers.values():
                matcher.give_up(number)
                matcher.serving.pop(number, None)
            for switch in self._control.diverted(number):
                await self._control.divert(number, switch, {})
            self._custody.drop(number)

    # -- registrations under way ----------------------------------------------------------

    def concerns(self, number: int) -> bool:
        """Whether something of a category goes through a matcher."""
        return any(each.regions(number) for each in self.matchers.values())

    async def settled(self, number: int, work: asyncio.Task[Any] | None = None) -> bool:
        """Returns when nothing is sent again; nothing will be before this work is done, if it does not take long."""
        return await self._custody.mended(number, work)

    async def subscribed(self, client: str, id: int) -> list[tuple[int, int, int]]:
        """A subscription stands in the switches; returns when it stands in matchers too.

        Then every publisher's number, life and next event: older ones may be sent again, but not for this subscription.
        """
        found = self._control.content(client, id)
        if found is None or not (self.concerns(found[0]) or found[0] in self._custody):
            return []
        number, content, keys = found
        async with self._lock(number):
            for matcher in list(self.matchers.values()):
                serving = matcher.serving.get(number)
                if serving is None or not serving.regions or not serving.wants(keys):
                    continue
                try:
                    await self._tell(matcher, number, serving, [(client, id, content)], False)
                except SievenetError as error:
                    self._spawn(self._fail(number, matcher, str(error)))  # which waits for the marks of this one
        places, marks = self._plane.clients(), await self._custody.marks(number)
        return [(places[name].publisher, *mark) for name, mark in marks.items() if name in places]

    async def refresh(self) -> None:
        """Compare what matchers hold with what is registered: rules may have cut it, and clients may have gone."""
        for matcher in list(self.matchers.values()):
            for number, serving in [each for each in matcher.serving.items() if each[1].regions]:
                async with self._lock(number):
                    held = {(client, id) for client, id, _, _ in self._control.contents(number)}
                    for client, id in [each for each in serving.keys if each not in held]:
                        await self.unsubscribed(client, id)
                    try:
                        await self._serve(matcher, number, serving)
                    except SievenetError as error:
                        await self._fail(number, matcher, str(error))

    async def unsubscribed(self, client: str, id: int) -> None:
        """A subscription is no more."""
        for matcher in self.matchers.values():
            for number, serving in matcher.serving.items():
                key, _ = serving.keys.pop((client, id), (-1, b""))
                if key >= 0 and serving.begun and not self._control.changing(number):
                    info = info_of(self._control.numbered(number))
                    order = partial(p.Serve, category=info, removed=(key,))  # told when others have their turn here
                    self._spawn(self._orders.give(matcher.name, order, PATIENCE))

    async def advertised(self, client: str, number: int) -> None:
        """A publisher comes to a category; returns when it keeps what it sends, if it has to."""
        await self.settled(number)  # of a matcher that is given up there may be flows, until publishers have paused
        if not (self.concerns(number) or self._custody.mends(number) or self._control.diverted(number)):
            return
        async with self._lock(number):
            if not self.concerns(number):
                await quietly(self._custody.begin(number, (client,)))
            for matcher in [each for each in self.matchers.values() if each.regions(number)]:
                try:
                    await self._custody.begin(number, (client,))
                    publishers = self._sides.publishers(number, matcher, (client,))
                    info = info_of(self._control.numbered(number))
                    order = lambda n: p.Serve(n, info, publishers=publishers)  # noqa: E731, B023
                    await self._orders.give(matcher.name, order, PATIENCE)
                except SievenetError as error:
                    await self._fail(number, matcher, str(error))
