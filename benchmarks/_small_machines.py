"""Configurators on machines that are slower than this one, each with a processor of its own.

A machine with two cores cannot show what balancing does for many machines: configurators share a core here, and one
that idles leaves its time to the others.  So these rest in every piece of work, `slower` - 1 times as long as it
took the processor, and hear and say nothing meanwhile.  What one of them does not use is of no use to the others, as on
machines of their own.

Run as a program it is such a configurator.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from sievenet.control.configurators import messages as m
from sievenet.control.configurators.copies import Copies
from sievenet.control.plane import ControlPlane
from sievenet.daemon.configurator import Configurator
from sievenet.daemon.configurators import SECRET, Configurators

__all__ = ["SmallMachines"]

ROOT = Path(__file__).resolve().parent.parent


class SmallMachines(Configurators):
    """So many slow configurators."""

    def __init__(self, control: ControlPlane, count: int, slower: float) -> None:
        super().__init__(control, count)
        self._slower = slower

    async def _keep(self, name: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks._small_machines", self._listener.url, name, str(self._slower)),
            env={**os.environ, SECRET: self._secret},
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            await process.wait()
            raise RuntimeError(f"{name} ended with {process.returncode}")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


class _Slow(Copies):
    """Rests in its work."""

    def __init__(self, slower: float) -> None:
        super().__init__()
        self._slower = slower

    def work(self) -> m.Answer | m.Puzzled | m.Dropped | None:
        """Do what is next, slowly."""
        begin = time.process_time()
        found = super().work()
        time.sleep((self._slower - 1) * (time.process_time() - begin))
        return found


async def _main(url: str, name: str, slower: float) -> None:
    found = urlsplit(url)
    configurator = Configurator(str(found.hostname), int(found.port or 0), name, os.environ[SECRET])
    configurator.copies = _Slow(slower)
    await configurator.run()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
