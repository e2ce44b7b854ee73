"""What waits for those who do not read: of one member, and in all, never more than it may."""

import asyncio
import contextlib
import gc
import socket
import struct
import threading
from asyncio import sslproto

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.control import protocol as p
from sievenet.daemon import daemon as daemons
from sievenet.dataplane.kernel import protocol as agents
from sievenet.session.callee import Callee
from sievenet.session.connection import Connection
from sievenet.session.framing import frame
from sievenet.session.limits import Limits, Unread
from sievenet.session.link import Link
from sievenet.session.listener import Listener, Service
from sievenet.session.pace import Pace
from tests.access.harness import folder, guarded, now
from tests.fabric.harness import eventually, run
from tests.session.test_turns import bare


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.integers(0, 60)), max_size=60))
def test_nobody_holds_more_than_it_may_and_whoever_holds_most_goes(steps):
    """Connections a and b are of one member, and so on; bytes leave without a word."""
    limits, waiting = Limits(buffer=25, waiting=90), dict.fromkeys("abcdef", 0)
    unread = Unread(limits, lambda each: "abcdef".index(each) // 2, waiting.__getitem__)
    for connection, read, more in steps:
        waiting[connection] = max(0, waiting[connection] - read) + more
        gone = unread.note(connection, waiting[connection])
        while gone is not None:
            mine = [each for each in waiting if "abcdef".index(each) // 2 == "abcdef".index(gone) // 2]
            assert sum(waiting.values()) > 90 or sum(map(waiting.get, mine)) > 50
            assert waiting[gone] == max(map(waiting.get, mine))
            waiting[gone] = 0
            gone = unread.note(gone, 0) or unread.note(connection, waiting[connection])
        assert sum(waiting.values()) <= 90
        for pair in ("ab", "cd", "ef"):
            assert sum(map(waiting.get, pair)) <= 50 or connection not in pair


def test_a_member_with_many_connections_that_reads_nothing_holds_no_more_than_one(tmp_path, monkeypatch):
    monkeypatch.setattr(daemons, "_BUFFER", 1 << 22)

    async def main():
        access = folder(tmp_path)
        async with guarded(access) as daemon, contextlib.AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(bare(daemon, access, "alice"))
            await stack.enter_async_context(bare(daemon, access, "bob"))
            await eventually(lambda: len(daemon.service._everyone) == 5)
            peers = {each.client.partition(".")[0]: [] for each in daemon.service._everyone}
            for each in daemon.service._everyone:
                peers[each.client.partition(".")[0]].append(each)
            held = 0
            for _ in range(100):  # 10 MB to each; the system's own buffers take a part of them
                for peer in peers["alice"]:
                    peer.send(p.Done(1, "x" * 100_000))
                    held = max(held, sum(each.waiting for each in peers["alice"] if not each.closing))
                await asyncio.sleep(0)
            assert 1 << 22 < held <= (2 << 22) + 200_000
            assert any(each.closing for each in peers["alice"])
            assert not any(each.closing for each in peers["bob"])

    run(main())


class Hall(Service):
    """Welcomes everybody whom the gate lets in."""

    async def hello(self, connection, hello, identity):
        return agents.Welcome(agents.PROTOCOL, hello.name or "s1", b"", 20.0)

    def take(self, connection, messages):
        """Nothing is asked for."""


def test_handshakes_that_fail_leave_nothing_behind(tmp_path):
    """Not even for the collector of garbage, which comes seldom."""
    access = folder(tmp_path)
    keeper = Doorkeeper(access, "daemon")

    def left():
        return sum(issubclass(type(each), sslproto.SSLProtocol) for each in gc.get_objects())

    async def main():
        made = (agents.AGENTS, Hall(), Limits(hello=0.3), Connection)
        listener = Listener(*made, host="127.0.0.1", port=0, gate=keeper, tls=keeper.tls)
        await listener.start()
        listener.pace = Pace(10_000.0)
        gc.collect()
        before = left()
        gc.disable()
        try:
            for word in (b"", b"no TLS at all\r\n\r\n", b"\x16\x03\x01"):
                held = [await asyncio.open_connection(*listener.address) for _ in range(20)]
                for _, writer in held:
                    writer.write(word)
                async with asyncio.timeout(20):
                    for reader, _ in held:
                        with contextlib.suppress(ConnectionError):
                            while await reader.read(1 << 16):
                                pass
                for _, writer in held:
                    writer.close()
            await eventually(lambda: not listener._admission._inside)
            await asyncio.sleep(0.05)
            assert left() - before <= 3
        finally:
            gc.enable()
            await listener.close()

    run(main())


def test_strangers_who_say_nothing_fill_no_log(caplog):
    async def main():
        listener = Listener(agents.AGENTS, Hall(), Limits(hello=0.1), Connection, host="127.0.0.1", port=0)
        await listener.start()
        try:
            held = [await asyncio.open_connection(*listener.address) for _ in range(30)]
            async with asyncio.timeout(20):
                for reader, writer in held:
                    with contextlib.suppress(ConnectionError):
                        while await reader.read(1 << 16):
                            pass
                    writer.close()
            await eventually(lambda: not listener.connections)
        finally:
            await listener.close()

    run(main())
    assert sum("Expected a hello" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("secured", [False, True])
def test_strangers_who_say_nothing_keep_no_component_out(tmp_path, secured):
    """They hold every place, and take each that is free at once; whoever says hello gets in, and stays."""
    access = folder(tmp_path)
    access.certificate("s1", Role.COMPONENT, 10, now())
    keeper, login = Doorkeeper(access, "daemon"), load_login(access.login("s1"))

    async def main():
        limits = Limits(connections=12, hello=60.0)
        tls = keeper.tls if secured else None
        made = (agents.AGENTS, Hall(), limits, Connection)
        listener = Listener(*made, host="127.0.0.1", port=0, gate=keeper if secured else None, tls=tls)
        await listener.start()
        listener.pace = Pace(10_000.0)
        held = []

        async def crowd():
            while True:
                with contextlib.suppress(OSError):
                    held.append(await asyncio.open_connection(*listener.address))
                await asyncio.sleep(0.02)

        loud = asyncio.create_task(crowd())
        try:
            await eventually(lambda: listener.turned_away > 3)
            links = []
            for name in ("s1", "s1", "s1"):
                hello = agents.Hello(agents.PROTOCOL, Role.COMPONENT, name, token=login.token)
                context = login.dialling() if secured else None
                opened = Link.open(agents.AGENTS, listener.address, hello, lambda *_: None, tls=context, timeout=20)
                links.append((await opened)[0])
            seen = listener.turned_away
            await eventually(lambda: listener.turned_away > seen + 20)
            assert not any(link.ended.done() for link in links)
            assert len(listener._admission._inside) == 12
            for link in links:
                await link.close()
        finally:
            loud.cancel()
            await asyncio.gather(loud, return_exceptions=True)
            for _, writer in held:
                writer.close()
            await listener.close()

    run(main())


def test_what_is_written_to_a_connection_that_has_just_broken_fills_no_log(tmp_path, caplog):
    """Its encrypted side learns of it in the next turn of the loop only: asyncio logged a line for each write."""
    access = folder(tmp_path)
    login = load_login(access.login("daemon"))

    go = threading.Event()

    def visitor(address):
        with login.dialling().wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as stream:
            go.wait(60)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def main():
        met = asyncio.get_running_loop().create_future()

        def greet(reader, writer):
            met.set_result(Connection(reader, writer, Callee(p.CONTROL, Limits(), 0.0), Limits()))

        async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=login.listening()) as server:
            thread = threading.Thread(target=visitor, args=(server.sockets[0].getsockname(),))
            thread.start()
            try:
                connection = await met
            finally:
                go.set()
                thread.join()  # which cuts the connection, and the loop has no turn before and while we write
            written = [connection.write(bytes(1 << 15)) for _ in range(50)]
            assert written[0]
            assert not written[-1]
            assert connection.closing

    run(main())
    assert not [each for each in caplog.records if each.name == "asyncio"]


def visit(address, context, *words):
    """Say something by TLS, and read nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(30)
    sock.connect(address)
    stream = context.wrap_socket(sock, server_hostname="127.0.0.1")
    stream.sendall(b"".join(map(frame, words)))
    return stream


def leave(connection, stream, *words):
    """Have so much wait for a visitor that it cannot be sent, while the visitor says its last words and goes.

    All of it is there before the event loop has its next turn, and the connection below the encrypted one closes then,
    but not before what waits is sent.
    """
    below = connection.writer.transport._ssl_protocol._transport
    while not below.get_write_buffer_size():
        assert connection.write(bytes(1 << 16))
    stream.sendall(b"".join(map(frame, words)))
    with contextlib.suppress(OSError):  # it says that it goes, and does not wait for an answer
        stream.unwrap()


def test_who_leaves_without_having_read_is_heard_to_the_end(tmp_path):
    login, heard = load_login(folder(tmp_path).login("daemon")), []

    class Taking(Hall):
        def take(self, connection, messages):
            heard.extend(message for message, _ in messages)
            closing.append(connection.closing)

    closing = []

    async def main():
        limits = Limits(turn=2)
        made = (agents.AGENTS, Taking(), limits, Connection)
        listener = Listener(*made, host="127.0.0.1", port=0, tls=login.listening())
        await listener.start()
        hello = agents.Hello(agents.PROTOCOL, Role.COMPONENT, "s1")
        stream = await asyncio.to_thread(visit, listener.address, login.dialling(), hello)
        try:
            await eventually(lambda: any(each.identity for each in listener.connections))
            [connection] = listener.connections
            words = [agents.Carried(number) for number in range(40)]
            leave(connection, stream, *words)
            await eventually(lambda: len(heard) == 40 or connection not in listener.connections)
            assert heard == words
            assert closing[-1]
        finally:
            stream.close()
            await listener.close()

    run(main())
