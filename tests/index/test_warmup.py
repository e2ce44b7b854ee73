"""The compiled parts of covering are loaded once, in the background, and said to be there."""

import threading

from sievenet.index.cover import warmup


def test_loading_begins_once_and_ends():
    warmup.begin()
    first = [t for t in threading.enumerate() if t.name == "sievenet-loading"]
    warmup.begin()
    second = [t for t in threading.enumerate() if t.name == "sievenet-loading"]
    assert len(second) <= max(1, len(first))
    for thread in second:
        thread.join(60)
    warmup.load()
    assert warmup.done()
