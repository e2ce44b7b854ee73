"""The subscriptions that a matcher serves: they come, change and go."""

import numpy as np

from sievenet.client.served import Served
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import encode_subscription
from sievenet.control.protocol import Interest

LINE = Schema("line", (Attribute("x", "int", lo=0, hi=99),))


def interest(key, recipient, lo, hi, side=0):
    wanted = Subscription([Filter(LINE, {"x": ValueSet.interval(lo, hi)})])
    return Interest(key, recipient, side, encode_subscription(wanted))


def reached(served, *xs, publisher=1):
    """Whom an event of each value goes to."""
    batch = EventBatch.of(LINE, {"x": list(xs)})
    rows, to, _ = served.targets(batch, np.full(len(xs), publisher, np.uint64))
    return [sorted(to[rows == i].tolist()) for i in range(len(xs))]


def test_subscriptions_come_change_and_go():
    served = Served(LINE, None)
    served.enter([interest(1, 70, 0, 50), interest(2, 71, 40, 60), interest(3, 71, 45, 99)])
    assert reached(served, 10, 48, 80) == [[70], [70, 71], [71]]
    assert served.everybody() == [70, 71]
    # The same subscription, said again: to another recipient, and about another part of the line.
    served.enter([interest(1, 72, 30, 50)])
    assert reached(served, 10, 48, 80) == [[], [71, 72], [71]]
    served.drop(2)
    served.drop(2)  # nothing to do
    served.drop(99)
    assert reached(served, 10, 42, 48) == [[], [72], [71, 72]]
    served.drop(1)
    assert served.everybody() == [71]
    assert len(served.matcher) == 1


def test_nothing_goes_back_to_the_side_that_it_came_from():
    served = Served(LINE, None)
    served.enter([interest(1, 70, 0, 50, side=3), interest(2, 71, 0, 50, side=4), interest(3, 72, 0, 50)])
    assert reached(served, 5) == [[70, 71, 72]]
    served.publishers[1] = 3
    assert reached(served, 5) == [[71, 72]]
    assert reached(served, 5, publisher=2) == [[70, 71, 72]]
    served.enter([interest(2, 71, 0, 50, side=3)])  # the trees have changed
    assert reached(served, 5) == [[72]]
