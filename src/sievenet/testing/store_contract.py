"""What every store must do: one suite for the one in memory and the one in NATS.

Each check is a coroutine function that gets two stores of the same contents, as two machines have:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_contract(check): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sievenet.control.aside import Aside
from sievenet.control.store.journal import StoreJournal
from sievenet.control.store.leadership import Leadership, read_leader
from sievenet.control.store.logs import Reader, Writer, read_all
from sievenet.control.store.store import Store
from sievenet.errors import Fenced, SievenetError

__all__ = ["CHECKS"]

#: Seconds that anything may take.
_PATIENCE: Final = 30.0


async def _fenced(act: Awaitable[object]) -> None:
    try:
        await act
    except Fenced:
        return
    raise AssertionError("Expected Fenced, got none")


async def logs_keep_their_order_and_compare(one: Store, other: Store) -> None:
    """An entry goes behind the one that its writer knows, or nowhere."""
    assert await one.read("a.b") is None
    assert await one.last("a.b") == 0
    first = await one.append("a.b", b"1", 0)
    await _fenced(other.append("a.b", b"x", 0))
    second = await other.append("a.b", b"2", first)
    assert second > first
    await _fenced(one.append("a.b", b"x", first))
    await one.append("a.c", b"another log", 0)
    third = await one.append("a.b", b"", second)
    found, at = [], 0
    while (entry := await other.read("a.b", at)) is not None:
        found.append(entry.data)
        at = entry.number
    assert (found, at) == ([b"1", b"2", b""], third)
    assert await other.scan("a.b") == [(b"1", first), (b"2", second), (b"", third)]
    assert await other.scan("a.nothing") == []
    for i in range(300):
        third = await one.append("a.b", b"%d" % i, third)
    scanned = await other.scan("a.b")
    assert [entry.data for entry in scanned] == [b"1", b"2", b"", *(b"%d" % i for i in range(300))]
    assert await other.last("a.b") == third == scanned[-1].number


async def a_log_begins_anew_in_one_step(one: Store, other: Store) -> None:
    """What takes the place of all before it compares too."""
    first = await one.append("anew", b"1", 0)
    await _fenced(other.append("anew", b"x", 0, anew=True))
    entry = await one.read("anew")
    assert entry is not None
    assert entry.data == b"1"
    second = await other.append("anew", b"2", first, anew=True)
    entry = await one.read("anew")
    assert entry is not None
    assert entry == (b"2", second)


async def logs_are_discarded(one: Store, other: Store) -> None:
    """One, or all that begin so."""
    for log in ("gone.1.a", "gone.1.b", "gone.2.a", "stays"):
        await one.append(log, b"x", 0)
    await other.discard("gone.1.*")
    await other.discard("gone.2.a")
    assert [await one.last(log) for log in ("gone.1.a", "gone.1.b", "gone.2.a")] == [0, 0, 0]
    assert await one.last("stays") > 0
    assert await one.append("gone.1.a", b"again", 0) > 0


async def cells_compare(one: Store, other: Store) -> None:
    """A cell changes only if it is as its writer saw it."""
    assert await one.get("cell") is None
    first = await one.put("cell", b"1", 0)
    await _fenced(other.put("cell", b"x", 0))
    assert await other.get("cell") == (b"1", first)
    second = await other.put("cell", b"2", first)
    await _fenced(one.put("cell", b"x", first))
    assert await one.get("cell") == (b"2", second)
    await one.put("many.1", b"x", 0)
    await one.forget("many.*")
    assert await one.get("many.1") is None
    assert await one.get("cell") == (b"2", second)


async def only_one_of_many_puts_counts(one: Store, other: Store) -> None:
    """However many try at a time."""
    revision = await one.put("race", b"0", 0)
    tries = [(one, other)[i % 2].put("race", b"%d" % i, revision) for i in range(8)]
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, int) for each in found) == 1
    assert sum(isinstance(each, Fenced) for each in found) == 7


async def words_arrive_in_order(one: Store, other: Store) -> None:
    """Who listens hears what is said."""
    heard: list[bytes] = []
    done = asyncio.Event()

    def hear(word: bytes) -> None:
        heard.append(word)
        if word == b"9":
            done.set()

    await other.hear("words", hear)
    await other.get("cell")  # the server knows by now that somebody listens
    for i in range(10):
        await one.say("words", b"%d" % i)
    async with asyncio.timeout(_PATIENCE):
        await done.wait()
    assert heard == [b"%d" % i for i in range(10)]


async def what_nobody_hears_is_told(one: Store, other: Store) -> None:
    """Who says something learns that nobody listens, and not if somebody does."""
    told: list[str] = []
    done = asyncio.Event()

    def tell(subject: str) -> None:
        told.append(subject)
        if subject == "ask.last":
            done.set()

    await one.unheard(tell)
    heard: list[bytes] = []
    await other.hear("ask.b", heard.append)
    await other.get("cell")  # the server knows by now that somebody listens
    for subject in ("ask.a", "ask.b", "ask.last"):
        await one.say(subject, b"?")
    async with asyncio.timeout(_PATIENCE):
        await done.wait()
        while not heard:
            await asyncio.sleep(0.01)
    assert told == ["ask.a", "ask.last"]
    assert heard == [b"?"]


async def entries_of_any_size(one: Store, other: Store) -> None:
    """Cut into pieces, and put together; what did not end is dropped."""
    size = one.limit
    sizes = (0, 1, size - 2, size - 1, size, 2 * size - 2, 2 * size + 7)
    entries = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    writer = Writer(one, "sizes")
    for each in entries:
        await writer.write(each)
    assert await read_all(other, "sizes") == (entries, writer.at)
    at = await other.append("sizes", b"\x01half", writer.at)
    await _fenced(writer.write(b"too late"))
    await Writer(other, "sizes", at).write(b"whole")
    assert (await read_all(one, "sizes"))[0] == [*entries, b"whole"]
    reader = Reader(one, "sizes")
    await Writer(other, "sizes", await other.last("sizes")).write(b"n" * 2 * size, anew=True)
    entry = await reader.next()
    assert entry is not None
    assert entry.data == b"n" * 2 * size


async def a_log_is_read_up_to_an_entry(one: Store, other: Store) -> None:
    """All at once where it is new, then what came since; nothing behind the entry that was asked for."""
    writer, reader = Writer(one, "upto"), Reader(other, "upto")
    assert [entry async for entry in reader.upto(0)] == []
    numbers = [await writer.write(b"%d" % i * one.limit) for i in range(3)]
    assert [entry.data[:1] async for entry in reader.upto(numbers[1])] == [b"0", b"1"]
    assert reader.at == numbers[1]
    last = await writer.write(b"3")
    assert [(entry.data[:1], entry.number) async for entry in reader.upto(last)] == [(b"2", numbers[2]), (b"3", last)]
    assert [entry async for entry in reader.upto(last)] == []
    await writer.write(b"anew", anew=True)
    assert [entry.data async for entry in Reader(other, "upto").upto(writer.at)] == [b"anew"]


async def a_journal_keeps_and_replaces(one: Store, other: Store) -> None:
    """Records survive whoever wrote them."""
    journal = await StoreJournal.open(one, 1)
    assert journal.load() == []
    await journal.append([b"a", b"b"])
    journal.set_aside([Aside(b"odd", "cannot be carried out")])
    await asyncio.gather(*(journal.append([b"%d" % i]) for i in range(3)))
    again = await StoreJournal.open(other, 2)
    records = again.load()
    assert records[:2] == [b"a", b"b"]
    assert sorted(records[2:]) == [b"0", b"1", b"2"]
    await again.append([b"all"], replace=True)
    await again.append([b"more"])
    assert (await StoreJournal.open(one, 3)).load() == [b"all", b"more"]
    assert len((await read_all(one, "aside"))[0]) == 1


async def an_older_leader_writes_nothing(one: Store, other: Store) -> None:
    """Neither records nor a snapshot; and it is told."""
    old = await StoreJournal.open(one, 1)
    told: list[SievenetError] = []
    old.on_fenced = told.append
    await old.append([b"a"])
    new = await StoreJournal.open(other, 2)
    await _fenced(old.append([b"late"]))
    await _fenced(old.append([b"late"], replace=True))
    assert len(told) == 2
    assert new.load() == [b"a"]
    await new.append([b"b"])
    await new.append([b"a, b"], replace=True)
    await _fenced(old.append([b"late"], replace=True))
    await _fenced(old.append([b"late"]))
    await _fenced(StoreJournal.open(one, 1))
    await new.append([b"c"])
    assert (await StoreJournal.open(one, 3)).load() == [b"a, b", b"c"]


async def one_leads_at_a_time(one: Store, other: Store) -> None:
    """The next one leads when the first has left, or shows no sign of life for a lease."""
    lease = 0.4
    first = await Leadership.win(one, "first", lease)
    await first.announce("here")
    waits: list[str] = []
    second = asyncio.create_task(Leadership.win(other, "second", lease, lambda leader: waits.append(leader.name)))
    await asyncio.sleep(3 * lease)
    assert not second.done()
    assert waits == ["first"]
    lost: list[SievenetError] = []
    first.on_lost = lost.append
    first._task.cancel()  # as if it were paused
    async with asyncio.timeout(_PATIENCE):
        held = await second
    leader, _ = await read_leader(one)
    assert leader is not None
    assert (leader.name, leader.term, held.term) == ("second", 2, 2)
    await _fenced(first.announce("still here"))
    await held.leave()
    async with asyncio.timeout(_PATIENCE):
        third = await Leadership.win(one, "third", 60.0)
    assert third.term == 3
    await third.leave()


CHECKS: Final[tuple[Callable[[Store, Store], Awaitable[None]], ...]] = (
    logs_keep_their_order_and_compare,
    a_log_begins_anew_in_one_step,
    logs_are_discarded,
    cells_compare,
    only_one_of_many_puts_counts,
    words_arrive_in_order,
    what_nobody_hears_is_told,
    entries_of_any_size,
    a_log_is_read_up_to_an_entry,
    a_journal_keeps_and_replaces,
    an_older_leader_writes_nothing,
    one_leads_at_a_time,
)
