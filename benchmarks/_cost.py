"""What the transport costs one receiver: processor time per message at 100,000 messages/s, memory per publisher."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from time import process_time

from sievenet.transport.actions import Publish
from sievenet.transport.bloom import Bits
from sievenet.transport.options import Publishing
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender

#: Seconds between messages.
APART = 1e-5


def cpu(work: Callable[[], object], repeats: int) -> float:
    """The least processor time of a few runs, in seconds: other processes do not count."""
    times = []
    work()
    gc.disable()
    try:
        for _ in range(repeats):
            started = process_time()
            work()
            times.append(process_time() - started)
    finally:
        gc.enable()
    return min(times)


def messages(count: int, bits: Bits, options: Publishing, body: int, publisher: int = 1) -> list[bytes]:
    """What a publisher of 100,000 messages/s sends."""
    sender = Sender(publisher, options, epoch=1)
    return [
        action.data
        for i in range(count)
        for action in sender.publish(bits, bytes(body), i * APART)
        if isinstance(action, Publish)
    ]


def per_message(make: Callable[[], Receiver], made: list[bytes], repeats: int, lose: int = 0) -> float:
    """Microseconds of a receiver per message, its timers included; every ``lose``-th is lost."""

    def go() -> None:
        receiver = make()
        for i, data in enumerate(made):
            now = i * APART + 0.05
            if not lose or i % lose != lose // 2:
                receiver.receive(data, now)
            due = receiver.timer()
            if due is not None and due <= now:
                receiver.expire(now)

    return cpu(go, repeats) / len(made) * 1e6


def per_session(make: Callable[[], Receiver], bits: Bits, options: Publishing, publishers: int) -> float:
    """Bytes of memory per publisher of which a receiver has had 60 messages."""
    made = [messages(60, bits, options, 100, publisher) for publisher in range(1, publishers + 1)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    receiver = make()
    for i in range(60):
        for own in made:
            receiver.receive(own[i], i * 0.01 + 0.05)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / publishers
