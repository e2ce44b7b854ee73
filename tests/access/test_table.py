"""Every message of every protocol, from every role and from nobody, over the wire: allowed or refused, nothing else.

Who may send what is written down here once more, and not taken from the protocols: a mistake there is one here.
"""

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
from sievenet.index import Plan
from sievenet.routers import messages as neighbours
from sievenet.routers import protocol as routing
from sievenet.routers.offload.messages import Computed, Volunteer
from sievenet.routers.protocol import ROUTING
from sievenet.routers.server import RouterServer
from sievenet.session.connection import Connection
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.listener import Listener, Service
from sievenet.session.message import Alive, Failure, Goodbye
from tests.access.harness import folder, guarded, now
from tests.fabric.harness import SCHEMA, eventually, run
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

ANYBODY = {*Role}
ASKING = {Role.OBSERVER, Role.CLIENT, Role.OPERATOR}
USING = {Role.CLIENT, Role.OPERATOR}
JOINED = {*USING, Role.COMPONENT}
OPERATING, PARTS = {Role.OPERATOR}, {Role.COMPONENT}
#: Who may send what to a daemon.
DAEMON = {
    **dict.fromkeys((control.LookUp, Alive, Goodbye), ANYBODY),
    control.Ask: ASKING,
    **dict.fromkeys((control.Register, caching.Cache, caching.Uncache, caching.ToCache), USING),
    **dict.fromkeys((control.Advertise, control.Unadvertise, control.Subscribe, control.Unsubscribe), JOINED),
    **dict.fromkeys((control.Renew, control.PlanAdopted, control.Sample, control.Leave, control.Did), JOINED),
    **dict.fromkeys((control.ApplyPlan, control.FitTables, control.RemoveSchema), OPERATING),
    **dict.fromkeys((control.Twin, control.Direct, control.Undirect, control.Match, control.Matched), PARTS),
    **dict.fromkeys((caching.ServeCache, caching.Assumed, caching.AskPort, caching.ToSubscriber), PARTS),
    caching.CacheLoad: PARTS,
}
#: And to a router: what neighbours tell each other, and what clients say.
ROUTER = {
    **dict.fromkeys((neighbours.Received, Alive, Goodbye), ANYBODY),
    **dict.fromkeys((routing.Ask, routing.LookUp), ASKING),
    **dict.fromkeys((routing.Register, routing.Subscribe, routing.Unsubscribe, routing.Advertise), USING),
    **dict.fromkeys((routing.Unadvertise, routing.Publish, Volunteer, Computed), USING),
    **dict.fromkeys((routing.Welcome, Failure, neighbours.Missed, neighbours.Greeting, neighbours.Ready), PARTS),
    **dict.fromkeys((neighbours.LinkStated, neighbours.Delta, neighbours.Whole, neighbours.AskWhole), PARTS),
    **dict.fromkeys((neighbours.Receivers, neighbours.SenderAsks, neighbours.UpdateReply), PARTS),
    **dict.fromkeys((neighbours.Settle, neighbours.Settled, neighbours.Carried), PARTS),
}
#: Which questions are answered to whom.
QUESTIONS = {
    **dict.fromkeys(("status", "topology", "hybrid", "suggestion", "caches"), ASKING),
    **dict.fromkeys(("flows", "trace", "check", "interests", "registrations"), OPERATING),
}
ROUTER_QUESTIONS = {"status": ASKING, "reach": ASKING, "explain": OPERATING}


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

    async def hear(self, timeout=30.0):
        """The next message; None when the connection ends."""
        while not self._heard:
            try:
                data = await asyncio.wait_for(self.reader.read(65536), timeout)
            except ConnectionError:
                return None
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


#: The request of the message that is looked at, and of the one after it.
THIS, NEXT = 7, 99


async def verdict(found, message, after, answered):
    """Whether a message was refused for the role of its sender, answered, or passed over in silence.

    Another request follows, which is answered in any case: roles are looked at in the order of coming, so a refusal
    comes before that. What is ``answered`` may come later.
    """
    found.say(message)
    found.say(after)
    while (answer := await found.hear()) is not None:
        if isinstance(answer, Failure) and (" to send " in answer.message or "one hello" in answer.message):
            return "refused"
        number = getattr(answer, "request", None)
        if number == getattr(message, "request", 0):
            return "answered"
        if number == NEXT and not answered:
            return "silent"
    return "ended"


async def unknown(found, message):
    """What somebody who has not said hello gets for a message: everything that is said until the connection ends."""
    found.say(message)
    heard = []
    while (answer := await found.hear()) is not None:
        heard.append(answer)
    return heard


def told(caplog, kind):
    """Whether a message of a component was refused: it is not told, as two of them would complain for ever."""
    return any(f"to send {kind.__name__}," in each or f"second ({kind.__name__})" in each for each in caplog.messages)


def requests(number):
    """A sound message of every kind that the daemon takes."""
    return {
        control.LookUp: control.LookUp(THIS, "reading"),
        control.Ask: control.Ask(THIS, "topology"),
        control.Register: control.Register(THIS, SCHEMA),
        control.Advertise: control.Advertise(THIS, 1, number, ALL),
        control.Unadvertise: control.Unadvertise(THIS, 1),
        control.Subscribe: control.Subscribe(THIS, 2, number, ALL),
        control.Unsubscribe: control.Unsubscribe(THIS, 2),
        control.Renew: control.Renew(THIS),
        control.PlanAdopted: control.PlanAdopted(number, 1),
        control.Sample: control.Sample(number, 1, 1, b""),
        control.Leave: control.Leave(THIS),
        control.ApplyPlan: control.ApplyPlan(THIS, "reading", Plan.regular(SCHEMA, 6).to_json()),
        control.FitTables: control.FitTables(THIS),
        control.RemoveSchema: control.RemoveSchema(THIS, "nothing"),
        control.Twin: control.Twin(THIS, "reading"),
        control.Direct: control.Direct(THIS, "reading", ("nobody",)),
        control.Undirect: control.Undirect(THIS, "reading", 1),
        control.Match: control.Match(THIS),
        control.Matched: control.Matched(),
        control.Did: control.Did(1),
        caching.Cache: caching.Cache(THIS, 2, number, ALL),
        caching.Uncache: caching.Uncache(2),
        caching.ToCache: caching.ToCache(2, b"word"),
        caching.ServeCache: caching.ServeCache(THIS),
        caching.Assumed: caching.Assumed(1),
        caching.AskPort: caching.AskPort(THIS),
        caching.ToSubscriber: caching.ToSubscriber(1, b"word"),
        caching.CacheLoad: caching.CacheLoad(),
        Alive: Alive(),
        Goodbye: Goodbye("done"),
        control.Hello: control.Hello(control.PROTOCOL),
    }


#: What is not answered, if it is allowed.
SILENT = {control.PlanAdopted, control.Sample, control.Matched, control.Did, Alive}
SILENT |= {*caching.CARRIED} - {caching.ServeCache, caching.AskPort, caching.Cache}


def check_stranger(kind, hello, heard):
    """Nothing but what is wrong: a hello is missing, or a login."""
    assert heard, kind.__name__
    assert all(isinstance(each, Failure) for each in heard), (kind.__name__, heard)
    reason = heard[-1].message
    if kind is hello:
        assert "a certificate or a token" in reason
    elif kind not in (Goodbye, Failure):  # these end it
        assert "Expected a hello" in reason, (kind.__name__, reason)


@pytest.mark.parametrize("role", [*Role, None])
def test_the_daemon(access, role, caplog):
    assert {*DAEMON} == {*CONTROL.taken}

    async def main():
        async with guarded(access) as daemon:
            await daemon.control.register_schema(SCHEMA)
            number = daemon.control.category("reading").number
            kinds = requests(number)
            assert {*kinds} == {*DAEMON, CONTROL.hello}

            async def check(kind, message):
                async with wire(CONTROL, daemon.server.address, access, role) as found:
                    if role is None:
                        check_stranger(kind, CONTROL.hello, await unknown(found, message))
                        return
                    may = role in DAEMON.get(kind, ())
                    # Observers and operators who have not joined are told so.
                    silent = kind in SILENT and (role in (Role.CLIENT, Role.COMPONENT) or kind is Alive)
                    # Components are not told what they may not do.
                    silent |= role is Role.COMPONENT and not may
                    got = await verdict(found, message, control.LookUp(NEXT, "reading"), may and not silent)
                    if not may:
                        assert got == ("silent" if role is Role.COMPONENT else "refused"), (kind.__name__, got)
                    elif kind is Goodbye:
                        assert got == "ended"
                    else:
                        assert got == ("silent" if silent else "answered"), (kind.__name__, got)
                    if role is Role.COMPONENT:
                        assert told(caplog, kind) is not may, kind.__name__
                        # Whoever does not take leave keeps its name for a while, which the next one needs.
                        await verdict(found, control.Leave(THIS), Alive(), answered=True)

            if role is Role.COMPONENT:  # one after the other: they have one name
                for kind, message in kinds.items():
                    await check(kind, message)
            else:
                await asyncio.gather(*(check(kind, message) for kind, message in kinds.items()))
            # Nobody has changed what it may not.
            changed = daemon.control.category("reading").epoch > 1
            assert changed == (role is Role.OPERATOR)

    run(main())


@pytest.mark.parametrize("role", sorted(ASKING))
def test_questions(access, role):
    """To a daemon and to a router: what shows what others want is for operators."""

    async def main():
        async with guarded(access) as daemon, RouterServer("a", keeper=Doorkeeper(access, "a")) as a:
            for protocol, ask, questions, address in (
                (CONTROL, control.Ask, QUESTIONS, daemon.server.address),
                (ROUTING, routing.Ask, ROUTER_QUESTIONS, a.address),
            ):
                async with wire(protocol, address, access, role) as found:
                    for question, who in questions.items():
                        found.say(ask(THIS, question, "s1"))
                        answer = await found.hear()
                        refused = isinstance(answer, Failure) and "Expected an operator to ask" in answer.message
                        assert refused == (role not in who), (question, answer)
                    # There are no others.
                    found.say(ask(THIS, "?", ""))
                    known = (await found.hear()).message
                    for question in {*questions} - {"caches"}:
                        assert question in known
                    assert len(known.partition("Expected ")[2].partition(", got")[0].split()) <= len(questions) + 2

    run(main())


@pytest.mark.parametrize("role", [*Role, None])
def test_a_router(access, role, caplog):
    samples = {type(each): each for each in SAMPLES}
    samples |= {
        routing.Ask: routing.Ask(THIS, "status"),
        routing.LookUp: routing.LookUp(THIS, "nothing"),
        routing.Register: routing.Register(THIS, encode_schema(SCHEMA)),
        Volunteer: Volunteer(THIS),
        routing.Hello: routing.Hello(routing.PROTOCOL),
        Alive: Alive(),
        Goodbye: Goodbye("done"),
    }
    assert {*ROUTER} == {*ROUTING.taken}
    assert {*samples} == {*ROUTER, ROUTING.hello}

    async def main():
        async with RouterServer("a", keeper=Doorkeeper(access, "a")) as a:

            async def check(kind, message):
                async with wire(ROUTING, a.address, access, role) as found:
                    if role is None:
                        check_stranger(kind, ROUTING.hello, await unknown(found, message))
                        return
                    may = role in ROUTER.get(kind, ())
                    if role is Role.COMPONENT:
                        # What comes after it is refused too: then the one before was looked at.
                        found.say(message)
                        found.say(routing.Ask(NEXT, "status"))
                        await eventually(lambda: kind is Goodbye or told(caplog, routing.Ask))
                        assert told(caplog, kind) is not may, kind.__name__
                        caplog.clear()
                        return
                    got = await verdict(found, message, routing.Ask(NEXT, "status"), answered=False)
                    assert (got == "refused") is not may, (kind.__name__, role, got)

            if role is Role.COMPONENT:  # one after the other: they have one name
                for kind, message in samples.items():
                    await check(kind, message)
            else:
                await asyncio.gather(*(check(kind, message) for kind, message in samples.items()))
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
        agents.Leaving(),
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
