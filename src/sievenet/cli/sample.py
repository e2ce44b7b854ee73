"""A sample workload for `sievenet up --sample`: a market, and a few who watch it.

One node publishes ticks of the `stock` schema, others subscribe to what traders might; all of them are ordinary clients
that connect to the fabric's ports like anybody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from sievenet.errors import InvalidInput, SievenetError
from sievenet.session.lifetime import ended

if TYPE_CHECKING:
    from sievenet.client import Node
    from sievenet.tap import Taps
    from sievenet.workload.ticks import Ticks

__all__ = ["SAMPLES", "sample"]

SAMPLES: Final = ("stock",)
_WATCHERS: Final = 3
_EACH: Final = 6
#: Ticks generated at a time.
_CHUNK: Final = 1000
#: Ticks after which the market begins again.
_LAP: Final = 50_000


@contextlib.asynccontextmanager
async def sample(
    name: str, url: str, rate: float, hosts: Sequence[str], taps: Taps | None = None
) -> AsyncIterator[None]:
    """Run a sample workload while the context lasts, spread over these hosts; `taps` keep what is published."""
    if name not in SAMPLES:
        raise InvalidInput(expected=f"one of {', '.join(SAMPLES)}", got=name, where="--sample")
    from sievenet.client.connector import connect
    from sievenet.workload.ticks import Ticks

    ticks = Ticks(seed=7)
    async with contextlib.AsyncExitStack() as stack:
        wanted = ticks.subscriptions(_WATCHERS * _EACH).filters()
        for i in range(_WATCHERS):
            host = hosts[(i + 1) * (len(hosts) - 1) // _WATCHERS]
            node = await stack.enter_async_context(connect(url, name=f"watcher-{i + 1}", host=host))
            for each in wanted[i * _EACH : (i + 1) * _EACH]:
                await node.subscribe(each, callback=_ignore, queue=1000)
        market = await stack.enter_async_context(connect(url, name="market", host=hosts[0]))
        if taps is not None:
            taps.name(market.name)
            market.tap(taps)
        await market.advertise(ticks.schema)
        task = asyncio.create_task(_publish(market, ticks, rate))
        try:
            yield
        finally:
            await ended(task)


async def _publish(node: Node, ticks: Ticks, rate: float) -> None:
    loop = asyncio.get_running_loop()
    due, start = loop.time(), 0
    while True:
        for event in ticks.events(_CHUNK, start=start):
            due += 1 / rate
            await asyncio.sleep(due - loop.time())
            with contextlib.suppress(SievenetError):
                await node.publish(event)
        # Making tick n takes n steps: begin again before that is felt.
        start = (start + _CHUNK) % _LAP


def _ignore(event: object) -> None:
    """The sample's watchers only count, which their feeds do themselves."""
