"""Members who go wrong: a fuzzer of the daemon's protocol, a property of what is delivered, scarce resources."""

import asyncio
import contextlib
import datetime
import os
import random
import resource
import subprocess
import sys

import pytest

from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.cachehost import CacheHost
from sievenet.cli.matcher import matchers, spread
from sievenet.client.directed import several
from sievenet.content.codec import decode_event, encode_subscription
from sievenet.content.parser import parse_subscription
from sievenet.control import caching as c
from sievenet.control import protocol as p
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.index import Dz
from sievenet.session.framing import frame
from tests.access.harness import RULES, folder, guarded, join, now
from tests.access.test_table import requests
from tests.fabric.harness import SCHEMA, eventually, reading, run, take
from tests.fuzz import connection, damaged, wrong
from tests.seeds import seeds


def want(text):
    return parse_subscription(text, SCHEMA)


# -- a fuzzer -------------------------------------------------------------------------------


def sound(rng, number):
    """A message as a client or a component would send it, with numbers that may be wrong."""
    request, id, other = rng.randrange(1 << 32), rng.randrange(5), rng.choice((number, number, 77, 1 << 31))
    content = rng.choice(
        (encode_subscription(want(rng.choice(("x < 100", "any", "kind = hot", "x > 900")))), rng.randbytes(20), b"")
    )
    some = (
        p.Subscribe(request, id, other, content),
        p.Advertise(request, id, other, content),
        p.Unsubscribe(request, id),
        p.Renew(request, p.Report(published=rng.randrange(1 << 40))),
        p.PlanAdopted(other, rng.randrange(1 << 32)),
        p.LookUp(request, rng.choice(("reading", "nothing", "ä" * 99))),
        p.Ask(request, rng.choice(("status", "topology", "trace", "caches", "interests", "?")), "reading: x=1"),
        p.ApplyPlan(request, "reading", rng.randbytes(30)),
        p.Matched(rng.randrange(1 << 20)),
        c.Cache(request, id, other, content, rng.random() < 0.5, rng.choice((0.0, 5.0))),
        c.ToCache(id, rng.choice((b"", rng.randbytes(30)))),
        c.Assumed(rng.randrange(8), rng.choice(("", "no"))),
        c.ToSubscriber(rng.randrange(8), rng.randbytes(30)),
        c.CacheLoad(active=tuple(range(rng.randrange(5)))),
    )
    return rng.choice((rng.choice(some), rng.choice(list(requests(number).values()))))


async def stranger(rng, daemon, access, members):
    """A valid beginning, then something wrong; or it just hangs up."""
    member = rng.choice(members)
    login = load_login(access.login(member))
    async with connection(rng, daemon.server.address, login.dialling()) as (reader, writer):
        role = rng.choice((Role.CLIENT, Role.OBSERVER, Role.OPERATOR))
        name = rng.choice((None, "bob", "bob.x", "olga"))
        if member == "part":
            role, name = Role.COMPONENT, "part"
        token = rng.choice((login.token, login.token, "bob.wrong", "")) if login.token else ""
        hello = p.Hello(p.PROTOCOL, role, name, rng.randbytes(32), token)
        writer.write(frame(hello) if rng.random() < 0.9 else damaged(rng, frame(hello)))
        if member == "part":
            writer.write(frame(rng.choice((p.Match(1), c.ServeCache(1, rng.random() < 0.5)))))
        for _ in range(rng.randrange(30)):
            message = sound(rng, 1)
            writer.write(wrong(rng, message) if rng.random() < 0.2 else frame(message))
            if rng.random() < 0.3:
                with contextlib.suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(1 << 16), 0.02):
                        break


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_members_who_go_wrong(tmp_path, seed, caplog):
    """Clients, observers and, in every second run, a matcher or cache; else an honest cache serves beside them."""
    rng = random.Random(seed)
    access = folder(tmp_path, f'{RULES}\n[members.part]\nrole = "component"\n')
    access.certificate("part", Role.COMPONENT, 10, now())
    members = ("bob", "carol", "eye", "part") if seed % 2 else ("bob", "carol", "eye")

    async def main():
        async with (
            guarded(access) as daemon,
            join(daemon, access, "olga", name="olga.s") as sub,
            join(daemon, access, "olga", name="olga.slow") as slow,
            join(daemon, access, "olga") as pub,
            contextlib.AsyncExitStack() as stack,
        ):
            await pub.advertise(SCHEMA)
            feed, cached = await sub.subscribe(SCHEMA), None
            if seed % 2 == 0:
                cache = CacheHost(daemon.url, name="part", login=load_login(access.login("part")))
                await stack.enter_async_context(cache)
                cached = await slow.subscribe(SCHEMA, max_rate=500)
            for turn in range(8):
                await asyncio.gather(*(stranger(rng, daemon, access, members) for _ in range(6)))
                for x in range(20):
                    await pub.publish(reading(x=20 * turn + x))
            for each in (feed, cached) if cached else (feed,):
                assert [event["x"] for event in await take(each, 160)] == list(range(160))
            assert sub._session.losses == pub._session.losses == 0
            assert (await pub.ask("check"))["ok"]
            assert await pub.ask("status")
            assert isinstance(await pub.ask("caches"), list)
            assert daemon.control.category("reading").epoch == 1
        assert daemon.server.errors == 0
        assert not [each for each in caplog.records if "internal error" in each.message or "failed" in each.message]

    run(main())


# -- what is delivered ----------------------------------------------------------------------


def random_filter(rng):
    parts = []
    if rng.random() < 0.8:
        low = rng.randrange(1000)
        parts.append(f"x in [{low}, {min(1023, low + rng.randrange(20, 600))}]")
    if rng.random() < 0.4:
        parts.append(f'kind in {{"{rng.choice(("cold", "hot", "warm"))}"}}')
    return " and ".join(parts) or "any"


def random_rules(rng):
    """What somebody may publish and somebody else may read, which overlap."""
    while True:
        found = [[random_filter(rng) for _ in range(rng.randrange(1, 3))] for _ in range(2)]
        publish, read = (want(" or ".join(each)) for each in found)
        if publish.intersect(read).filters:
            return found


@contextlib.asynccontextmanager
async def diverted(daemon):
    """All that is published passes a matcher, which sends it on."""
    async with matchers(daemon, spread(daemon.plane.topology, 3)):
        number, hybrid = daemon.control.category("reading").number, daemon.service.components.hybrid
        for switch in {each.switch for each in hybrid.matchers.values()}:
            await hybrid.divert(number, Dz(0, 0), switch)
        yield


def events_in(packets, number):
    """The events that came to a machine, as they are in packets of a category or of its twin."""
    for packet in packets:
        for inside in [packet] if packet.category == number else several(packet.body):
            yield decode_event(SCHEMA, inside.body)


@pytest.mark.parametrize("through", [contextlib.nullcontext, diverted])
@pytest.mark.parametrize("seed", seeds(2))
def test_what_is_delivered_is_within_the_permissions(tmp_path, seed, through):
    """Of publisher and subscriber both, with random rules and wishes, at clients that check nothing themselves."""
    rng = random.Random(seed)
    may_publish, may_read = random_rules(rng)
    rules = "".join(
        f"[members.{name}]\nrole = 'client'\nrules = [{', '.join(chr(39) * 3 + each + chr(39) * 3 for each in said)}]\n"
        for name, said in (
            ("pub", [f"publish reading: {each} narrow" for each in may_publish]),
            ("sub", [f"subscribe reading: {each} narrow" for each in may_read]),
        )
    )
    access = folder(tmp_path, rules)

    async def main():
        async with guarded(access, hybrid__interval=3600.0) as daemon:
            await daemon.control.register_schema(SCHEMA)
            # What was dropped of all that it may not publish is told when it leaves.
            with contextlib.suppress(SievenetError):
                async with join(daemon, access, "sub") as sub, join(daemon, access, "pub") as pub, through(daemon):
                    packets, feed, stands = [], None, False
                    while feed is None or not stands:
                        wish, offered = random_filter(rng), random_filter(rng)
                        # Nothing of it may be allowed: then another wish.
                        if not want(wish).intersect(want(offered)).filters:
                            continue
                        with contextlib.suppress(Rejected):
                            feed = feed or await sub.subscribe(want(wanted_text := wish))
                            await pub.advertise(want(offered))
                            stands = True
                    wish = wanted_text
                    pub._outbox.offers.check = lambda category, events: None
                    pub._outbox.offers.unlimited = lambda schema: True
                    deliver = sub._session.port._deliver
                    sub._session.port._deliver = lambda some: (packets.extend(some), deliver(some))
                    events = [
                        reading(x=rng.randrange(1024), kind=rng.choice(("cold", "hot", "warm"))) for _ in range(300)
                    ]
                    for event in events:
                        with contextlib.suppress(SievenetError):
                            await pub.publish(event)
                    published, allowed = (want(" or ".join(each)) for each in (may_publish, may_read))
                    both, wanted, said = published.intersect(allowed), want(wish), want(offered)
                    due = [e for e in events if both.matches(e) and wanted.matches(e) and said.matches(e)]
                    # Nothing that is due is missing, and nothing came to the machine that may not. What the rules
                    # allow may come though it was not offered.
                    got = []
                    while not all(event in got for event in due):
                        got += await take(feed, 1)
                    assert all(both.matches(event) and wanted.matches(event) for event in got)
                    came = [*events_in(packets, daemon.control.category("reading").number)]
                    assert all(map(both.matches, came))
                    assert len(came) >= len(due)
                    done.append(len(due))

    done = []  # a failure above would go under in what the publisher is told when it leaves
    run(main())
    assert done


# -- what else falls out of attacking it ----------------------------------------------------


def test_a_certificate_that_has_expired_or_was_revoked_opens_nothing(tmp_path):
    access = folder(tmp_path)
    access.certificate("alice", None, 1, now() - datetime.timedelta(days=3))

    async def main():
        async with guarded(access) as daemon:
            with pytest.raises((Unavailable, Rejected)):
                await join(daemon, access, "alice", timeout=3, reconnect=False)
            access.certificate("alice", None, 1, now())
            async with join(daemon, access, "alice", name="alice") as alice:
                access.revoke("alice")
                await eventually(lambda: not alice.connected, timeout=20)
                with pytest.raises(Rejected, match="revoked"):
                    await join(daemon, access, "alice", reconnect=False)

    run(main())


LIMITED = """
import asyncio, contextlib, resource, sys
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
sys.path.insert(0, ".")
from pathlib import Path
from sievenet.access.folder import Folder
from tests.access.harness import guarded, join
from tests.fabric.harness import SCHEMA, reading, take

async def main():
    access = Folder(sys.argv[3])
    async with guarded(access) as daemon, join(daemon, access, "olga") as olga:
        feed = await olga.subscribe(SCHEMA, own=False)
        async with join(daemon, access, "olga") as pub:
            await pub.advertise(SCHEMA)
            idle = []
            with contextlib.suppress(OSError, TimeoutError):
                for _ in range(400):
                    idle.append(await asyncio.wait_for(asyncio.open_connection("127.0.0.1", daemon.server.port), 1))
            for x in range(200):
                await pub.publish(reading(x=x))
            assert [each["x"] for each in await take(feed, 200, timeout=30)] == list(range(200))
            for _, writer in idle:
                writer.close()
        print("well", len(idle))

asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "value"), [("RLIMIT_NOFILE", 200), ("RLIMIT_AS", 6 << 30)])
def test_members_go_on_when_descriptors_or_memory_run_short(tmp_path, limit, value):
    if resource.getrlimit(getattr(resource, limit))[1] not in (resource.RLIM_INFINITY,) and limit == "RLIMIT_AS":
        pytest.skip("another limit of memory is set")
    access = folder(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, limit, str(value), str(access.path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("well")
    assert done.stderr.count("Traceback") <= 1


def test_a_full_disk_stops_neither_members_nor_the_audit_of_what_follows(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access, access__audit="/dev/full") as daemon, join(daemon, access, "olga") as olga:
            feed = await olga.subscribe(SCHEMA)
            await olga.advertise(SCHEMA)
            await olga.publish(reading(x=1))
            assert (await take(feed, 1))[0]["x"] == 1

    run(main())
