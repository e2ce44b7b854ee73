"""Network namespaces: making them, and doing something inside of one.

A socket belongs to the namespace that its maker was in, for good, and a thread may enter another one than its process.
So `inside` runs a function on a thread of its own that enters, works and ends; whatever sockets it brings back work
from here.  That is how a daemon has a door in every host's namespace, and how a client uses a host's network without
being started there.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from sievenet import programs
from sievenet.errors import Unavailable

__all__ = [
    "NAMESPACES",
    "add",
    "current",
    "delete",
    "inside",
    "ip",
    "lacking",
    "listening",
    "listing",
    "no_checksum_offload",
    "run",
]

_T = TypeVar("_T")

#: Where named namespaces are, as `ip netns` keeps them.
NAMESPACES: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STXCSUM: Final = 0x17
#: What making namespaces and devices takes, as bits of a process's capabilities: net_admin and sys_admin.
_CAPABILITIES: Final = 1 << 12 | 1 << 21


def lacking(status: Path = Path("/proc/self/status")) -> str | None:
    """Who this process is, if that is somebody who may not make networks; else None."""
    if os.geteuid() != 0:
        return "another user"
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:") and int(line.split()[1], 16) & _CAPABILITIES != _CAPABILITIES:
            return "root without the capabilities net_admin and sys_admin, as in a container"
    return None


def run(*command: str, text: str | None = None) -> str:
    """Run a command of the system; `Unavailable` with what it said if it fails."""
    try:
        done = subprocess.run(
            programs.command(*command), input=text, capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command[:4])} … did not end within 60 s") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(command)[:200]}: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout


def ip(namespace: str | None, lines: Iterable[str]) -> None:
    """Several commands of `ip -6`, in a namespace, in one go."""
    where = () if namespace is None else ("-n", namespace)
    run("ip", "-6", *where, "-batch", "-", text="\n".join(lines) + "\n")


def listing(prefix: str) -> list[str]:
    """The namespaces whose names begin so."""
    try:
        return sorted(name for name in os.listdir(NAMESPACES) if name.startswith(prefix))
    except FileNotFoundError:
        return []


def add(names: Iterable[str]) -> None:
    """Make namespaces, their loopback up."""
    names = list(names)
    ip(None, (f"netns add {name}" for name in names))
    for name in names:
        ip(name, ["link set lo up"])


def delete(names: Iterable[str]) -> None:
    """Remove namespaces with all that is in them."""
    ip(None, [f"netns del {name}" for name in names])


def current(namespace: str) -> bool:
    """Whether this process is in that namespace."""
    try:
        here, there = os.stat("/proc/self/ns/net"), os.stat(NAMESPACES / namespace)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def inside(namespace: str, work: Callable[[], _T]) -> _T:
    """Do something inside a namespace; needs root."""
    found: list[_T] = []
    failed: list[BaseException] = []

    def enter() -> None:
        try:
            descriptor = os.open(NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(descriptor)
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name=f"inside {namespace}")
    thread.start()
    thread.join()
    if failed:
        error = failed[0]
        if isinstance(error, OSError):
            raise Unavailable(f"Network namespace {namespace}: {error.strerror or error}") from None
        raise error
    return found[0]


def listening(namespace: str, address: str, port: int) -> socket.socket:
    """A TCP socket that listens inside a namespace."""

    def make() -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((address, port))
            sock.listen(128)
        except OSError:
            sock.close()
            raise
        return sock

    return inside(namespace, make)


def no_checksum_offload(namespace: str, devices: Iterable[str]) -> None:
    """Let the devices of a namespace send packets with whole checksums: a virtual link offers to skip them, and then
    nothing that is not the kernel itself can tell a good packet from a bad one.
    """

    def switch_off() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for device in devices:
                value = ctypes.create_string_buffer(struct.pack("II", _ETHTOOL_STXCSUM, 0))
                request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
                fcntl.ioctl(sock, _SIOCETHTOOL, request)

    inside(namespace, switch_off)
