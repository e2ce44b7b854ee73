"""Loading compiled code before a long command opens anything."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Final

import click

__all__ = ["load_first", "told_if_long"]

#: Seconds of loading after which somebody who waits is told why.
_PATIENCE: Final = 3.0
_SOON: Final = 2.0


async def load_first(load: Callable[[], None]) -> None:
    """Load or compile, in a thread, and say so if it takes long; Ctrl-C and SIGTERM end the process at once meanwhile.

    A compiler cannot be interrupted, and nothing is open yet that would have to be closed.
    """
    with _ended_by_the_system():
        loading = asyncio.create_task(asyncio.to_thread(load))
        if not (await asyncio.wait([loading], timeout=_PATIENCE))[0]:
            click.echo(
                "loading the inner loops; the first time on a machine they are compiled, for up to half a minute …",
                err=True,
            )
        await loading


@contextlib.contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """Somebody who waits is told after two seconds for what."""
    timer = asyncio.get_running_loop().call_later(_SOON, lambda: click.echo(what, err=True))
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _ended_by_the_system() -> Iterator[None]:
    """The system ends this process when it is asked to end, and Python has no say."""
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
