"""Journals: what was appended is there afterwards, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from sievenet.control.aside import Aside
from sievenet.control.journal import Durability, FileJournal, MemoryJournal, read_records
from sievenet.errors import Rejected, Unavailable


def reopened(path):
    async def main():
        journal = FileJournal(path)
        records = journal.load()
        await journal.close()
        return records

    return asyncio.run(main())


@pytest.mark.parametrize("durability", Durability)
def test_records_come_back_in_order(tmp_path, durability):
    async def main():
        journal = FileJournal(tmp_path / "j", durability=durability)
        assert journal.load() == []
        await asyncio.gather(*(journal.append([b"%d" % i, b"", b"x" * i]) for i in range(200)))
        assert journal.committed == 600
        assert journal.commits < 200  # a group commit holds several
        await journal.close()

    asyncio.run(main())
    assert reopened(tmp_path / "j") == [r for i in range(200) for r in (b"%d" % i, b"", b"x" * i)]


def test_a_snapshot_replaces_everything_and_growth_is_bounded(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "j")
        sizes = []
        for _ in range(12):
            for _ in range(20):
                await journal.append([os.urandom(5000)])
            await journal.append([b"a" * 700_000, b"b" * 700_000], replace=True)
            await journal.append([b"c"])
            sizes.append(sum(f.stat().st_size for f in tmp_path.iterdir()))
        await journal.close()
        assert max(sizes[6:]) <= max(sizes[:6]) * 1.1

    asyncio.run(main())
    assert [r[:1] for r in reopened(tmp_path / "j")] == [b"a", b"b", b"c"]


def test_a_full_disk_is_refused_and_nothing_else_suffers(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "j", max_bytes=200_000)
        await journal.append([b"first"])
        with pytest.raises(Rejected, match="full"):
            await journal.append([b"x" * 1_000_000])
        await journal.append([b"second"])
        await journal.close()
        with pytest.raises(Unavailable, match="closed"):
            await journal.append([b"late"])
        await journal.close()

    asyncio.run(main())
    assert reopened(tmp_path / "j") == [b"first", b"second"]


def test_two_control_planes_cannot_share_one(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "j")
        with pytest.raises(Unavailable, match="locked"):
            FileJournal(tmp_path / "j")
        await journal.close()

    asyncio.run(main())


def test_what_is_no_journal_is_not_used(tmp_path):
    (tmp_path / "text").write_text("not a journal, though long enough to look like a page of one" * 40)
    with pytest.raises(Unavailable, match="begins otherwise"):
        FileJournal(tmp_path / "text")
    with pytest.raises(Unavailable):
        FileJournal(tmp_path / "no" / "such" / "folder")
    (tmp_path / "empty").touch()
    with pytest.raises(Unavailable, match="the file is empty"):
        FileJournal(tmp_path / "empty")
    database = sqlite3.connect(tmp_path / "newer")
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(Unavailable, match="format 99"):
        FileJournal(tmp_path / "newer")


def test_a_journal_of_an_earlier_version_is_taken_over(tmp_path):
    def old(path, *blobs):
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, records BLOB NOT NULL)")
        database.execute("PRAGMA user_version=1")
        database.executemany("INSERT INTO batches (records) VALUES (?)", [(blob,) for blob in blobs])
        database.commit()
        database.close()

    old(tmp_path / "j", b"\1\0\0\0a\2\0\0\0bc", b"\0\0\0\0")
    assert read_records(tmp_path / "j") == [b"a", b"bc", b""]
    assert reopened(tmp_path / "j") == [b"a", b"bc", b""]
    assert read_records(tmp_path / "j.old") == [b"a", b"bc", b""]
    assert reopened(tmp_path / "j") == [b"a", b"bc", b""]
    old(tmp_path / "torn", b"\x09\0\0\0torn")
    with pytest.raises(Unavailable, match="cut off"):
        FileJournal(tmp_path / "torn")


def test_nobody_else_may_read(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "j")
        await journal.append([b"a"])
        await journal.append([b"b"], replace=True)
        journal.set_aside([Aside(b"x", "because")])
        await journal.close()

    asyncio.run(main())
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}
    (tmp_path / "j").chmod(0o644)
    assert reopened(tmp_path / "j") == [b"b"]
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


def test_in_memory():
    async def main():
        journal = MemoryJournal([b"a"])
        await journal.append([b"b"])
        assert journal.load() == [b"a", b"b"]
        journal.failing = Rejected("full")
        with pytest.raises(Rejected):
            await journal.append([b"c"])
        journal.failing = None
        await journal.append([b"d"], replace=True)
        assert journal.load() == [b"d"]
        await journal.close()

    asyncio.run(main())


def test_acknowledged_records_survive_kill_9(tmp_path):
    """A process writes and says what is safe; it is killed at a random moment, several times."""
    script = textwrap.dedent("""
        import asyncio, sys
        from sievenet.control.journal import FileJournal
        async def main():
            journal = FileJournal(sys.argv[1])
            n = len(journal.load())
            print("ready", flush=True)
            while True:
                await asyncio.gather(*(journal.append([b"%d" % (n + i)]) for i in range(5)))
                n += 5
                print(n, flush=True)
        asyncio.run(main())
    """)
    path = tmp_path / "j"
    for kills in range(3):
        process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        safe = 0
        for _ in range(10 + 7 * kills):
            line = process.stdout.readline().strip()
            safe = int(line) if line != "ready" else safe
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        safe = int(rest[-1]) if rest else safe
        records = reopened(path)
        assert len(records) >= safe
        assert records == [b"%d" % i for i in range(len(records))]


def test_a_journal_in_use_can_be_read(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "j")
        for i in range(20):
            await journal.append([b"%d" % i])
            assert read_records(tmp_path / "j") == [b"%d" % j for j in range(i + 1)]
        await journal.close()
        assert len(read_records(tmp_path / "j")) == 20

    asyncio.run(main())
    with pytest.raises(Unavailable, match="no such file"):
        read_records(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a journal " * 1000)
    with pytest.raises(Unavailable, match="cannot be read"):
        read_records(tmp_path / "text")


def test_a_journal_that_was_closed_takes_nothing(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "j")
        await journal.close()
        with pytest.raises(Unavailable, match="closed"):
            await journal.append([b"late"])

    asyncio.run(main())
