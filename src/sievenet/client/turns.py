"""Short turns: a subscriber asks the system to run it soon after an event has come.

A process that is woken up on a processor where another one works waits until that one sleeps or its turn is over,
which is milliseconds. So an event from a publisher on the same machine waits for everything that the publisher still
does after sending it:

    publisher   ─ send ─ the rest of its work ─ sleep              an ordinary subscriber
    subscriber       └ woken up ··············· callback

    publisher   ─ send ┐                ┌ the rest of its work     a subscriber with short turns
    subscriber         └ callback ─ sleep

Linux (from 6.12 on) lets everybody choose the length of his turns (`sched_setattr`, no rights needed). Shorter turns
are no larger share of the processor: whoever asks for them gets his share in smaller pieces, and sooner. Only the
thread that asks is concerned, and what it starts later. Elsewhere, and with a policy that somebody has chosen, nothing
changes.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from typing import Final

__all__ = ["TURN", "shorten", "turn"]

#: Nanoseconds of a turn: the shortest that there is.
TURN: Final = 100_000
#: `sched_setattr` and `sched_getattr` by architecture.
_NUMBERS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
#: `struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
_OTHER: Final = 0  # SCHED_OTHER: what every process has unless somebody chose


def _call(which: int, buffer: ctypes.Array[ctypes.c_char], *more: int) -> bool:
    """Whether the system did as it was told, for this thread."""
    numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
    return numbers is not None and ctypes.CDLL(None).syscall(numbers[which], 0, buffer, *more) == 0


def _asked() -> tuple[int, ...] | None:
    buffer = ctypes.create_string_buffer(_ATTRIBUTES.size)
    return _ATTRIBUTES.unpack(buffer.raw) if _call(1, buffer, _ATTRIBUTES.size, 0) else None


def turn() -> int | None:
    """Nanoseconds of this thread's turns, where the system tells."""
    found = _asked()
    return found[5] if found is not None and found[1] == _OTHER and found[5] else None


def shorten(nanoseconds: int = TURN) -> None:
    """Let this thread have turns of so many nanoseconds at most, if the system can and nobody chose otherwise."""
    found = _asked()
    if found is None:
        return
    _, policy, flags, nice, priority, before, deadline, period = found
    if policy == _OTHER and (not before or before > nanoseconds):
        wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, flags, nice, priority, nanoseconds, deadline, period)
        _call(0, ctypes.create_string_buffer(wanted, _ATTRIBUTES.size), 0)
