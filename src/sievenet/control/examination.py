"""Examination: what the next start will make of a journal, and its repair.

What counts is not how many records there are, but what is in effect once they are replayed: a subscription is worth
nothing without its client and its category.  So the records are replayed here as a start does it (`recovery`), on a
state that nobody else sees.  What a repair writes is what was examined: the records that are whole, and in the place of
each gap a `Lost`.  The next start therefore knows of the gap, and sets aside what needed something in it.

Every registration that there was is in exactly one of: what is kept, what is not in effect, and the gaps.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sievenet.control.aside import Aside
from sievenet.control.commands import Lost, decode_command, encode_command
from sievenet.control.journal import NO_JOURNAL, exclusive, read_records, write_whole
from sievenet.control.logfile import Damaged, scan
from sievenet.control.old_journal import SQLITE
from sievenet.control.recovery import replay
from sievenet.control.salvage import Gap, plausible, salvage
from sievenet.control.state import State
from sievenet.errors import CodecError, Unavailable

__all__ = ["Examination", "examine", "repair"]


@dataclass(frozen=True, slots=True)
class Examination:
    """What a journal holds, in effect."""

    #: What a repair would write.
    records: list[bytes]
    #: Why a start is refused, if it is.
    damage: str | None
    state: State
    #: Gaps in the journal, of this repair or an earlier one.
    lost: list[Aside]
    #: Whole records that cannot be carried out, mostly since something that they need is lost.
    idle: list[Aside]

    @property
    def whole(self) -> int:
        """Records that are in effect, or were until later ones."""
        return len(self.records) - len(self.lost) - len(self.idle)

    def counts(self) -> dict[str, int]:
        """How much is in effect."""
        clients = self.state.clients.values()
        return {
            "categories": len(self.state.categories),
            "clients": len(clients),
            "advertisements": sum(len(each.advertisements) for each in clients),
            "subscriptions": sum(len(each.subscriptions) for each in clients),
        }


def examine(path: Path) -> Examination:
    """Look at a journal, damaged or not; `Unavailable` if it is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unavailable(f"The journal {path} cannot be read: {error}") from None
    if data.startswith(SQLITE):
        return _replayed(read_records(path), None)
    if not data:
        raise Unavailable(f"{path} is empty. {NO_JOURNAL}")
    if not plausible(data):
        raise Unavailable(
            f"{path} is not a journal: it begins with {data[:8]!r}. A fabric's is `journal.db` in the folder of "
            f"`sievenet up --state`; if this file is that one, something else was written over it. {NO_JOURNAL}"
        )
    try:
        return _replayed(scan(data).records, None)
    except Damaged as error:
        kept = _damaged(path).name
        records = [_lost(each, kept) if isinstance(each, Gap) else each for each in salvage(data)]
        return _replayed(records, str(error))
    except Unavailable as error:
        raise Unavailable(f"The journal {path} cannot be read: {error}") from None


def repair(path: Path) -> tuple[Examination, Path]:
    """Write what can be made out of a damaged journal; returns what that is, and where the damaged file is now."""
    with exclusive(path):
        found, kept = examine(path), _damaged(path)
        if found.damage is None:
            raise Unavailable(f"The journal {path} is whole: there is nothing to repair")
        try:
            os.link(path, kept)
            os.chmod(kept, 0o600)
            write_whole(path, found.records)
        except OSError as error:
            raise Unavailable(f"The journal {path} cannot be repaired: {error}") from None
    return found, kept


def _replayed(records: list[bytes], damage: str | None) -> Examination:
    state = State()
    aside = replay(state, records)
    lost = [each for each in aside if _is_lost(each.record)]
    return Examination(records, damage, state, lost, [each for each in aside if not _is_lost(each.record)])


def _is_lost(record: bytes) -> bool:
    with contextlib.suppress(CodecError):
        return isinstance(decode_command(record), Lost)
    return False


def _damaged(path: Path) -> Path:
    """Where to keep a damaged file: no other one is overwritten."""
    names = (f"{path.name}.damaged{f'.{i}' if i > 1 else ''}" for i in count(1))
    return next(found for name in names if not (found := path.with_name(name)).exists())


def _lost(gap: Gap, file: str) -> bytes:
    hint = ""
    with contextlib.suppress(CodecError):
        decode_command(gap.bytes)
        hint = Aside(gap.bytes, "").what
    return encode_command(Lost(gap.start, gap.end, file, hint))
