"""Room for bursts in the sockets of another process.

Open vSwitch reads each of its ports through a packet socket with the system's default buffer, which holds some two
hundred packets.  The default is a setting of the whole system; the buffer of one socket is not, and root may take a
copy of another process's descriptor (`pidfd_getfd`), which is the same socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from typing import Final

__all__ = ["enlarge"]

#: Bytes that may wait at each port.
_ROOM: Final = 16 << 20
_PIDFD_GETFD: Final = 438


def enlarge(pid: int) -> int:
    """Enlarge the receive buffers of a process's packet sockets; returns how many there were."""
    count = 0
    handle = os.pidfd_open(pid)
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile, or no socket
                if not os.readlink(f"/proc/{pid}/fd/{entry}").startswith("socket:"):
                    continue
                copy = ctypes.CDLL(None).syscall(_PIDFD_GETFD, handle, int(entry), 0)
                if copy < 0:
                    continue
                with socket.socket(fileno=copy) as sock:
                    if sock.family == socket.AF_PACKET:
                        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), _ROOM)
                        count += 1
    finally:
        os.close(handle)
    return count
