"""A process that searches for one plan: `python -m sievenet.tuning.worker`, a task on stdin, its outcome on stdout.

The daemon starts one for each search. It has a low priority, one thread, and a bound on its processor time that
the kernel enforces, so the network's own work comes first whatever the search does.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

__all__ = ["command", "environment", "main"]

#: Seconds of processor beyond those of the search: loading, and on a new machine compiling.
_MORE: Final = 90
#: Its nice value: a busy process of the usual priority gets three times as much of a core.
_PRIORITY: Final = 5


def command() -> list[str]:
    """How to start one."""
    return [sys.executable, "-m", "sievenet.tuning.worker"]


def environment() -> dict[str, str]:
    """One thread each of everything that would take all cores."""
    single = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(single, "1")}


def main() -> None:
    """Read, search, write."""
    os.setpriority(os.PRIO_PROCESS, 0, max(_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0)))
    import msgspec

    from sievenet.errors import SievenetError
    from sievenet.tuning.task import Task, solve

    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    limit = int(task.seconds) + _MORE
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        answer = msgspec.msgpack.encode(solve(task))
    except SievenetError as error:
        sys.exit(f"{error}")
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
