"""The journal: accepted requests survive.

A journal is a list of records that only grows, and is now and then replaced as a whole by a
shorter one that says the same (a snapshot).  Two kinds: in memory, for simulations, and on
SQLite.

SQLite runs in write-ahead mode, in a thread of its own, and commits everything that came
in while the last commit was on its way (group commit), one row per commit:

    append([r1]) ─┐
    append([r2]) ─┼─▶ queue ─▶ BEGIN; INSERT …; COMMIT ─▶ all three return
    append([r3]) ─┘

What is covered: with `Durability.POWER` (``synchronous=FULL``) every commit is flushed to the
disk, so what was answered survives the machine losing power.  With `Durability.PROCESS`
(``synchronous=NORMAL``) it survives ``kill -9`` of the process, since the system holds the
bytes, and a power failure may lose the last moments, though never tear the file.

What fails (a full disk) fails for the callers of that commit alone: the transaction is rolled
back, they get `Rejected`, the next one is tried afresh.  Growth is bounded by snapshots:
pages of the replaced rows are used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import shutil
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sievenet.control.aside import Aside, keep_aside
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable

__all__ = ["Durability", "Journal", "MemoryJournal", "SqliteJournal", "read_records"]

_FORMAT: Final = 1
#: Bytes per row of a snapshot.
_ROW: Final = 1 << 20
_LENGTH: Final = struct.Struct("<I")


class Journal(Protocol):
    """Keeps records."""

    def load(self) -> list[bytes]:
        """Every record since the last snapshot, that included."""
        ...

    async def append(self, records: Sequence[bytes], replace: bool = False) -> None:
        """Keep records, instead of all others if `replace`; returns when they are safe, `Rejected` if they are not."""
        ...

    def set_aside(self, records: Sequence[Aside]) -> None:
        """Keep records that could not be carried out, whatever replaces the others; `Unavailable` if that fails."""
        ...

    async def close(self) -> None:
        """Finish."""
        ...


class MemoryJournal:
    """Records in a list: survives a controller, not its process."""

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self.records = list(records)
        self.aside: list[Aside] = []
        #: Raised by the next appends, to play a full disk.
        self.failing: SievenetError | None = None

    def load(self) -> list[bytes]:
        """Everything appended."""
        return list(self.records)

    async def append(self, records: Sequence[bytes], replace: bool = False) -> None:
        """Keep records."""
        if self.failing is not None:
            raise self.failing
        if replace:
            self.records = list(records)
        else:
            self.records += records

    def set_aside(self, records: Sequence[Aside]) -> None:
        """Keep records that could not be carried out."""
        self.aside = [*self.aside, *(each for each in records if each not in self.aside)]

    async def close(self) -> None:
        """Nothing to do."""


class Durability(Enum):
    """Which failure an answered request survives."""

    #: ``kill -9`` of the process.
    PROCESS = "NORMAL"
    #: The machine losing power.
    POWER = "FULL"


class _Order(NamedTuple):
    records: Sequence[bytes]
    replace: bool
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class SqliteJournal:
    """Records in an SQLite file."""

    def __init__(
        self, path: Path | str, *, durability: Durability = Durability.POWER, max_bytes: int | None = None
    ) -> None:
        self.path = Path(path)
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        #: Commits, and the records in them.
        self.commits = 0
        self.committed = 0
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=1.0)
            self._prepare(durability, max_bytes)
        except sqlite3.Error as error:
            raise Unavailable(f"The journal {self.path} cannot be used: {error}") from error
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def _prepare(self, durability: Durability, max_bytes: int | None) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode=EXCLUSIVE")  # two control planes must not share one
        run("PRAGMA journal_mode=WAL")
        run(f"PRAGMA synchronous={durability.value}")
        run("PRAGMA journal_size_limit=4194304")
        if max_bytes is not None:
            size = run("PRAGMA page_size").fetchone()[0]
            run(f"PRAGMA max_page_count={max(8, max_bytes // size)}")
        version = run("PRAGMA user_version").fetchone()[0]
        if version not in (0, _FORMAT):
            raise Unavailable(f"The journal {self.path} has format {version}, expected {_FORMAT}")
        run("BEGIN IMMEDIATE")
        run("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY AUTOINCREMENT, records BLOB NOT NULL)")
        run(f"PRAGMA user_version={_FORMAT}")
        run("COMMIT")

    def load(self) -> list[bytes]:
        """Every record kept."""
        try:
            rows = self._database.execute("SELECT records FROM batches ORDER BY number").fetchall()
        except sqlite3.Error as error:
            raise Unavailable(f"The journal {self.path} cannot be read: {error}") from error
        return [record for (blob,) in rows for record in _unpacked(blob)]

    async def append(self, records: Sequence[bytes], replace: bool = False) -> None:
        """Keep records; many calls at a time share a commit."""
        if not self._thread.is_alive():
            raise Unavailable(f"The journal {self.path} is closed")
        loop = asyncio.get_running_loop()
        order = _Order(records, replace, loop, loop.create_future())
        self._orders.put(order)
        await order.done

    def set_aside(self, records: Sequence[Aside]) -> None:
        """Keep records that could not be carried out, in a file beside this one."""
        keep_aside(self.path.with_name(f"{self.path.name}.aside"), records)

    async def close(self) -> None:
        """Write what waits, then close the file."""
        if self._thread.is_alive():
            self._orders.put(None)
            await asyncio.to_thread(self._thread.join)

    # -- in the thread ---------------------------------------------------------------------

    def _work(self) -> None:
        going = True
        while going:
            orders: list[_Order] = []
            order = self._orders.get()
            while order is not None:
                orders.append(order)
                try:
                    order = self._orders.get_nowait()
                except queue.Empty:
                    break
            going = order is not None
            if orders:
                self._commit(orders)
        self._database.close()

    def _commit(self, orders: list[_Order]) -> None:
        error: SievenetError | None = None
        run = self._database.execute
        try:
            run("BEGIN IMMEDIATE")
            for replace, records in _merged(orders):
                if replace:
                    run("DELETE FROM batches")
                for blob in _packed(records):
                    run("INSERT INTO batches (records) VALUES (?)", (blob,))
            run("COMMIT")
            self.commits += 1
            self.committed += sum(len(order.records) for order in orders)
        except sqlite3.Error as failure:
            if self._database.in_transaction:
                run("ROLLBACK")
            error = Rejected(f"The journal {self.path.name} cannot be written: {failure}")
        for order in orders:
            _settle(order, error)


def read_records(path: Path | str, *, attempts: int = 50) -> list[bytes]:
    """The records of a journal that a control plane may be writing, without disturbing it.

    A running control plane holds the file for itself, so this reads a copy: of a moment in which neither the file nor
    its log changed.
    """
    source = Path(path)
    if not source.is_file():
        raise Unavailable(f"The journal {source} cannot be read: no such file")
    log = source.with_name(f"{source.name}-wal")
    with tempfile.TemporaryDirectory(prefix="sievenet-journal-") as folder:
        copy = Path(folder) / "journal"
        for _ in range(attempts):
            before = _states(source, log)
            shutil.copyfile(source, copy)
            if before[1] is not None:
                shutil.copyfile(log, copy.with_name("journal-wal"))
            if _states(source, log) == before:
                break
        else:
            raise Unavailable(f"The journal {source} changed each of {attempts} times that it was read; try again")
        try:
            with contextlib.closing(sqlite3.connect(copy)) as database:
                rows = database.execute("SELECT records FROM batches ORDER BY number").fetchall()
        except sqlite3.Error as error:
            raise Unavailable(f"The journal {source} cannot be read: {error}") from error
    return [record for (blob,) in rows for record in _unpacked(blob)]


def _states(*files: Path) -> list[tuple[int, int] | None]:
    """Size and time of change of each file that there is."""
    found: list[tuple[int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
            found.append((status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _settle(order: _Order, error: SievenetError | None) -> None:
    def finish() -> None:
        if order.done.done():
            return
        if error is None:
            order.done.set_result(None)
        else:
            order.done.set_exception(error)

    try:
        order.loop.call_soon_threadsafe(finish)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


def _merged(orders: Iterable[_Order]) -> Iterator[tuple[bool, list[bytes]]]:
    """Neighbouring orders as one, except that a replacement starts afresh."""
    replace, records = False, list[bytes]()
    for order in orders:
        if order.replace:
            replace, records = True, []  # what came before it is in it
        records += order.records
    yield replace, records


def _packed(records: Iterable[bytes]) -> Iterator[bytes]:
    """Records in blobs of about `_ROW` bytes, each behind its length."""
    parts: list[bytes] = []
    size = 0
    for record in records:
        parts += (_LENGTH.pack(len(record)), record)
        size += len(record)
        if size >= _ROW:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _unpacked(blob: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(blob):
        end = at + _LENGTH.size
        if end > len(blob) or (stop := end + _LENGTH.unpack_from(blob, at)[0]) > len(blob):
            raise CodecError(f"Expected whole records, got one cut off at byte {at}", where="journal")
        yield blob[end:stop]
        at = stop
