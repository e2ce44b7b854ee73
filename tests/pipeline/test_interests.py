"""Subscriptions from journals, tables and text; reports; what is wrong is told with its place."""

import asyncio

import pytest

from sievenet.content import Schema, Subscription, encode_subscription, parse_subscription
from sievenet.control.commands import (
    Advertise,
    Join,
    Leave,
    Register,
    Subscribe,
    Unsubscribe,
    encode_command,
)
from sievenet.control.journal import FileJournal, read_records
from sievenet.errors import CodecError, InvalidInput, SchemaError, Unavailable
from sievenet.index import Plan
from sievenet.pipeline.interests import load_wanted, read_journal, save_wanted, wanted_of
from sievenet.workload import Hotspots, grid

LOAD = Hotspots(schema=grid(2, hi=99), seed=1)
SUBS = [Subscription([f], LOAD.schema) for f in LOAD.subscriptions(4).filters()]


def journal(path):
    plan = Plan.regular(LOAD.schema, 8)
    commands = [
        Register(1, LOAD.schema.to_json(), plan.to_json(), 1, 8),
        Join("a", "h1"),
        Join("b", "h2"),
        Join("gone", "h3"),
        Advertise("a", 1, 1, encode_subscription(SUBS[3])),
        Subscribe("a", 1, 1, encode_subscription(SUBS[0])),
        Subscribe("b", 1, 1, encode_subscription(SUBS[1])),
        Subscribe("b", 2, 1, encode_subscription(SUBS[2])),
        Unsubscribe("b", 2),
        Subscribe("gone", 1, 1, encode_subscription(SUBS[3])),
        Leave("gone"),
    ]

    async def write():
        kept = FileJournal(path)
        await kept.append([encode_command(c) for c in commands])
        # Read while the control plane holds the file.
        records = read_records(path)
        await kept.close()
        return records

    return asyncio.run(write())


def test_a_journal_in_use(tmp_path):
    assert len(journal(tmp_path / "journal.db")) == 11
    found = load_wanted(tmp_path / "journal.db", LOAD.schema)
    assert found.subscriptions == (SUBS[0], SUBS[1])
    assert (found.clients, found.hosts) == (("a", "b"), ("h1", "h2"))
    advertised = wanted_of(read_journal(tmp_path / "journal.db"), LOAD.schema, advertised=True)
    assert advertised.subscriptions == (SUBS[3],)
    save_wanted(found, tmp_path / "wanted.parquet")
    assert load_wanted(tmp_path / "wanted.parquet", LOAD.schema) == found


def test_text(tmp_path):
    (tmp_path / "wanted.txt").write_text("# comment\n\ngrid: x0 > 3\n  grid: x1 = 5 or x0 = 2\n")
    found = load_wanted(tmp_path / "wanted.txt", LOAD.schema)
    assert found.subscriptions == tuple(
        parse_subscription(text, LOAD.schema) for text in ("grid: x0 > 3", "grid: x1 = 5 or x0 = 2")
    )
    assert len(found) == 2


def test_what_is_wrong_is_told(tmp_path):
    with pytest.raises(InvalidInput, match="got no file"):
        load_wanted(tmp_path / "none", LOAD.schema)
    (tmp_path / "bad.txt").write_text("grid: x0 > 3\ngrid: x9 > 3\n")
    with pytest.raises(InvalidInput, match=r"bad\.txt, line 2"):
        load_wanted(tmp_path / "bad.txt", LOAD.schema)
    (tmp_path / "bad.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="Expected text"):
        load_wanted(tmp_path / "bad.bin", LOAD.schema)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InvalidInput, match="a table with key, kind"):
        load_wanted(tmp_path / "bad.parquet", LOAD.schema)
    journal(tmp_path / "journal.db")
    with pytest.raises(SchemaError, match="registered category"):
        load_wanted(tmp_path / "journal.db", grid(2, name="other"))
    with pytest.raises(InvalidInput, match="grid version 2 as given"):
        load_wanted(tmp_path / "journal.db", Schema("grid", LOAD.schema.attributes, version=2))
    with pytest.raises(Unavailable, match="no such file"):
        read_records(tmp_path / "none.db")
    whole = (tmp_path / "journal.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(whole[: len(whole) // 2])
    with pytest.raises((Unavailable, CodecError)):
        read_records(tmp_path / "torn.db")
