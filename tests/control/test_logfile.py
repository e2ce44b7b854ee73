"""Every damage of a journal is either mended completely or refused: never a record less in silence."""

import asyncio
import random

import pytest

from sievenet.content import Filter, Subscription, ValueSet, encode_subscription
from sievenet.control.commands import Join, Subscribe, encode_command
from sievenet.control.journal import FileJournal, read_records
from sievenet.control.logfile import DATA, Damaged, scan
from tests.control.world import SCHEMA
from tests.seeds import START, seeds


def subscribe(i):
    wanted = Subscription([Filter(SCHEMA, {"x": ValueSet.interval(0, i % 16)})])
    return encode_command(Subscribe("client", i, 1, encode_subscription(wanted)))


RECORDS = [encode_command(Join("client", "h1")), *map(subscribe, range(300))]


def written(path, records=RECORDS):
    """A journal as a daemon leaves it, many commits after each other."""

    async def main():
        journal = FileJournal(path)
        rest = list(records)
        while rest:
            await journal.append(rest[:7])
            del rest[:7]
        await journal.close()

    asyncio.run(main())
    return path.read_bytes()


def judged(data):
    """The records, or None if the file is refused."""
    try:
        return scan(data).records
    except Damaged:
        return None


def places(size, count, seed):
    """Some bytes of a file; in a soak all of them."""
    if START is not None:
        return range(size)
    rng = random.Random(seed)
    return sorted(
        {*range(40), *range(512, 560), *range(1024, 1064), size - 1, *(rng.randrange(size) for _ in range(count))}
    )


@pytest.mark.parametrize("seed", seeds(1))
def test_every_flipped_byte_is_mended_or_refused(tmp_path, seed):
    whole = written(tmp_path / "j")
    assert judged(whole) == RECORDS
    rng = random.Random(seed)
    refused = 0
    for at in places(len(whole), 500, seed):
        data = bytearray(whole)
        data[at] ^= rng.choice((1, 0x80, 0xFF, rng.randrange(1, 256)))
        found = judged(bytes(data))
        assert found in (RECORDS, None), at
        refused += found is None
        assert found is None or at < DATA, "a record that differs was taken"
    assert refused > 300


@pytest.mark.parametrize("seed", seeds(1))
def test_every_cut_is_refused(tmp_path, seed):
    whole = written(tmp_path / "j")
    for at in places(len(whole), 500, seed):
        assert judged(whole[:at]) is None, at


@pytest.mark.parametrize("seed", seeds(1))
def test_what_was_not_answered_is_dropped_and_nothing_else(tmp_path, seed):
    """A commit that stopped anywhere before its mark: the records before it are there, and perhaps some of its own."""
    before = written(tmp_path / "j", RECORDS[:200])
    after = written(tmp_path / "j", RECORDS[200:])  # the same file goes on
    assert after[DATA : len(before)] == before[DATA:]
    torn = before + after[len(before) :]
    for at in places(len(torn), 300, seed):
        if at < len(before):
            continue
        found = scan(torn[:at])
        count = len(found.records)
        assert found.records == RECORDS[:count]
        assert count >= 200
        junk = bytearray(torn[:at] + bytes(8))  # room that was given, but not written
        assert judged(bytes(junk))[:200] == RECORDS[:200]


def test_a_journal_goes_on_after_an_unfinished_write(tmp_path):
    path = tmp_path / "j"
    written(path, [b"a", b"b"])
    with path.open("ab") as file:
        file.write(b"\x05\0\0\0unfin")

    async def main():
        journal = FileJournal(path)
        assert journal.dropped == 9
        assert journal.load() == [b"a", b"b"]
        await journal.append([b"c"])
        await journal.close()

    asyncio.run(main())
    assert read_records(path) == [b"a", b"b", b"c"]
