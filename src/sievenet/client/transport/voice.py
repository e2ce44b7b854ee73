"""Who speaks for a publisher: the plane's number under which its messages come.

A header names the publisher as it was called when its stream began. Usually the plane vouches for that number. It is
another one when the publisher has a new connection to its router, or is behind a gateway:

    the number is the publisher's own        believed
    nobody has spoken for the publisher yet  believed: there is nothing to compare with
    the one that spoke last                  believed
    another                                  kept for `PATIENCE`; believed if the one before has fallen silent by then,
                                             and otherwise a stranger, whose headers mean nothing

So a forger cannot disturb the stream of a publisher that is there, and a publisher that comes back under another number
is heard again after a moment, with nothing lost.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from math import inf
from typing import Final

import msgspec

__all__ = ["PATIENCE", "Verdict", "Voices"]

#: Seconds for which a new voice waits.
PATIENCE: Final = 1.0
#: Publishers whose voices are known.
_PUBLISHERS: Final = 4096


class Verdict(Enum):
    """Whether to believe."""

    TRUE = "true"
    WAIT = "wait"
    FOREIGN = "foreign"


class _Voice(msgspec.Struct):
    number: int
    heard: float
    #: Another that wants to be believed, and since when.
    other: int = 0
    since: float = inf


class Voices:
    """The voices that one subscription hears."""

    def __init__(self) -> None:
        self._voices: OrderedDict[int, _Voice] = OrderedDict()

    def judge(self, publisher: int, number: int, now: float) -> Verdict:
        """Somebody with this number speaks for a publisher."""
        voice = self._voices.get(publisher)
        if voice is None or number in (publisher, voice.number):
            if voice is None:
                voice = self._voices[publisher] = _Voice(number, now)
                if len(self._voices) > _PUBLISHERS:
                    self._voices.popitem(last=False)
            voice.number, voice.heard = number, now
            return Verdict.TRUE
        if voice.other != number:
            voice.other, voice.since = number, now
        if voice.heard + PATIENCE <= now:
            return self._replace(voice, number, now)
        if now < voice.since + PATIENCE:
            return Verdict.WAIT
        # What was under way when the publisher changed its number may have come a little after the first of the new.
        if voice.heard <= voice.since + PATIENCE / 2:
            return self._replace(voice, number, now)
        return Verdict.FOREIGN

    @staticmethod
    def _replace(voice: _Voice, number: int, now: float) -> Verdict:
        voice.number, voice.heard, voice.other, voice.since = number, now, 0, inf
        return Verdict.TRUE
