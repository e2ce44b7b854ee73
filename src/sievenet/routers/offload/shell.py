"""Offloading over plain sockets: a worker process, and a router's end for measuring without a router around it.

    python -m sievenet.routers.offload.shell HOST PORT NAME [--slow SECONDS | --silent | --lying] [--again]

A worker is a client of the router protocol that volunteers and answers `Compute` until the connection ends; with
``--again`` it makes another one then, until nobody takes it. `Workers` takes such clients as a router does, and carries
what an `Offloader` asks and what they answer. The misbehaviours are for tests and benchmarks of a router's patience.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sievenet.errors import CodecError
from sievenet.routers import protocol as p
from sievenet.routers.offload.messages import Answer, Assign, Compute, Computed, Relations, encode_answer
from sievenet.routers.offload.rto import Ask
from sievenet.routers.offload.volunteer import Volunteer
from sievenet.session.framing import Framer, Malformed, frame

__all__ = ["Joined", "Left", "Workers", "main"]

_LIMIT: Final = 1 << 26
_to_router = msgspec.msgpack.Decoder(Computed | p.Hello | p.Volunteer)


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker is willing."""

    name: str


@dataclass(frozen=True, slots=True)
class Left:
    """A worker's connection ended."""

    name: str


class Workers:
    """The router's end: accepts workers, sends questions, collects answers; counts bytes and messages."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._selector = selectors.DefaultSelector()
        self._server = socket.create_server((host, 0))
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._names: dict[socket.socket, str] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._framers: dict[socket.socket, Framer] = {}
        self.sent_bytes = self.received_bytes = self.sent_messages = self.received_messages = 0

    @property
    def address(self) -> tuple[str, int]:
        """Where workers connect."""
        host, port = self._server.getsockname()[:2]
        return host, port

    def ask(self, asks: Iterable[Ask]) -> None:
        """Send questions. A worker that does not read for a second is dropped."""
        for ask in asks:
            connection = self._sockets.get(ask.client)
            if connection is None:
                continue
            data = frame(ask.request)
            self.sent_bytes += len(data)
            self.sent_messages += 1
            try:
                connection.settimeout(1.0)
                connection.sendall(data)
                connection.setblocking(False)
            except OSError:
                self._drop(connection)

    def poll(self, timeout: float) -> list[tuple[str, Computed | Joined | Left]]:
        """What has come within a time: answers, and who joined or left."""
        found: list[tuple[str, Computed | Joined | Left]] = []
        for key, _ in self._selector.select(timeout):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is self._server:
                self._accept()
            else:
                found += self._read(connection)
        return found

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self._framers[connection] = Framer(_to_router, _LIMIT)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> list[tuple[str, Computed | Joined | Left]]:
        found: list[tuple[str, Computed | Joined | Left]] = []
        name = self._names.get(connection, "")
        try:
            data = connection.recv(1 << 20)
            self.received_bytes += len(data)
            for message in self._framers[connection].feed(data):
                match message:
                    case Malformed():
                        continue
                    case p.Hello(name=str(given)):
                        name = self._names[connection] = given
                        self._sockets[name] = connection
                        connection.sendall(frame(p.Welcome(p.PROTOCOL, name, router="workers")))
                    case p.Volunteer(request):
                        connection.sendall(frame(p.Done(request)))
                        found.append((name, Joined(name)))
                    case Computed():
                        self.received_messages += 1
                        found.append((name, message))
        except BlockingIOError:
            return found
        except (OSError, CodecError):
            data = b""
        if not data:
            self._drop(connection)
            found.append((name, Left(name)))
        return found

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._framers[connection]
        self._sockets.pop(self._names.pop(connection, ""), None)
        connection.close()

    def dismiss(self) -> None:
        """End all connections: workers end with theirs, or come again with nothing in mind."""
        for connection in list(self._framers):
            self._drop(connection)

    def close(self) -> None:
        """End all connections, and take no more."""
        self.dismiss()
        self._selector.close()
        self._server.close()


def _lie(request: Compute) -> Computed:
    count = len(request.inputs)
    wrong = encode_answer(Relations(((),) * count, ((),) * count))
    return Computed(request.job, tuple(Answer(v.id, wrong) for v in request.vectors), encode_answer(()))


def main(arguments: list[str]) -> None:
    """A worker process: for one connection, or with ``--again`` for one after the other."""
    host, port, name, *options = arguments
    again = "--again" in options
    while True:
        connection = socket.create_connection((host, int(port)))
        try:
            _serve(connection, name, options)
        except ConnectionError:
            if not again:
                raise
        if not again:
            return


def _serve(connection: socket.socket, name: str, options: list[str]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(frame(p.Hello(p.PROTOCOL, name=name)) + frame(p.Volunteer(1)))
    volunteer = Volunteer()
    framer = p.ROUTING.dialling()
    while data := connection.recv(1 << 20):
        for message in framer.feed(data):
            match message:
                case Assign():
                    volunteer.assign(message)
                case Compute() if "--silent" not in options:
                    answer: Any = _lie(message) if "--lying" in options else volunteer.compute(message)
                    if "--slow" in options:
                        time.sleep(float(options[options.index("--slow") + 1]))
                    connection.sendall(frame(answer))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ConnectionError, KeyboardInterrupt):
        sys.exit(0)
