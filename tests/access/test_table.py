"""Every message of every protocol, from every role and from nobody, over the wire: allowed or refused, nothing else."""

import asyncio
import contextlib

import pytest

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.content.codec import encode_schema, encode_subscription
from sievenet.content.filter import Filter, Subscription
from sievenet.control import caching
from sievenet.control import protocol as control
from sievenet.control.configurators import messages as orders
from sievenet.control.protocol import CONTROL
from sievenet.daemon.configurators import _Gate as ConfiguratorGate
from sievenet.dataplane.kernel import protocol as agents
from sievenet.errors import CodecError
from sievenet.index import Plan
from sievenet.routers import protocol as routing
from sievenet.routers.protocol import ROUTING
from sievenet.routers.server import RouterServer
from sievenet.session.connection import Connection
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.listener import Listener, Service
from sievenet.session.message import Alive, Failure, Goodbye
from tests.access.harness import folder, guarded, now
from tests.fabric.harness import SCHEMA, run
from tests.routers.test_hostile import SAMPLES

MEMBERS = """
[members.observer]
role = "observer"
[members.client]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
[members.operator]
role = "operator"
rules = ["publish *: any", "subscribe *: any"]
[members.component]
role = "component"
[members.a]
role = "component"
"""
ALL = encode_subscription(Subscription([Filter(SCHEMA)]))


@pytest.fixture(scope="module")
def access(tmp_path_factory):
    made = folder(tmp_path_factory.mktemp("table"), MEMBERS)
    for name in ("component", "a"):
        made.certificate(name, None, 2, now())
    return made


class Wire:
    """Bare frames over TLS."""

    def __init__(self, protocol, reader, writer):
        self.reader, self.writer = reader, writer
        self._framer = protocol.dialling()
        self._heard = []

    async def hear(self, timeout=10.0):
        """The next message; None when the connection ends."""
        while not self._heard:
            data = await asyncio.wait_for(self.reader.read(65536), timeout)
            if not data:
                return None
            self._heard += self._framer.feed(data)
        return self._heard.pop(0)

    def say(self, message):
        self.writer.write(frame(message))


@contextlib.asynccontextmanager
async def wire(protocol, address, access, role):
    """A connection that is welcome in a role; without one, over TLS and silent."""
    login = load_login(access.login(role.value if role is not None else "client"))
    reader, writer = await asyncio.open_connection(*address, ssl=login.dialling())
    found = Wire(protocol, reader, writer)
    try:
        if role is not None:
            name = role.value if role is Role.COMPONENT else None
            found.say(protocol.hello(protocol.version, role, name, token=login.token))
            assert isinstance(await found.hear(), protocol.welcome), role
        yield found
    finally:
        writer.close()


#: Answers; whatever else comes was not asked for.
ASKED = (control.Done, control.CategoryReply, control.Welcome, routing.Done, routing.CategoryIs, routing.Welcome)


def allowed(least, role):
    enough = least if isinstance(least, tuple) else (least,)
    return role is not None and any(map(role.includes, enough))


async def verdict(found, message, patience=10.0):
    """Whether a message was refused for the role of its sender."""
    found.say(message)
    # Another request after it: whatever comes before its answer is about the message.
    found.say(Alive())
    with contextlib.suppress(TimeoutError, ConnectionError, CodecError):
        while (answer := await found.hear(timeout=patience)) is not None:
            if isinstance(answer, Failure):
                return "refused" if " to send " in answer.message or "hello" in answer.message else "answered"
            if isinstance(answer, ASKED):
                return "answered"
        return "ended"
    return "silent"


def requests(number):
    """A sound message of every kind that the daemon takes."""
    return {
        control.LookUp: control.LookUp(7, "reading"),
        control.Ask: control.Ask(7, "topology"),
        control.Register: control.Register(7, SCHEMA),
        control.Advertise: control.Advertise(7, 1, number, ALL),
        control.Unadvertise: control.Unadvertise(7, 1),
        control.Subscribe: control.Subscribe(7, 2, number, ALL),
        control.Unsubscribe: control.Unsubscribe(7, 2),
        control.Renew: control.Renew(7),
        control.PlanAdopted: control.PlanAdopted(number, 1),
        control.Sample: control.Sample(number, 1, 1, b""),
        control.Leave: control.Leave(7),
        control.ApplyPlan: control.ApplyPlan(7, "reading", Plan.regular(SCHEMA, 6).to_json()),
        control.FitTables: control.FitTables(7),
        control.RemoveSchema: control.RemoveSchema(7, "nothing"),
        control.Twin: control.Twin(7, "reading"),
        control.Direct: control.Direct(7, "reading", ("nobody",)),
        control.Undirect: control.Undirect(7, "reading", 1),
        control.Match: control.Match(7),
        control.Matched: control.Matched(),
        control.Did: control.Did(1),
        caching.Cache: caching.Cache(7, 2, number, ALL),
        caching.Uncache: caching.Uncache(2),
        caching.ToCache: caching.ToCache(2, b"word"),
        caching.ServeCache: caching.ServeCache(7),
        caching.Assumed: caching.Assumed(1),
        caching.AskPort: caching.AskPort(7),
        caching.ToSubscriber: caching.ToSubscriber(1, b"word"),
        caching.CacheLoad: caching.CacheLoad(),
        Alive: Alive(),
        Goodbye: Goodbye("done"),
        control.Hello: control.Hello(control.PROTOCOL),
    }


#: What is not answered, if it is allowed.
SILENT = {control.PlanAdopted, control.Sample, control.Matched, control.Did, Alive}
SILENT |= {*caching.CARRIED} - {caching.ServeCache, caching.AskPort}


@pytest.mark.parametrize("role", [*Role, None])
def test_the_daemon(access, role):
    async def main():
        async with guarded(access) as daemon:
            await daemon.control.register_schema(SCHEMA)
            number = daemon.control.category("reading").number
            kinds = requests(number)
            assert {*kinds} == {*CONTROL.taken, CONTROL.hello}

            async def check(kind, message):
                component = role is Role.COMPONENT
                joined = role not in (Role.OBSERVER, Role.OPERATOR)  # others are told that they have not
                quiet = kind is Alive or (kind in SILENT and joined)
                quiet |= component and not allowed(CONTROL.taken.get(kind, Role.OPERATOR), role)
                async with wire(CONTROL, daemon.server.address, access, role) as found:
                    got = await verdict(found, message, 0.4 if quiet else 20.0)
                if role is None:
                    expected = {"answered"} if kind is CONTROL.hello else {"refused", "ended", "answered"}
                elif kind is CONTROL.hello or not allowed(CONTROL.taken[kind], role):
                    expected = {"silent" if component else "refused"}
                else:
                    expected = {"silent"} if kind in SILENT else {"ended"} if kind is Goodbye else {"answered"}
                    if role in (Role.OBSERVER, Role.OPERATOR) and kind in SILENT - {Alive}:
                        expected = {"answered"}  # it may, but has not joined
                assert got in expected, (kind.__name__, role)

            if role is Role.COMPONENT:  # one after the other: they have one name
                for kind, message in kinds.items():
                    await check(kind, message)
            else:
                await asyncio.gather(*(check(kind, message) for kind, message in kinds.items()))
            # Nobody has changed what it may not.
            changed = daemon.control.category("reading").epoch > 1
            assert changed == (role is Role.OPERATOR)

    run(main())


@pytest.mark.parametrize("role", [*Role, None])
def test_a_router(access, role):
    samples = {type(each): each for each in SAMPLES if type(each) in ROUTING.taken}
    samples |= {
        routing.Ask: routing.Ask(7, "status"),
        routing.LookUp: routing.LookUp(7, "nothing"),
        routing.Register: routing.Register(7, encode_schema(SCHEMA)),
        routing.Volunteer: routing.Volunteer(7),
        Alive: Alive(),
        Goodbye: Goodbye("done"),
    }

    async def main():
        async with RouterServer("a", keeper=Doorkeeper(access, "a")) as a:

            async def check(kind, message):
                async with wire(ROUTING, a.address, access, role) as found:
                    quiet = role is not None and (role is Role.COMPONENT or allowed(ROUTING.taken[kind], role))
                    got = await verdict(found, message, 0.4 if quiet else 20.0)
                if role is None:
                    assert got in ("refused", "answered", "ended"), kind.__name__
                elif allowed(ROUTING.taken[kind], role):
                    assert got != "refused", (kind.__name__, role)
                else:
                    # Components are not told: two of them would complain for ever.
                    assert got == ("silent" if role is Role.COMPONENT else "refused"), (kind.__name__, role)

            if role is not Role.COMPONENT:
                await asyncio.gather(*(check(kind, message) for kind, message in samples.items()))
                return
            # One after the other: they have one name.
            for kind, message in samples.items():
                if not allowed(ROUTING.taken[kind], role):
                    await check(kind, message)
            assert a.errors == 0

    run(main())


class Agents(Service):
    """Welcomes everybody whom the gate lets in, and keeps what gets through."""

    def __init__(self):
        self.taken = []

    async def hello(self, connection, hello, identity):
        return agents.Welcome(agents.PROTOCOL, hello.name or "s1", b"", 5.0)

    def take(self, connection, messages):
        self.taken += (type(message) for message, _ in messages)


@pytest.mark.parametrize("role", [*Role, None])
def test_the_control_plane_of_switch_agents(access, role):
    """Only components say anything there; whatever others say, nothing behind the conversation hears of it."""
    samples = [
        agents.Ready(),
        agents.Carrier(1, up=True, carries=True),
        agents.Cabled(1, "s2", 2),
        agents.Carried(1),
        agents.Refused(1, Failure(0, "Unavailable", "no")),
    ]
    assert {*map(type, samples), Alive, Goodbye} == {*agents.AGENTS.taken}

    async def main():
        service, keeper = Agents(), Doorkeeper(access, "a")
        listener = Listener(
            agents.AGENTS, service, Limits(), Connection, host="127.0.0.1", port=0, gate=keeper, tls=keeper.tls
        )
        await listener.start()
        try:
            for message in samples:
                async with wire(agents.AGENTS, listener.address, access, role) as found:
                    found.say(message)
                    found.say(Goodbye("done"))
                    heard = []
                    while (answer := await found.hear()) is not None:
                        heard.append(answer)
                if role is Role.COMPONENT:
                    assert service.taken.pop() is type(message)
                else:
                    assert not service.taken
                    assert any(isinstance(each, Failure) for each in heard), (role, message)
        finally:
            await listener.close()

    run(main())


@pytest.mark.parametrize("role", [*Role, None])
def test_the_dispatcher_of_configurators(role):
    """Only whoever has the daemon's secret is a configurator; of what others say nobody behind the door hears."""
    samples = [
        orders.Answer(1, 1, 1, b"", b"", b""),
        orders.Puzzled(1, 1, 1, "why?"),
        orders.Dropped(1),
    ]
    assert {*map(type, samples), Alive, Goodbye} == {*orders.CONFIGURATORS.taken}

    class Dispatcher(Agents):
        async def hello(self, connection, hello, identity):
            return orders.Welcome(orders.PROTOCOL, hello.name, b"", 5.0)

    async def main():
        service, gate = Dispatcher(), ConfiguratorGate("secret")
        made = (orders.CONFIGURATORS, service, Limits(), Connection)
        listener = Listener(*made, host="127.0.0.1", port=0, gate=gate)
        await listener.start()
        try:
            for secret in ("secret", "guess", ""):
                for message in samples:
                    found = Wire(orders.CONFIGURATORS, *await asyncio.open_connection(*listener.address))
                    if role is not None:
                        found.say(orders.Hello(orders.PROTOCOL, role, "c1", token=secret))
                    found.say(message)
                    found.say(Goodbye("done"))
                    heard = []
                    while (answer := await found.hear()) is not None:
                        heard.append(answer)
                    found.writer.close()
                    if role is Role.COMPONENT and secret == "secret":
                        assert service.taken.pop() is type(message)
                    else:
                        assert not service.taken
                        assert isinstance(heard[-1], Failure), (role, secret)
        finally:
            await listener.close()

    run(main())
