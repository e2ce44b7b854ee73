"""The control plane's journal in a store: survives the machine, and is fenced by terms.

    cell `journal`        the name of the log in use, and the term of its writer
    log  journal.TERM-N   entries of (term, records); a snapshot is a new log

**Taking over.**  A new leader (1) puts its term into the cell, (2) writes an entry without records behind the last one
of the log, and (3) reads.  Each step compares, and is repeated if the leader of before was quicker.  After (1) that one
can put no other log in its place, after (2) it can append nothing: what is read in (3) is all that there will ever be
of it, and everything that it has answered is in it.

**Snapshots.**  They are written to a log of another name, then the cell names that one, then the old one is removed.  A
daemon that dies in between leaves a log that nobody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from sievenet.control.aside import Aside
from sievenet.control.store.logs import Writer, read_all
from sievenet.control.store.store import UNREADABLE, Store
from sievenet.errors import CodecError, Fenced, SievenetError, Unavailable

__all__ = ["StoreJournal"]

log = logging.getLogger("sievenet.store")

_CELL: Final = "journal"
_DAMAGED: Final = (
    "Somebody else has written into the journal. Give NATS logins of its own, and restore its stream from a backup "
    "(`nats stream restore`), or begin anew with another `nats.fabric`"
)
_ASIDE: Final = "aside"


class _Place(msgspec.Struct, frozen=True):
    log: str
    term: int


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    term: int
    records: list[bytes]


_entries: Final = msgspec.msgpack.Decoder(_Entry)


class StoreJournal:
    """Written by the leader of one term."""

    def __init__(self, store: Store, term: int, revision: int, writer: Writer, records: list[bytes]) -> None:
        self._store, self._term, self._revision = store, term, revision
        self._writer, self._records = writer, records
        self._turn = asyncio.Lock()
        self._aside: list[Aside] = []
        self._snapshots = 0
        #: Told when somebody else writes this journal.
        self.on_fenced: Callable[[Fenced], None] | None = None

    @classmethod
    async def open(cls, store: Store, term: int) -> StoreJournal:
        """Take the journal over from the leader of before; `Fenced` if there is one of a later term."""
        while True:
            entry = await store.get(_CELL)
            place = _Place(f"journal.{term}-0", 0) if entry is None else _place(entry.data)
            if place.term > term:
                raise Fenced(f"Expected a journal of a term before {term}, got {place.term}: another daemon leads")
            mine = msgspec.json.encode(_Place(place.log, term))
            try:
                revision = await store.put(_CELL, mine, 0 if entry is None else entry.number)
                break
            except Fenced:
                continue  # the leader of before has made a snapshot just now
        while True:
            writer = Writer(store, place.log, await store.last(place.log))
            try:
                await writer.write(msgspec.msgpack.encode(_Entry(term, [])))
                break
            except Fenced:
                continue  # it has appended something just now
        try:
            entries, at = await read_all(store, place.log)
            records = [record for data in entries for record in _entry(data).records]
        except CodecError as error:
            raise CodecError(f"{error}. {_DAMAGED}") from None
        if at != writer.at:
            raise Fenced(f"Expected entry {writer.at} at the end of the journal, got {at}: another daemon leads")
        return cls(store, term, revision, writer, records)

    @property
    def empty(self) -> bool:
        """Whether nothing was there when it was taken over."""
        return not self._records

    async def adopt(self, records: Sequence[bytes]) -> None:
        """Begin with the records of another journal."""
        await self.append(records)
        self._records = list(records)

    def load(self) -> list[bytes]:
        """Every record that was there when it was taken over."""
        records, self._records = self._records, []
        return records

    async def append(self, records: Sequence[bytes], replace: bool = False) -> None:
        """Keep records; `Fenced` if another daemon leads."""
        async with self._turn:
            try:
                await self._keep_aside()
                data = msgspec.msgpack.encode(_Entry(self._term, list(records)))
                if replace:
                    await self._replace(data)
                else:
                    await self._writer.write(data)
            except Fenced as error:
                if self.on_fenced is not None:
                    self.on_fenced(error)
                raise
            except SievenetError:
                raise
            except Exception as error:  # whoever waits for it shall not wait for ever
                log.exception("internal error while the journal is written (please report)")
                raise Unavailable(f"The journal could not be written: {error!r}") from error

    async def _replace(self, data: bytes) -> None:
        self._snapshots += 1
        old, new = self._writer.log, f"journal.{self._term}-{self._snapshots}"
        writer = Writer(self._store, new, await self._store.last(new))
        await writer.write(data, anew=True)
        place = msgspec.json.encode(_Place(new, self._term))
        self._revision = await self._store.put(_CELL, place, self._revision)
        self._writer = writer
        try:
            await self._store.discard(old)
        except SievenetError as error:
            log.warning("%s, which nobody reads any more, is not removed: %s", old, error)

    def set_aside(self, records: Sequence[Aside]) -> None:
        """Keep records that could not be carried out: they go into the store with the next write, at the latest."""
        self._aside += records

    async def _keep_aside(self) -> None:
        if self._aside:
            held, last = await read_all(self._store, _ASIDE)
            known = set[Aside]()
            for data in held:
                with contextlib.suppress(*UNREADABLE):
                    known.add(msgspec.msgpack.decode(data, type=Aside))
            writer = Writer(self._store, _ASIDE, last)
            for each in self._aside:
                if each not in known:
                    await writer.write(msgspec.msgpack.encode(each))
            self._aside = []

    async def close(self) -> None:
        """Write what waits."""
        async with self._turn:
            if self._store.reachable:
                await self._keep_aside()


def _place(data: bytes) -> _Place:
    try:
        return msgspec.json.decode(data, type=_Place)
    except UNREADABLE as error:
        raise CodecError(expected="the name of a log", got=str(error), where="cell journal") from None


def _entry(data: bytes) -> _Entry:
    try:
        return _entries.decode(data)
    except UNREADABLE as error:
        raise CodecError(expected="records", got=str(error), where="journal in the store") from None
