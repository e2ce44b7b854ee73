"""What max-min fairness would deliver through a narrow link: every flow at the same rate, as high as the link allows.

The publisher's own rule (a message goes when every flow that it belongs to has a token) is applied to all messages that
were offered, with one rate for all flows of a publisher, no queue and no loss; the rate is found by bisection.
"""

from __future__ import annotations

from collections.abc import Sequence

#: When it was published, by whom, and its flows with how many want each.
Offered = tuple[float, int, Sequence[tuple[object, int]]]

#: Seconds' worth of tokens that a flow may save.
_SAVED = 0.2


def passed(offered: Sequence[Offered], rate: float) -> tuple[int, int]:
    """Messages that go, and deliveries of them, if every flow may have ``rate`` messages per second."""
    tokens: dict[tuple[int, object], float] = {}
    counted: dict[tuple[int, object], float] = {}
    sent = deliveries = 0
    for when, publisher, flows in offered:
        for flow, _ in flows:
            key = (publisher, flow)
            saved = tokens.get(key, 1.0) + (when - counted.get(key, 0.0)) * rate
            tokens[key], counted[key] = min(saved, max(1.0, rate * _SAVED)), when
        if flows and all(tokens[publisher, flow] >= 1.0 for flow, _ in flows):
            sent += 1
            for flow, count in flows:
                tokens[publisher, flow] -= 1.0
                deliveries += count
    return sent, deliveries


def max_min(offered: Sequence[Offered], room: float) -> tuple[float, float]:
    """Deliveries, and the rate of every flow, at which just ``room`` messages go."""
    low, high = 0.01, 1e5
    for _ in range(14):
        middle = (low * high) ** 0.5
        if passed(offered, middle)[0] > room:
            high = middle
        else:
            low = middle
    return float(passed(offered, low)[1]), low
