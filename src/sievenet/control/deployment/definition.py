"""What a switch is given instead of its ideal table: the definition, in a few lines.

The ideal table follows from registrations alone.  The *deployed* one is a function of it:

    ideal ──▶ diverted ──▶ merged ──▶ reduced        each keeps or enlarges what is delivered
            transforms    at merges   lossless

- **Transforms** come first: anything that replaces a table by one that serves as well.  They are a list of functions
  (`keys.Transform`); who adds one answers for it that nobody gets less.  (Diversions to matchers are not of them: they
  are entries above the table, see `diversions`.)
- **Merges** are dz.  Each entry belongs to the smallest merge around it, if there is any.  All that belong to one
  become one entry, whose ports are those of all of them, and of the entry around it:

      10 → a        merge at 1        1 → a, b, c      merges at 1 and 10       1 → b, c
      110 → b      ───────────▶                       ───────────────────▶     10 → a
      111 → c

  A merge inside another is *carved out* of it: where most packets are, a table may stay as exact as it was, and what
  is there need not widen the merge around it.  So may a dz to which no entry belongs: it has the ports of the entry
  around it, or none at all.

- **Reduced** is a table from which all entries are gone that change nothing: two halves with equal ports become
  one, and an entry whose halves both have entries of their own has no packet left to decide.

So every packet leaves by at least the ports of the ideal (diverted) table.  How many entries are left, the merges
decide; `deployment` keeps all this up to date as the ideal table changes, and tests compare it with these functions.
"""

from __future__ import annotations

from collections.abc import Iterable

from sievenet.control.deployment.keys import Ports, Table, Transform, above

__all__ = ["NOBODY", "deployed", "merged", "ports_at", "reduced"]

NOBODY: Ports = frozenset()


def ports_at(table: Table, key: int, root: int) -> Ports:
    """The ports of the smallest entry around a dz, or none."""
    while key > root:
        key >>= 1
        if key in table:
            return table[key]
    return NOBODY


def merged(table: Table, merges: Iterable[int], root: int) -> dict[int, Ports]:
    """The table in which all entries that belong to a merge are one."""
    known, found = set(merges), dict[int, Ports]()
    for key, ports in table.items():
        at = next((each for each in (key, *above(key, root)) if each in known), None)
        if at is None:
            found[key] = ports
        else:
            found[at] = found.get(at, ports_at(table, at, root)) | ports
    for at in sorted(known - found.keys()):  # nothing belongs to it; it may be carved out of another
        if any(each in known and each in found for each in above(at, root)):
            found[at] = ports_at(table, at, root)
    return found


def reduced(table: Table, root: int) -> dict[int, Ports]:
    """The table without what changes nothing."""
    found: dict[int, Ports] = {}
    # Longest first, so that both halves of a dz are known before it; None stands for "different ports inside".
    whole: dict[int, Ports | None] = {}
    levels: dict[int, set[int]] = {}
    for key in table:
        levels.setdefault(key.bit_length(), set()).add(key)
    for length in range(max(levels, default=0), root.bit_length() - 1, -1):
        for key in levels.get(length, ()):
            halves = 2 * key, 2 * key + 1
            if halves[0] in whole and halves[1] in whole:
                ports = whole[halves[0]] if whole[halves[0]] == whole[halves[1]] else None
                if ports is not None:
                    del found[halves[0]], found[halves[1]]
            else:
                ports = table.get(key)
                if key not in table:
                    continue
            whole[key] = ports
            if ports is not None:
                found[key] = ports
            if key > root:
                levels.setdefault(length - 1, set()).add(key >> 1)
    return found


def deployed(ideal: Table, merges: Iterable[int], root: int, transforms: Iterable[Transform] = ()) -> dict[int, Ports]:
    """The deployed table."""
    table = dict(ideal)
    for transform in transforms:
        table = transform(table)
    return reduced(merged(table, merges, root), root)
