"""The fixed-filterset protocol (FF): clients place their own filters among a set that everybody has.

    router ──Assign(version, filters)──▶ clients          seldom: when the set no longer represents the table
    client ──Subscribe(filter, ImPred, ImSucc in the set)──▶ router

The router then knows, without a test, how the filter relates to the whole set: what covers an immediate predecessor
covers it too, what an immediate successor covers it covers too, and nothing else of the set does either. The search in
the poset uses that and tests only what remains possible.

**What a lie can do.** Claims are made by one client alone, so those that links would rest on are tested first: as many
tests as there are claims. A filter with a wrong one is inserted by searching, and its client gets a strike. What a
client *leaves out* no such test finds: links are missing then, which costs space and messages, but no event (see
`poset`). Audits find it: a share of the claims is compared with the whole set. Who left something out is expelled, so
its claims are not read any more, and the table is built anew when the set is next chosen; not at once, or else a liar
could keep a router busy.

The set is a sample of the table, spread over its levels; it is chosen anew when the table has doubled, or grown by a
quarter if links are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from sievenet.content.codec import decode_filter, encode_filter
from sievenet.content.filter import Filter
from sievenet.content.schema import Schema
from sievenet.routers.offload.messages import Assign, Claim
from sievenet.routers.offload.reputation import Standing
from sievenet.routers.poset import Poset

__all__ = ["Assign", "Claim", "FixedSet", "Placer"]


class Placer:
    """The client's side: places filters among the set it was given."""

    def __init__(self, message: Assign, schema: Schema | None) -> None:
        self._version = message.version
        self._poset = Poset()
        #: Places in the message by numbers of the poset.
        self._places: dict[int, int] = {}
        for place, data in enumerate(message.filters):
            entry = self._poset.subscribe(decode_filter(schema, data), place)
            assert entry is not None
            self._places.setdefault(entry.id, place)

    def claim(self, wanted: Filter) -> Claim:
        """What to send along with a subscription."""
        found = self._poset.get(wanted)
        # It may be in the set and no longer in the table.
        preds, succs = self._poset.place(wanted) if found is None else (found.preds, found.succs)
        return Claim(
            self._version,
            tuple(sorted(self._places[p] for p in preds)),
            tuple(sorted(self._places[s] for s in succs)),
        )


@dataclass(frozen=True, slots=True)
class _Chosen:
    version: int
    numbers: tuple[int, ...]


class FixedSet:
    """The router's side, over a poset; ``rebuilt`` is called when that was built anew."""

    def __init__(
        self,
        poset: Poset,
        category: int,
        size: int = 256,
        schema: bytes = b"",
        *,
        audit: float = 0.0,
        rebuilt: Callable[[], None] | None = None,
    ) -> None:
        self.poset = poset
        self._rebuilt = rebuilt
        #: Share of the claims to audit, and what of it is due.
        self._share, self._due = audit, 0.0
        #: Whether links are missing, since somebody left something out.
        self._lacking = False
        self.standing = Standing()
        self._category = category
        self._schema = schema
        self._message: Assign | None = None
        self._size = size
        self._chosen = _Chosen(0, ())
        self._chosen_at = 0
        #: Filters placed with the help of a claim, and claims that were wrong.
        self.helped = 0
        self.refuted = 0
        #: Claims compared with the whole set, and those that left something out.
        self.audited = 0
        self.failed_audits = 0

    def stale(self) -> bool:
        """Whether the table has outgrown the set."""
        return len(self.poset) >= (1.25 if self._lacking else 2) * max(self._chosen_at, 32)

    def assign(self) -> Assign:
        """Choose the set anew: evenly from the filters in the order of levels, so that every level has its part."""
        if self._lacking:
            self.poset.rebuild()
            self._lacking = False
            if self._rebuilt is not None:
                self._rebuilt()
        every = [n for layer in self.poset.layers() for n in layer]
        step = max(1, len(every) // self._size)
        self._chosen = _Chosen(self._chosen.version + 1, tuple(every[::step][: self._size]))
        self._chosen_at = len(self.poset)
        entries = self.poset.entries
        filters = tuple(encode_filter(entries[n].filter) for n in self._chosen.numbers)
        self._message = Assign(self._chosen.version, self._category, filters, self._schema)
        return self._message

    def current(self) -> Assign | None:
        """The set of now, if there is one."""
        return self._message

    def subscribe(self, wanted: Filter, interface: Hashable, claim: Claim | None, client: str = "") -> None:
        """Insert a filter, with what its client claims."""
        poset = self.poset
        if wanted in poset or claim is None or claim.version != self._chosen.version or not self._trusts(client):
            poset.subscribe(wanted, interface)
            return
        known = self._known(wanted, claim)
        if known is None:
            self.refuted += 1
            self.standing.bad(client)
        elif self._honest(wanted, *known):
            self.standing.good(client)
        else:
            self.failed_audits += 1
            self.standing.expel(client)
            # Others of its claims may have been as wrong.
            self._lacking, known = True, None
        if known is None:
            poset.subscribe(wanted, interface)
            return
        preds, succs = poset.place(wanted, *known)
        poset.link(wanted, preds, succs).subscribers[interface] = None
        self.helped += 1

    def _trusts(self, client: str) -> bool:
        self.standing.join(client)
        return self.standing.trusts(client)

    def _honest(self, wanted: Filter, above: dict[int, bool], below: dict[int, bool]) -> bool:
        """Whether a claim left nothing out; looked at now and then."""
        self._due += self._share
        if self._due < 1.0:
            return True
        self._due -= 1.0
        self.audited += 1
        entries = self.poset.entries
        unsaid = [n for n, said in above.items() if not said]
        self.poset.tests += 2 * len(unsaid)
        over = [n for n in unsaid if entries[n].filter.covers(wanted)]
        under = [n for n, said in below.items() if not said and wanted.covers(entries[n].filter)]
        # What is above something that was claimed is said too, though links to it may be missing.
        preds = [entries[n].filter for n, said in above.items() if said]
        succs = [entries[n].filter for n, said in below.items() if said]
        return all(any(entries[n].filter.covers(p) for p in preds) for n in over) and all(
            any(s.covers(entries[n].filter) for s in succs) for n in under
        )

    def _known(self, wanted: Filter, claim: Claim) -> tuple[dict[int, bool], dict[int, bool]] | None:
        """Which entries cover the filter and which it covers, as far as the claim tells; ``None`` if it is wrong."""
        entries, numbers = self.poset.entries, self._chosen.numbers
        if any(not 0 <= place < len(numbers) for place in (*claim.preds, *claim.succs)):
            return None
        preds = [numbers[p] for p in claim.preds if numbers[p] in entries]
        succs = [numbers[s] for s in claim.succs if numbers[s] in entries]
        self.poset.tests += len(preds) + len(succs)
        if not all(entries[p].filter.covers(wanted) for p in preds):
            return None
        if not all(wanted.covers(entries[s].filter) for s in succs):
            return None
        above = {n: False for n in numbers if n in entries}
        below = dict(above)
        # Entries that went away since may have left gaps in the claim: then only what is claimed is known.
        if len(preds) < len(claim.preds) or len(succs) < len(claim.succs):
            above, below = {}, {}
        for pred in preds:
            above[pred] = True
            above.update(dict.fromkeys(self.poset.above(pred), True))
        for succ in succs:
            below[succ] = True
            below.update(dict.fromkeys(self.poset.below(succ), True))
        return above, below

    def statistics(self) -> dict[str, Any]:
        """Counts, as plain data."""
        return {
            "helped": self.helped,
            "refuted": self.refuted,
            "audited": self.audited,
            "failed_audits": self.failed_audits,
            "excluded": sorted(self.standing.excluded()),
        }
