"""What the commands that talk to a fabric share: where it is, durations, and running async code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import click

__all__ = ["asked", "duration", "login_option", "run", "schema_prefix", "seconds_text", "url_option"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_PREFIX: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*:")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def login_option(command: F) -> F:
    """``--login``, which counts for all connections of this command."""
    return click.option(
        "--login",
        envvar="SIEVENET_LOGIN",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        expose_value=False,
        callback=_use_login,
        help="A login file (`sievenet keys`): encrypts, and proves who you are. Default: $SIEVENET_LOGIN, else none.",
    )(command)


def url_option(command: F) -> F:
    """``--url``, as the argument ``url``; and ``--login``, which counts for all connections of this command."""
    command = login_option(command)
    return click.option(
        "--url",
        envvar="SIEVENET_URL",
        metavar="URL",
        help="Where the fabric's daemon listens. Default: $SIEVENET_URL, else sievenet://127.0.0.1:7400.",
    )(command)


def _use_login(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    # The file's path, not its secret: where connections look for it anyway.
    if value is not None:
        os.environ["SIEVENET_LOGIN"] = value


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that takes a duration: 10s, 500ms, 2m, or plain seconds."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)", value.strip())
    if found is None:
        raise click.BadParameter(f"Expected a duration such as 10s, 500ms or 2m, got {value!r}", ctx, param)
    return float(found[1]) * _UNITS[found[2]]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run async code to its end; Ctrl-C and SIGTERM end it quietly after its clean-up."""
    ended: list[int] = []

    async def until_ended() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            ended.append(number)
            task.cancel()

        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not in every thread
            loop.add_signal_handler(signal.SIGTERM, end, signal.SIGTERM)
        return await work

    try:
        return asyncio.run(until_ended())
    except KeyboardInterrupt:
        raise click.exceptions.Exit(128 + signal.SIGINT) from None
    except asyncio.CancelledError:
        if not ended:
            raise
        raise click.exceptions.Exit(128 + ended[0]) from None


def asked(url: str | None, about: str, of: str = "") -> Any:
    """Ask the daemon one question."""
    from sievenet.client.connector import connect

    async def ask() -> Any:
        async with connect(url, observer=True, reconnect=False, timeout=10.0) as node:
            return await node.ask(about, of)

    return run(ask())


def schema_prefix(text: str) -> str | None:
    """The schema's name in front of a filter or an event, if there is one.

    >>> schema_prefix("stock: price > 4"), schema_prefix("price > 4")
    ('stock', None)
    """
    found = _PREFIX.match(text)
    return None if found is None else found[1]


def seconds_text(seconds: float | None) -> str:
    """A duration for people.

    >>> seconds_text(0.000123), seconds_text(1.5), seconds_text(None)
    ('123 µs', '1.50 s', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
