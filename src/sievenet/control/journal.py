"""The journal: accepted requests survive.

A journal is a list of records that only grows, and is now and then replaced as a whole by a
shorter one that says the same (a snapshot).  Two kinds: in memory, for simulations, and in a
file (`logfile` says how it is laid out and checked).

The file is written in a thread of its own, which commits everything that came in while the last
commit was on its way (group commit):

    append([r1]) ─┐
    append([r2]) ─┼─▶ queue ─▶ write, flush, mark ─▶ all three return
    append([r3]) ─┘

What is covered: with `Durability.POWER` every commit is flushed to the disk, so what was
answered survives the machine losing power.  With `Durability.PROCESS` it survives ``kill -9``
of the process, since the system holds the bytes; after a power failure the file may be refused.

What fails (a full disk) fails for the callers of that commit alone: they get `Rejected`, the next
one is tried afresh.  A flush that fails is different: nobody knows what the disk holds, so
nothing more is taken.  A snapshot is written aside and renamed, so there is always a whole file.

The file and all beside it are readable by their owner alone: filters say what people care about.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sievenet.control.aside import Aside, keep_aside
from sievenet.control.logfile import Damaged, Scan, Writer, fresh, scan
from sievenet.control.old_journal import SQLITE, read_sqlite
from sievenet.control.salvage import plausible
from sievenet.errors import Rejected, SievenetError, Unavailable

__all__ = [
    "NO_JOURNAL",
    "Durability",
    "FileJournal",
    "Journal",
    "MemoryJournal",
    "aside_path",
    "exclusive",
    "read_records",
    "write_whole",
]

#: What to do about a file that is no journal.
NO_JOURNAL: Final = (
    "Nothing can be made out of it: put a copy of the journal in its place, or move the file away "
    "(the fabric then starts with nothing registered)"
)


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
    PROCESS = "process"
    #: The machine losing power.
    POWER = "power"


class _Order(NamedTuple):
    records: Sequence[bytes]
    replace: bool
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class FileJournal:
    """Records in a file."""

    def __init__(
        self, path: Path | str, *, durability: Durability = Durability.POWER, max_bytes: int | None = None
    ) -> None:
        self.path = Path(path)
        self._sync = durability is Durability.POWER
        self._max_bytes = max_bytes
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        #: Why nothing can be written any more.
        self._broken: SievenetError | None = None
        #: Commits, and the records in them.
        self.commits = 0
        self.committed = 0
        try:
            self._lock = _locked(self.path)
            try:
                self._records, self._writer, self.dropped = self._open()
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise Unavailable(f"The journal {self.path} cannot be used: {error}") from None
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def _open(self) -> tuple[list[bytes], Writer, int]:
        """The records, whatever writes more, and the bytes of an unfinished write that were dropped."""
        if not self.path.exists():
            write_whole(self.path, ())
        elif _begins(self.path, SQLITE):
            convert(self.path)
        os.chmod(self.path, 0o600)
        handle = os.open(self.path, os.O_RDWR)
        try:
            found = _scanned(self.path, handle)
            writer = Writer(handle, found, self._sync)
            if found.torn:
                writer.trim()
        except BaseException:
            os.close(handle)
            raise
        return found.records, writer, found.torn

    def load(self) -> list[bytes]:
        """Every record kept when it was opened."""
        records, self._records = self._records, []
        return records

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
        keep_aside(aside_path(self.path), records)

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
                error = self._broken or self._commit(orders)
                for each in orders:
                    _settle(each, error)
        self._writer.close()
        os.close(self._lock)

    def _commit(self, orders: list[_Order]) -> SievenetError | None:
        replace, records = _merged(orders)
        try:
            size = sum(map(len, records)) + (0 if replace else self._writer.end)
            if self._max_bytes is not None and size > self._max_bytes:
                raise OSError(errno.ENOSPC, "the disk is full")
            if replace:
                write_whole(self.path, records)
                self._writer.close()
                _, self._writer, _ = self._open()
            else:
                self._writer.append(records)
        except OSError as failure:
            told = f"The journal {self.path.name} cannot be written: {failure.strerror or failure}"
            if failure.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return Rejected(told)
            self._broken = Rejected(f"{told}; nobody knows what the disk holds: restart the daemon")
            return self._broken
        except SievenetError as failure:
            self._broken = failure
            return failure
        self.commits += 1
        self.committed += sum(len(order.records) for order in orders)
        return None


def aside_path(path: Path) -> Path:
    """Where records are kept that a start could not carry out."""
    return path.with_name(f"{path.name}.aside")


def write_whole(path: Path, records: Iterable[bytes]) -> None:
    """Put a whole new journal in the place of what is there, in one step."""
    data, _ = fresh(records)
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        new.unlink(missing_ok=True)
        raise
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def convert(path: Path) -> None:
    """A journal of an earlier version in today's form; the old file stays beside it."""
    records = read_sqlite(path)
    old = path.with_name(f"{path.name}.old")
    old.unlink(missing_ok=True)
    os.link(path, old)
    os.chmod(old, 0o600)
    write_whole(path, records)
    for ending in ("-wal", "-shm"):
        path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)


def read_records(path: Path | str) -> list[bytes]:
    """The records of a journal that a control plane may be writing, without disturbing it."""
    source = Path(path)
    try:
        if _begins(source, SQLITE):
            return read_sqlite(source)
        handle = os.open(source, os.O_RDONLY)
    except FileNotFoundError:
        raise Unavailable(f"The journal {source} cannot be read: no such file") from None
    except OSError as error:
        raise Unavailable(f"The journal {source} cannot be read: {error}") from None
    try:
        return _scanned(source, handle).records
    finally:
        os.close(handle)


def _scanned(path: Path, handle: int) -> Scan:
    with os.fdopen(os.dup(handle), "rb") as file:
        data = file.read()
    try:
        return scan(data)
    except Damaged as error:
        advice = f"See what is lost with `sievenet journal check {path}`" if plausible(data) else NO_JOURNAL
        raise Damaged(f"The journal {path} cannot be read: {error}. {advice}") from None
    except Unavailable as error:
        raise Unavailable(f"The journal {path} cannot be read: {error}") from None


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Within it no control plane can use a journal; `Unavailable` if one does."""
    handle = _locked(path)
    try:
        yield
    finally:
        os.close(handle)


def _locked(path: Path) -> int:
    """Two control planes must not share a journal."""
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise Unavailable(f"The journal {path} is locked: another control plane uses it") from None
    return handle


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


def _merged(orders: Iterable[_Order]) -> tuple[bool, list[bytes]]:
    """All orders as one; a replacement starts afresh, since what came before it is in it."""
    replace, records = False, list[bytes]()
    for order in orders:
        if order.replace:
            replace, records = True, []
        records += order.records
    return replace, records
