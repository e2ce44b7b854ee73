"""Tree: registrations by dz, in arrays (`layout`) that compiled code works on (`kernels`).

Requests are kept until there are many, or until somebody asks: then one call carries them all out.

A tree whose changes somebody else works out (`control.configurators`) is *heedless*: it knows what is registered, and
does not remember what was.  `registered` lists it for a copy of the tree elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.control.registrations.trie.layout import (
    IDLE,
    ITEMS,
    LIVE,
    MADE,
    REMEMBERED,
    Arrays,
    Told,
    aligned,
    empty,
)
from sievenet.control.registrations.trie.puts import Puts, listed, words_of
from sievenet.control.routes import Ways, Wires
from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS, Dz
from sievenet.index.code import joined

__all__ = ["Trie"]

#: Requests kept at most.
_KEPT: Final = 8192

_Array = npt.NDArray[Any]


class Trie:
    """Who is registered where."""

    def __init__(self, wires: Wires, routes: Ways) -> None:
        self.routes = routes
        #: Whether what was is not remembered.
        self.heedless = False
        #: Registered dz, counted with multiplicity.
        self.count = 0
        self._wires = wires
        #: How much is registered per wire, -1 if nothing ever was.
        self._uses = np.full(64, -1, np.int64)
        #: Requests that wait, column by column: 2 * offers + adding, the wire, the key.
        self._kinds: list[int] = []
        self._whose: list[int] = []
        self._keys: list[int] = []
        #: Made with the first registration: a process that has none need not wait for compiled code.
        self._arrays: Arrays | None = None

    def __len__(self) -> int:
        self._carry_out()
        return 1 if self._arrays is None else int(self._arrays.meta[LIVE])

    def put(self, wire: int, keys: Iterable[int], *, wants: bool, adding: bool) -> None:
        """Register dz for a wire, or take them back."""
        before = len(self._keys)
        uses = int(self._counts()[wire])
        if adding and uses <= 0:
            self._learn(wire)
            before = 0
        self._keys += keys
        some = len(self._keys) - before
        self._whose += [wire] * some
        self._kinds += [(0 if wants else 2) + adding] * some
        change = some if adding else -some
        self.count += change
        self._uses[wire] = max(uses, 0) + change
        if len(self._keys) >= _KEPT:
            self._carry_out()
            if self.heedless:
                self.forget()

    def put_all(self, puts: Puts) -> None:
        """Register and take back many, in this order."""
        self._carry_out()
        count = len(puts.wires)
        if not count:
            return
        from sievenet.control.registrations.trie.kernels import register, tally

        uses = self._counts()
        if puts.wires.max() >= len(uses):
            raise InvalidInput(expected=f"wires below {len(uses)}", got=int(puts.wires.max()), where="puts")
        for wire in tally(uses, puts.kinds, puts.wires).tolist():
            self._learn(wire)
        self.count += 2 * int((puts.kinds & 1).sum()) - count
        register(self._with_room(count), puts.kinds, puts.wires, puts.highs, puts.lows)

    def forget(self) -> None:
        """What is registered now is what the switches know."""
        a = self._carry_out()
        if a is not None:
            from sievenet.control.registrations.trie.kernels import forget

            forget(a)

    def registered(self) -> Puts:
        """Everything that is registered."""
        a = self._carry_out()
        return Puts.of([]) if a is None else listed(a)

    def reroute(self, routes: Ways) -> None:
        """Use the ways of another spanning tree."""
        a = self._carry_out()
        self.routes = routes
        if a is None:
            return
        from sievenet.control.registrations.trie.kernels import remember_all, sum_up_all

        a = self._arrays = a._replace(was=_roomy(a.was, len(a.nodes)))
        remember_all(a)
        sum_up_all(self._with_ways(a))

    def walked(self, dead: int = 0) -> Told | None:
        """What the switches must be told since the last time; `dead` wires are not used even in between.

        None if nothing was ever registered.
        """
        a = self._carry_out()
        if a is None:
            return None
        from sievenet.control.registrations.walk import walk

        wires = self._wires
        return walk(a, wires.owners, wires.outs, wires.words(~dead))

    def table(self, out: int) -> Iterator[tuple[Dz, int]]:
        """Every dz at which some of the wires in `out` come into use, with those in use."""
        a = self._carry_out()
        if a is None:
            return
        from sievenet.control.registrations.walk import table

        places, masks = table(a, self._wires.words(out))
        for place, mask in zip(places.tolist(), masks, strict=True):
            yield _dz(*place), _number(mask)

    # -- the arrays ------------------------------------------------------------------------

    def _carry_out(self) -> Arrays | None:
        """Everything that waits; afterwards masks are as wide as those of the wires."""
        a = self._arrays
        some = len(self._keys)
        if not some and (a is None or a.ways.shape[2] == self._wires.outs.shape[1]):
            return a
        a = self._with_room(some)
        if some:
            from sievenet.control.registrations.trie.kernels import register

            kinds, whose, keys = self._kinds, self._whose, self._keys
            self._kinds, self._whose, self._keys = [], [], []
            register(a, np.array(kinds, np.int64), np.array(whose, np.int64), *words_of(keys))
        return a

    def _with_room(self, some: int) -> Arrays:
        """Room for so many requests, and masks as wide as they have to be."""
        words = self._wires.outs.shape[1]
        a = self._arrays or empty(words)
        meta = a.meta.tolist()
        made, items, remembered, idle = meta[MADE] + 2 * some, meta[ITEMS] + some, meta[REMEMBERED] + some, meta[IDLE]
        wider = words > a.ways.shape[2]
        if (
            self._arrays is not None
            and not wider
            and made <= min(len(a.nodes), len(a.keys), len(a.sub))
            and items <= len(a.items)
            and remembered <= len(a.was)
            and idle + some <= len(a.idle)
        ):
            return a
        if wider:
            extra = ((0, 0), (0, 0), (0, words - a.ways.shape[2]))
            a = a._replace(sub=np.pad(a.sub, extra), was=np.pad(a.was, extra))
        a = self._arrays = a._replace(
            nodes=_roomy(a.nodes, made),
            keys=_roomy(a.keys, made),
            sub=_roomy(a.sub, made),
            items=_roomy(a.items, items),
            was=_roomy(a.was, remembered),
            idle=_roomy(a.idle, idle + some),
        )
        if wider:
            from sievenet.control.registrations.trie.kernels import sum_up_all

            a = self._with_ways(a)
            sum_up_all(a)
        return a

    def _counts(self) -> npt.NDArray[np.int64]:
        """How much is registered for each wire that there is."""
        more = len(self._wires.owners) - len(self._uses)
        if more > 0:
            self._uses = np.concatenate([self._uses, np.full(more, -1, np.int64)])
        return self._uses

    def _learn(self, wire: int) -> None:
        """The ways of a wire that comes into use."""
        self._carry_out()
        a = self._with_room(0)
        a = self._arrays = a._replace(ways=_roomy(a.ways, len(self._wires.owners)))
        a.ways[wire, 0] = self._wires.words(self.routes.to[wire])
        a.ways[wire, 1] = self._wires.words(self.routes.frm[wire])

    def _with_ways(self, a: Arrays) -> Arrays:
        """The ways of all wires, as they are now."""
        words = self._wires.words
        ways = np.zeros((len(self._wires.owners), 2, self._wires.outs.shape[1]), np.uint64)
        for wire in np.flatnonzero(self._uses >= 0).tolist():  # those, too, that are about to be taken back
            ways[wire] = words(self.routes.to[wire]), words(self.routes.frm[wire])
        self._arrays = a._replace(ways=ways)
        return self._arrays


def _roomy(array: _Array, size: int) -> _Array:
    """The array with at least so many rows, at least twice as many as before if it has to grow."""
    if len(array) >= size:
        return array
    larger = aligned((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _dz(hi: int, lo: int, length: int) -> Dz:
    return Dz(joined(hi, lo) >> (CODE_BITS - length), length)


def _number(words: _Array) -> int:
    return int.from_bytes(words.tobytes(), "little")
