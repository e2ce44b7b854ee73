"""Repair: what it says is kept is what the next start has, and everything else is named."""

import asyncio
import os
import random

import pytest
from click.testing import CliRunner

from sievenet.cli import main as command
from sievenet.content import Filter, Subscription, ValueSet, encode_subscription
from sievenet.control.aside import read_aside
from sievenet.control.commands import (
    Advertise,
    Join,
    Lost,
    Register,
    Subscribe,
    Unsubscribe,
    decode_command,
    encode_command,
)
from sievenet.control.examination import examine, repair
from sievenet.control.journal import FileJournal, aside_path, read_records, write_whole
from sievenet.control.logfile import DATA, RECORD, Damaged, fresh, scan
from sievenet.control.plane import ControlPlane
from sievenet.control.recovery import replay
from sievenet.control.salvage import Gap, salvage
from sievenet.control.state import State
from sievenet.dataplane.simulator import Simulator
from sievenet.errors import Unavailable
from sievenet.index import Plan
from sievenet.network import Line
from tests.control.world import CONFIG, OTHER, SCHEMA
from tests.seeds import START, seeds


def registered(schema, claim):
    return Register(0, schema.to_json(), Plan.regular(schema, 4).to_json(), 1, 8, claim)


def commands():
    """Two categories, three clients, 300 registrations; the second category comes after the first is in use."""
    yield registered(SCHEMA, 1)
    for i in range(300):
        if i % 100 == 0:
            yield Join(f"c{i // 100}", "h1", i)
        if i == 50:
            yield registered(OTHER, 2)
        number, schema, name = (2, OTHER, "n") if i > 50 and i % 3 == 0 else (1, SCHEMA, "x")
        content = encode_subscription(Subscription([Filter(schema, {name: ValueSet.interval(0, i % 16)})]))
        yield (Advertise if i % 10 == 0 else Subscribe)(f"c{i // 100}", i, number, content)
        if i % 40 == 39:
            yield Unsubscribe(f"c{i // 100}", i)


RECORDS = [encode_command(each) for each in commands()]
WHOLE = fresh(RECORDS)[0]
#: Where each record begins.
STARTS = [DATA + sum(RECORD.size + len(each) for each in RECORDS[:i]) for i in range(len(RECORDS) + 1)]


def expected(gone):
    """What is in effect without some records, worked out naively."""
    categories, clients, entries = set(), set(), {}
    for i, record in enumerate(RECORDS):
        each = decode_command(record)
        if i in gone:
            continue
        if isinstance(each, Register):
            categories.add(each.claim)
        elif isinstance(each, Join):
            clients.add(each.client)
        elif isinstance(each, Unsubscribe):
            entries.pop((Subscribe, each.client, each.id), None)
        elif each.category in categories and each.client in clients:
            entries[type(each), each.client, each.id] = record
    return categories, clients, set(entries.values())


def held(state):
    entries = {entry.record for client in state.clients.values() for entry in client.entries()}
    return set(state.categories), set(state.clients), entries


def damages(seed):
    """Damaged files, each with the records that cannot be made out: some of them, in a soak all."""
    rng = random.Random(seed)
    size = len(WHOLE)
    places = range(size)
    if START is None:
        some = {rng.randrange(DATA, size) for _ in range(60)}
        some.update(start + at for start in rng.sample(STARTS[:-1], 4) for at in range(RECORD.size + 1))
        places = sorted({*range(40), *range(DATA, DATA + 20), 2089, size - 1, *some})
    for at in places:
        data = bytearray(WHOLE)
        data[at] ^= rng.choice((1, 0x80, 0xFF, rng.randrange(1, 256)))
        gone = [i for i, start in enumerate(STARTS[:-1]) if start + RECORD.size <= at < STARTS[i + 1]]
        yield f"flip {at}", bytes(data), frozenset(gone)
        yield f"cut {at}", WHOLE[:at], frozenset(i for i in range(len(RECORDS)) if STARTS[i + 1] > at)


def started(path):
    """What a control plane has that starts from a file, and what it has set aside."""

    async def main():
        control = await ControlPlane.start(Simulator.on_loop(Line.build(switches=2)), FileJournal(path), CONFIG)
        try:
            return held(control._controller.state), [each.record for each in control.aside]
        finally:
            await control.close()

    return asyncio.run(main())


@pytest.mark.parametrize("seed", seeds(1))
def test_after_a_repair_there_is_what_was_said(tmp_path, seed):
    everything = expected(())[2]
    outcomes = {}
    for what, data, gone in damages(seed):
        path = tmp_path / "journal.db"
        path.write_bytes(data)
        try:
            assert scan(data).records == RECORDS, what  # marks and unused bytes
            continue
        except Damaged:
            pass
        if not data:
            with pytest.raises(Unavailable, match="is empty"):
                examine(path)
            continue
        found = examine(path)
        assert held(found.state) == expected(gone), what
        # Whatever is missing is named: it is in a gap, or among those that need something in one.
        missing = everything - held(found.state)[2]
        assert missing <= {RECORDS[i] for i in gone} | {each.record for each in found.idle}, what
        assert bool(found.lost) == bool(gone), what
        outcomes.setdefault(gone, (what, data, found))
    rng = random.Random(seed)
    gaps = sorted(outcomes, key=sorted)
    first = [gone for gone in gaps if gone <= {0, 1}]  # what most depends on, and nothing
    assert len(first) >= 2
    chosen = gaps if START is not None else [*first, *rng.sample(gaps, 6)]
    for gone in chosen:
        what, data, found = outcomes[gone]
        path = tmp_path / "journal.db"
        for each in tmp_path.iterdir():
            each.unlink()
        path.write_bytes(data)
        with pytest.raises(Damaged, match="journal check"):
            FileJournal(path)
        _, kept = repair(path)
        assert kept.read_bytes() == data
        has, aside = started(path)
        assert has == held(found.state), what
        assert aside == [each.record for each in (*found.lost, *found.idle)], what
        assert [each.record for each in read_aside(aside_path(path))] == aside


def test_sectors_of_zeros_cost_what_is_in_them_and_one_record():
    rng = random.Random(1)
    for _ in range(20):
        at = rng.randrange(DATA // 512, len(WHOLE) // 512) * 512
        data = WHOLE[:at] + bytes(512) + WHOLE[at + 512 :]
        pieces = salvage(data)
        records = [each for each in pieces if not isinstance(each, Gap)]
        hit = [i for i in range(len(RECORDS)) if STARTS[i] < at + 512 and STARTS[i + 1] > at]
        spared = [each for i, each in enumerate(RECORDS) if i not in (*hit, hit[-1] + 1)]
        assert [each for each in records if each in spared] == spared
        assert set(records) <= set(RECORDS)
        assert sum(isinstance(each, Gap) for each in pieces) == 1


def test_a_damaged_beginning_loses_nothing():
    for gone in (range(40), range(512), range(512, 560), range(1024, 1072), range(1536, 1580)):
        data = bytearray(WHOLE)
        for at in gone:
            data[at] ^= 0xFF
        assert salvage(bytes(data)) == RECORDS
    data = bytearray(WHOLE)
    data[512:560] = data[1024:1072] = bytes(48)  # nobody knows how far it went
    assert salvage(bytes(data)) == [*RECORDS, Gap(len(WHOLE), 0)]


def test_without_a_claim_no_category_gets_the_number_of_a_lost_one():
    """As in journals of earlier versions."""
    lost = encode_command(Lost(2048, 2100, "journal.db.damaged"))
    content = encode_subscription(Subscription([Filter(SCHEMA, {})]))
    records = [lost, registered(OTHER, 0), Join("a", "h1"), Subscribe("a", 1, 1, content)]
    state = State()
    aside = replay(state, [each if isinstance(each, bytes) else encode_command(each) for each in records])
    assert held(state) == (set(), {"a"}, set())
    assert [each.what for each in aside] == [
        "what was in bytes 2048 to 2100",
        "register schema list",
        "subscribe client a id 1 category 1",
    ]


def shell(*arguments, code=0):
    result = CliRunner().invoke(command, ["journal", *map(str, arguments)], prog_name="sievenet")
    assert result.exit_code == code, result.output
    return result.output


def test_a_damaged_journal_is_told_checked_and_repaired_from_the_shell(tmp_path):
    path = tmp_path / "journal.db"
    write_whole(path, RECORDS)
    counts = "2 categories, 3 clients, 30 advertisements, {} subscriptions"
    assert f"whole, {len(RECORDS)} records: {counts.format(263)}" in shell("check", path)
    data = bytearray(path.read_bytes())
    at = STARTS[10] + RECORD.size + len(RECORDS[10]) - 1
    data[at] ^= 1
    path.write_bytes(data)
    told = shell("check", path, code=2)
    assert f"record 11 does not match the chain of checksums - at byte {STARTS[10]}" in told
    lost = f"lost: what was in bytes {STARTS[10]} to {STARTS[11]}, as far as it can be read: subscribe client c0 id 8"
    assert lost in told
    assert counts.format(262) in told
    assert "journal check" not in told
    assert "--yes" in shell("repair", path, code=2)
    assert path.read_bytes() == data
    assert counts.format(262) in shell("repair", path, "--yes")
    assert len(read_records(path)) == len(RECORDS)  # one of them says what is missing
    kept = tmp_path / "journal.db.damaged"
    assert kept.read_bytes() == data
    assert os.stat(kept).st_mode & 0o777 == 0o600
    told = shell("check", path)
    assert "whole" in told
    assert lost in told
    # Another damage: the first file stays, and what depends on the schema is named.
    again = bytearray(path.read_bytes())
    again[DATA + RECORD.size + 5] ^= 1
    path.write_bytes(again)
    told = shell("repair", path, "--yes")
    assert "lost with it: subscribe client c0 id 1 category 1 (Expected a registered category, got 1)" in told
    assert "more (--json lists them all)" in told
    assert kept.read_bytes() == data
    assert (tmp_path / "journal.db.damaged.2").read_bytes() == again
    assert '"subscriptions": 73' in shell("check", path, "--json")
    assert "nothing" not in shell("repair", path)


@pytest.mark.parametrize(("data", "words"), [(b"", "is empty"), (b"something else " * 200, "is not a journal")])
def test_what_is_no_journal_is_told_with_what_to_do(tmp_path, data, words):
    path = tmp_path / "journal.db"
    path.write_bytes(data)
    for arguments in (("check", path), ("repair", path, "--yes")):
        told = " ".join(shell(*arguments, code=2).split())
        assert words in told
        assert "put a copy of the journal in its place" in told
        assert "journal check" not in told
    assert path.read_bytes() == data
