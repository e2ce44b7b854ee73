"""The garbage collector of a process that is a daemon.

What a control plane makes either goes at once (changes, replies: reference counting frees those) or stays for good
(registrations).  Looking for cycles among it after every 700 new objects, as Python does, costs a fifth of its time
and finds nothing.  Cycles do arise, in tasks and errors: now and then is soon enough for them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collecting_seldom"]

#: New objects before the youngest are looked at, and how often that happens before the older ones are.
_THRESHOLDS: Final = 20_000, 50, 50


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Within it, this process looks for cycles seldom, and not among what is there already."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
