"""The dispatcher: registrations become parts for the lanes of their category.

What a registration says is covered by dz first (`covering`).  That is done at once where it is cheap; else the shell
is told to work it out beside the event loop (`signals.Cover`), and the registration goes on when the keys come:

    dispatch ── cheap ─────────────────────────────▶ split ──▶ lanes
        │                                              ▲
        └── Cover ⋯ Covered ── same plan, still wanted ┘
                          ├── another plan by now: cover again
                          ├── space closed: wait until it opens, then all of this again
                          └── taken back meanwhile: nothing to do

So requests overtake one that takes long.  Both orders lead to the same tables, and neither client has an answer yet.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sievenet.content import Subscription
from sievenet.control import signals
from sievenet.control.covering import Coverer
from sievenet.control.parts import Job, Part
from sievenet.control.space import Space
from sievenet.control.state import Category, Registration, State
from sievenet.control.status import mistake
from sievenet.control.switchboard import Switchboard
from sievenet.errors import Rejected, SievenetError

if TYPE_CHECKING:
    from sievenet.control.transition import Transition

__all__ = ["Covered", "Dispatcher"]

logger = logging.getLogger(__name__)

#: Keys, or why there are none.
Covered = list[int] | SievenetError


class Dispatcher:
    """Computes covers, splits them by lane and queues the parts."""

    def __init__(
        self,
        state: State,
        spaces: Mapping[int, Space],
        transitions: Mapping[int, Transition],
        board: Switchboard,
        share: int = 0,
    ) -> None:
        self._state = state
        self._spaces = spaces
        self._transitions = transitions
        self._board = board
        #: Most dz of one client; 0 means any number.
        self._share = share
        #: The dz of each client, by its wire: what its entries are charged with.
        self._taken: Counter[int] = Counter()
        self._coverers: dict[int, Coverer] = {}
        self._covering: dict[int, Callable[[Sequence[Covered]], None]] = {}
        #: Entries that have been accepted, but are in no lane yet.
        self.waiting: set[Registration] = set()
        #: Spaces whose lanes have got something to do since the last `pump`.
        self._touched: dict[int, Space] = {}

    def coverer(self, category: Category) -> Coverer:
        """The coverer for the category's current plan."""
        coverer = self._coverers.get(category.number)
        if coverer is None or coverer.plan is not category.plan:
            coverer = self._coverers[category.number] = Coverer(category.plan, category.budget)
        return coverer

    def forget(self, number: int) -> None:
        """Forget a removed category."""
        self._coverers.pop(number, None)

    def ahead(self, number: int, said: Iterable[tuple[bytes, Subscription | None]]) -> None:
        """Cover many in one go, which is much quicker than one by one."""
        if number in self._state.categories:
            coverer = self.coverer(self._state.categories[number])
            coverer.ready = coverer.many(said)

    def cover(
        self,
        coverer: Coverer,
        contents: Sequence[tuple[Subscription | bytes, bool]],
        then: Callable[[Sequence[Covered]], None],
    ) -> None:
        """Compute covers outside the event loop."""
        serial = self._board.serial()
        self._covering[serial] = then
        self._board.out.append(signals.Cover(serial, coverer, contents))

    def covered(self, serial: int, found: Sequence[Covered]) -> None:
        """The keys of a registration have been computed."""
        then = self._covering.pop(serial, None)
        if then is not None:
            then(found)

    # -- what goes to lanes ----------------------------------------------------------------

    def dispatch(
        self,
        entry: Registration,
        wire: int | None,
        add: bool,
        job: Job,
        said: Subscription | None = None,
        content: bytes = b"",
    ) -> None:
        """Give each lane its part of a request, of which it may be known what it says, decoded and as bytes."""
        if wire is None:
            return  # its client has no port yet: registered when it gets one
        job.remaining += 1
        if add:
            self.waiting.add(entry)
        self._enter(
            entry,
            partial(self._add, entry, wire, job, said, content) if add else partial(self._remove, entry, wire, job),
        )

    def _enter(self, entry: Registration, act: Callable[[Space], None]) -> None:
        space = self._spaces[entry.category]
        if space.closed:
            space.postponed.append(partial(self._enter, entry, act))
        else:
            act(space)

    def _remove(self, entry: Registration, wire: int, job: Job, space: Space) -> None:
        self.waiting.discard(entry)
        self._charge(entry, wire, 0)
        if (transition := self._transitions.get(space.number)) is not None:
            transition.removed(entry)
        # Where it is registered, and where it waits to be.  Lanes of an earlier plan had run empty before they went.
        lanes = {i for i in entry.lanes if i < len(space.lanes)}
        lanes.update(i for i, _ in space.split(entry.keys))
        self._hand_out(space, [(i, ()) for i in sorted(lanes)], entry, wire, False, job)

    def _add(
        self, entry: Registration, wire: int, job: Job, said: Subscription | None, content: bytes, space: Space
    ) -> None:
        if entry not in self.waiting:
            job.part_done()  # taken back before it was anywhere
            return
        category = self._state.categories[space.number]
        coverer = self.coverer(category)
        keys = coverer.ready.get(content)
        if keys is not None:
            self._register(entry, wire, job, keys, space)
            return
        try:
            if said is None:
                said = entry.subscription(category.schema)
            keys = coverer.at_once(said, entry.wants)
        except SievenetError as error:
            self._refuse(entry, job, error)
            return
        except Exception as error:
            logger.exception("A registration could not be covered")
            self._refuse(entry, job, mistake(error))
            return
        if keys is not None:
            self._register(entry, wire, job, keys, space)
            return

        def then(found: Sequence[Covered]) -> None:
            if space.number not in self._spaces:
                job.part_done()  # the category was removed
                return
            self._enter(entry, partial(self._found, entry, wire, job, said, coverer, found[0]))
            self.pump()

        self.cover(coverer, [(said, entry.wants)], then)

    def _found(
        self,
        entry: Registration,
        wire: int,
        job: Job,
        said: Subscription,
        coverer: Coverer,
        found: Covered,
        space: Space,
    ) -> None:
        if isinstance(found, SievenetError):
            self._refuse(entry, job, found)
        elif entry in self.waiting and coverer.plan is self._state.categories[space.number].plan:
            self._register(entry, wire, job, found, space)
        else:
            self._add(entry, wire, job, said, b"", space)

    def _refuse(self, entry: Registration, job: Job, error: SievenetError) -> None:
        self.waiting.discard(entry)
        job.part_done(error)

    def _register(self, entry: Registration, wire: int, job: Job, keys: list[int], space: Space) -> None:
        # What was accepted in an earlier life, for which nobody waits, stands.
        if self._share and job.tickets and self._taken[wire] + len(keys) > self._share:
            full = (
                f"Expected at most {self._share} entries in flow tables for one client, got {len(keys)} more than the "
                f"{self._taken[wire]} it has: unsubscribe from something first, or ask for fewer, larger parts"
            )
            self._refuse(entry, job, Rejected(full))
            return
        self.waiting.discard(entry)
        self._charge(entry, wire, len(keys))
        if (transition := self._transitions.get(space.number)) is not None:
            transition.added(entry, wire)
        parts = space.split(keys)
        entry.lanes = tuple(i for i, _ in parts)
        self._hand_out(space, parts, entry, wire, True, job)

    def _charge(self, entry: Registration, wire: int, count: int) -> None:
        self._taken[wire] += count - entry.charged
        if not self._taken[wire]:
            del self._taken[wire]
        entry.charged = count

    def _hand_out(self, space: Space, parts: Sequence[tuple[int, Sequence[int]]], *what: Any) -> None:
        entry, wire, add, job = what
        job.remaining += len(parts)
        for i, share in parts:
            space.lanes[i].queue.append(Part(entry, wire, add, share, job))
        self._touched[space.number] = space
        job.part_done()

    def pump(self) -> None:
        """Start the lanes on their queued parts."""
        touched, self._touched = self._touched, {}
        for space in touched.values():
            space.pump()

    # -- at the start ----------------------------------------------------------------------

    def register_now(self, entry: Registration, wire: int, keys: list[int] | None = None) -> None:
        """Register without telling switches: at the start, when whole tables are compared."""
        space = self._spaces[entry.category]
        category = self._state.categories[entry.category]
        if keys is None:
            keys = self.coverer(category).keys(entry.subscription(category.schema), entry.wants)
        self._charge(entry, wire, len(keys))
        for i, share in space.split(keys):
            space.lanes[i].register(Part(entry, wire, True, share, None))
