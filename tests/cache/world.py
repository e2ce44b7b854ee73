"""A small world in virtual time: publishers, a network, subscribers with slow applications, and caches that may die.

The network delivers whatever is published to whoever has a path at that moment. Between subscriber and cache words get
lost. Events on the plain path and to caches do not, but a subscriber that stands still has a socket that overflows.
"""

from collections import deque
from random import Random

from sievenet.cache.cache import Cache
from sievenet.cache.messages import Dropped
from sievenet.cache.record import key_of, packed
from sievenet.cache.ring import Ring
from sievenet.cache.states import State
from sievenet.cache.subscriber import Deliver, Lost, Over, Pause, Resume, Say, Subscriber
from sievenet.simulation import Pipe, VirtualClock

TICK = 0.01
#: What a subscriber's socket holds while it stands still.
SOCKET = 50


class Remainders:
    """Filters of this world: a wanted thing is a set of values, an event's body is its value."""

    def __init__(self):
        self.wanted = {}

    def add(self, stream, wanted):
        self.wanted[stream] = wanted

    def remove(self, stream):
        del self.wanted[stream]

    def match(self, records):
        for stream, wanted in self.wanted.items():
            rows = self.rows(wanted, records)
            if rows:
                yield stream, rows

    def rows(self, wanted, records):
        return [row for row, record in enumerate(records) if record[-1] in wanted]


class Application:
    """A subscriber with an application that takes events at a rate."""

    def __init__(self, world, number, wanted, limit, rate, on_full="end", hold=200):
        self.world, self.number, self.wanted = world, number, wanted
        self.rate, self.limit = rate, limit
        self.inbox, self.taken, self.lost, self.over = [], [], [], None
        self.path = True
        self.stopped_until = 0.0
        self.socket = []
        self.dropped = 0
        self.core = Subscriber(limit, on_full, now=world.now, hold=hold, waiting=lambda: len(self.inbox))
        self.cache = world.pick()
        rng = world.rng
        loss = world.loss
        self.up = Pipe(world.clock, rng, delay=0.003, jitter=0.01, loss=loss, ordered=False)
        self.down = Pipe(world.clock, rng, delay=0.003, jitter=0.01, loss=loss, ordered=False)
        self.plain_pipe = Pipe(world.clock, rng, delay=0.002, jitter=0.003)
        self.directed_pipe = Pipe(world.clock, rng, delay=0.004, jitter=0.003, loss=world.loss / 2)
        self.busy = False
        #: The most that came in any window of 100 ms, from the second after the first overload.
        world.applications[number] = self
        world.assign(self)
        self.every()

    def every(self):
        if self.world.now >= self.stopped_until:
            self.do(self.core.tick(self.world.now))
            self.lost += self.core.drops.settled(self.core.state is State.IDLE)
            self.world.clock.call_later(0.1, self.every)
        else:
            self.world.clock.call_at(self.stopped_until, self.wake)

    def wake(self):
        # As an event loop does: what is readable first, then timers.
        waiting, self.socket = self.socket, []
        for action, args in waiting:
            action(*args)
        if len(waiting) == SOCKET:  # where something is missing, its port says so
            self.do(self.core.overran(self.world.now, 1.0))
        self.every()
        self.serve()

    def stop(self, seconds):
        """Stand still, as after SIGSTOP."""
        if self.world.now >= self.stopped_until:
            self.stopped_until = self.world.now + seconds

    def reach(self, action, *args):
        """Something comes to the socket."""
        if self.world.now >= self.stopped_until:
            action(*args)
        elif len(self.socket) < SOCKET:
            self.socket.append((action, args))
        else:
            self.dropped += 1

    def plain(self, record):
        self.do(self.core.plain(key_of(record), record, self.world.now))

    def directed(self, stream, number, record, leaver):
        now = self.world.now
        if leaver is None:
            self.do(self.core.directed(stream, number, key_of(record), record, now))
        else:
            self.do(self.core.marked(stream, number, leaver == self.number, now))

    def hear(self, word):
        if isinstance(word, Dropped):
            self.core.drops.add(word)
        else:
            self.do(self.core.hear(word, self.world.now))

    def do(self, instructions):
        world = self.world
        for each in instructions:
            match each:
                case Deliver(item):
                    self.inbox.append(key_of(item))
                    self.serve()
                case Say(word):
                    if self.cache is None:
                        self.cache = world.pick()
                        if self.cache is None:
                            world.clock.call_later(0.005, lambda: self.do(self.core.refused(world.now)))
                            continue
                        world.assign(self)
                    self.up.send(100, world.said, self.cache, self, word)
                case Pause():
                    world.clock.call_later(world.rng.uniform(0.005, 0.05), self.set_path, False)
                case Resume():
                    world.clock.call_later(world.rng.uniform(0.005, 0.05), self.set_path, True)
                case Lost(missing):
                    self.lost += missing
                case Over(reason):
                    self.over = reason

    def set_path(self, there):
        # Requests are carried out in order, so the last one counts.
        self.path = self.core.wants_plain
        if there and self.path:
            self.do(self.core.resumed(self.world.now))

    def serve(self):
        if not self.busy and self.inbox and self.world.now >= self.stopped_until:
            self.busy = True
            self.world.clock.call_later(1 / self.rate, self.served)

    def served(self):
        self.busy = False
        if self.world.now >= self.stopped_until:
            self.taken.append(self.inbox.pop(0))
        self.serve()


class Port:
    """A cache's end of its link: what waits is read in order. Where there was no room, there is a hole (None)."""

    def __init__(self, world, index, cache):
        self.world, self.index, self.cache = world, index, cache
        self.waiting, self.until, self.reading = deque(), 0.0, False

    def come(self, record):
        """A record comes by the network."""
        if sum(isinstance(each, bytes) for each in self.waiting) < self.world.room or not self._closed:
            self.waiting.append(record)
        else:
            self.world.overflowed.add(key_of(record))
            if not self.waiting or self.waiting[-1] is not None:
                self.waiting.append(None)
        self.read()

    @property
    def _closed(self):
        return self.reading or self.world.now < self.until

    def look(self, number):
        """Everything that waits here now is to be read."""
        self.waiting.append(number)
        self.read()

    def clog(self, seconds):
        """Nobody reads for so long."""
        self.until = max(self.until, self.world.now + seconds)
        self.world.clock.call_at(self.until, self.read)

    def read(self):
        """Read some of what waits, and the rest a little later."""
        world = self.world
        if self._closed or world.caches[self.index] is not self.cache:
            return
        for _ in range(world.rng.randint(1, 30)):
            if self.waiting:
                self.take(self.waiting.popleft())
        if self.waiting:
            self.reading = True
            world.clock.call_later(world.rng.uniform(0.001, 0.02), self.read_more)

    def read_more(self):
        self.reading = False
        self.read()

    def take(self, found):
        world, cache = self.world, self.cache
        if isinstance(found, int):
            cache.looks.end(found)
        elif found is None:
            cache.missed(world.now)
        else:
            cache.arrive("x", [found], world.now)
            cache.sure()
        world.release(cache)


class World:
    def __init__(self, seed, caches=1, loss=0.05, make=None, seconds=20.0):
        self.rng = Random(seed)
        self.clock = VirtualClock(1000.0)
        self.loss = loss
        self.make = make or (lambda index: Ring(seconds=seconds))
        self.applications = {}
        self.published = []
        self.numbers = {}
        self.caches = {}
        self.to_cache = {}
        #: By cache: until when it stands still, and what was said to it meanwhile.
        self.still, self.later = {}, {}
        #: Events that a cache's port has room for while nobody reads it, and those that it had none for.
        self.room, self.overflowed, self.ports = 1 << 30, set(), {}
        self.turn = 0
        #: Seconds that subscribers wait for a cache that is gone.
        self.patience = 0.0
        for index in range(caches):
            self.start(index)

    @property
    def now(self):
        return self.clock.now

    def start(self, index):
        cache = self.caches[index] = Cache(seed=self.rng.getrandbits(32), max_events=50_000)
        cache.open("x", lambda: self.make(index), Remainders(), self.now)
        self.to_cache[index] = Pipe(self.clock, self.rng, delay=0.002, jitter=0.004)
        self.ports[index] = Port(self, index, cache)
        self.clock.call_later(TICK, self.every, index, cache)

    def freeze(self, index, seconds):
        """The cache stands still, as after SIGSTOP; its port has so much room for what comes."""
        if self.caches[index] is not None:
            self.still[index] = self.now + seconds
            self.ports[index].clog(seconds)
            self.clock.call_at(self.still[index], self.thaw, index, self.caches[index])

    def clog(self, index, seconds):
        """The cache's port is not read for a while, and the cache goes on: the machine is busy, or much waits there."""
        if self.caches[index] is not None:
            self.ports[index].clog(seconds)

    def thaw(self, index, cache):
        # Its port, words and timers get their turns in any order.
        if self.caches[index] is cache and self.now >= self.still[index]:
            for action, args in self.later.pop(index, []):
                action(*args)

    def frozen(self, index, action, *args):
        """Whether the cache does this later, since it stands still."""
        still = self.now < self.still.get(index, 0.0)
        if still:
            self.later.setdefault(index, []).append((action, args))
        return still

    def kill(self, index):
        """The cache dies; the daemon notices a moment later."""
        if self.caches[index] is None:
            return
        self.later.pop(index, None)
        self.caches[index] = None
        for application in self.applications.values():
            if application.cache == index:
                self.clock.call_later(0.05, self.tell_lost, application, index)

    def tell_lost(self, application, index):
        if application.cache == index:
            application.cache = None
            application.do(application.core.lost(self.now, self.patience))

    def pick(self):
        there = [index for index, cache in self.caches.items() if cache is not None]
        self.turn += 1
        return there[self.turn % len(there)] if there else None

    def assign(self, application):
        if application.cache is not None:
            cache, wanted = self.caches[application.cache], application.wanted
            cache.assign(application.number, "x", wanted, frozenset(wanted), self.now)

    def said(self, index, application, word):
        cache = self.caches[index]
        if cache is not None and not self.frozen(index, self.said, index, application, word):
            answer = cache.hear(application.number, word, self.now)
            if answer is not None:
                application.down.send(100, application.reach, application.hear, answer)
            self.release(cache)

    def every(self, index, cache):
        if self.caches[index] is not cache or self.frozen(index, self.every, index, cache):
            return
        for number, word in cache.tick(self.now):
            application = self.applications[number]
            application.down.send(100, application.reach, application.hear, word)
        self.release(cache)
        if (number := cache.looks.begin()) is not None:
            self.clock.call_later(self.rng.uniform(0.001, 0.1), self.ports[index].look, number)
        self.clock.call_later(TICK, self.every, index, cache)

    def release(self, cache):
        for sending in cache.send(self.now):
            for number in sending.members:
                application = self.applications[number]
                for stream, first, records, leaver in sending.runs:
                    for i, record in enumerate(records if leaver is None else [None]):
                        args = application.directed, stream, first + i, record, leaver
                        application.directed_pipe.send(100, application.reach, *args)

    def publish(self, source, value):
        number = self.numbers[source] = self.numbers.get(source, -1) + 1
        record = packed(*source, number, int(self.now * 1e9), bytes([value]))
        self.published.append(((*source, number), value, self.now))
        for application in self.applications.values():
            if application.path and value in application.wanted:
                application.plain_pipe.send(100, application.reach, application.plain, record)
        for index, cache in self.caches.items():
            if cache is not None:
                self.to_cache[index].send(100, self.ports[index].come, record)

    def wanted(self, application, since=1000.0):
        return [key for key, value, when in self.published if value in application.wanted and when >= since]

    def check(self, application, *, losses=False):
        """Exactly once, and in order per source; what is missing was told."""
        got = application.taken + application.inbox
        assert len(set(got)) == len(got), "something came twice"
        last = {}
        for publisher, life, number in got:
            assert number > last.get((publisher, life), -1), f"{publisher} {number} out of order"
            last[publisher, life] = number
        missing = set(self.wanted(application)) - set(got)
        told = {(e.publisher, e.incarnation, n) for e in application.lost for n in range(e.first, e.last + 1)}
        assert not told & set(got), f"{min(told & set(got))} was told to be lost, and came"
        assert not set(got) - set(self.wanted(application))
        if not losses:
            assert not missing, f"{len(missing)} lost, first {min(missing)}"
            return
        # What nobody knew in the end is told when the subscription ends, as gaps without an end.
        told = [*application.lost, *application.core.doubts()]
        for publisher, life, number in missing:
            assert any(
                (each.publisher, each.incarnation) == (publisher, life)
                and each.first <= number
                and (each.last < 0 or number <= each.last)
                for each in told
            ), f"{(publisher, life, number)} is missing and nobody was told"
