"""A tunnel device in a network namespace that nobody else sees, and a socket that listens behind it.

The namespace has no name: it lives as long as the two descriptors that are in it and leaves nothing behind, however
the process ends.  What is written to the tunnel arrives at the socket as if from a network card; what the system
answers can be read from the tunnel.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from typing import Final

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.hosts import CONTROL, OWN
from sievenet.dataplane.openflow.inband import LONGEST
from sievenet.errors import Unavailable

__all__ = ["open_tunnel"]

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_TUN, _NO_INFORMATION = 0x0001, 0x1000
_DEVICE: Final = "control"


def open_tunnel(port: int) -> tuple[int, socket.socket]:
    """The device's descriptor, and a TCP socket at the control plane's address.  Needs root."""
    found: list[tuple[int, socket.socket]] = []
    failed: list[Exception] = []

    def enter() -> None:
        try:
            found.append(_made(port))
        except (OSError, Unavailable) as error:
            failed.append(error)

    # A thread of its own: it never leaves the namespace again.
    thread = threading.Thread(target=enter, name="tunnel")
    thread.start()
    thread.join()
    if failed:
        raise Unavailable(f"No tunnel for in-band control: {failed[0]}") from None
    return found[0]


def _made(port: int) -> tuple[int, socket.socket]:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _TUN | _NO_INFORMATION))
        ns.ip(
            None,
            [
                f"link set {_DEVICE} mtu {LONGEST} addrgenmode none up",
                f"address add {CONTROL}/128 dev {_DEVICE} nodad",
                f"route add {OWN} dev {_DEVICE}",
            ],
        )
        return tunnel, _listening(port)
    except BaseException:
        os.close(tunnel)
        raise


def _listening(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind((str(CONTROL), port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock
