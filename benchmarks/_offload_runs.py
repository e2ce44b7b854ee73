"""What the offloading benchmark does to a table: inserts by searching, by asking real worker processes, by choosing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from benchmarks._offload_tables import SCHEMAS, Setting
from benchmarks.harness import quiet_gc
from sievenet.content import Filter
from sievenet.content.codec import encode_schema
from sievenet.routers.messages import category_of
from sievenet.routers.offload.fixed import FixedSet, Placer
from sievenet.routers.offload.messages import Computed
from sievenet.routers.offload.rto import Ask, Offloader, RtoSettings
from sievenet.routers.offload.shell import Joined, Left, Workers
from sievenet.routers.offload.tables import PosetTable
from sievenet.routers.poset import Poset

#: Drawn from so many times, for an interval.
DRAWS = 2_000


@dataclass
class Measured:
    """Per inserted filter: the router's and the clients' processor seconds, bytes, messages, wall seconds."""

    router: float
    clients: float
    bytes: float
    messages: float
    wall: float
    offloaded: int
    searched: int


class Crew:
    """Worker processes, which forget everything when a table begins."""

    def __init__(self, workers: Workers, pids: list[int]) -> None:
        self.workers = workers
        self._pids = pids
        #: Vectors and jobs of all tables.
        self._numbers = count(1)

    def offloader(self, setting: Setting, settings: RtoSettings) -> Offloader:
        """For a table, with everybody there and nobody knowing anything."""
        schema = SCHEMAS[setting.dimensions]
        made = Offloader(
            setting.table,
            category_of(schema),
            settings,
            cpu=time.process_time,
            schema=encode_schema(schema),
            numbers=self._numbers,
        )
        self.workers.dismiss()
        joined = 0
        while joined < len(self._pids):
            for name, message in self.workers.poll(1.0):
                if isinstance(message, Joined):
                    made.join(name)
                    joined += 1
        return made

    def spent(self) -> float:
        """Processor seconds of all of them so far."""
        total = 0
        for pid in self._pids:
            with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e9


@contextmanager
def crew(options: list[list[str]]) -> Iterator[Crew]:
    """Worker processes, one for each list of options."""
    workers = Workers()
    host, port = workers.address
    command = [sys.executable, "-m", "sievenet.routers.offload.shell", host, str(port)]
    started = [
        subprocess.Popen([*command, f"w{i}", *each, "--again"], env=dict(os.environ), stderr=subprocess.DEVNULL)
        for i, each in enumerate(options)
    ]
    try:
        yield Crew(workers, [each.pid for each in started])
    finally:
        workers.close()
        for each in started:
            each.terminate()
            each.wait(timeout=10)


def offloading(setting: Setting, settings: RtoSettings, helping: Crew, sample: int) -> Measured:
    """Insert some of the new filters with the help of workers."""
    offloader, workers, batch = helping.offloader(setting, settings), helping.workers, settings.batch
    new = setting.new[: sample + batch]
    # The first batch brings every vector to its clients; that is paid once, not per filter.
    drive(offloader, workers, new[:batch])
    sent, messages = workers.sent_bytes + workers.received_bytes, workers.sent_messages + workers.received_messages
    counts = offloader.counts.offloaded, offloader.counts.searched
    begin, wall, theirs = time.process_time(), time.perf_counter(), helping.spent()
    drive(offloader, workers, new[batch:])
    router, wall, theirs = time.process_time() - begin, time.perf_counter() - wall, helping.spent() - theirs
    sent = workers.sent_bytes + workers.received_bytes - sent
    messages = workers.sent_messages + workers.received_messages - messages
    setting.remove(new)
    setting.table.watch(None)
    few = len(new) - batch
    return Measured(
        router / few,
        theirs / few,
        sent / few,
        messages / few,
        wall / few,
        offloader.counts.offloaded - counts[0],
        offloader.counts.searched - counts[1],
    )


def drive(offloader: Offloader, workers: Workers, filters: list[Filter]) -> None:
    """Submit filters, as many together as a batch has, and carry questions and answers until all are in the table."""
    batch = offloader.settings.batch
    # As the alarm of a router does, when it is due.
    due = offloader.due()
    if due is not None and due <= time.monotonic():
        send(offloader, workers, offloader.tick(time.monotonic()))
    for first in range(0, len(filters), batch):
        items = [(each, "new") for each in filters[first : first + batch]]
        if offloader.rest.on:
            # As a router: nothing stands between filters and their table.
            offloader.table.insert_many(items)
            continue
        asks = offloader.submit(items, time.monotonic())
        if asks:
            send(offloader, workers, asks)
        while offloader.waiting >= batch:
            carry(offloader, workers)
    if offloader.waiting:
        send(offloader, workers, offloader.flush(time.monotonic()))
        while offloader.waiting:
            carry(offloader, workers)


def send(offloader: Offloader, workers: Workers, asks: list[Ask]) -> None:
    """Send questions; what that takes is a part of what offloading costs, as in a router."""
    for ask in asks:
        begin = time.process_time()
        workers.ask((ask,))
        offloader.charge(ask.request.job, time.process_time() - begin)


def carry(offloader: Offloader, workers: Workers) -> None:
    """Wait for answers until one comes or time is up."""
    now, begin = time.monotonic(), time.process_time()
    for name, message in workers.poll(max(0.0, min(1.0, (offloader.due() or now) - now))):
        if isinstance(message, Computed):
            offloader.charge(message.job, time.process_time() - begin)
            send(offloader, workers, offloader.answered(name, message, time.monotonic()))
        elif isinstance(message, Left):
            send(offloader, workers, offloader.leave(name, time.monotonic()))
        begin = time.process_time()
    send(offloader, workers, offloader.tick(time.monotonic()))


def layer_share(setting: Setting, sample: int) -> float:
    """The share of the plain insert that keeping the layers up to date takes."""
    assert isinstance(setting.table, PosetTable)
    poset = setting.table.poset
    spent = 0.0
    settle = poset.settle

    def timed(*args: object, **kwargs: object) -> None:
        nonlocal spent
        begin = time.perf_counter()
        settle(*args, **kwargs)  # type: ignore[arg-type]
        spent += time.perf_counter() - begin

    poset.settle = timed  # type: ignore[method-assign]
    begin = time.perf_counter()
    for each in setting.new[:sample]:
        setting.table.insert(each, "new")
    total = time.perf_counter() - begin
    poset.settle = settle  # type: ignore[method-assign]
    setting.remove()
    return spent / total


def fixed_set(setting: Setting) -> tuple[float, float]:
    """Covering tests per insert by FF, and by searching, over the same poset."""
    assert isinstance(setting.table, PosetTable)
    poset = setting.table.poset
    fixed = FixedSet(poset, category_of(SCHEMAS[setting.dimensions]), size=512)
    placer = Placer(fixed.assign(), SCHEMAS[setting.dimensions])
    claims = [placer.claim(each) for each in setting.new]
    counted: list[float] = []
    ways: tuple[Callable[[int], None], ...] = (
        lambda i: fixed.subscribe(setting.new[i], "new", claims[i]),
        lambda i: setting.table.insert(setting.new[i], "new"),
    )
    for way in ways:
        before = poset.tests
        for i in range(len(setting.new)):
            way(i)
        counted.append((poset.tests - before) / len(setting.new))
        setting.remove()
    return counted[0], counted[1]


@dataclass
class Chosen:
    """Processor seconds of rounds: each filter by itself, all together, and by the way chosen; how many were asked
    about.
    """

    plain: list[float]
    together: list[float]
    auto: list[float]
    offloaded: int

    def ratio(self) -> tuple[float, float, float]:
        """The work of choosing over that of the better of plain inserts and inserts together, which a router has
        without clients; and the interval that it is in with 99 %: of sums over rounds that are drawn again and again
        (bootstrap).
        """
        plain, auto = np.array(min(self.plain, self.together, key=sum)), np.array(self.auto)
        drawn = np.random.default_rng(1).integers(0, len(plain), (DRAWS, len(plain)))
        least, most = np.quantile(auto[drawn].sum(axis=1) / plain[drawn].sum(axis=1), (0.005, 0.995))
        return float(auto.sum() / plain.sum()), float(least), float(most)


def choosing(setting: Setting, settings: RtoSettings, helping: Crew, rounds: int) -> Chosen:
    """Insert a batch plainly, together, and with a way chosen by measuring; take it out each time; then the next batch.

    All happens to the one table, in an order that changes from round to round: whatever slows the machine down for
    longer than a few milliseconds meets all three.
    """
    offloader, workers, batch = helping.offloader(setting, settings), helping.workers, settings.batch
    table, structure, new = setting.table, setting.structure, setting.new

    def plain(filters: list[Filter]) -> None:
        for each in filters:
            table.insert(each, "new")

    def together(filters: list[Filter]) -> None:
        table.insert_many([(each, "new") for each in filters])

    def auto(filters: list[Filter]) -> None:
        drive(offloader, workers, filters)

    ways: list[tuple[Callable[[list[Filter]], None], list[float]]] = [(plain, []), (together, []), (auto, [])]
    with quiet_gc():
        for turn in range(rounds):
            first = turn * batch % (len(new) - batch + 1)
            filters = new[first : first + batch]
            for i in range(len(ways)):
                way, times = ways[(i + turn) % 3 if turn % 2 else (turn - i) % 3]
                kept = structure.on_level
                if way is not auto and isinstance(structure, Poset):
                    # What clients know of the table, which is the same again afterwards, is no concern of theirs.
                    structure.on_level = None
                begin = time.process_time()
                way(filters)
                times.append(time.process_time() - begin)
                setting.remove(filters)
                if way is not auto:
                    structure.on_level = kept
    table.watch(None)
    return Chosen(ways[0][1], ways[1][1], ways[2][1], offloader.counts.offloaded)
