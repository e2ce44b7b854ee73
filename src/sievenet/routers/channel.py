"""A channel between neighbours: one side tells a set of entries, the other holds it; losses are noticed and repaired.

    teller                                    holder
      │  Delta(number=7, +a −b)                  │   expected 7: apply
      │ ───────────────────────────────────────▶ │
      │  Delta(number=8, +c)      ✗ lost         │
      │  Greeting(number=8, digest)              │   7 ≠ 8 (or another digest): something is missing
      │ ───────────────────────────────────────▶ │
      │                              AskWhole    │
      │ ◀─────────────────────────────────────── │
      │  Whole(number=8, all entries)            │   compare, apply the difference
      │ ───────────────────────────────────────▶ │

Renewing a lease is thus one small greeting for all entries, however many. The digest is the exclusive or of a hash of
each entry, kept up with each change. An *epoch* begins when a side starts anew, so that numbers of different lives are
never mixed up. Both ends are pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from sievenet.routers.messages import Delta, Item, Whole

__all__ = ["Holder", "Teller"]


def _mark(item: Item) -> int:
    digest = blake2b(item.data, digest_size=8, person=item.tag.encode()[-16:])
    digest.update(b"%d|%d|%s" % (item.kind, item.category, item.tag.encode()))
    return int.from_bytes(digest.digest(), "big")


class Teller:
    """The entries that a router tells one neighbour."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.number = 0
        self.digest = 0
        self.items: dict[Item, None] = {}
        #: Categories whose schema the neighbour was given in this epoch.
        self._explained: set[int] = set()

    def change(self, added: Iterable[Item], removed: Iterable[Item], schemas: dict[int, bytes]) -> Delta | None:
        """Tell a change; ``None`` if there is none."""
        gone = [i for i in removed if i in self.items]
        for item in gone:
            del self.items[item]
            self.digest ^= _mark(item)
        new = [i for i in added if i not in self.items]
        for item in new:
            self.items[item] = None
            self.digest ^= _mark(item)
        if not gone and not new:
            return None
        self.number += 1
        return Delta(self.epoch, self.number, tuple(new), tuple(gone), self._schemas(new, schemas))

    def whole(self, schemas: dict[int, bytes]) -> Whole:
        """Tell everything again."""
        self._explained.clear()
        return Whole(self.epoch, self.number, tuple(self.items), self._schemas(self.items, schemas))

    def _schemas(self, items: Iterable[Item], schemas: dict[int, bytes]) -> tuple[bytes, ...]:
        needed = {i.category for i in items} - self._explained - {0}
        self._explained |= needed
        return tuple(schemas[c] for c in sorted(needed))


class Holder:
    """The entries that a neighbour has told."""

    def __init__(self) -> None:
        self.items: dict[Item, None] = {}
        self._epoch = -1
        self._number = 0
        self._digest = 0
        #: Whether a `Whole` was requested and has not come yet; until then changes are ignored.
        self.waiting = False

    @property
    def started(self) -> bool:
        """Whether anything was told in this epoch: the first message is a `Whole`."""
        return self._epoch >= 0

    def current(self, epoch: int, number: int, digest: int) -> bool:
        """Whether what is held is what the neighbour says it told."""
        return epoch == self._epoch and number == self._number and digest == self._digest

    def expects(self, message: Delta) -> bool:
        """Whether this is the next change, with nothing missing before it."""
        return message.epoch == self._epoch and message.number == self._number + 1

    def delta(self, message: Delta) -> tuple[list[Item], list[Item]]:
        """What the next change adds and removes."""
        self._number = message.number
        return self._apply(message.added, message.removed)

    def whole(self, message: Whole) -> tuple[list[Item], list[Item]]:
        """What is new and what is gone, compared with all that the neighbour tells."""
        self.waiting = False
        self._epoch, self._number = message.epoch, message.number
        told = dict.fromkeys(message.items)
        return self._apply(told, [i for i in self.items if i not in told])

    def clear(self) -> list[Item]:
        """Forget everything; what was held."""
        gone = list(self.items)
        self.items.clear()
        self._epoch, self._number, self._digest, self.waiting = -1, 0, 0, False
        return gone

    def _apply(self, added: Iterable[Item], removed: Iterable[Item]) -> tuple[list[Item], list[Item]]:
        gone = [i for i in removed if i in self.items]
        for item in gone:
            del self.items[item]
            self._digest ^= _mark(item)
        new = [i for i in added if i not in self.items]
        for item in new:
            self.items[item] = None
            self._digest ^= _mark(item)
        return new, gone
