"""What a subscriber does with events is compiled before they come: a compiler would stop its event loop."""

import subprocess
import sys
from pathlib import Path

#: Says what is loaded, or would have to be compiled, after everything was said to be there.
_LATE = """
import numpy as np
import sievenet.jit.decorators
from sievenet.client.edge import Edge
from sievenet.content import Attribute, Event, EventBatch, Schema, parse_subscription
from sievenet.content.layout import layout_of
from sievenet.dataplane.packet import PACKET_HEADER
from sievenet.matcher.warmup import EVENTS

EVENTS.load()
late, load = set(), sievenet.jit.decorators._Cache.load_overload

def noted(cache, signature, target):
    late.add(cache._name)
    return load(cache, signature, target)

sievenet.jit.decorators._Cache.load_overload = noted
POINT = Schema("point", (Attribute("x", "int", lo=0, hi=999), Attribute("y", "float", lo=0, hi=9)))
edge = Edge(POINT)
bodies = layout_of(POINT).encode(EventBatch.from_events(POINT, [Event(POINT, (5, 0.5))] * 9))
rows = np.concatenate((np.zeros((9, PACKET_HEADER), np.uint8), bodies), axis=1)
for i in range(900):
    edge.add(i, parse_subscription(f"point: x in [{i}, {i + 20}] and y < {1 + i % 7}", {"point": POINT}))
    edge.segments, edge._patience = None, 0
    if i % 9 == 0:
        assert edge.match(Event(POINT, (i, 0.5)))
        assert len(edge.wanted(rows, np.ones(9, np.bool_)).which) == 9
for i in range(800):
    edge.remove(i)
    edge.segments, edge._patience = None, 0
    edge.match(Event(POINT, (i, 0.5)))
print(sorted(late))
"""


def test_nothing_is_left_to_be_compiled_when_events_come():
    top = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", _LATE], cwd=top, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
