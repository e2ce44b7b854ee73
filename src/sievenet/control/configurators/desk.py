"""The desk: whose each partition is, what was asked of whom, and what becomes of it when somebody is lost.  Pure.

                    order                            answer: same owner, same epoch, same serial
    lane ──────────▶ open ──▶ Load, Order ──▶ owner ─────────────────────────────────▶ lane goes on
                      ▲ │                       │
                      │ └── nobody there, or it was puzzled: walked over here ───────▶ lane goes on
                      └──── owner gone or silent, or partition moved: epoch + 1, asked again

What holds: an epoch is given once, to one owner, for one partition; a lane is told one answer per order; an order
is open until it is answered, whoever is lost.  A lane that is taken home for a moment (another tree, a refusal) keeps
its owner, which gets it anew with the next order.

**Partitions with logs** (`share`, across machines).  What the owner is told is written to a log that outlives it, so
the next one gets what is registered, and the open order, from there: nothing is said again.  Only now and then, or when
the lane was taken home, does a log begin anew with everything that is registered.

Nothing is loaded before it is needed: to give a partition to somebody is a line here, and `Load` goes with the order
that comes next.  So a move costs as much as one copy of what is registered in the partition, and no other waits for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from sievenet.control.config import ControlConfig
from sievenet.control.configurators import messages as m
from sievenet.control.configurators.monitor import Monitor, Work
from sievenet.control.configurators.packed import unpack
from sievenet.control.configurators.post import Open, Partition, Post
from sievenet.control.registrations import Changes, Puts, Registrations
from sievenet.control.routes import Wires
from sievenet.control.signals import ConfiguratorGone, ConfiguratorHeard, ConfiguratorJoined, Consult
from sievenet.control.switchboard import Switchboard
from sievenet.errors import SievenetError

__all__ = ["Desk", "Partition"]

logger = logging.getLogger(__name__)

#: Orders after which a partition's log begins anew: whoever takes over reads all of it.
_ENTRIES: Final = 64
#: Seconds that an owner has for each registration that it must load, beyond `patience`: five times what it takes.
_EACH: Final = 5e-6


class _Owner:
    """A configurator."""

    def __init__(self, process: int, now: float) -> None:
        self.process, self.heard = process, now
        #: Whether it answers.
        self.well = True
        self.answered = 0


class Desk:
    """Hands partitions out."""

    def __init__(self, board: Switchboard, wires: Wires, config: ControlConfig) -> None:
        self._board, self._wires, self._config = board, wires, config
        #: Who says what should move; nobody, if nothing should.
        self.monitor = Monitor(config.overload, config.look) if config.mode == "sna-lb" else None
        self._owners: dict[str, _Owner] = {}
        self._posts: dict[int, Post] = {}
        self._numbers: dict[Partition, int] = {}
        self._looking = False
        #: Never given before: one more than the last.
        self.epoch = 0
        #: Whether what owners are told is kept for the next ones.
        self._logged = False
        #: Orders without an answer.
        self.awaited = 0
        #: Partitions that moved from one owner to another that was well, and from one that was lost.
        self.moved = self.taken_over = 0
        #: Answers that came too late, of owners that were none any more; orders that puzzled their owner.
        self.stale = self.puzzled = 0

    @property
    def open(self) -> bool:
        """Whether somebody is there to be asked."""
        return any(owner.well for owner in self._owners.values())

    def share(self, term: int) -> None:
        """Owners are told by logs, in this term: epochs are larger than those of all terms before."""
        self._logged = True
        self.epoch = max(self.epoch, term << 32)

    # -- for lanes -------------------------------------------------------------------------

    def order(
        self, lane: Partition, registrations: Registrations, puts: Puts, size: int, then: Callable[[Changes], None]
    ) -> None:
        """Have it worked out what changes by requests that the lane's registrations have in them already."""
        number = self._numbers.get(lane)
        if number is None:
            number = self._numbers[lane] = self._board.serial()
            self._posts[number] = Post(number, lane, registrations)
        post = self._posts[number]
        post.open = Open(self._board.serial(), puts, size, self._board.now, then)
        self.awaited += 1
        self._ask(post)

    def reload(self, lane: Partition) -> None:
        """What the owner has is out of date."""
        number = self._numbers.get(lane)
        if number is not None:
            self._posts[number].loaded = False

    def dismiss(self, lane: Partition) -> None:
        """A lane is in use no more."""
        number = self._numbers.pop(lane, None)
        if number is not None:
            post = self._posts.pop(number)
            self.awaited -= post.open is not None
            if self._logged:
                self._board.out.append(Consult(post.owner, m.Dismissed(number)))
            else:
                self._say(post.owner, m.Drop(number))

    def _ask(self, post: Post, again: bool = False) -> None:
        order = post.open
        assert order is not None
        if not post.owner:
            self._give(post)
        if not post.owner:
            self._here(post)
            return
        if self._logged:
            if again and post.loaded:
                return  # the new owner finds it in the log
            if post.entries >= _ENTRIES:
                post.loaded = False
            post.last, post.entries = order.serial, post.entries + 1 if post.loaded else 1
        if not post.loaded:
            all_of_it = post.registrations.hand_out()
            post.loaded, post.told, post.grace = True, {}, _EACH * len(all_of_it.wires)
            facts = self._facts(post, np.unique(np.concatenate([all_of_it.wires, order.puts.wires])).tolist())
            category, undo = post.registrations.category, order.puts.encode()
            self._say(post.owner, m.Load(post.number, post.epoch, category, all_of_it.encode(), undo, facts))
        facts = self._facts(post, set(order.puts.wires.tolist()))
        self._say(post.owner, m.Order(post.number, post.epoch, order.serial, order.puts.encode(), facts))

    def _here(self, post: Post) -> None:
        """Nobody else can: walk over the registrations in this process."""
        order, post.open = post.open, None
        assert order is not None
        self.awaited -= 1
        post.loaded = False
        post.registrations.take_home(order.puts)
        order.then(post.registrations.changes())

    def _facts(self, post: Post, concerned: Iterable[int]) -> tuple[m.Fact, ...]:
        """Those of the wires that the owner does not know, or knows as another's."""
        wires, told, lives, routes = self._wires, post.told, self._wires.life, post.registrations.routes
        found = []
        for wire in concerned:
            life = lives.get(wire, 0)
            if told.get(wire) != life:
                post.told[wire] = life
                masks = _signed(routes.to[wire]), _signed(routes.frm[wire])
                found.append(m.Fact(wire, int(wires.owners[wire]), wires.port[wire], *masks))
        return tuple(found)

    def _say(self, owner: str, message: Any) -> None:
        if owner in self._owners:
            self._board.out.append(Consult(owner, message))

    # -- for configurators -----------------------------------------------------------------

    def handlers(self) -> dict[type, Callable[[Any], None]]:
        """What to do with which stimulus."""
        return {
            ConfiguratorJoined: lambda s: self.joined(s.name, s.process),
            ConfiguratorHeard: lambda s: self._all_heard(s.heard),
            ConfiguratorGone: lambda s: self.gone(s.name),
        }

    def joined(self, name: str, process: int = 0) -> None:
        """A configurator has come; it gets its share."""
        self.gone(name)
        self._owners[name] = _Owner(process, self._board.now)
        self._say(name, self._wiring())
        self._level()
        if not self._looking:
            self._looking = True
            self._board.after(self._config.look, self._look)

    def gone(self, name: str) -> None:
        """A configurator is lost."""
        if self._owners.pop(name, None) is not None:
            self._take_over(name)

    def _all_heard(self, heard: Iterable[tuple[str, Iterable[object]]]) -> None:
        for name, messages in heard:
            self.heard(name, messages)

    def heard(self, name: str, messages: Iterable[object]) -> None:
        """A configurator says something."""
        owner = self._owners.get(name)
        if owner is None:
            return
        for message in messages:
            owner.heard = self._board.now
            if isinstance(message, m.Answer | m.Puzzled):
                owner.answered += 1
                self._answered(name, message)
        if not owner.well:
            owner.well = True
            self._level()

    def _answered(self, name: str, answer: m.Answer | m.Puzzled) -> None:
        post = self._posts.get(answer.partition)
        order = None if post is None else post.open
        if (
            post is None
            or order is None
            or (name, answer.epoch, answer.serial) != (post.owner, post.epoch, order.serial)
        ):
            self.stale += 1
            return
        try:
            if isinstance(answer, m.Puzzled):
                raise SievenetError(answer.reason)
            changes = unpack(post.registrations.category, self._wires.names, answer)
        except SievenetError as error:
            self.puzzled += 1
            logger.error("Configurator %s could not carry out an order, it is done here: %s", name, error)
            self._here(post)
            return
        post.open, post.grace = None, 0.0
        post.served += order.size
        post.spent += 1e-6 * answer.spent
        self.awaited -= 1
        if post.heir in self._owners and self._owners[post.heir].well:
            self._move(post, post.heir)
        order.then(changes)

    def rewire(self) -> None:
        """The network has other switches or links."""
        for name in self._owners:
            self._say(name, self._wiring())

    def _wiring(self) -> m.Wiring:
        wires = self._wires
        links = [
            m.Fact(wire, int(wires.owners[wire]), port)
            for wire, port in enumerate(wires.port)
            if wires.links >> wire & 1
        ]
        return m.Wiring(tuple(wires.names), tuple(links))

    # -- whose is what ---------------------------------------------------------------------

    def _counts(self) -> Counter[str]:
        """Partitions of each configurator that is well."""
        counts = Counter({name: 0 for name, owner in self._owners.items() if owner.well})
        counts.update(whose for post in self._posts.values() if (whose := post.heir or post.owner) in counts)
        return counts

    def _give(self, post: Post, to: str | None = None) -> None:
        """A partition gets an owner: the one with the fewest, unless told; nobody if there is none."""
        if to is None:
            counts = self._counts()
            to = min(counts, key=lambda name: (counts[name], name), default="")
        self._say(post.owner, m.Drop(post.number))
        self.epoch += 1
        post.owner, post.heir, post.epoch, post.loaded = to, "", self.epoch, post.loaded and self._logged
        if self._logged:
            self._say(to, m.Own(post.number, post.epoch, post.open.serial - 1 if post.open else post.last))
        if post.open is not None and post.open.since < self._board.now:
            post.open = post.open._replace(since=self._board.now)

    def _move(self, post: Post, to: str) -> None:
        self._give(post, to)
        self.moved += 1
        if post.open is not None:
            self._ask(post, again=True)

    def _take_over(self, name: str) -> None:
        for post in self._posts.values():
            post.heir = "" if post.heir == name else post.heir
        for post in [post for post in self._posts.values() if post.owner == name]:
            self._give(post)
            self.taken_over += 1
            if post.open is not None:
                self._ask(post, again=True)

    def _level(self) -> None:
        """Let all have about as many partitions; what is being worked on goes over afterwards."""
        for post in self._posts.values():
            post.heir = ""
        counts = self._counts()
        while counts:
            most = max(counts, key=lambda name: (counts[name], name))
            least = min(counts, key=lambda name: (counts[name], name))
            if counts[most] - counts[least] < 2:
                return
            mine = (post for post in self._posts.values() if (post.heir or post.owner) == most)
            post = min(mine, key=lambda post: post.open is not None)
            counts[most] -= 1
            counts[least] += 1
            if post.open is None:
                self._move(post, least)
            else:
                post.heir = least

    def _look(self) -> None:
        """Give up who is silent though it owes something, and move what should move."""
        self._looking = bool(self._owners)
        if not self._looking:
            return
        self._board.after(self._config.look, self._look)
        owing: dict[str, float] = {}
        grace: dict[str, float] = {}
        for post in self._posts.values():
            if post.open is not None:
                owing[post.owner] = min(owing.get(post.owner, post.open.since), post.open.since)
                grace[post.owner] = grace.get(post.owner, 0.0) + post.grace
        for name, since in owing.items():
            owner, patience = self._owners.get(name), self._config.patience + grace[name]
            if owner is not None and owner.well and self._board.now - max(since, owner.heard) > patience:
                owner.well = False
                logger.warning("Configurator %s is silent: others take over", name)
                self._take_over(name)
        if self.monitor is not None:
            for move in self.monitor.look(self._work()):
                self._move(self._posts[move.partition], move.to)

    def _work(self) -> dict[str, dict[int, Work]]:
        work: dict[str, dict[int, Work]] = {name: {} for name, owner in self._owners.items() if owner.well}
        for post in self._posts.values():
            if post.owner in work:
                work[post.owner][post.number] = post.work
        return work

    def shown(self) -> dict[str, Any]:
        """As `status` shows it."""
        posts: dict[str, list[Post]] = {name: [] for name in self._owners}
        for post in self._posts.values():
            posts.setdefault(post.owner, []).append(post)
        return {
            "mode": self._config.mode,
            "epoch": self.epoch,
            "moved": self.moved,
            "taken_over": self.taken_over,
            "stale": self.stale,
            "puzzled": self.puzzled,
            "configurators": [
                {
                    "name": name,
                    "process": owner.process,
                    "well": owner.well,
                    "partitions": len(posts[name]),
                    "waiting": sum(post.load for post in posts[name]),
                    "answered": owner.answered,
                }
                for name, owner in sorted(self._owners.items())
            ],
            "partitions": [
                {
                    "name": f"{post.registrations.category}:{post.lane.prefix:b}",
                    "category": post.registrations.category,
                    "prefix": f"{post.lane.prefix:b}"[1:],
                    "owner": post.owner,
                    "epoch": post.epoch,
                    "waiting": post.load,
                }
                for post in sorted(
                    self._posts.values(), key=lambda each: (each.registrations.category, each.lane.prefix)
                )
            ],
        }


def _signed(mask: int) -> bytes:
    return mask.to_bytes(mask.bit_length() // 8 + 1, "little", signed=True)
