"""The settings of the control plane, as one typed value."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final, Literal

import msgspec

from sievenet.errors import InvalidInput
from sievenet.index import MAX_BITS

__all__ = ["ControlConfig"]


#: Partitions where there are several configurators.
_MANY: Final = 64
#: A table that holds more is as good as one without a limit.
_MUCH: Final = 1 << 17
#: Switches that are named to somebody who meant another.
_SHOWN: Final = 8


class ControlConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the control plane behaves; every field has a default."""

    #: Bits of the regular plan that a new category gets.
    bits: int = 32
    #: What filters become in that plan: "dz", or "cells" for entries with masks, in a table per out port.
    kind: Literal["dz", "cells"] = "dz"
    #: Most dz or cells that a subscription or advertisement becomes; with cells the mean, once a plan was applied.
    budget: int = 8
    #: Most dz that all registrations of one client become, each at most a flow per switch; 0 means any number.
    share: int = 0
    #: Most entries that any switch is given; 0 means as many as it says it holds.
    capacity: int = 0
    #: The same for single switches, by name.
    capacities: dict[str, int] = {}
    #: Which entries are merged at once where one more does not fit: those that add least (least), or those beside the
    #: new one, which is quicker (nearest).
    at_once: Literal["least", "nearest"] = "least"
    #: Seconds between looks at whether other merges would be better, where tables do not fit; 0 means never.
    fit: float = 60.0
    #: Who works out what changes in flow tables: this process (one; sea: for so many partitions at a time), or others
    #: (sna: each its partitions; sna-lb: which move to where there is less to do).
    mode: Literal["one", "sea", "sna", "sna-lb"] = "one"
    #: Partitions that are worked on at a time (sea), or processes (sna, sna-lb); 0 means as many as there are cores.
    configurators: int = 0
    #: Partitions of each category's event space, a power of two; each has a queue of its own.  0 means 1 in mode one,
    #: else 64.
    partitions: int = 0
    #: Whether partitions are equal, or each has about as much to do, by what is registered when a plan is applied.
    tiling: Literal["equal", "balanced"] = "equal"
    #: Seconds after which a configurator that owes an answer and says nothing is given up for others.
    patience: float = 2.0
    #: Seconds between looks at whether configurators answer, and have too much to do.
    look: float = 0.25
    #: How many times the mean load a configurator may have before partitions move away (sna-lb).
    overload: float = 1.5
    #: Spanning trees of the network; categories take them in turn.
    trees: int = 4
    #: Trees that the partitions of one category share among them, a power of two.
    spread: int = 1
    #: Seconds without a word after which a client's registrations are taken back.
    lease: float = 30.0
    #: Most requests of a partition that become one difference.
    batch: int = 512
    #: Most waiting requests of a partition, of one type, of which the broader are taken first (to take back: the
    #: narrower); matters if it is more than `batch`.  1 means in the order of arrival.
    slice: int = 1
    #: Requests that may wait; more are refused.
    waiting: int = 100_000
    #: Seconds after which a switch that gave no answer is asked again.
    retry: float = 0.5
    #: Seconds that the slowest packet may take through the network.
    forwarding_delay: float = 1.0
    #: Bytes of journal written since the last snapshot before there is another one.
    snapshot: int = 16 << 20
    #: Seconds that clients have to confirm a new plan; whoever has not by then is cut off.
    adoption: float = 30.0
    #: Seconds that covering one registration may take (beside everything else); it is refused if it takes longer.
    covering: float = 10.0
    #: Seconds that a start waits for switches to be repaired before it goes on without them.
    recovery: float = 10.0

    def __post_init__(self) -> None:
        if self.partitions == 0:
            msgspec.structs.force_setattr(self, "partitions", 1 if self.mode == "one" else _MANY)
        for name in ("partitions", "spread"):
            value = getattr(self, name)
            if not 1 <= value <= 4096 or value & (value - 1):
                raise InvalidInput(expected="a power of two up to 4096", got=value, where=f"control.{name}")
        if self.spread > self.partitions:
            raise InvalidInput(expected=f"at most {self.partitions}", got=self.spread, where="control.spread")
        for name, lo, hi in (
            ("bits", 1, MAX_BITS),
            ("budget", 1, 4096),
            ("share", 0, 1 << 40),
            ("capacity", 0, 1 << 40),
            ("trees", 1, 1024),
            ("configurators", 0, 1024),
            ("batch", 1, 1 << 20),
            ("slice", 1, 1 << 20),
            ("waiting", 1, 1 << 30),
            ("snapshot", 1, 1 << 40),
        ):
            if not lo <= getattr(self, name) <= hi:
                raise InvalidInput(expected=f"{lo}..{hi}", got=getattr(self, name), where=f"control.{name}")
        if not 0 <= self.fit <= 86400:
            raise InvalidInput(expected="seconds in [0, 86400]", got=self.fit, where="control.fit")
        if not 1 <= self.overload <= 1000:
            raise InvalidInput(expected="1..1000", got=self.overload, where="control.overload")
        for switch, capacity in self.capacities.items():
            if not 1 <= capacity <= 1 << 40:
                raise InvalidInput(expected="at least 1", got=capacity, where=f"control.capacities.{switch}")
        for name in ("lease", "retry", "forwarding_delay", "adoption", "covering", "recovery", "patience", "look"):
            if not 0 < getattr(self, name) <= 86400:
                raise InvalidInput(expected="seconds in (0, 86400]", got=getattr(self, name), where=f"control.{name}")

    @property
    def staff(self) -> int:
        """How many configurators there are."""
        return self.configurators or os.cpu_count() or 1

    def check_names(self, switches: Collection[str]) -> None:
        """Raise if a setting speaks of a switch that does not exist."""
        for switch in self.capacities.keys() - set(switches):
            known = ", ".join(sorted(switches)[:_SHOWN]) + (", …" if len(switches) > _SHOWN else "")
            raise InvalidInput(expected=f"a switch ({known})", got=switch, where="control.capacities")

    def limit(self, switch: str, told: int | None) -> int | None:
        """How many entries a switch is given at most: what it says it holds, or less if the settings say so."""
        limits = [each for each in (told, self.capacities.get(switch) or self.capacity) if each and each <= _MUCH]
        return min(limits, default=None)
