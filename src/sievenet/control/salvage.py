"""Salvage: all records of a damaged journal file that can be proved, and where the others were.

    record   length │ chain │ bytes        chain = hash(chain before, length, bytes)

A record is taken only if a chain proves it, so nothing is ever invented.  What proves it depends on what is damaged:

- **The header of the file.**  It has a copy.  Without a whole one, the salt is believed if a mark or the first record
  agrees with it.
- **The chain of a record.**  It can be worked out from the record, and the next record (or a mark) agrees.
- **The length of a record.**  The next record is the place where the stated chain is continued; the bytes up to there
  have to agree with that chain.
- **The bytes of a record.**  They are lost.  The stated chain is as it was written, so the next record is proved by it.
- **All of it** (a sector of zeros).  A later record that is continued by another one gives the chain there; that one
  record is lost as well, since nothing before it says what its chain should be.

Marks name a place and the chain there, so they prove what ends at that place, and reading can go on behind it.
Behind the latest mark an unfinished write may lie, which is not a loss (`logfile`).

The cost is one pass, and for each gap one look at each of its bytes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from sievenet.control.logfile import DATA, MAGIC, RECORD, beginning, link, marks_in, record_at, salts_in

__all__ = ["Gap", "Salvaged", "plausible", "salvage"]

_Found: TypeAlias = tuple[bytes, int, bytes]


class Gap(NamedTuple):
    """Bytes of a file in which records were lost."""

    start: int
    #: 0 if nobody knows.
    end: int
    #: What is there, if it was one record: not to be believed.
    bytes: bytes = b""

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.end}" if self.end else f"whatever was behind byte {self.start}"


#: Records and gaps, in the order of the file.
Salvaged: TypeAlias = list[bytes | Gap]


def plausible(data: bytes) -> bool:
    """Whether a file is a journal, damaged or not, rather than something else."""
    alike = sum(a == b for a, b in zip(data, MAGIC, strict=False))
    return 2 * alike > min(len(data), len(MAGIC)) or any(marks_in(data, salt) for salt in salts_in(data))


def salvage(data: bytes) -> Salvaged:
    """Everything that can be made out, and where something is missing."""
    salt = next((each for each in salts_in(data) if _fits(data, each)), None)
    marks = [] if salt is None else marks_in(data, salt)
    chain = None if salt is None else beginning(salt)
    anchors = {mark.end: mark.chain for mark in marks}
    expected = marks[-1].end if marks else len(data)
    found: Salvaged = []
    at = DATA
    while True:
        record = None if chain is None else record_at(data, at, chain)
        if record is None and at >= expected:
            break
        if record is None and chain is not None:
            record = _proved(data, at, chain, anchors)
        if record is not None:
            found.append(record[0])
            _, at, chain = record
            continue
        resumed = _resumed(data, at, anchors)
        if resumed is None:
            break
        end, chain = resumed
        whole = RECORD.unpack_from(data, at)[0] == end - at - RECORD.size
        found.append(Gap(at, end, data[at + RECORD.size : end] if whole else b""))
        at = end
    if not marks:
        found.append(Gap(at, 0))  # how far everything was answered is not known
    elif at < expected:
        found.append(Gap(at, expected))
    return found


def _fits(data: bytes, salt: bytes) -> bool:
    return bool(marks_in(data, salt)) or record_at(data, DATA, beginning(salt)) is not None


def _continued(data: bytes, at: int, chain: bytes, anchors: dict[int, bytes]) -> bool:
    """Whether a chain at a place is proved by what follows, or by a mark."""
    return anchors.get(at) == chain or record_at(data, at, chain) is not None


def _proved(data: bytes, at: int, chain: bytes, anchors: dict[int, bytes]) -> _Found | None:
    """A record whose length or chain is damaged, but not its bytes."""
    start = at + RECORD.size
    if start > len(data):
        return None
    length, stated = RECORD.unpack_from(data, at)
    if start + length <= len(data):
        record = data[start : start + length]
        true = link(chain, record)
        if _continued(data, start + length, true, anchors):
            return record, start + length, true
        if _continued(data, start + length, stated, anchors):
            return None  # its bytes are damaged
    for end in range(start, len(data) + 1):
        if _continued(data, end, stated, anchors):
            record = data[start:end]
            return (record, end, stated) if link(chain, record) == stated else None
        if end in anchors:
            break
    return None


def _resumed(data: bytes, at: int, anchors: dict[int, bytes]) -> tuple[int, bytes] | None:
    """Where reading can go on behind a damaged record, and the chain there."""
    start = at + RECORD.size
    if start > len(data):
        return None
    length, stated = RECORD.unpack_from(data, at)
    if start + length <= len(data) and _continued(data, start + length, stated, anchors):
        return start + length, stated
    for place in range(start, len(data) + 1):
        if place in anchors:
            return place, anchors[place]
        if record_at(data, place, stated) is not None:
            return place, stated
        if place + RECORD.size <= len(data):
            length, chain = RECORD.unpack_from(data, place)
            behind = place + RECORD.size + length
            if behind <= len(data) and _continued(data, behind, chain, anchors):
                return behind, chain
    return None
