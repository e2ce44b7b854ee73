"""Compiled kernels of counting: who gets each event, not only how many.

They read the bitmaps of `sievenet.tuning.stabbing`: row ``starts[d] + ranks[d, e]`` holds the
boxes whose span on axis d holds event e.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.jit import compiled, inlined

_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]
_I32 = npt.NDArray[np.int32]


@inlined
def _popcount(x: np.uint64) -> int:
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def mark(bitmaps: _U64, first: _I64, behind: _I64, box: _I64) -> None:
    """Set the bit of each span's box in the rows ``first`` to ``behind`` (exclusive)."""
    for i in range(first.size):
        word = box[i] >> 6
        bit = np.uint64(1) << np.uint64(box[i] & 63)
        for row in range(first[i], behind[i]):
            bitmaps[row, word] |= bit


@compiled
def stab(ranks: _I32, bitmaps: _U64, starts: _I64, owners: _I64, counts: _I64) -> None:
    """Per event how many owners have a box around it.

    Row ``starts[d] + ranks[d, e]`` of the bitmaps holds the boxes whose span on axis d holds
    event e; boxes of one owner are neighbours.
    """
    axes, events = ranks.shape
    words = bitmaps.shape[1]
    simple = owners.size == 0
    for e in range(events):
        found = 0
        last = np.int64(-1)
        for w in range(words):
            x = bitmaps[starts[0] + ranks[0, e], w]
            for d in range(1, axes):
                if x == 0:
                    break
                x &= bitmaps[starts[d] + ranks[d, e], w]
            if x == 0:
                continue
            if simple:
                found += _popcount(x)
                continue
            while x:
                low = x & (~x + np.uint64(1))
                owner = owners[(w << 6) + _popcount(low - np.uint64(1))]
                if owner != last:
                    found += 1
                    last = owner
                x ^= low
        counts[e] += found


@compiled
def pair_counts(ranks: _I32, bitmaps: _U64, starts: _I64, out: _I64) -> None:
    """For each two axes the sum over events of boxes whose spans on both axes hold the event."""
    axes, events = ranks.shape
    words = bitmaps.shape[1]
    for e in range(events):
        for i in range(axes):
            a = starts[i] + ranks[i, e]
            for j in range(i, axes):
                b = starts[j] + ranks[j, e]
                found = 0
                for w in range(words):
                    found += _popcount(bitmaps[a, w] & bitmaps[b, w])
                out[i, j] += found


#: Events per block of `tally`: a bitmap of a block is a row of this many bits.
BLOCK = 4096


@compiled
def tally(ranks: _I32, sizes: _I64, first: _I32, behind: _I32, owners: _I64, found: _I64) -> None:
    """Add to each owner's count the events that some box of it holds; boxes of one owner are neighbours.

    Bits are events here, not boxes (see `spans`).  ``ranks`` says per axis and event how many ends are at or below it;
    ``first`` and ``behind`` are numbers of ends: a box holds the ranks behind the one and up to the other.  Quick if
    neighbouring events have close ranks.
    """
    axes, events = ranks.shape
    starts = np.zeros(axes + 1, np.int64)
    for d in range(axes):
        starts[d + 1] = starts[d] + sizes[d] + 1
    words = BLOCK >> 6
    below = np.zeros((starts[axes], words), np.uint64)
    inside, union = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    nothing, full = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    lows, highs = np.zeros(axes, np.int32), np.zeros(axes, np.int32)
    for at in range(0, events, BLOCK):
        count = min(BLOCK, events - at)
        full[:] = np.uint64(0)
        for e in range(count):
            full[e >> 6] |= np.uint64(1) << np.uint64(e & 63)
        for d in range(axes):
            low, high = ranks[d, at], ranks[d, at]
            for e in range(at + 1, at + count):
                low, high = min(low, ranks[d, e]), max(high, ranks[d, e])
            lows[d], highs[d] = low, high
            base = starts[d]
            below[base + low : base + high + 1] = np.uint64(0)
            for e in range(count):
                below[base + ranks[d, at + e], e >> 6] |= np.uint64(1) << np.uint64(e & 63)
            for row in range(base + low + 1, base + high + 1):
                for w in range(words):
                    below[row, w] |= below[row - 1, w]
        b = 0
        while b < owners.size:
            owner = owners[b]
            single = b + 1 == owners.size or owners[b + 1] != owner
            some = False
            while b < owners.size and owners[b] == owner:
                apart = False
                for d in range(axes):
                    apart |= highs[d] <= first[b, d] or lows[d] > behind[b, d]
                if not apart:
                    bits = np.uint64(1)
                    begun = False
                    for d in range(axes):
                        lower, upper = first[b, d] >= lows[d], behind[b, d] < highs[d]
                        if not lower and not upper:
                            continue
                        under = below[starts[d] + behind[b, d]] if upper else full
                        over = below[starts[d] + first[b, d]] if lower else nothing
                        bits = np.uint64(0)
                        if begun:
                            for w in range(words):
                                inside[w] &= under[w] & ~over[w]
                                bits |= inside[w]
                        else:
                            for w in range(words):
                                inside[w] = under[w] & ~over[w]
                                bits |= inside[w]
                        begun = True
                        if bits == 0:
                            break
                    if bits:
                        held = inside if begun else full
                        if single:
                            for w in range(words):
                                found[owner] += _popcount(held[w])
                        elif some:
                            for w in range(words):
                                union[w] |= held[w]
                        else:
                            union[:] = held
                        some = True
                b += 1
            if some and not single:
                for w in range(words):
                    found[owner] += _popcount(union[w])


@compiled
def holding(ranks: _I32, bitmaps: _U64, starts: _I64, counts: _I64) -> None:
    """Add to each event's count the boxes that hold it; boxes of `sievenet.tuning.stabbing`, each its own owner.

    Row by row without a look at what is left, which a processor does many words at a time.
    """
    axes, events = ranks.shape
    words = bitmaps.shape[1]
    left = np.zeros(words, np.uint64)
    for e in range(events):
        row = bitmaps[starts[0] + ranks[0, e]]
        for w in range(words):
            left[w] = row[w]
        for d in range(1, axes):
            row = bitmaps[starts[d] + ranks[d, e]]
            for w in range(words):
                left[w] &= row[w]
        found = 0
        for w in range(words):
            found += _popcount(left[w])
        counts[e] += found


@compiled
def tally_masked(hi: _U64, lo: _U64, rows: _U64, owners: _I64, found: _I64) -> None:
    """The same for entries that are values under masks; entries of one owner are neighbours."""
    for i in range(hi.size):
        last = np.int64(-1)
        for r in range(rows.shape[0]):
            if owners[r] != last and (hi[i] & rows[r, 2]) == rows[r, 0] and (lo[i] & rows[r, 3]) == rows[r, 1]:
                found[owners[r]] += 1
                last = owners[r]


@compiled
def mark_places(
    ranks: npt.NDArray[np.int32], bitmaps: _U64, starts: _I64, owners: _I64, place: _I64, reached: _U64
) -> None:
    """Set in each event's row the bit of every place where an owner of a box that holds it is."""
    axes, events = ranks.shape
    words = bitmaps.shape[1]
    for e in range(events):
        for w in range(words):
            x = bitmaps[starts[0] + ranks[0, e], w]
            for d in range(1, axes):
                if x == 0:
                    break
                x &= bitmaps[starts[d] + ranks[d, e], w]
            while x:
                low = x & (~x + np.uint64(1))
                at = place[owners[(w << 6) + _popcount(low - np.uint64(1))]]
                reached[e, at >> 6] |= np.uint64(1) << np.uint64(at & 63)
                x ^= low


@compiled
def mark_masked(hi: _U64, lo: _U64, rows: _U64, owners: _I64, place: _I64, reached: _U64) -> None:
    """The same for entries that are values under masks."""
    for i in range(hi.size):
        for r in range(rows.shape[0]):
            if (hi[i] & rows[r, 2]) == rows[r, 0] and (lo[i] & rows[r, 3]) == rows[r, 1]:
                at = place[owners[r]]
                reached[i, at >> 6] |= np.uint64(1) << np.uint64(at & 63)


@compiled
def hard_pairs(
    grids: _I64, first: _I64, last: _I64, coarse: _I64, most: int, seed: int, event: _I64, box: _I64
) -> tuple[int, int]:
    """Pairs of a point and a box that differ, but not when every axis loses ``coarse`` bits.

    Puts a uniform sample of at most ``most`` of them into ``event`` and ``box`` (a reservoir); returns how many are
    there, and how many there are in all.
    """
    state = np.uint64(seed)
    axes, events = grids.shape
    found = 0
    for e in range(events):
        for b in range(first.shape[0]):
            near = True
            same = True
            for d in range(axes):
                x = grids[d, e]
                shift = coarse[d]
                if (x >> shift) < (first[b, d] >> shift) or (x >> shift) > (last[b, d] >> shift):
                    near = False
                    break
                if x < first[b, d] or x > last[b, d]:
                    same = False
            if not near or same:
                continue
            if found < most:
                event[found] = e
                box[found] = b
            else:
                # Knuth's linear congruential generator; its upper bits are good enough to thin a sample.
                state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                at = int((state >> np.uint64(33)) % np.uint64(found + 1))
                if at < most:
                    event[at] = e
                    box[at] = b
            found += 1
    return min(found, most), found


@compiled
def cross(
    reached: _U64,
    switch: _I64,
    own: _I64,
    group: _I64,
    behind: _U64,
    beyond: npt.NDArray[np.bool_],
    links: _I64,
    received: _I64,
) -> None:
    """Add to each link the packets that cross it, and to each place those that it gets (see `network`)."""
    packets, words = reached.shape
    for p in range(packets):
        if own[p] >= 0:
            reached[p, own[p] >> 6] &= ~(np.uint64(1) << np.uint64(own[p] & 63))
        some = False
        for w in range(words):
            x = reached[p, w]
            some |= x != 0
            while x:
                low = x & (~x + np.uint64(1))
                received[(w << 6) + _popcount(low - np.uint64(1))] += 1
                x ^= low
        if not some:
            continue
        for link in range(links.size):
            if beyond[group[p], link, switch[p]]:
                continue
            for w in range(words):
                if reached[p, w] & behind[group[p], link, w]:
                    links[link] += 1
                    break
