"""Signatures: classes of codes where flows have masks.

Under masks no interval of codes fares alike.  But codes that the same flows decide do, in all switches and tables: the
numbers of these flows are the *signature* of a code (`decisions`), and walks are remembered by it.  A change of a flow
gives it another number, so nothing remembered is wrong.  Numbers and cells of flows that are gone are swept when they
prevail (`sweep_at`).

Most new signatures lead the same way as one before: what differs is which of several flows counts the packet.  So ways
are remembered too, by what the deciding flows do (`routes`).

Where flows ask for an in-port, which flows decide depends on the port of each switch.  Then the signature is the list
of all cells that hold the code, and switches decide one by one; this is rare, and slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from sievenet.dataplane.classes import FEW_BOUNDARIES
from sievenet.dataplane.classifier import Entry, cell_key
from sievenet.dataplane.decisions import Decisions
from sievenet.index.bitmaps import Bitmaps
from sievenet.index.code import Words
from sievenet.network.flow import Flow

if TYPE_CHECKING:
    from sievenet.dataplane.walks import Port, Walk

__all__ = ["Route", "Signatures"]

#: Codes whose signature is remembered, and ways.
_RECENT: Final = 1 << 16


class Route(NamedTuple):
    """A walk that others may follow, and the switches that it comes to."""

    walk: Walk
    switches: frozenset[str]


class Signatures:
    """The cells of a category, and the classes of codes that they make."""

    masked: Final = True

    def __init__(self, category: int) -> None:
        #: The number of every cell.
        self.known: dict[tuple[int, int], int] = {}
        self.sweep_at = FEW_BOUNDARIES
        #: How many flows ask for an in-port.
        self.picky = 0
        #: Ways by port and by what the deciding flows do.
        self.routes: dict[tuple[Port, tuple[int, ...]], Route] = {}
        self._cells: list[bytes] = []
        self._index = Bitmaps("covers", codes=True)
        self._decisions = Decisions(self._index)
        self._recent: dict[int, bytes] = {}
        self._head = category.to_bytes(2, "big")

    def note(self, switch: str, flow: Flow, entry: Entry | None) -> None:
        """A flow of a switch has come or changed (its entry), or gone."""
        self._recent.clear()
        if entry is None:
            self._decisions.remove(switch, flow)
            return
        value, mask = flow.match.bits
        number = self.known.get((value, mask))
        if number is None:
            number = self.known[value, mask] = self._index.put(value, mask)
            self._cells.append(cell_key(value, mask))
        self.picky += flow.in_port is not None
        self._decisions.put(switch, number, entry)

    @property
    def stale(self) -> bool:
        """Whether most of what is known here is of flows that are gone."""
        flows = len(self._decisions.entries)
        return len(self.known) > self.sweep_at or (flows > self.sweep_at and 2 * self._decisions.dead > flows)

    def key(self, code: int) -> bytes:
        """The signature of a code, behind its category."""
        key = self._recent.get(code)
        if key is None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            found = self._index.holding(code).tobytes() if self.picky else self._decisions.decide(code)
            key = self._recent[code] = self._head + found
        return key

    def deciding(self, key: bytes) -> tuple[list[tuple[str, Entry]], tuple[int, ...]]:
        """The flows of a signature with their switches, and what they do together; not if flows are picky."""
        numbers = np.frombuffer(key, np.int32, offset=2).tolist()
        known = self._decisions
        return [(known.switches[n], known.entries[n]) for n in numbers], known.effects(numbers)

    def remember(self, port: Port, effects: tuple[int, ...], route: Route) -> None:
        """Packets that come in by a port go this way if that is what is done with them."""
        if len(self.routes) >= _RECENT:
            self.routes.clear()
        self.routes[port, effects] = route

    def cells(self, key: bytes) -> list[bytes]:
        """The cells of a picky signature, as `Classifier.decide` wants them."""
        return [self._cells[number] for number in np.frombuffer(key, np.int32, offset=2).tolist()]

    def classes(self, hi: Words, lo: Words) -> tuple[Words, list[list[bytes]]]:
        """For arrays of codes the number of each one's class, and the cells of the classes that occur."""
        starts, numbers = self._index.holding_many(hi, lo)
        data, at = numbers.tobytes(), (4 * starts).tolist()
        known: dict[bytes, int] = {}
        found = [known.setdefault(data[at[i] : at[i + 1]], len(known)) for i in range(hi.size)]
        return np.array(found, np.uint64), [self.cells(self._head + key) for key in known]
