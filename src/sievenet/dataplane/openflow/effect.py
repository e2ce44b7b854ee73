"""When a change is not only acknowledged but in effect.

Open vSwitch forwards by a cache of decisions ("megaflows").  A change of a table is acknowledged when the table has
changed; the cache is set right a little later, by threads that go through it in rounds.  For these few milliseconds
packets still go the old way, which for a new subscription is: nowhere.  `subscribe` promises otherwise, so we wait:

    change acknowledged ──▶ poke, acknowledged ──▶ a round ends ──▶ the next round ends
                            the main thread has     may have begun    began after the threads
                            told the threads        before            were told: in effect

The switch's own `revalidator/wait` says when a round ends.  A *poke* (an entry replaced by itself) makes the next round
begin at once instead of within seconds; if that round ended before our question was heard, another poke makes
another.  Changes that wait at the same time share the rounds.

**Decisions that stay wrong.**  In a round, Open vSwitch 3.1 rewrites a decision in place if it still tells enough bits.
But it looks for it by one of its addresses, and may find another decision that holds this address too.  Then the other
is rewritten, and this one stays as it was for as long as packets meet it.  Decisions overlap when one was made by fine
entries and the other, after these were deleted, by a coarse one.  So after deletions all decisions are forgotten: at
once when the catch-all of a plan change goes, else within `DOUBT` seconds, since every kind of packet then costs a
decision again.  Later versions look for the decision itself.

A switch elsewhere cannot be asked that way, and OpenFlow has no word for it.  There a `Pause` has to do: a change makes
Open vSwitch begin a round at once, and rounds take milliseconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from sievenet.errors import Unavailable

__all__ = ["DOUBT", "Pause", "Poke", "Rounds", "Settling", "appctl"]

Poke: TypeAlias = Callable[[], Awaitable[None]]

#: The longest answer of a switch's process, and the longest wait for one.
_LONGEST: Final = 1 << 24
_PATIENCE: Final = 5.0
#: Seconds after which a round is thought to have ended unheard.
_OVERDUE: Final = 0.05
#: Seconds for which decisions may overlap.
DOUBT: Final = 5.0


async def appctl(path: Path, method: str, *arguments: str) -> str:
    """Ask a process of Open vSwitch over its control socket, as `ovs-appctl` does."""
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(json.dumps({"id": 0, "method": method, "params": list(arguments)}).encode())
                answer = await _answer(reader)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"Open vSwitch does not answer {method}: {str(error) or 'timeout'}") from None
    if answer.get("error"):
        raise Unavailable(f"Open vSwitch refuses {method}: {answer['error']}")
    return str(answer.get("result") or "")


async def _answer(reader: asyncio.StreamReader) -> dict[str, object]:
    buffer = bytearray()
    while len(buffer) <= _LONGEST:
        data = await reader.read(1 << 16)
        if not data:
            break
        buffer += data
        if data.endswith(b"}"):
            try:
                found = json.loads(buffer)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    raise OSError("no whole answer")


class Settling(Protocol):
    """Waits until changes are in effect."""

    async def settled(self, poke: Poke) -> None:
        """Return when whatever was acknowledged before this call is in effect."""

    def doubt(self) -> None:
        """Entries were deleted: decisions may overlap from now on."""

    async def refresh(self, soon: float = DOUBT) -> None:
        """Let switches decide anew about everything, if there was doubt for longer than this."""


class Pause:
    """Waits for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def settled(self, poke: Poke) -> None:
        """Return when whatever was acknowledged before this call should be in effect."""
        await asyncio.sleep(self._seconds)

    def doubt(self) -> None:
        """Nobody can be told."""

    async def refresh(self, soon: float = DOUBT) -> None:
        """Nobody can be told."""


class Rounds:
    """Waits until changes are in effect; one for all switches of a process."""

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        #: Since when decisions may overlap.
        self._doubt: float | None = None

    async def settled(self, poke: Poke) -> None:
        """Return when whatever was acknowledged before this call is in effect."""
        if self._next is None:
            self._next = asyncio.create_task(self._round(self._running, poke))
            # Those who waited may have given up; then nobody else reads how it ended.
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._next)

    def doubt(self) -> None:
        """Entries were deleted: decisions may overlap from now on."""
        if self._doubt is None:
            self._doubt = asyncio.get_running_loop().time()

    async def refresh(self, soon: float = DOUBT) -> None:
        """Let the switches decide anew about everything, if there was doubt for longer than this."""
        if self._doubt is not None and asyncio.get_running_loop().time() - self._doubt >= soon:
            self._doubt = None
            await appctl(self._path(), "revalidator/purge")

    async def _round(self, before: asyncio.Task[None] | None, poke: Poke) -> None:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        # From here on newcomers may be later than what this round sees.
        self._running, self._next = self._next, None
        await poke()
        for _ in range(2):
            waiting = asyncio.create_task(appctl(self._path(), "revalidator/wait"))
            try:
                await poke()
                while not (await asyncio.wait((waiting,), timeout=_OVERDUE))[0]:
                    await poke()
                await waiting
            finally:
                waiting.cancel()
