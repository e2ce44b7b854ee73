"""Plain sockets at the two ends of a path: what a network takes without our clients.

    sender NAMESPACE PORT        stdin: {"count", "rate", "batch"}      stdout: {"begin"}
    receiver NAMESPACE PORT      stdin: {"count", "wait", "many"}       stdout: {"latencies": ns, "seen", "last"}

Datagrams carry their number and the time at which they were sent; each goes to an address of its own, drawn at random.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from typing import Any

import numpy as np

from sievenet.client.ports import mmsg
from sievenet.dataplane import namespaces
from sievenet.index.address import CONTENT_PORT

HEAD = struct.Struct("=QQ")
#: Bytes of a datagram: those of a small event.
SIZE = 100


def opened(namespace: str, port: int) -> socket.socket:
    """A socket of a host's client."""

    def make() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        sock.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)  # SO_SNDBUFFORCE
        sock.bind(("::", port))
        return sock

    return namespaces.inside(namespace, make)


def targets(rng: np.random.Generator, count: int) -> Any:
    """Addresses of content of category 1, all different."""
    names = np.zeros(count, mmsg.NAME)
    names["family"] = socket.AF_INET6
    names["port"] = CONTENT_PORT
    names["address"] = rng.integers(0, 256, (count, 16), np.uint8)
    names["address"][:, :4] = (0xFD, 0x0E, 0, 1)
    return names


def send(sock: socket.socket, count: int, rate: float, batch: int, seed: int) -> float:
    """Send at a pace, one by one or in batches; when that began."""
    rng = np.random.default_rng(seed)
    names = targets(rng, count)
    matrix = np.zeros((count, SIZE), np.uint8)
    begin = time.monotonic()
    if batch == 1:
        addresses = [socket.inet_ntop(socket.AF_INET6, bytes(row)) for row in names["address"]]
        for number, address in enumerate(addresses):
            due = begin + number / rate
            while (left := due - time.monotonic()) > 0:
                time.sleep(left)
            data = HEAD.pack(number, time.monotonic_ns()).ljust(SIZE, b"\0")
            sock.sendto(data, (address, CONTENT_PORT))
        return begin
    matrix[:, :8] = np.arange(count, dtype=np.uint64)[:, None].view(np.uint8)
    outlet = mmsg.Outlet(matrix, names)
    sent = 0
    while sent < count:
        allowed = min(int((time.monotonic() - begin) * rate) + batch, count) - sent
        if allowed < batch and sent + allowed < count:
            time.sleep(batch / rate / 2)
            continue
        sent += outlet.send(sock, min(allowed, batch))
    return begin


def receive(sock: socket.socket, count: int, wait: float, many: bool) -> dict[str, Any]:
    """Take what comes until all is there, or nothing has come for a while; ``many``: as much as there is at a time."""
    latencies = []
    seen = 0
    last = time.monotonic()
    inlet = mmsg.Inlet(256, 2048) if many else None
    while seen < count:
        if not select.select([sock], [], [], wait)[0]:
            break
        if inlet is not None:
            seen += sum(len(matrix) for matrix, _ in inlet.read(sock))
        else:
            data = sock.recv(2048)
            _, sent = HEAD.unpack_from(data)
            if sent:
                latencies.append(time.monotonic_ns() - sent)
            seen += 1
        last = time.monotonic()
    return {"seen": seen, "last": last, "latencies": latencies}


def main() -> None:
    role, namespace, port = sys.argv[1:4]
    sock = opened(namespace, int(port))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if role == "sender":
            answer: dict[str, Any] = {"begin": send(sock, **order)}
        else:
            answer = receive(sock, **order)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
