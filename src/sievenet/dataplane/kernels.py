"""Compiled inner loops: finding codes among boundaries, deciding flows, and walking whole networks.

Codes are pairs of 64-bit words, compared as one number of 128 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sievenet.index.bitmap_kernels import holding
from sievenet.jit import compiled, inlined

__all__ = ["decide", "locate", "walk"]


@inlined
def _position(hi: Any, lo: Any, starts_hi: Any, starts_lo: Any, first: Any, last: Any) -> Any:
    """The last position in [first, last) whose start is at most the code; the first start is always 0."""
    a, b = first, last
    while b - a > 1:
        m = (a + b) >> 1
        if starts_hi[m] < hi or (starts_hi[m] == hi and starts_lo[m] <= lo):
            a = m
        else:
            b = m
    return a


@compiled
def locate(hi: Any, lo: Any, starts_hi: Any, starts_lo: Any) -> Any:
    """For each code the interval that holds it."""
    out = np.empty(hi.size, np.int64)
    for i in range(hi.size):
        out[i] = _position(hi[i], lo[i], starts_hi, starts_lo, 0, starts_hi.size)
    return out


@inlined
def _before(rank: Any, a: Any, b: Any) -> Any:
    """Whether flow a takes precedence over flow b."""
    if rank[a, 0] != rank[b, 0]:
        return rank[a, 0] > rank[b, 0]
    if rank[a, 1] != rank[b, 1]:
        return rank[a, 1] > rank[b, 1]
    return rank[a, 2] > rank[b, 2]


@compiled
def decide(
    bits: Any, words: Any, code: Any, cells: Any, first: Any, following: Any, table: Any, rank: Any, best: Any, out: Any
) -> Any:
    """Write the flows that decide a code, ascending; how many there are.  `best` is -1 everywhere, before and after."""
    count, found = holding(bits, words, code, cells), 0
    for i in range(count):
        flow = first[cells[i]]
        while flow >= 0:
            rival = best[table[flow]]
            if rival < 0:
                best[table[flow]] = flow
                out[found] = table[flow]
                found += 1
            elif _before(rank, flow, rival):
                best[table[flow]] = flow
            flow = following[flow]
    for i in range(found):
        flow, at = best[out[i]], i
        best[out[i]] = -1
        while at > 0 and out[at - 1] > flow:
            out[at] = out[at - 1]
            at -= 1
        out[at] = flow
    return found


@inlined
def _uniform(seed: Any, row: Any, port: Any) -> Any:
    """A number in [0, 1) that depends on these three alone (splitmix64)."""
    z = seed + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(port) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


@compiled
def walk(
    first_row: Any,  # continue here
    hi: Any,
    lo: Any,
    size: Any,
    entry: Any,  # per row: the port where the packet comes in
    segment_of: Any,  # per port: which part of the arrays below decides packets that come in here
    segment_start: Any,
    segment_end: Any,
    starts_hi: Any,  # per interval
    starts_lo: Any,
    decision: Any,
    ports_start: Any,  # per decision, one more at the end
    ports: Any,
    far_port: Any,  # per port: the port at the other end of its link; -1 if a client or host is there
    alive: Any,  # per port
    delay: Any,
    loss: Any,
    seed: Any,
    decisions: Any,  # counted: packets and bytes per decision
    decision_bytes: Any,
    sent: Any,  # counted per port
    sent_bytes: Any,
    dropped: Any,
    seen: Any,  # scratch, per port: the last row that came in here
    stack: Any,  # scratch, per port
    late: Any,  # scratch, per port: how long the way to it took
    out_row: Any,
    out_port: Any,
    out_delay: Any,
) -> Any:
    """Walk packets through the network; returns (next row, deliveries made, loops cut).

    Stops before a row for which the output might not have room.
    """
    made = 0
    looped = 0
    row = first_row
    while row < hi.size:
        if out_row.size - made < far_port.size:
            break
        top = 1
        stack[0] = entry[row]
        late[entry[row]] = 0.0
        seen[entry[row]] = row
        while top > 0:
            top -= 1
            here = stack[top]
            segment = segment_of[here]
            if segment < 0:
                continue
            at = _position(hi[row], lo[row], starts_hi, starts_lo, segment_start[segment], segment_end[segment])
            d = decision[at]
            decisions[d] += 1
            decision_bytes[d] += size[row]
            for k in range(ports_start[d], ports_start[d + 1]):
                port = ports[k]
                if port == here:
                    continue
                if not alive[port] or (loss[port] > 0.0 and _uniform(seed, row, port) < loss[port]):
                    dropped[port] += 1
                    continue
                sent[port] += 1
                sent_bytes[port] += size[row]
                there = far_port[port]
                if there < 0:
                    out_row[made] = row
                    out_port[made] = port
                    out_delay[made] = late[here] + delay[port]
                    made += 1
                elif seen[there] == row:
                    looped += 1
                else:
                    seen[there] = row
                    late[there] = late[here] + delay[port]
                    stack[top] = there
                    top += 1
        row += 1
    return row, made, looped
