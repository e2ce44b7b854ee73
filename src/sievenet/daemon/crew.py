"""The crew: configurators that a daemon starts on its own machine, and starts again when they end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["keep_running"]

log = logging.getLogger("sievenet.daemon")

#: Seconds before a process that ended is started again: at first, and if it ends again and again.
_SOON: Final = 0.2
_LATER: Final = 10.0


async def keep_running(name: str, words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run `sievenet configurator` with these words, and another one when it ends; it ends with this task."""
    now, pause = asyncio.get_running_loop().time, _SOON
    while True:
        begin = now()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sievenet",
                "configurator",
                *words,
                env={**os.environ, **(environment or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:  # too few file descriptors, or too little memory: others may need less soon
            pause = min(_LATER, 2 * pause)
            log.warning("%s cannot be started: %s; once more in %.1f s", name, error.strerror or error, pause)
            await asyncio.sleep(pause)
            continue
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        pause = _SOON if now() - begin > _LATER else min(_LATER, 2 * pause)
        log.warning("%s ended with %d; another one is started in %.1f s", name, code, pause)
        await asyncio.sleep(pause)
