"""The clients of a router: what each wants and offers, and what of it the network has to know.

For schemes that use covering, a poset-derived forest is the local table in front of the network's: clients come and go
in it cheaply, and only a change of its root set goes further. Schemes without covering pass every filter on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sievenet.content.filter import Filter, Subscription
from sievenet.routers.batches import enter_forest
from sievenet.routers.forest import Elimination, Forest
from sievenet.routers.schemes import Want

__all__ = ["Kind", "LocalTable", "Registration"]

Kind = Literal["subscription", "advertisement"]


@dataclass(frozen=True, slots=True)
class Registration:
    """A subscription or an advertisement of a client."""

    kind: Kind
    category: int
    wanted: Subscription


class LocalTable:
    """Filters of local clients in one category; tells which enter and leave what the network has to know."""

    def __init__(
        self, *, covering: bool, tagged: bool, balanced: bool = False, eliminate: Elimination = "none"
    ) -> None:
        self._tagged = tagged
        self._changed: dict[Want, bool] = {}
        forest = Forest(balanced=balanced, eliminate=eliminate, on_level=self._moved) if covering else None
        self._forest = forest
        self._counts: dict[Want, int] = {}
        #: Filters by number, as `_moved` needs them when the node is gone already.
        self._filters: dict[int, Filter] = {}

    def __len__(self) -> int:
        return len(self._forest) if self._forest is not None else len(self._counts)

    @property
    def tests(self) -> int:
        """Covering tests so far."""
        return self._forest.tests if self._forest is not None else 0

    def add(self, wanted: Subscription, owner: str) -> None:
        """Somebody wants something."""
        if self._forest is not None:
            enter_forest(self._forest, [(each, owner) for each in wanted.filters])
            return
        for each in wanted.filters:
            want = Want(each, owner if self._tagged else "")
            self._counts[want] = self._counts.get(want, 0) + 1
            if self._counts[want] == 1:
                self._note(want, True)

    def remove(self, wanted: Subscription, owner: str) -> None:
        """Somebody no longer does."""
        for each in wanted.filters:
            if self._forest is not None:
                self._forest.unsubscribe(each, owner)
                continue
            want = Want(each, owner if self._tagged else "")
            self._counts[want] -= 1
            if not self._counts[want]:
                del self._counts[want]
                self._note(want, False)

    def replace(self, old: Subscription, new: Subscription, owner: str) -> None:
        """Somebody wants something else instead."""
        self.add(Subscription((each for each in new.filters if each not in old.filters), new.schema), owner)
        self.remove(Subscription((each for each in old.filters if each not in new.filters), old.schema), owner)

    def _moved(self, number: int, was: int | None, level: int | None) -> None:
        if was is None:
            assert self._forest is not None
            self._filters[number] = self._forest.nodes[number].filter
        if was == 0:
            self._note(Want(self._filters[number]), False)
        if level == 0:
            self._note(Want(self._filters[number]), True)
        if level is None:
            del self._filters[number]

    def _note(self, want: Want, is_new: bool) -> None:
        if self._changed.get(want) is (not is_new):
            del self._changed[want]
        else:
            self._changed[want] = is_new

    def changes(self) -> tuple[list[Want], list[Want]]:
        """What the network has to know now and did not before, and the other way round."""
        changed, self._changed = self._changed, {}
        return [w for w, new in changed.items() if new], [w for w, new in changed.items() if not new]

    def wants(self) -> Iterable[Want]:
        """All that the network has to know."""
        if self._forest is not None:
            return [Want(f) for f in self._forest.root_filters()]
        return list(self._counts)
