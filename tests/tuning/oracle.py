"""The simple count: what plans deliver and what is wanted, event by event and subscription by subscription."""

import numpy as np

from sievenet.index import Dz, DzSet


def delivered(plan, batch, wanted, budget, kind=None):
    """Packets, and per subscription how many of them its cover lets through."""
    covers = [plan.cover(w, budget, kind=kind) for w in wanted]
    packets, found = 0, np.zeros(len(wanted), np.int64)
    for event in batch:
        for code in plan.encode(event):
            packets += 1
            number = code.bits << (plan.bits - code.length)
            for owner, cover in enumerate(covers):
                if isinstance(cover, DzSet):
                    found[owner] += any(entry.covers(Dz(number, plan.bits)) for entry in cover)
                else:
                    found[owner] += any(number in entry for entry in cover)
    return packets, found


def matched(batch, wanted):
    """Per subscription how many events it wants."""
    return np.array([sum(w.matches(e) for e in batch) for w in wanted], np.int64)
