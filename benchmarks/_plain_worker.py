"""A process with a plain socket at one end of a path; all of its work is in C (`_plain.c`).

    sender NAMESPACE PORT LIBRARY      stdin: {"count", "rate", "batch", "segments", "seed"}  stdout: {"begin", "cpu"}
    receiver NAMESPACE PORT LIBRARY    stdin: {"count", "wait", "nap", "gro"}
                                       stdout: {"latencies": ns, "seen", "first", "last", "cpu"}

Times are nanoseconds of the system's clock that never goes back, processor time is seconds.
"""

from __future__ import annotations

import ctypes
import json
import socket
import sys
import time
from typing import Any

import numpy as np

from sievenet.dataplane import namespaces

_UDP_SEGMENT, _UDP_GRO = 103, 104
#: Bytes of a datagram, as in `_plain.c`.
SIZE = 100


class End:
    """A socket of a host's client, and the program that uses it."""

    def __init__(self, namespace: str, port: int, library: str) -> None:
        self._port = port
        self._socket, self._packets = namespaces.inside(namespace, self._opened)
        code = ctypes.CDLL(library)
        self._send, self._receive = code.plain_send, code.plain_receive
        self._send.restype = self._receive.restype = ctypes.c_long

    def _opened(self) -> tuple[socket.socket, socket.socket]:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.bind(("::", self._port))
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        packets.bind(("eth0", 0))
        for each in (sock, packets):
            each.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            each.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)  # SO_SNDBUFFORCE
        return sock, packets

    def send(self, count: int, rate: float, batch: int, segments: int, seed: int) -> dict[str, Any]:
        """Send at a pace (0: as fast as it goes), so many with a call."""
        times = (ctypes.c_uint64 * 2)()
        sock = self._socket if segments else self._packets
        self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, SIZE if segments > 1 else 0)
        before = time.process_time()
        sent = self._send(
            *(sock.fileno(), self._port, ctypes.c_long(count), ctypes.c_double(rate)),
            *(batch, segments, ctypes.c_uint64(seed), times),
        )
        if sent < count:
            raise OSError("the system took less than was sent")
        return {"begin": times[0], "cpu": time.process_time() - before}

    def receive(self, count: int, wait: float, nap: float, gro: int) -> dict[str, Any]:
        """Take what comes until all is there, or nothing has come for a while."""
        times = (ctypes.c_uint64 * 2)()
        latencies = np.zeros(count, np.uint64)
        self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, gro)
        before = time.process_time()
        seen = self._receive(
            *(self._socket.fileno(), ctypes.c_long(count), ctypes.c_double(wait), ctypes.c_double(nap)),
            *(times, ctypes.c_void_p(latencies.ctypes.data)),
        )
        spent = time.process_time() - before
        # Those of a flood say nothing: it waits in its receiver's queue.
        some = [] if nap else latencies[:seen].tolist()
        return {"seen": seen, "first": times[0], "last": times[1], "latencies": some, "cpu": spent}


def main() -> None:
    role, namespace, port, library = sys.argv[1:]
    end = End(namespace, int(port), library)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(end.send(**order) if role == "sender" else end.receive(**order)), flush=True)


if __name__ == "__main__":
    main()
