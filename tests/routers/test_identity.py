"""Who may be a neighbour: certificates with TLS, and names that nobody can take from a living connection."""

import asyncio
import contextlib
import ssl
import subprocess

import pytest
from click.testing import CliRunner

from sievenet import programs
from sievenet.cli import main as command
from sievenet.client.overlay.node import OverlayNode
from sievenet.errors import InvalidInput, Rejected, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.handshake import Handshake
from sievenet.routers.registry import Registry
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.session.tls import contexts
from tests.fabric.harness import eventually
from tests.routers.wire import SCHEMA, Stranger, a_peer, client_hello, honest, router_hello, two_routers

LEASE = Settings(lease=8.0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with an authority (ca.pem), certificates of routers a and b, and one of b by somebody else."""
    folder = tmp_path_factory.mktemp("authority")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def openssl(*words):
        subprocess.run(programs.command("openssl", *words), check=True, capture_output=True, cwd=folder)

    for name in ("ca", "other"):
        openssl(
            "req", "-x509", *new, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"
        )
    for name, signer in (("a", "ca"), ("b", "ca"), ("forged", "other")):
        (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
        subject = "b" if name == "forged" else name
        openssl("req", *new, "-subj", f"/CN={subject}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{signer}.pem", "-CAkey", f"{signer}.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{name}.pem"),
        )
    return folder


def tls(folder, name, **options):
    files = (str(folder / file) for file in (f"{name}.pem", f"{name}.key", "ca.pem"))
    called, calling = contexts(*files, **options)
    return {"tls": called, "dial_tls": calling}


@contextlib.asynccontextmanager
async def secured(folder):
    """Routers a and b with certificates, linked."""
    async with (
        RouterServer("a", LEASE, **tls(folder, "a")) as a,
        RouterServer("b", LEASE, neighbours=[a.address], **tls(folder, "b")) as b,
    ):
        await eventually(lambda: all(len(each.router.states.overlay.links) == 2 for each in (a, b)))
        yield a, b


def test_tls_both_ways(authority):
    """Routers with certificates of their names are neighbours; clients verify the router, and have one too."""

    async def main():
        trusting = tls(authority, "b")["dial_tls"]
        async with secured(authority) as (a, b):
            assert a.url.startswith("sievenet+routers://")
            sub = await OverlayNode(a.url, tls=trusting).start()
            pub = await OverlayNode(b.url, tls=trusting).start()
            await pub.advertise(SCHEMA)
            feed = await sub.subscribe(SCHEMA)
            await pub.publish(SCHEMA.event(n=1, who="x"))
            assert (await feed.next()).event == SCHEMA.event(n=1, who="x")
            await pub.close()
            await sub.close()
            with pytest.raises(Unavailable):
                await OverlayNode(a.url, reconnect=False, timeout=5).start()

    asyncio.run(main())


@pytest.mark.parametrize("anybody", [False, True])
def test_a_stranger_without_a_certificate_is_no_client_unless_anybody_may_be_one(authority, anybody):
    async def main():
        trusting = ssl.create_default_context(cafile=str(authority / "ca.pem"))
        async with RouterServer("a", LEASE, **tls(authority, "a", anybody=anybody)) as a:
            if anybody:
                node = await OverlayNode(a.url, tls=trusting, reconnect=False).start()
                await node.close()
                return
            with pytest.raises(Unavailable):
                await OverlayNode(a.url, tls=trusting, reconnect=False, timeout=5).start()
            assert not a._registry.clients

    asyncio.run(main())


@pytest.mark.parametrize("shown", [None, "b", "forged", "plain"])
def test_strangers_are_no_neighbours(authority, shown):
    """Without a certificate, with that of another router, with one of another authority, and without TLS."""

    async def main():
        context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
        if shown in ("b", "forged"):
            context.load_cert_chain(authority / f"{shown}.pem", authority / f"{shown}.key")
        async with RouterServer("a", LEASE, **tls(authority, "a", anybody=True)) as a:
            try:
                stranger = await Stranger.call(a.address, router_hello("c"), ssl=None if shown == "plain" else context)
                answer = await stranger.hear("Failure")
                assert answer is None or "certificate of the router c" in answer["message"]
                assert (answer is None) == (shown in ("forged", "plain"))
                await stranger.ended()
                stranger.close()
            except (ssl.SSLError, ConnectionError):
                assert shown == "forged"
            assert not a._registry.routers

    asyncio.run(main())


def test_a_router_that_is_dialled_has_to_be_who_it_says(authority, monkeypatch, caplog):
    """It has the certificate of a, and says that it is c."""
    calls = []
    call = Handshake.call
    monkeypatch.setattr(Handshake, "call", lambda *words: (calls.append(words), call(*words)))

    async def main():
        async with (
            RouterServer("c", LEASE, **tls(authority, "a")) as wrong,
            RouterServer("b", LEASE, neighbours=[wrong.address], **tls(authority, "b")) as b,
        ):
            # It calls again because it would not be welcomed by that one.
            await eventually(lambda: len(calls) > 2)
            assert not b._registry.routers
            assert not b.router.states.overlay.links["b"]
        # Whoever runs b learns why, once.
        assert caplog.text.count("no link to the neighbour at") == 1
        assert "Expected a certificate of the router c (--tls-ca), got a" in caplog.text
        async with RouterServer("b", LEASE, neighbours=[("127.0.0.1", 0)]) as b:
            b._handshake.failed(("h", 1), "There is a connection already between a and b")
            assert "h:1" not in caplog.text

    asyncio.run(main())


def test_half_a_configuration_is_no_plain_tcp(authority):
    key, ca, cert = (str(authority / name) for name in ("a.key", "ca.pem", "a.pem"))
    for given in ((None, key, None), (None, None, ca), (None, key, ca)):
        with pytest.raises(InvalidInput, match="plain TCP"):
            contexts(*given)
    with pytest.raises(InvalidInput, match="private key"):
        contexts(ca, key, None)
    assert contexts(None, None, None) == (None, None)
    shell = CliRunner()
    found = shell.invoke(command, ["router", "--listen", "127.0.0.1:0", "--tls-key", key, "--for", "1ms"])
    assert found.exit_code != 0
    assert "--tls-cert" in found.output
    found = shell.invoke(command, ["router", "--listen", "0.0.0.0:0", "--for", "1ms"])
    assert found.exit_code != 0
    assert "--insecure" in found.output
    found = shell.invoke(command, ["router", "--listen", "0.0.0.0:0", "--insecure", "--for", "1ms"])
    assert found.exit_code == 0, found.output
    assert "nobody is checked" in found.output
    # TLS without an authority knows nobody.
    some = ["--tls-cert", cert, "--tls-key", key]
    found = shell.invoke(command, ["router", "--name", "a", "--listen", "0.0.0.0:0", *some, "--for", "1ms"])
    assert found.exit_code != 0
    assert "--tls-ca" in found.output
    secure = [*some, "--tls-ca", ca]
    found = shell.invoke(command, ["router", "--name", "a", "--listen", "0.0.0.0:0", *secure, "--for", "1ms"])
    assert found.exit_code == 0, found.output
    assert "nobody is checked" not in found.output


# -- names ---------------------------------------------------------------------------------


def peer(dialled=False, certified=()):
    return a_peer(dialled=dialled, certified=certified)


def test_a_name_is_taken_over_only_with_proof():
    registry = Registry("m")
    first = peer()
    assert registry.client(first, "c", b"") is None
    for ticket in (b"", b"x", first.ticket + b"x"):
        with pytest.raises(Rejected, match="taken"):
            registry.client(peer(), "c", ticket)
    second = peer()
    assert registry.client(second, "c", first.ticket) is first
    assert registry.holds(second)
    # A ticket counts for one connection: that of an earlier one is worth nothing now.
    with pytest.raises(Rejected):
        registry.client(peer(), "c", first.ticket)
    link = peer()
    assert registry.called(link, "r", b"") is None
    with pytest.raises(Rejected, match="already"):
        registry.called(peer(), "r", b"wrong")
    with pytest.raises(Rejected, match="already"):
        registry.called(peer(certified=["s"]), "r", b"")
    again = peer()
    assert registry.called(again, "r", link.ticket) is link
    assert registry.called(peer(certified=["r"]), "r", b"") is again
    with pytest.raises(Rejected, match="own neighbour"):
        registry.called(peer(), "m", b"")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3), (0, 2, 3, 1), (1, 0, 2, 3), (1, 3, 0, 2)])
def test_two_routers_that_dial_each_other_agree(order):
    """Hello and Welcome of both connections in every order that can be: one of them stays, the same at both ends."""
    sides = {"a": Registry("a"), "b": Registry("b")}
    #: connection → its end at each router; "ab" was dialled by a.
    ends = {c: {name: peer(dialled=c[0] == name) for name in "ab"} for c in ("ab", "ba")}
    closed, welcomed = set(), set()

    def hello(connection):
        caller, called = connection
        if connection in closed:
            return
        try:
            before = sides[called].called(ends[connection][called], caller, b"")
            assert before is None
            welcomed.add(connection)
        except Rejected:
            closed.add(connection)

    def welcome(connection):
        caller, called = connection
        if connection in closed or connection not in welcomed:
            return
        try:
            before = sides[caller].welcomed(ends[connection][caller], called)
            if before is not None:
                closed.add("ba" if connection == "ab" else "ab")
        except Rejected:
            closed.add(connection)

    steps = [lambda: hello("ab"), lambda: hello("ba"), lambda: welcome("ab"), lambda: welcome("ba")]
    for each in order:
        steps[each]()
    # What is closed at one end ends at the other.
    for connection in closed:
        for name in "ab":
            end = ends[connection][name]
            if sides[name].holds(end):
                sides[name].leave(end)
    standing = [c for c in ("ab", "ba") if all(sides[name].holds(ends[c][name]) for name in "ab")]
    assert len(standing) == 1, (order, standing, closed)


def test_nobody_cuts_a_link_by_its_name():
    async def main():
        async with two_routers(LEASE) as (a, b), honest(a.url, b.url) as pair:
            for near, name in ((a, "b"), (b, "a")):
                before = near._registry.routers[name]
                stranger = await Stranger.call(near.address, router_hello(name))
                assert "already" in (await stranger.hear("Failure"))["message"]
                assert near._registry.routers[name] is before
                stranger.close()
            stranger = await Stranger.call(a.address, client_hello(pair.publisher.name))
            assert "taken" in (await stranger.hear("Failure"))["message"]
            stranger.close()
            await pair.check()
            assert pair.publisher.statistics().losses == 0

    asyncio.run(main())


def test_a_newer_connection_with_its_ticket_replaces_a_dead_one():
    """The earlier connection is half open: nothing comes on it, and it was never closed."""

    async def main():
        async with two_routers(Settings(lease=60.0)) as (a, b), honest(a.url, b.url) as pair:
            for hello in (client_hello, router_hello):
                dead = await Stranger.call(a.address, hello("x"))
                ticket = (await dead.hear("Welcome"))["ticket"]
                refused = await Stranger.call(a.address, hello("x"))
                assert (await refused.hear("Failure")) is not None
                newer = await Stranger.call(a.address, hello("x", ticket=ticket))
                assert (await newer.hear("Welcome"))["ticket"] != ticket
                await dead.ended()
                newer.say(p.Goodbye("done"))
                await newer.ended()
                await eventually(lambda: "x" not in a._registry.clients and "x" not in a._registry.routers)
            await pair.check()

    asyncio.run(main())
