"""The garbage collector of a process that is a daemon, and its threads.

What a control plane makes either goes at once (changes, replies: reference counting frees those) or stays for good
(registrations).  Looking for cycles among it after every 700 new objects, as Python does, costs a fifth of its time
and finds nothing.  Cycles do arise, in tasks and errors: now and then is soon enough for them.

What takes long is done in threads beside the event loop, and events must not wait for them: a thread gives way after
a fifth of a millisecond, where Python lets it run for five. The loop has to ask for that again for each record that it
decrypts.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collecting_seldom"]

#: New objects before the youngest are looked at, and how often that happens before the older ones are.
#: A look at the youngest keeps everybody waiting, other threads too: few at a time, a fraction of a millisecond.
_THRESHOLDS: Final = 4_000, 250, 50
#: Seconds that a thread runs while another one waits.
_SWITCH: Final = 0.0002


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Within it, this process looks for cycles seldom, not among what is there already, and its threads give way."""
    before, switch = gc.get_threshold(), sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*before)
        gc.unfreeze()
