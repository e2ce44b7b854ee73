"""Which processors the processes of a benchmark run on, and how much of them they used.

On one machine an attacker takes processor time from those whom it attacks, which says nothing of the daemon: a
process that only computes does the same. *Apart* is as near as one machine comes to three: the daemon has a processor
of its own; clients have another one; the attacker has the rest, or, where there is none, the clients' processor while
no client wants it (the least priority). *Shared* leaves everybody to the scheduler, at one priority.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

APART, SHARED = "apart", "shared"


def place(mode: str, *, daemon: int, clients: list[int]) -> None:
    """Put a daemon and its clients where they belong; apart, with priority over all else, if we may give it."""
    every = sorted(os.sched_getaffinity(0))
    apart = mode == APART and len(every) > 1
    _pin(daemon, set(every[:1] if apart else every))
    for client in clients:
        _pin(client, set(every[1:2] if apart else every))
    with contextlib.suppress(PermissionError):
        for process in (daemon, *clients):
            _hurry(process, apart)


def place_attacker(mode: str, attacker: int) -> None:
    """Put an attacker where it disturbs nobody by computing, or anywhere."""
    every = sorted(os.sched_getaffinity(0))
    if mode != APART or len(every) == 1:
        return
    _pin(attacker, set(every[2:] or every[1:]))
    try:
        _prefer(attacker, -19)  # among what else runs; clients are before it all the same
    except PermissionError:
        _prefer(attacker, 19)


def worked_by(process: int) -> float:
    """Processor seconds that a process has used, all its threads together."""
    return time.clock_gettime((~process << 3) | 2)  # as clock_getcpuclockid(3) makes it


def _pin(process: int, cores: set[int]) -> None:
    for task in _tasks(process):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(task, cores)


def _tasks(process: int) -> list[int]:
    return [int(each.name) for each in Path(f"/proc/{process}/task").iterdir()]


def _prefer(process: int, nice: int) -> None:
    for task in _tasks(process):
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, task, nice)


def _hurry(process: int, apart: bool) -> None:
    """Its first thread, the event loop, goes before its others.

    Equals would wait for each other, whoever has the interpreter, for the scheduler's turn of 100 ms. Threads that are
    made later have no priority.
    """
    for task in _tasks(process):
        policy = (os.SCHED_FIFO | os.SCHED_RESET_ON_FORK) if apart else os.SCHED_OTHER
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(task, policy, os.sched_param((2 if task == process else 1) if apart else 0))
