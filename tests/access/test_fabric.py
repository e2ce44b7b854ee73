"""A fabric whose members are known: TLS, logins, roles, rules, sealed datagrams, quotas, rotation."""

import asyncio
import contextlib
import json
import logging
import socket

import pytest

import sievenet
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.cachehost import CacheHost
from sievenet.content.codec import encode_event, encode_subscription
from sievenet.content.parser import parse_subscription
from sievenet.control import protocol as p
from sievenet.daemon import revision
from sievenet.errors import Dropped, InvalidInput, Rejected, Unavailable
from tests.access.harness import RULES, folder, guarded, join, now
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run, take


def want(text):
    return parse_subscription(text, SCHEMA)


def less(text):
    """Of the rules: bob may read less."""
    return text.replace("x < 100", "x < 9").replace(""", 'subscribe reading: kind = "hot" narrow'""", "")


def test_members_publish_and_subscribe_with_tls_and_seals(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon:
            assert daemon.url.startswith("sievenets://")
            async with join(daemon, access, "alice") as alice, join(daemon, access, "olga") as olga:
                await alice.advertise(want("x < 500"))
                feed = await olga.subscribe(SCHEMA)
                for x in range(100):
                    await alice.publish(reading(x=x))
                assert [each["x"] for each in await take(feed, 100)] == list(range(100))
                assert alice.name.startswith("alice.")
                found = daemon.plane.statistics()
                assert (found.unsealed, found.replayed, found.unpermitted) == (0, 0, 0)

    run(main())


def test_whoever_reads_the_network_reads_no_event(tmp_path):
    """All datagrams of both directions: of members, where nothing can be read, and of anybody, where it can."""
    access = folder(tmp_path)

    async def traffic(daemon, first, second):
        seen, said = [], encode_event(reading(x=77))
        arrive, leave = daemon.plane._datagram, daemon.plane.transmit
        daemon.plane._datagram = lambda data, *rest: (seen.append(bytes(data)), arrive(data, *rest))[1]
        daemon.plane.transmit = lambda data, address: (seen.append(bytes(data)), leave(data, address))[1]
        async with first as pub, second as sub:
            await pub.advertise(want("x < 500"))
            feed = await sub.subscribe(SCHEMA)
            for _ in range(5):
                await pub.publish(reading(x=77))
            await take(feed, 5)
        return sum(said in each for each in seen)

    async def main():
        async with guarded(access) as daemon:
            assert not await traffic(daemon, join(daemon, access, "alice"), join(daemon, access, "olga"))
        async with fabric() as daemon:
            await daemon.control.register_schema(SCHEMA)
            assert await traffic(daemon, sievenet.connect(daemon.url), sievenet.connect(daemon.url))

    run(main())


def test_certificates_do_as_well(tmp_path):
    access = folder(tmp_path)
    access.certificate("alice", None, 3, now())

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "alice", name="alice") as alice:
            await alice.advertise(want("x < 500"))
            assert alice.name == "alice"

    run(main())


def test_strangers_are_told_what_to_do(tmp_path):
    access = folder(tmp_path)
    other = folder(tmp_path / "other")

    async def main():
        async with guarded(access) as daemon:
            plain = daemon.url.replace("sievenets", "sievenet")
            with pytest.raises(Unavailable, match="connect with a login"):
                await sievenet.connect(plain, timeout=8, reconnect=False)
            with pytest.raises(Unavailable, match="cannot be trusted"):
                await sievenet.connect(daemon.url, login=other.login("alice"), timeout=2, reconnect=False)
            text = access.login("alice").read_text()
            wrong = tmp_path / "wrong.login"
            wrong.touch(0o600)
            token = next(line for line in text.splitlines() if line.startswith("token"))
            wrong.write_text(text.replace(token, 'token = "alice.wrong"'))
            with pytest.raises(Rejected, match=r"alice\.… does not count"):
                await sievenet.connect(daemon.url, login=wrong, reconnect=False)
            with pytest.raises(Rejected, match="may be called alice"):
                await join(daemon, access, "alice", name="bob", reconnect=False)
            with pytest.raises(Rejected, match="alice is a client and may not be an operator"):
                await join(daemon, access, "alice", operator=True, reconnect=False)
            with pytest.raises(Rejected, match="eye is an observer and may not be a client"):
                await join(daemon, access, "eye", reconnect=False)
            async with join(daemon, access, "eye", observer=True) as eye:
                assert (await eye.ask("status"))["clients"] == []
                with pytest.raises(Rejected, match="Expected an operator to ask for interests"):
                    await eye.ask("interests")

    run(main())


def test_rules_refuse_and_narrow(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon:
            async with join(daemon, access, "olga") as olga, join(daemon, access, "bob") as bob:
                await olga.advertise(SCHEMA)
                with pytest.raises(Rejected, match="The rule `subscribe reading: x < 100` does not let bob subscribe"):
                    await bob.subscribe(want("kind = cold"))
                feed = await bob.subscribe(want("x > 50"))
                wanted = [(x, kind) for x in (10, 60, 99, 100, 700) for kind in ("cold", "hot")]
                for x, kind in wanted:
                    await olga.publish(reading(x=x, kind=kind))
                allowed = [(x, kind) for x, kind in wanted if x > 50 and (x < 100 or kind == "hot")]
                found = [(each["x"], each["kind"]) for each in await take(feed, len(allowed))]
                assert found == allowed
            async with join(daemon, access, "carol") as carol:
                with pytest.raises(Rejected, match="No rule lets carol subscribe in reading"):
                    await carol.subscribe(SCHEMA)
            async with join(daemon, access, "alice") as alice:
                with pytest.raises(Rejected, match="does not let alice publish"):
                    await alice.advertise(SCHEMA)
                await alice.advertise(want("x in [0, 100]"))
                with pytest.raises(Rejected, match="within what this node advertises"):
                    await alice.publish(reading(x=300))

    run(main())


def test_no_rule_no_schema(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "carol") as carol:
            with pytest.raises(Rejected, match="may not register its schema"):
                await carol.schema(SCHEMA)

    run(main())


def test_packets_are_held_to_the_rules_whatever_a_client_sends(tmp_path):
    """A client that does not use our library cannot publish beyond its rules, nor read what it may not."""
    access = folder(tmp_path)

    async def main():
        async with guarded(access, access__audit=str(tmp_path / "audit")) as daemon:  # noqa: SIM117
            async with join(daemon, access, "olga") as olga, join(daemon, access, "alice") as alice:
                feed = await olga.subscribe(SCHEMA)
                await alice.advertise(want("x < 500"))
                # Our own checks are switched off, as a stranger's library has none.
                alice._outbox.offers.check = lambda category, events: None
                alice._outbox.offers.unlimited = lambda schema: True
                for x in (1, 900, 2, 700, 3):
                    await alice.publish(reading(x=x))
                assert [each["x"] for each in await take(feed, 3)] == [1, 2, 3]
                await eventually(lambda: daemon.plane.statistics().unpermitted == 2)
                # The next heartbeat tells.
                await eventually(lambda: alice._allowance.refusal is not None)
                with pytest.raises(Rejected, match="2 events were dropped: the rules do not let"):
                    await alice.publish(reading(x=4))
        audit = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        refused = {(each["who"], each["what"], each["outcome"]) for each in audit if each["outcome"] != "done"}
        assert refused == {("alice", "Publish", "2 packets were dropped: outside the rules")}

    run(main())


def test_replayed_and_forged_datagrams_change_nothing(tmp_path):
    """Whoever reads the network can neither send again what was sent, nor send something else in a client's name."""
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon:  # noqa: SIM117
            async with join(daemon, access, "olga", name="olga.s") as sub, join(daemon, access, "olga") as pub:
                feed = await sub.subscribe(SCHEMA)
                await pub.advertise(SCHEMA)
                channel, heard = pub._session.port._link.channel, []
                seal = channel.seal
                channel.seal = lambda *parts: heard.append(seal(*parts)) or heard[-1]
                for x in range(20):
                    await pub.publish(reading(x=x))
                assert len(await take(feed, 20)) == 20
                channel.seal = seal
                before = daemon.plane.statistics()
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                    stranger.connect(daemon.plane.endpoint)
                    for data in heard:
                        stranger.send(data)
                        stranger.send(data[:-1] + bytes([data[-1] ^ 1]))
                        stranger.send(data[:-24])
                await eventually(lambda: daemon.plane.statistics().datagrams >= before.datagrams + 3 * len(heard))
                after = daemon.plane.statistics()
                assert after.replayed >= len(heard)
                assert after.unsealed >= 2 * len(heard)
                assert after.packets == before.packets
                # The client's address is still its own: its events go on, and so do events for it.
                await pub.publish(reading(x=77))
                assert (await take(feed, 1))[0]["x"] == 77

    run(main())


def test_a_reconnect_changes_the_key_and_loses_nothing(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon:  # noqa: SIM117
            async with join(daemon, access, "olga", name="olga.s") as sub, join(daemon, access, "olga") as pub:
                feed = await sub.subscribe(SCHEMA)
                await pub.advertise(SCHEMA)
                for round_ in range(3):
                    for x in range(20):
                        await pub.publish(reading(x=x))
                    for node in (sub, pub):
                        losses = node._session.losses
                        node._session._link.writer.transport.abort()
                        await eventually(
                            lambda node=node, losses=losses: node._session.losses > losses and node.connected
                        )
                    for x in range(20, 40):
                        await pub.publish(reading(x=x))
                    found = [each["x"] for each in await take(feed, 40)]
                    assert found == list(range(40)), round_

    run(main())


def test_whoever_is_shut_out_is_told_at_once(tmp_path, caplog):
    async def main():
        access = folder(tmp_path)
        async with guarded(access) as daemon, join(daemon, access, "alice") as alice:
            await alice.subscribe(SCHEMA)
            access.revoke("alice")
            await eventually(lambda: [r for r in caplog.records if "no connection to" in r.message])
            access.token("alice", None)
            await eventually(lambda: [r for r in caplog.records if "again after" in r.message])
        told = [r for r in caplog.records if r.name == "sievenet.session" and r.levelno >= logging.WARNING]
        assert len(told) == 2, "once when it is shut out, once when it is back"

    run(main())


def test_whoever_asks_is_told_what_was_taken(tmp_path):
    """By `confirmed`, at once and exactly, however the events and the question overtake each other."""

    async def test():
        rules = "[members.small]\nrole = 'client'\nrules = ['publish *: any']\nquota = {events = 50}\n"
        access = folder(tmp_path, rules)
        async with guarded(access) as daemon, join(daemon, access, "small") as node:
            await node.advertise(SCHEMA)
            await node.confirmed()
            dropped = 0
            for size in (10, 300, 2, 2000):
                await node.publish_many([reading(x=x % 1000) for x in range(size)])
                try:
                    await node.confirmed()
                except Dropped as error:
                    dropped += error.count
                # Nothing of it is under way any more.
                assert dropped == daemon.plane.statistics().over_quota
            assert dropped > 1500
            await node.confirmed()

    run(test())


def test_whoever_goes_is_told_what_was_dropped(tmp_path):
    """All is published at once and the node closes: no next `publish` is there to tell it."""

    async def test():
        rules = "[members.small]\nrole = 'client'\nrules = ['publish *: any']\nquota = {events = 50}\n"
        access = folder(tmp_path, rules)
        async with guarded(access) as daemon:
            events = [reading(x=x % 1000) for x in range(2000)]
            node = await join(daemon, access, "small")
            await node.advertise(SCHEMA)
            await node.publish_many(events)
            with pytest.raises(Dropped, match="more than the quota") as told:
                await node.close()
            assert told.value.quota
            assert told.value.count == daemon.plane.statistics().over_quota > 1500
            async with join(daemon, access, "small") as node:  # nothing is left of it
                await node.advertise(SCHEMA)

    run(test())


def test_quotas_are_told_and_cost_nobody_else(tmp_path):
    access = folder(
        tmp_path,
        """
[total]
connections = 4
[members.small]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
quota = { connections = 1, requests = 30, subscriptions = 3, events = 50, schemas = 1, filter_cost = 60 }
[members.big]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
""",
    )

    async def main():
        async with (
            guarded(access) as daemon,
            join(daemon, access, "big") as big,
            join(daemon, access, "small") as small,
        ):
            feed = await big.subscribe(SCHEMA)
            await big.advertise(SCHEMA)
            with pytest.raises(Rejected, match=r"at most 1 connections of small \(quota\)"):
                await join(daemon, access, "small", reconnect=False)
            other = sievenet.Schema("other", SCHEMA.attributes)
            await small.schema(other)
            with pytest.raises(Rejected, match=r"at most 1 schemas of small \(quota\)"):
                await small.schema(sievenet.Schema("third", SCHEMA.attributes))
            with pytest.raises(InvalidInput, match="at most 60"):
                await small.subscribe(want(f"x in {{{', '.join(map(str, range(0, 200, 2)))}}}"))
            await small.advertise(SCHEMA)
            for x in range(2):
                await small.subscribe(want(f"x = {x}"))
            with pytest.raises(Rejected, match=r"at most 3 subscriptions of small \(quota\)"):
                await small.subscribe(want("x = 9"))

            async def ask():
                for _ in range(60):
                    await small.ask("topology")

            async def flood():
                for x in range(10_000):
                    await small.publish(reading(x=x % 1000))
                    await asyncio.sleep(0.001)

            with pytest.raises(Rejected, match=r"at most 30 requests per second of small \(quota\)"):
                await ask()
            with pytest.raises(Rejected, match="more than the quota of events"):
                await flood()
            assert daemon.plane.statistics().over_quota > 0
            # The other member has lost nothing: its own events all come.
            mine = big._identity()[0]
            for x in range(300):
                await big.publish(reading(x=x))
            found = []
            async with asyncio.timeout(30):
                while len(found) < 300:
                    each = await feed.next()
                    if each.publisher == mine:
                        found.append(each.event["x"])
            assert found == list(range(300))
            async with join(daemon, access, "big"), join(daemon, access, "big"):
                with pytest.raises(Rejected, match=r"at most 4 connections of all members together \(quota\)"):
                    await join(daemon, access, "big", reconnect=False)
            done.append(True)

    done = []  # a failure above would go under in what is told below
    with contextlib.suppress(Dropped):  # what was dropped after it was told, it is told when it goes
        run(main())
    assert done


def test_a_component_without_a_name_has_its_members_and_comes_back_by_it(tmp_path):
    """The daemon gave it another one, by which the gate did not let it in again."""
    access = folder(tmp_path, RULES + '[members.keep]\nrole = "component"\n')
    access.certificate("keep", None, 3, now())

    async def main():
        async with (
            guarded(access) as daemon,
            join(daemon, access, "olga") as olga,
            CacheHost(daemon.url, login=load_login(access.login("keep"))) as cache,
        ):
            await olga.schema(SCHEMA)
            await olga.advertise(SCHEMA)
            assert cache.name == "keep"
            access.certificate("keep", None, 3, now())
            access.revoke("keep", keep_newest=True)
            session = cache._node._session
            await eventually(lambda: session.losses and session.connected, timeout=30)
            feed = await olga.subscribe(SCHEMA, max_rate=100, own=True)
            await eventually(lambda: feed.statistics().caches.cache == "keep", timeout=30)

    run(main())


def test_rotation_without_a_restart_and_under_traffic(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with (
            guarded(access) as daemon,
            join(daemon, access, "olga", name="olga.s") as sub,
            join(daemon, access, "olga", name="olga.p") as pub,
            join(daemon, access, "bob", name="bob") as bob,
        ):
            feed = await sub.subscribe(SCHEMA)
            await pub.advertise(SCHEMA)
            bobs = await bob.subscribe(want("x < 100"))
            stop = asyncio.Event()
            sent = 0

            async def publish():
                nonlocal sent
                while not stop.is_set():
                    await pub.publish(reading(x=sent % 90))
                    sent += 1
                    await asyncio.sleep(0.001)

            traffic = asyncio.create_task(publish())
            old = access.login("olga").read_text()
            # A new certificate of the daemon, a new token of olga; the old ones of both count no more.
            access.certificate("daemon", None, 5, now())
            access.token("olga", None)
            seen = daemon.keeper.tls
            await eventually(lambda: daemon.keeper.tls is not seen)
            async with join(daemon, access, "olga", name="olga.new"):
                pass
            # bob may read less from now on: his registration goes, olga's stay.
            members = access.path / "members.toml"
            members.write_text(less(members.read_text()))
            with pytest.raises(Rejected, match=r"x < 9"):
                await take(bobs, 1_000_000, timeout=20)
            stop.set()
            await traffic
            assert len(await take(feed, sent)) == sent
            assert sub._session.losses == pub._session.losses == 0
            # The old token is revoked: whoever still uses it is out.
            access.revoke("olga", keep_newest=True)
            await eventually(lambda: sub._session.losses > 0 and not sub.connected)
            stale = tmp_path / "stale.login"
            stale.touch(0o600)
            stale.write_text(old)
            with pytest.raises(Rejected, match="does not count"):
                await sievenet.connect(daemon.url, login=stale, reconnect=False)
            async with join(daemon, access, "olga", name="olga.other"):
                pass

    run(main())


def test_the_session_of_a_login_that_was_revoked_ends_soon(tmp_path, monkeypatch):
    """It has a moment to come back with another login; then its key is worth nothing, whatever lease it has."""
    monkeypatch.setattr(revision, "_GRACE", 0.5)
    access = folder(tmp_path)

    async def main():
        async with (
            guarded(access, control__lease=600.0) as daemon,
            join(daemon, access, "olga") as olga,
            join(daemon, access, "alice", name="alice.raw", reconnect=False) as alice,
        ):
            feed = await olga.subscribe(SCHEMA, own=False)
            await alice.advertise("reading: x < 500")
            await alice.publish(reading(x=1))
            assert (await take(feed, 1))[0]["x"] == 1
            got = []
            await alice.subscribe(SCHEMA, got.append)
            await olga.advertise(SCHEMA)
            # It keeps its socket, and goes on sending and receiving sealed datagrams.
            endpoint = daemon.plane.clients()["alice.raw"]
            access.revoke("alice")
            await eventually(lambda: "alice.raw" not in daemon.plane.clients(), timeout=20)
            assert endpoint is not None
            assert daemon.control.member("alice.raw") is None
            received = len(got)
            await olga.publish(reading(x=2))
            assert (await olga.ask("check"))["ok"]
            assert len(got) == received

    run(main())


def test_files_that_make_no_sense_stop_nothing(tmp_path, caplog):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon:
            members = access.path / "members.toml"
            good = members.read_text()
            members.write_text(good + "\nnonsense")
            await eventually(lambda: daemon.keeper.error)
            assert sum("not applied" in each.message for each in caplog.records) == 1
            async with join(daemon, access, "olga"):
                pass
            members.write_text(good)
            await eventually(lambda: not daemon.keeper.error)

    run(main())


def test_what_a_journal_holds_is_held_to_the_rules_of_now(tmp_path):
    access = folder(tmp_path)
    state = str(tmp_path / "state")

    async def main():
        async with guarded(access, state=state) as daemon:
            bob = await join(daemon, access, "bob", name="bob", reconnect=False)
            await bob.subscribe(want("x < 100"))
            assert daemon.control.registrations_of("bob")[1]
            bob._session._link.writer.transport.abort()
        members = access.path / "members.toml"
        members.write_text(less(members.read_text()))
        async with guarded(access, state=state) as daemon:
            assert daemon.control.registrations_of("bob") == ({}, {})
        audit = [json.loads(line) for line in (tmp_path / "state" / "audit.jsonl").read_text().splitlines()]
        assert ("bob", "Subscribe", "done") in {(each["who"], each["what"], each["outcome"]) for each in audit}
        secrets = [line.split('"')[1] for line in access.login("bob").read_text().splitlines() if "token" in line]
        assert secrets
        assert all(secret not in json.dumps(audit) for secret in secrets)

    run(main())


def test_a_stolen_ticket_is_worth_nothing(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "olga", name="olga") as olga:
            ticket = olga._session._ticket
            assert ticket
            thief = join(daemon, access, "bob", name="olga", reconnect=False)
            thief._node._session._ticket = ticket
            with pytest.raises(Rejected, match="may be called bob"):
                await thief
            assert olga.connected

    run(main())


@pytest.mark.parametrize(
    "changes", [{"listen__host": "0.0.0.0"}, {"listen__host": "::"}, {"data__host": "0.0.0.0"}, {"listen__host": ""}]
)
def test_other_addresses_need_members_that_are_known(changes, tmp_path):
    async def main():
        with pytest.raises(InvalidInput, match=r"sievenet keys authority.*--insecure"):
            async with fabric(**changes):
                pass
        async with fabric(access__insecure=True, **changes):
            pass

    run(main())


def test_the_openflow_port_is_no_exception():
    async def main():
        with pytest.raises(InvalidInput, match=r"openflow\.listen"):
            async with fabric(dataplane="openflow", openflow__listen="0.0.0.0:0"):
                pass

    run(main())


def test_handshakes_that_are_never_finished_hold_nobody(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access, listen__hello=5.0) as daemon:
            idle = [await asyncio.open_connection("127.0.0.1", daemon.server.port) for _ in range(50)]
            async with join(daemon, access, "olga") as olga:
                assert olga.connected
            for reader, writer in idle:
                assert await asyncio.wait_for(reader.read(), 120) == b""
                writer.close()

    run(main())


def test_many_connect_at_once(tmp_path):
    """TLS begins after the connection is accepted: what came before belongs to the handshake."""
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon:
            nodes = [join(daemon, access, "eye", observer=True) for _ in range(60)]
            started = await asyncio.gather(*(node for node in nodes))
            assert all([(await node.ask("status"))["version"] for node in started])
            await asyncio.gather(*(node.close() for node in started))

    run(main())


def test_bare_frames_meet_the_same_rules(tmp_path):
    """Whatever the client library would check: the daemon does it itself."""
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "olga") as olga:
            await olga.schema(SCHEMA)
            async with join(daemon, access, "bob") as bob:
                content = encode_subscription(parse_subscription("kind = cold", SCHEMA))
                number = daemon.control.category("reading").number
                with pytest.raises(Rejected, match="does not let bob"):
                    await bob._session.call(lambda request: p.Subscribe(request, 1, number, content))
                with pytest.raises(Rejected, match="Expected an operator"):
                    await bob._session.call(lambda request: p.RemoveSchema(request, "reading"))

    run(main())


def test_what_a_role_may_not_do_is_in_the_audit_log(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access, access__audit=str(tmp_path / "audit")) as daemon, join(daemon, access, "bob") as bob:
            with pytest.raises(Rejected, match="Expected an operator"):
                await bob._session.call(lambda request: p.RemoveSchema(request, "reading"))
        last = json.loads((tmp_path / "audit").read_text().splitlines()[1])
        assert (last["who"], last["role"]) == ("bob", "client")
        assert "operator to send RemoveSchema" in last["outcome"]

    run(main())


def test_roles_of_components_are_apart(tmp_path):
    access = folder(tmp_path)
    access.certificate("r1", Role.COMPONENT, 3, now())

    async def main():
        async with guarded(access) as daemon:
            with pytest.raises(Rejected, match="r1 is a component and may not be a client"):
                await join(daemon, access, "r1", reconnect=False)

    run(main())


def test_a_part_of_a_category_is_had_without_recovery_and_that_is_told(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "olga") as olga, join(daemon, access, "bob") as bob:
            await olga.advertise(SCHEMA, transport=True)
            for asked in ({"recover": True}, {"rate_control": True}):
                with pytest.raises(Rejected, match=r"need a rule .* `subscribe reading: any`"):
                    await bob.subscribe(want("x < 100"), **asked)
            feed = await bob.subscribe(want("x < 100"), order=True)
            for x in range(20):
                await olga.publish(reading(x=x))
            assert [each["x"] for each in await take(feed, 20)] == list(range(20))

    run(main())
