"""Loading the compiled parts of covering, which takes a second or two, without keeping anybody waiting.

`begin` starts a thread that loads them, once per process; `done` says whether that has ended. Code on an event loop
asks first, and puts off what needs them.
"""

from __future__ import annotations

import sys
import threading

from sievenet.content import Attribute, Filter, Schema

__all__ = ["begin", "done", "load"]

_loaded = threading.Event()
_starting = threading.Lock()
_started = False


def load() -> None:
    """Load them now, in this thread."""
    from sievenet.index.bitmaps import Bitmaps
    from sievenet.index.plan import Plan

    schema = Schema("warm", (Attribute("x", "int", lo=0, hi=1),))
    Plan.regular(schema, 4).cover(Filter(schema))
    cells = Bitmaps("covers", codes=True)
    cells.put(0, 0)
    cells.holding(0)
    _loaded.set()


def begin() -> None:
    """Load them in a thread of their own, if nobody has asked for it before."""
    global _started
    with _starting:
        if _started:
            return
        _started = True
    threading.Thread(target=_untraced, name="sievenet-loading", daemon=True).start()


def _untraced() -> None:
    # Traced (by coverage, by a debugger), the compiler takes many times as long; and where the main thread waits for
    # it with a signal to handle, CPython 3.11 lets a traced thread spin and get nowhere.
    sys.settrace(None)
    load()


def done() -> bool:
    """Whether they are there."""
    return _loaded.is_set()
