"""The harvest: answers of configurators, passed on together, so that they go to switches together.

Partitions are asked at the same moment and answer one after the other.  To tell some dozens of switches what one of
them changes costs about as much as to tell them what twenty change.  So an answer waits a little for others, unless no
other is to come:

    answers  ▪ ▪ ▪▪   ▪            ▪
             └──────────┤ 4 ms     └┤ nothing else is open: at once
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sievenet.control.configurators.messages import Answer, Puzzled
from sievenet.control.consultant import Consultant

__all__ = ["Harvest"]

#: Seconds that an answer waits for others at most.
_WAIT: Final = 0.004


class Harvest:
    """Gathers what configurators say."""

    def __init__(self, control: Consultant) -> None:
        self._control = control
        self._heard: list[tuple[str, Sequence[object]]] = []
        self._answers = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, name: str, messages: Sequence[object]) -> None:
        """A configurator says something."""
        self._heard.append((name, messages))
        self._answers += sum(isinstance(each, Answer | Puzzled) for each in messages)
        if self._answers >= self._control.awaited:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT, self.flush)

    def flush(self) -> None:
        """Pass on what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        heard, self._heard, self._answers = self._heard, [], 0
        if heard:
            self._control.configurators_heard(heard)

    def close(self) -> None:
        """Pass nothing on any more."""
        self._heard, self._answers = [], 0
        if self._timer is not None:
            self._timer.cancel()
