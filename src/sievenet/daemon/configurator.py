"""A configurator: the process at the other end of `configurators`.  It works out what changes, and decides nothing."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

from sievenet.access.identity import Role
from sievenet.control import warmup
from sievenet.control.configurators import messages as m
from sievenet.control.configurators.copies import Copies
from sievenet.daemon.stopwatch import timed
from sievenet.errors import SievenetError
from sievenet.session.dialler import Dialler
from sievenet.session.link import Link
from sievenet.session.message import Alive

__all__ = ["Configurator"]

#: Seconds of work whose answers are sent together.
_TURN: Final = 0.002


class Configurator(Dialler):
    """Serves one dispatcher until the connection ends: what it knows is of no use to another."""

    def __init__(self, host: str, port: int, name: str, secret: str) -> None:
        super().__init__(m.CONFIGURATORS, (host, port), timeout=10.0, reconnect=False)
        self._name, self._secret = name, secret
        self.copies = Copies()
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[SievenetError] = asyncio.get_running_loop().create_future()

    async def run(self) -> SievenetError:
        """Work until the dispatcher is gone, and say why."""
        await asyncio.to_thread(warmup.load)  # before the first order, which would have to wait for it
        await self.start()
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait((work, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            return self._ended.result()
        finally:
            work.cancel()
            await self.close()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            while self.copies.waiting:
                await self._turn()
            self._wake.clear()

    async def _turn(self) -> None:
        until, answers = time.perf_counter() + _TURN, []
        while self.copies.waiting and time.perf_counter() < until:
            answer = timed(self.copies.work)
            if answer is not None:
                answers.append(answer)
        if self._link is not None:
            self._link.send(*answers)
        await asyncio.sleep(0)  # what has come meanwhile may make the next order needless

    # -- the connection --------------------------------------------------------------------

    def _hello(self) -> m.Hello:
        return m.Hello(m.PROTOCOL, Role.COMPONENT, self._name, token=self._secret, process=os.getpid())

    async def _enter(self, link: Link, welcome: m.Welcome) -> None:
        self._pause = max(0.05, welcome.lease / 4)

    def _told(self, link: Link, message: Any) -> None:
        self.copies.take(message)
        self._wake.set()

    async def _beat(self, link: Link) -> None:
        link.send(Alive())

    def _lost(self, reason: SievenetError) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)
