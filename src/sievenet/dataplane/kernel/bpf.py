"""The kernel's bpf system call: maps, programs, and attaching them.  Nothing here knows what a switch is.

A *map* is a table in the kernel that programs and we share; a *program* is bytecode that the kernel has verified; a
*link* holds a program at a device, until it is closed.  All three are file descriptors, and a *pin*, a file in a bpf
file system, keeps one alive when its process is gone.  Arrays can be mapped into memory: reading and writing them takes
no call at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sievenet.errors import Unavailable

__all__ = [
    "ARRAY",
    "HASH",
    "MAPS",
    "PER_CORE",
    "PREFIXES",
    "PROGRAMS",
    "Map",
    "attach_pinned",
    "barrier",
    "by_id",
    "fence",
    "load",
    "mount",
    "pin",
    "pinned",
    "supported",
    "unmount",
]

#: Kinds of maps.
HASH: Final = 1
ARRAY: Final = 2
PROGRAMS: Final = 3
PER_CORE: Final = 6
PREFIXES: Final = 11
MAPS: Final = 12

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_CREATE, _LOOKUP, _UPDATE, _DELETE, _LOAD, _PIN, _GET = 0, 1, 2, 3, 5, 6, 7
_BY_ID, _LOOKUP_BATCH, _UPDATE_BATCH, _LINK = 14, 24, 26, 28
_NO_PREALLOC: Final = 1
_MMAPABLE: Final = 1 << 10
_SCHED_CLS: Final = 3
_TCX_INGRESS: Final = 46
_DETACH: Final = 2
#: Entries in one call that reads or writes many.
_BATCH: Final = 4096

_libc = ctypes.CDLL(None, use_errno=True)
#: Held but for a moment: whoever lets go of a lock and takes it again has everything in order in between.
_order = threading.Lock()
_order.acquire()


def _bpf(command: int, attributes: bytes) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise Unavailable(f"Expected a machine of {', '.join(_NUMBERS)}, got {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = _libc.syscall(number, command, buffer, len(attributes))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def supported() -> str | None:
    """What is missing to use the system call here, or None."""
    if os.geteuid() != 0:
        return "root: loading programs into the kernel needs it"
    try:
        Map.create("probe", PREFIXES, 20, 4, 1).close()
    except PermissionError:
        return "root with the capabilities bpf, net_admin and sys_admin, which this process lacks (as in a container)"
    except (OSError, Unavailable) as error:
        return f"a kernel with BPF and prefix tries ({error})"
    return None


def _address(buffer: ctypes.Array[ctypes.c_char] | None) -> int:
    return ctypes.addressof(buffer) if buffer is not None else 0


def _buffer(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(data, len(data))


class Map:
    """A table in the kernel; keys and values are bytes."""

    def __init__(
        self, descriptor: int, key_size: int, value_size: int, rows: int, first: int = 0, step: int = 1
    ) -> None:
        #: The first of its rows, and how far apart they are: an array may be shared by several, each with a part of it.
        self.first, self.step = first, step
        self.descriptor = descriptor
        self.key_size = key_size
        self.value_size = value_size
        self.rows = rows
        self._memory: mmap.mmap | None = None

    @classmethod
    def create(cls, name: str, kind: int, key_size: int, value_size: int, rows: int, inner: Map | None = None) -> Map:
        """A new one; arrays can be looked at through `view`.  What is in a map of maps is like `inner`."""
        flags = {ARRAY: _MMAPABLE, PER_CORE: 0, PROGRAMS: 0, MAPS: 0}.get(kind, _NO_PREALLOC)
        like = inner.descriptor if inner is not None else 0
        attributes = struct.pack("=IIIIIII15sx", kind, key_size, value_size, rows, flags, like, 0, name.encode()[:15])
        return cls(_bpf(_CREATE, attributes), key_size, value_size, rows)

    def part(self, first: int, rows: int, step: int = 1) -> Map:
        """Some rows of an array, as a map of its own; a key is still that of the whole (`key`)."""
        return Map(os.dup(self.descriptor), self.key_size, self.value_size, rows, first, step)

    def key(self, row: int) -> bytes:
        """The key of a row of an array."""
        return (self.first + row * self.step).to_bytes(4, "little")

    def view(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """An array's rows, shared with the kernel."""
        stride = -(-self.value_size // 8) * 8
        begin = stride * self.first // mmap.PAGESIZE * mmap.PAGESIZE
        if self._memory is None:
            end = -(-stride * (self.first + self.rows) // mmap.PAGESIZE) * mmap.PAGESIZE
            self._memory = mmap.mmap(self.descriptor, end - begin, offset=begin)
        return np.frombuffer(self._memory, kind, self.rows * stride // kind.itemsize, self.first * stride - begin)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        where, value = _buffer(key), ctypes.create_string_buffer(self.value_size)
        try:
            _bpf(_LOOKUP, struct.pack("=IxxxxQQQ", self.descriptor, _address(where), _address(value), 0))
        except FileNotFoundError:
            return None
        return value.raw

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        where, what = _buffer(key), _buffer(value)
        _bpf(_UPDATE, struct.pack("=IxxxxQQQ", self.descriptor, _address(where), _address(what), 0))

    def remove(self, key: bytes) -> None:
        """Forget a key, if there is such a one."""
        where = _buffer(key)
        with contextlib.suppress(FileNotFoundError):
            _bpf(_DELETE, struct.pack("=IxxxxQQQ", self.descriptor, _address(where), 0, 0))

    def put_all(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set many values, one after the other in this order."""
        where, what = _buffer(b"".join(keys)), _buffer(b"".join(values))
        attributes = struct.pack("=QQQQIIQQ", 0, 0, _address(where), _address(what), len(keys), self.descriptor, 0, 0)
        try:
            _bpf(_UPDATE_BATCH, attributes)
        except OSError:  # older kernels can do so only with some kinds
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)

    def items(self) -> list[tuple[bytes, bytes]]:
        """All entries.  Meant for maps that nobody else changes meanwhile."""
        found: list[tuple[bytes, bytes]] = []
        keys = ctypes.create_string_buffer(self.key_size * _BATCH)
        values = ctypes.create_string_buffer(self.value_size * _BATCH)
        token = ctypes.create_string_buffer(max(self.key_size, 8))
        begun = False
        while True:
            attributes = struct.pack(
                "=QQQQIIQQ",
                *(_address(token) if begun else 0, _address(token), _address(keys), _address(values)),
                *(_BATCH, self.descriptor, 0, 0),
            )
            buffer = _buffer(attributes)
            result = _libc.syscall(_NUMBERS[platform.machine()], _LOOKUP_BATCH, buffer, len(attributes))
            code = ctypes.get_errno() if result < 0 else 0
            if code not in (0, errno.ENOENT):
                raise OSError(code, os.strerror(code))
            (count,) = struct.unpack_from("=I", buffer.raw, 32)
            for i in range(count):
                key = keys.raw[i * self.key_size : (i + 1) * self.key_size]
                found.append((key, values.raw[i * self.value_size : (i + 1) * self.value_size]))
            if code or not count:
                return found
            begun = True

    def close(self) -> None:
        """Give it up; the kernel keeps it while a program or a pin needs it."""
        os.close(self.descriptor)


def load(name: str, instructions: bytes) -> int:
    """A program for packets that come in; `Unavailable` with what the kernel has against it."""
    code, licence = _buffer(instructions), _buffer(b"GPL\0")
    log = ctypes.create_string_buffer(1 << 20)

    def attributes(level: int) -> bytes:
        return struct.pack(
            "=IIQQIIQII15sxII",
            *(_SCHED_CLS, len(instructions) // 8, _address(code), _address(licence)),
            *(level, len(log) if level else 0, _address(log) if level else 0, 0, 0, name.encode()[:15], 0, 0),
        )

    try:
        return _bpf(_LOAD, attributes(0))
    except OSError as error:
        try:
            return _bpf(_LOAD, attributes(1))
        except OSError:
            said = log.value.decode(errors="replace").strip().splitlines()[-5:]
            raise Unavailable(
                f"This kernel ({platform.release()}) refused program {name}: {error.strerror}: {' | '.join(said)}. "
                "Use a newer one, or --dataplane embedded, which needs nothing, or ovs"
            ) from None


def attach_pinned(program: int, device: int, path: str) -> bool:
    """Let a program see what comes in by a device of the present network namespace, while the pin is there.

    False if the kernel is older than 6.6 and has no links for this.
    """
    try:
        link = _bpf(_LINK, struct.pack("=IIIIIxxxxQ", program, device, _TCX_INGRESS, 0, 0, 0))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    try:
        pin(link, path)
    finally:
        os.close(link)
    return True


@cache
def _gate() -> tuple[Map, bytes]:
    """A map of maps, and what is in it."""
    inner = Map.create("inner", ARRAY, 4, 4, 1)
    return Map.create("gate", MAPS, 4, 4, 1, inner), inner.descriptor.to_bytes(4, "little")


def barrier() -> None:
    """Wait until every program that runs now has ended: the kernel promises this to whoever changes a map of maps."""
    gate, inner = _gate()
    gate.put(bytes(4), inner)


def fence() -> None:
    """What was written to memory before is seen before what is written after, on any machine."""
    _order.release()
    _order.acquire()


def by_id(number: int) -> int:
    """The map that has this number in the kernel."""
    return _bpf(_BY_ID, struct.pack("=III", number, 0, 0))


def pin(descriptor: int, path: str) -> None:
    """Keep something alive under a name in a bpf file system."""
    name = _buffer(path.encode() + b"\0")
    _bpf(_PIN, struct.pack("=QII", _address(name), descriptor, 0))


def pinned(path: str) -> int:
    """What is pinned there."""
    name = _buffer(path.encode() + b"\0")
    return _bpf(_GET, struct.pack("=QII", _address(name), 0, 0))


def mount(path: str) -> None:
    """A bpf file system of its own, for pins."""
    if _libc.mount(b"bpf", path.encode(), b"bpf", 0, b"mode=0700"):
        code = ctypes.get_errno()
        raise Unavailable(f"Expected to mount a bpf file system at {path}, got: {os.strerror(code)}")


def unmount(path: str) -> None:
    """Give up a bpf file system with all its pins, if there is one."""
    _libc.umount2(path.encode(), _DETACH)
