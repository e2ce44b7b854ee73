"""Speaking the router protocol by hand: a raw connection, a sample of every message, and an honest pair beside it."""

import asyncio
import contextlib
import socket

import msgspec

import sievenet
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.content.batch_codec import encode_batch
from sievenet.content.codec import encode_filter, encode_schema, encode_subscription
from sievenet.routers import messages as m
from sievenet.routers import protocol as p
from sievenet.routers.limits import Limits
from sievenet.routers.offload.messages import Answer, Claim, Computed, Relations, encode_answer
from sievenet.routers.peer import Peer
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.session.callee import Callee
from sievenet.session.framing import Framer, frame
from tests.fabric.harness import eventually
from tests.fuzz import EXTREMES, framed, leaves, plain, put

SCHEMA = Schema("wire", (Attribute("n", "int", lo=0, hi=1 << 20), Attribute("who", "str")))
CATEGORY = m.category_of(SCHEMA)
WANTED = Filter(SCHEMA, {"n": ValueSet.interval(5, 10)})
ITEM = m.Item(m.SUBSCRIPTION, CATEGORY, encode_filter(WANTED), "x/c/1")
DATA = encode_schema(SCHEMA)
CONTENT = encode_subscription(Subscription([WANTED]))
BATCH = encode_batch(EventBatch.from_events(SCHEMA, [SCHEMA.event(n=7, who="x")]))
ONE = (1).to_bytes(8, "little")

#: One of each message that a connection can bring, every field said.
SAMPLES = (
    p.Hello(p.PROTOCOL, "client", "x", b"t", "t", 1, 1),
    p.Welcome(p.PROTOCOL, "x", b"t", 1.0, "x", 1, 1),
    p.Register(1, DATA),
    p.LookUp(1, "wire"),
    p.Subscribe(1, 1, CATEGORY, CONTENT, (Claim(1, (1,), (2,)),)),
    p.Unsubscribe(1, 1),
    p.Advertise(1, 1, CATEGORY, CONTENT),
    p.Unadvertise(1, 1),
    p.Publish(CATEGORY, 1, 1, BATCH, (), 1),
    p.Volunteer(1),
    Computed(1, (Answer(1, encode_answer(Relations(((),), ((),)))),), encode_answer(()), (1,)),
    p.Ask(1, "status"),
    p.Alive(),
    p.Goodbye("x"),
    p.Failure(1, "Rejected", "x"),
    m.Missed(1, 1),
    m.Greeting(1, 1, 1, 1),
    m.LinkStated("x", 1, ("a", "b")),
    m.LinkStated("a", 1, ("x",)),
    m.Delta(1, 1, (ITEM,), (ITEM,), (DATA,)),
    m.Whole(1, 1, (ITEM,), (DATA,)),
    m.AskWhole(),
    m.Receivers("x", 1, True, (ITEM,), (DATA,)),
    m.Receivers("a", 1, True, (ITEM,), (DATA,)),
    m.SenderAsks("x", 1, 1.0),
    m.UpdateReply("x", 1, True, (ITEM,), (DATA,)),
    m.Settle("x", 1, 7),
    m.Ready(7, 2),
    m.Received(3),
    m.Settled("a", 1),
    m.Carried("x", 1, CATEGORY, ONE, ONE, BATCH, (), 1, ("a",), b""),
)

#: Numbers of events, which travel as bytes.
SEQUENCES = ((0).to_bytes(8, "little"), b"\xff" * 7 + b"\x7f", b"\xff" * 8, b"\0" * 7 + b"\x80", b"\0" * 7 + b"\x40")


def extremes(message):
    """The message with each of its numbers, one at a time, at the end of what a number can be: path and frame."""
    data = plain(message)
    for path in leaves(data):
        for number in EXTREMES:
            yield (*path, number), framed(put(data, path, number))
    for name in ("sequences", "departures"):
        if name in data:
            for number in SEQUENCES:
                yield (name, number), framed(put(data, (name,), number))


class Writer:
    """A buffer that somebody else empties."""

    def __init__(self, names=()):
        self.transport, self.waiting = self, 0
        self._certificate = {"subjectAltName": [("DNS", name) for name in names]}

    def get_extra_info(self, name):
        return self._certificate if name == "peercert" else None

    def is_closing(self):
        return False

    def get_write_buffer_size(self):
        return self.waiting

    def write(self, data):
        self.waiting += len(data)


def a_peer(limits=None, *, dialled=False, certified=()):
    """A connection to nobody."""
    limits = limits or Limits()
    return Peer(None, Writer(certified), Callee(p.ROUTING, limits, 0.0), limits, dialled=dialled)


class Stranger:
    """A connection that says whatever it likes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self._framer = Framer(msgspec.msgpack.Decoder(), p.MAX_PEER_FRAME)
        self._messages = []

    @classmethod
    async def call(cls, address, *messages, **options):
        reader, writer = await asyncio.open_connection(*address, **options)
        self = cls(reader, writer)
        self.say(*messages)
        return self

    def say(self, *messages):
        for message in messages:
            self.writer.write(message if isinstance(message, bytes) else frame(message))

    async def next(self, timeout=30.0):
        """The next message, or None at the end of the connection."""
        async with asyncio.timeout(timeout):
            while not self._messages:
                try:
                    data = await self.reader.read(1 << 16)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._messages += self._framer.feed(data)
        return self._messages.pop(0)

    async def hear(self, kind, timeout=30.0):
        """The next message of a kind (others are skipped), or None at the end of the connection."""
        while (message := await self.next(timeout)) is not None and message["type"] != kind:
            pass
        return message

    async def ended(self, timeout=30.0):
        """Wait until the router has closed the connection."""
        async with asyncio.timeout(timeout):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass

    def close(self):
        with contextlib.suppress(OSError):
            self.writer.transport.abort()


def router_hello(name="x", **rest):
    return p.Hello(p.PROTOCOL, "component", name, **rest)


def client_hello(name=None, **rest):
    return p.Hello(p.PROTOCOL, "client", name, **rest)


class Pair:
    """A publisher at one router and a subscriber at another; every event has to arrive, once and in order."""

    def __init__(self, publisher, subscriber, feed, who):
        self.publisher, self.subscriber, self.feed, self._who = publisher, subscriber, feed, who
        self._next = 0

    async def check(self, count=3, timeout=30.0):
        """Publish some events, and see them arrive."""
        numbers = range(self._next, self._next + count)
        self._next += count
        await self.publisher.publish_many([SCHEMA.event(n=n, who=self._who) for n in numbers])
        async with asyncio.timeout(timeout):
            got = [(await self.feed.next()).event.values[0] for _ in numbers]
        assert got == list(numbers)


@contextlib.asynccontextmanager
async def honest(first, last, who="honest", **options):
    """An honest pair: publishes at one router, subscribes at the other."""
    async with sievenet.connect(first, **options) as publisher, sievenet.connect(last, **options) as subscriber:
        await publisher.schema(SCHEMA)
        await publisher.advertise(SCHEMA)
        await subscriber.schema(SCHEMA)
        feed = await subscriber.subscribe(f'wire: who = "{who}"')
        yield Pair(publisher, subscriber, feed, who)


@contextlib.asynccontextmanager
async def two_routers(settings=None, **options):
    """Routers a and b, linked."""
    settings = settings or Settings(lease=8.0)
    async with RouterServer("a", settings, **options) as a, RouterServer("b", settings, neighbours=[a.address]) as b:
        await eventually(lambda: all(len(each.router.states.overlay.links) == 2 for each in (a, b)))
        yield a, b


def reads_nothing(address, hello):
    """A socket that says hello and never reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(address)
    sock.sendall(frame(hello))
    sock.setblocking(False)
    return sock
