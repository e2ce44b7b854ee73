"""The ring: what came lately, once, for all who may need it.

Every record has an offset, counted from the first that ever came. Queues hold offsets, not events, so a thousand
subscribers who wait for the same event cost one event and a thousand numbers.

    offset   0 … 4095 │ 4096 … 8191 │ 8192 … 12287 │ 12288 …
             dropped    on disk       in memory      in memory, growing
                        └ first       └ memory bound               └ next

Records live in blocks. A block goes as a whole: from memory to disk (`spill`) when memory is full and somebody needs it
or the ring is to be durable, and away when it is older than the ring remembers and no queue needs it. The bounds in
bytes are hard: what somebody needed and there is no room for is gone, and `first` says so. A durable ring writes what
comes at once, and begins with what its folder holds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from sievenet.cache.names import Names
from sievenet.cache.spill import Segment, Spill
from sievenet.errors import Unavailable

__all__ = ["Ring"]

#: Records and bytes of a block.
_RECORDS: Final = 4096
_BYTES: Final = 1 << 20
#: Blocks that were read from disk and are kept for the next look.
_READ: Final = 8
#: Seconds until a disk that did not take something is tried again, if nothing comes.
_AGAIN: Final = 1.0
#: What a record costs in memory beside its bytes, roughly.
_OVERHEAD: Final = 56


class _Block:
    __slots__ = ("bytes", "count", "last", "on_disk", "records", "start", "times")

    def __init__(self, start: int) -> None:
        self.start = start
        self.count = 0
        #: In memory; None if only on disk.
        self.records: list[bytes] | None = []
        self.times = array("d")
        self.last = 0.0
        self.bytes = 0
        #: Records that are on disk.
        self.on_disk = 0


class Ring:
    """Recent records, bounded in seconds and bytes."""

    def __init__(
        self, *, seconds: float = 30.0, max_bytes: int = 64 << 20, spill: Spill | None = None, durable: bool = False
    ) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        self._spill = spill
        self._durable = durable and spill is not None
        self._blocks: list[_Block] = []
        self._starts: list[int] = []
        self._read: OrderedDict[int, list[bytes]] = OrderedDict()
        #: What it had to let go of though it was needed.
        self.names = Names()
        self.memory = 0
        self.next = 0
        #: Times that the disk did not take what it should or gave back less; what it said last, until that was told.
        self.failures = 0
        self.trouble = ""
        #: Since when a durable ring has not written all that came; None while it has.
        self.unwritten: float | None = None
        self._retry = 0.0
        if spill is not None:
            self._recover(spill)

    @property
    def first(self) -> int:
        """The oldest offset that is still there."""
        return self._blocks[0].start if self._blocks else self.next

    @property
    def disk(self) -> int:
        """Bytes on disk."""
        return 0 if self._spill is None else self._spill.size

    def _recover(self, spill: Spill) -> None:
        """Begin with what a durable ring left on disk; what one left that was not is of no use."""
        for start in spill.starts:
            records, times = spill.read(start) if self._durable else ([], array("d"))
            if not records or (self._blocks and start < self.next):
                spill.drop(start)
                continue
            block = _Block(start)
            block.count = block.on_disk = len(records)
            block.bytes = sum(map(len, records)) + _OVERHEAD * len(records)
            block.times, block.last, block.records = times, times[-1], None
            if self._blocks and start > self.next:
                self._forget_all()  # a hole: what is before it cannot be read in one go
            self._blocks.append(block)
            self._starts.append(start)
            self.next = start + block.count
        if self._durable and spill.damaged:
            here = self.next - self.first
            self._fails(f"{spill.damaged} of {len(spill.starts)} segments were not whole: {here:,} events are there")

    def _forget_all(self) -> None:
        while self._blocks:
            self._drop_first()

    # -- writing --------------------------------------------------------------------------

    def append(self, records: Sequence[bytes], now: float) -> int:
        """Take records that came now; returns the offset of the first."""
        begin, at = self.next, 0
        while at < len(records):
            block = self._last()
            some = records[at : at + _RECORDS - block.count]
            assert block.records is not None
            block.records.extend(some)
            block.times.extend([now] * len(some))
            size = sum(map(len, some)) + _OVERHEAD * len(some)
            block.count += len(some)
            block.bytes += size
            block.last = now
            self.memory += size
            self.next += len(some)
            at += len(some)
            if self._durable:
                self._write(now)
        return begin

    def _write(self, now: float) -> None:
        """Write what came, behind all that the disk has not taken before."""
        late = [self._blocks[-1]] if self.unwritten is None else list(self._blocks)
        if all(self._save(block) for block in late):
            self.unwritten = None
        elif self.unwritten is None:
            self.unwritten = now

    def _last(self) -> _Block:
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.records is None or last.count >= _RECORDS or last.bytes >= _BYTES:
            last = _Block(self.next)
            self._blocks.append(last)
            self._starts.append(last.start)
        return last

    def _save(self, block: _Block) -> bool:
        """Write to disk what of a block is not there yet; False if there is no room."""
        spill = self._spill
        if spill is None or block.records is None:
            return block.records is None
        rest = block.records[block.on_disk :]
        if not rest:
            return True
        if not spill.fits(sum(map(len, rest)) + 12 * len(rest) + 12):
            self._refused(f"Expected room for all that comes within {spill.max_bytes:,} bytes on disk")
            return False
        try:
            spill.append(block.start, rest, block.times[block.on_disk :])
        except Unavailable as error:
            if self.unwritten is None:
                self._fails(str(error))
            self._refused(str(error))
            return False
        block.on_disk = block.count
        return True

    def _refused(self, why: str) -> None:
        if self._durable:
            self.trouble = why

    def _fails(self, what: str) -> None:
        self.failures += 1
        self.trouble = what

    def trim(self, now: float, needed: int | None = None) -> None:
        """Drop what is too old, unless somebody needs it from an offset on; keep within the bounds in any case."""
        if self.unwritten is not None and now >= self._retry:
            self._retry = now + _AGAIN
            self._write(now)
        oldest = now - self._seconds
        while len(self._blocks) > 1 and self._blocks[0].last < oldest:
            if needed is not None and self._blocks[1].start > needed:
                break
            self._drop_first()
        for block in list(self._blocks):
            if self.memory <= self._max_bytes:
                break
            if block.records is None or block is self._blocks[-1]:
                continue
            wanted = needed is not None and block.start + block.count > needed
            if (wanted or self._durable) and self._store(block, needed):
                self.memory -= block.bytes
                block.records = None
                continue
            self._drop_through(block, needed)
            break
        if self.memory > self._max_bytes and any(each.records is not None for each in self._blocks[:-1]):
            self.trim(now, needed)
        if self._durable and self._spill is not None:
            while len(self._blocks) > 1 and not self._spill.fits(2 * _BYTES):
                self._drop_first(needed)

    def _store(self, block: _Block, needed: int | None) -> bool:
        """Have a block on disk, if need be instead of the oldest ones; False if there is no room at all."""
        while not self._save(block):
            if self._blocks[0] is block or not self._blocks[0].on_disk:
                return False
            self._drop_first(needed)
        return True

    def _drop_through(self, block: _Block, needed: int | None) -> None:
        while self._blocks[0] is not block:
            self._drop_first(needed)
        self._drop_first(needed)

    def _drop_first(self, needed: int | None = None) -> None:
        block = self._blocks.pop(0)
        if needed is not None and block.start + block.count > needed:
            known = self._read.get(block.start) if block.records is None else block.records
            self.names.note(block.start, self._read_back(block) if known is None else known)
        self._starts.pop(0)
        if block.records is not None:
            self.memory -= block.bytes
        if block.on_disk and self._spill is not None:
            self._spill.drop(block.start)
        self._read.pop(block.start, None)

    # -- reading --------------------------------------------------------------------------

    def read(self, offsets: Sequence[int]) -> list[bytes]:
        """The records at ascending offsets, none of them before `first`.

        `Unavailable` if the disk does not give back some of them: then they, and what came before them, are gone.
        """
        found: list[bytes] = []
        at = 0
        while at < len(offsets):
            block = self._blocks[bisect_right(self._starts, offsets[at]) - 1]
            end = bisect_left(offsets, block.start + block.count, at)
            if end == at or offsets[at] < block.start:
                raise IndexError(f"no record at offset {offsets[at]} of a ring from {self.first} to {self.next}")
            records, start = self._records(block), block.start
            found += [records[offset - start] for offset in offsets[at:end]]
            at = end
        return found

    def between(self, start: int, end: int) -> list[bytes]:
        """The records from one offset to before another; those before `first` are gone, then or before."""
        while True:
            try:
                return self.read(range(max(start, self.first), min(end, self.next)))
            except Unavailable:
                continue  # a block less is there

    def _records(self, block: _Block) -> list[bytes]:
        if block.records is not None:
            return block.records
        found = self._read.get(block.start)
        if found is None:
            found = self._read_back(block)
            if len(found) < block.count:
                self._drop_through(block, 0)
                self._fails(f"Expected {block.count} events in a segment on disk, got {len(found)}: it is damaged")
                raise Unavailable(self.trouble)
            self._read[block.start] = found
            while len(self._read) > _READ:
                self._read.popitem(last=False)
        self._read.move_to_end(block.start)
        return found

    def _read_back(self, block: _Block) -> list[bytes]:
        """A block from disk, as far as it is there."""
        assert self._spill is not None
        try:
            segment: Segment = self._spill.read(block.start)
        except Unavailable:
            return []
        return segment[0]

    def at(self, when: float) -> int:
        """The first offset that came at a time or later."""
        for block in self._blocks:
            if block.last >= when:
                return block.start + bisect_left(block.times, when)
        return self.next

    def when(self, offset: int) -> float:
        """When the record at an offset came, which is there."""
        block = self._blocks[bisect_right(self._starts, offset) - 1]
        return block.times[offset - block.start]

    @property
    def oldest(self) -> float | None:
        """When the oldest record came."""
        return self._blocks[0].times[0] if self._blocks else None
