"""The screen of `sievenet up`: what goes on, as tables in a terminal, as lines elsewhere, or as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sievenet.cli.fabric import seconds_text
from sievenet.cli.output import LinePrinter

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["fitting", "watch"]

#: Shows tables, or where there is no room for them a line.
_Show = Callable[[list[Any], str], None]


async def watch(
    status: Callable[[], Awaitable[dict[str, Any]]],
    welcome: Sequence[str],
    stop: asyncio.Event,
    seconds: float | None,
    every: float,
    as_json: bool,
) -> None:
    """Show what goes on until it is stopped, or for so many seconds; a terminal shows the welcome above it."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    # Clients report about once a second; rates over a few looks hide the beat between their clock and ours.
    looks: deque[dict[str, Any]] = deque(maxlen=4)
    line = LinePrinter()
    with _screen(as_json, welcome) as screen:
        while True:
            wait = every if end is None else min(every, end - loop.time())
            if wait <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait)
                return
            found = await status()
            _show(found, looks[0] if looks else None, screen, as_json, line)
            looks.append(found)


@contextlib.contextmanager
def _screen(as_json: bool, welcome: Sequence[str]) -> Iterator[_Show | None]:
    """Shows tables in a terminal, below what to try; nothing elsewhere."""
    if as_json or not sys.stdout.isatty():
        yield None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    head = Text("\n".join(welcome))
    with Live(head, console=console, refresh_per_second=4) as live:
        yield lambda tables, line: live.update(Group(head, "", *fitting(console, [head, ""], tables, Text(line))))


def fitting(
    console: Console, above: Sequence[RenderableType], parts: Sequence[RenderableType], line: RenderableType
) -> list[RenderableType]:
    """The first parts that fit a terminal below others, or a line if none does; then where the rest is."""

    def height(part: RenderableType) -> int:
        return len(console.render_lines(part, pad=False))

    left = console.height - 2 - sum(map(height, above))
    for i, part in enumerate(parts):
        left -= height(part)
        if left < 0:
            return [*(parts[:i] or [line]), "… `sievenet status` shows the rest"]
    return list(parts)


def _show(
    found: dict[str, Any],
    before: dict[str, Any] | None,
    screen: _Show | None,
    as_json: bool,
    line: LinePrinter,
) -> None:
    rates = _rates(found, before)
    if as_json:
        import msgspec

        line(msgspec.json.encode({**found, "rates": rates}).decode())
    elif screen is None:
        line(_line(found, rates))
    else:
        from sievenet.cli.status import status_tables

        screen(status_tables(found, rates), _line(found, rates))


def _line(found: dict[str, Any], rates: dict[str, float]) -> str:
    """All of it in one line."""
    from sievenet.cli.status import percent

    traffic = found["traffic"]
    flows = sum(switch["flows"] for switch in found["switches"])
    said = found.get("tuning", {}).get("line", "")
    line = (
        f"up {found['uptime']:.0f} s: {rates['published']:.0f} published/s, {rates['delivered']:.0f} delivered/s, "
        f"latency p50 {seconds_text(traffic['latency_p50'])} p99 {seconds_text(traffic['latency_p99'])}, "
        f"unnecessary {percent(traffic['per_link'])} per link, {rates['per_host']:.1%} per host, "
        f"{percent(traffic['per_subscription'])} per subscription, {flows} flows, {len(found['clients'])} clients"
    )
    return f"{line}; {said}" if said else line


def _rates(found: dict[str, Any], before: dict[str, Any] | None) -> dict[str, float]:
    """Per second, between two looks; and the part of what came that was not wanted."""
    traffic = found["traffic"]
    names = ("published", "transmissions", "received", "delivered", "false_positives", "duplicates", "dropped")
    if before is None:
        passed = max(found["uptime"], 1e-3)
        rates = {name: traffic[name] / passed for name in names}
    else:
        passed = max(found["uptime"] - before["uptime"], 1e-3)
        rates = {name: (traffic[name] - before["traffic"][name]) / passed for name in names}
    came = rates["received"]
    rates["per_host"] = (rates["false_positives"] + rates["duplicates"]) / came if came > 0 else 0.0
    return rates
