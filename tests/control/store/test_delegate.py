"""A configurator on its own, in virtual time: what it reads belongs to the term that it was asked in."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from sievenet.control.configurators import messages as m
from sievenet.control.configurators import words
from sievenet.control.store.leadership import Leader
from sievenet.control.store.logs import Writer
from sievenet.control.store.memory import MemoryStore, Shelf
from sievenet.daemon.delegate import Delegate
from sievenet.testing.virtual_time import run_virtual

LOAD = m.Load(5, 1, 1, b"", b"", ())
ORDER = m.Order(5, 1, 1, b"")


class Fabric:
    """A store with a leader, who has given partition 5 away; and the configurator that has it."""

    def __init__(self) -> None:
        self.shelf = Shelf(delay=0.01)
        self.store, self.leader = (MemoryStore(self.shelf) for _ in range(2))
        self.delegate = Delegate(self.store, "it", beat=60.0, run=self.run)
        self.heard: list[tuple[int, object]] = []
        self._pieces = words.Pieces()
        #: Cleared while what it would read or work out next waits.
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.waiting = 0

    async def run(self, work, *arguments):
        return work(*arguments)

    def hold(self, name: str) -> None:
        """Have a method of its store wait."""
        does = getattr(self.store, name)

        async def held(*arguments, **options):
            self.waiting += 1
            await self.goes_on.wait()
            return await does(*arguments, **options)

        setattr(self.store, name, held)
        self.goes_on.clear()

    async def lead(self, term: int) -> None:
        cell = await self.leader.get("leader")
        await self.leader.put("leader", msgspec.json.encode(Leader("d", term)), 0 if cell is None else cell.number)
        await self.leader.hear(f"answer.{term}", lambda data: self._answered(term, data))

    def _answered(self, term: int, data: bytes) -> None:
        answer = self._pieces.take(words.decode(data, words.Reply))
        if answer is not None:
            self.heard.append((term, answer))

    async def give(self, term: int, *log: bytes) -> int:
        """Partition 5, with these entries in its log; the number of the last."""
        await self.leader.put(f"owner.{term}.5", words.encode(words.Owner("it", 1)), 0)
        wiring = Writer(self.leader, f"wiring.{term}")
        await wiring.write(words.encode(m.Wiring((f"s{term}",), ())))
        writer = Writer(self.leader, f"partition.{term}.5")
        for each in log:
            await writer.write(each)
        self.wiring = wiring.at
        return writer.at

    async def ask(self, term: int, partition: int, upto: int, answered: int = 0, **rest) -> None:
        ask = words.Ask(term, partition, 1, upto, self.wiring, answered, **rest)
        await self.leader.say("ask.it", words.encode(ask))
        await asyncio.sleep(1.0)

    async def __aenter__(self) -> Fabric:
        await self.lead(1)
        await self.delegate.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.delegate.close()


def test_it_answers():
    async def main() -> None:
        async with Fabric() as fabric:
            await fabric.ask(1, 5, await fabric.give(1, words.encode(LOAD), words.encode(ORDER)))
            [(term, answer)] = fabric.heard
            assert (term, type(answer)) == (1, m.Answer)

    run_virtual(main())


@pytest.mark.parametrize("held", ["get", "read", "scan", "run"])
def test_what_an_earlier_leader_asked_for_leaves_nothing_when_another_leads(held):
    """It waits for the store, or for an earlier piece of work, while the store says that another one leads."""

    async def main() -> None:
        async with Fabric() as fabric:
            upto = await fabric.give(1, words.encode(LOAD), words.encode(ORDER))
            await fabric.ask(1, 9, 1)  # not its own; but it knows the term now
            if held == "run":
                await fabric.delegate._turn.acquire()
            else:
                fabric.hold(held)
            await fabric.ask(1, 5, upto)
            assert fabric.waiting == (held != "run")
            before = fabric.delegate.copies
            await fabric.lead(2)
            fabric.delegate._store = fabric.leader  # which waits for nothing
            await fabric.ask(2, 9, 1)
            assert fabric.delegate.term == 2
            assert fabric.delegate.copies is not before
            if held == "run":
                fabric.delegate._turn.release()
            fabric.goes_on.set()
            await asyncio.sleep(1.0)
            assert len(fabric.delegate.copies) == 0
            assert not fabric.delegate.copies._wires.names
            assert not fabric.heard

    run_virtual(main())


def test_a_partition_that_is_dropped_while_its_log_is_read_is_forgotten():
    async def main() -> None:
        async with Fabric() as fabric:
            upto = await fabric.give(1, words.encode(LOAD), words.encode(ORDER))
            go = asyncio.Event()

            async def late(work, *arguments):
                await go.wait()
                return work(*arguments)

            fabric.delegate._run = late
            await fabric.ask(1, 5, upto)
            await fabric.ask(1, 5, 0, drop=True)
            go.set()
            await asyncio.sleep(1.0)
            assert len(fabric.delegate) == len(fabric.delegate.copies) == 0
            assert not fabric.heard

    run_virtual(main())


def test_questions_about_partitions_of_nobody_are_forgotten():
    async def main() -> None:
        async with Fabric() as fabric:
            upto = await fabric.give(1, words.encode(LOAD), words.encode(ORDER))
            for number in range(300):
                await fabric.leader.say("ask.it", words.encode(words.Ask(1, 1000 + number, 1, 1, 1, 1)))
            await fabric.ask(1, 5, upto)
            assert len(fabric.delegate) == 1
            assert len(fabric.heard) == 1

    run_virtual(main())


def test_an_order_is_answered_though_somebody_else_said_that_it_needs_no_answer():
    async def main() -> None:
        async with Fabric() as fabric:
            upto = await fabric.give(1, words.encode(LOAD), words.encode(ORDER))
            await fabric.ask(1, 5, upto, answered=1 << 40)
            assert not fabric.heard
            for _ in range(2):
                await fabric.ask(1, 5, upto)
            assert [answer.serial for _, answer in fabric.heard] == [1, 1]

    run_virtual(main())


@pytest.mark.parametrize("broken", [b"\xc1", b"\xa1\xff", b"\x91" * 5000])
def test_what_stands_behind_something_that_cannot_be_read_is_not_believed(broken, caplog):
    """It may have been an order: what comes behind it would be worked out without it."""

    async def main() -> None:
        async with Fabric() as fabric:
            upto = await fabric.give(1, words.encode(LOAD), broken, words.encode(ORDER))
            for _ in range(3):
                await fabric.ask(1, 5, upto)
            assert not fabric.heard
            await fabric.leader.append("partition.1.5", b"\3" + words.encode(LOAD), upto, anew=True)
            writer = Writer(fabric.leader, "partition.1.5", await fabric.leader.last("partition.1.5"))
            await fabric.ask(1, 5, await writer.write(words.encode(ORDER)))
            assert len(fabric.heard) == 1

    run_virtual(main())
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert told
    assert all("cannot be read now" in each.message for each in told)
