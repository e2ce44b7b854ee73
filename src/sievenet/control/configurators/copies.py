"""Copies: the partitions that one configurator holds, and the orders it works on.  Pure: messages in, answers out."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from sievenet.control.configurators import messages as m
from sievenet.control.configurators.packed import pack
from sievenet.control.registrations import Puts
from sievenet.control.registrations.trie import Trie
from sievenet.control.routes import Wires
from sievenet.errors import CodecError
from sievenet.network import Topology

__all__ = ["Copies"]


class _Ways:
    """The ways to and from clients, as the dispatcher told them."""

    def __init__(self) -> None:
        self.to: dict[int, int] = {}
        self.frm: dict[int, int] = {}


class _Copy(NamedTuple):
    """A partition."""

    epoch: int
    tree: Trie
    ways: _Ways


class Copies:
    """What one configurator knows; `take` what comes, `work` until there is nothing left to do."""

    def __init__(self) -> None:
        self._wires = Wires(Topology((), (), ()))
        self._copies: dict[int, _Copy] = {}
        self._orders: deque[m.Load | m.Order] = deque()
        self._dropped: deque[int] = deque()
        #: The entry of a log that is read now, and the one that a wire was last learnt from: logs are not read in the
        #: order in which they were written, and the last word about a wire counts.
        self._entry = 0
        self._learnt: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def waiting(self) -> int:
        """What is to be done or said."""
        return len(self._orders) + len(self._dropped)

    def take(self, message: object) -> None:
        """Something came."""
        match message:
            case m.Wiring():
                # Partitions of before go on with the numbers of before: those never change, there are only more.
                self._wires.name(message.switches)
                for each in message.links:
                    self._learn(each)
            case m.Load() | m.Order():
                self._orders.append(message)
            case m.Drop(partition):
                # Not even begun, if that is still possible: somebody else works on it.
                self._orders = deque(each for each in self._orders if each.partition != partition)
                self._copies.pop(partition, None)
                self._dropped.append(partition)

    def work(self) -> m.Answer | m.Puzzled | m.Dropped | None:
        """Do what is next; an answer if there is one to it."""
        if self._dropped:
            return m.Dropped(self._dropped.popleft())
        message = self._orders.popleft()
        if isinstance(message, m.Load):
            self._load(message)
            return None
        try:
            return self._carry_out(message)
        except Exception as error:
            return self._puzzled(message.partition, message.epoch, message.serial, error)

    def follow(self, message: m.Load | m.Order, epoch: int, entry: int, answer: bool) -> m.Answer | m.Puzzled | None:
        """What a partition's log says next, and in which entry; an order may need an answer, of the owner's epoch."""
        self._entry = entry
        if isinstance(message, m.Load):
            self._load(message)
            return None
        try:
            copy = self._copies.get(message.partition)
            if copy is None:
                raise CodecError(expected="a log that begins with everything", got="an order", where="partition")
            if answer:
                return self._worked_out(copy, msgspec.structs.replace(message, epoch=epoch))
            self._learn_all(message.facts, copy.ways)
            copy.tree.put_all(Puts.decode(message.puts))
            copy.tree.forget()
        except Exception as error:
            return self._puzzled(message.partition, epoch, message.serial, error)
        return None

    def drop(self, partition: int) -> None:
        """Somebody else has a partition."""
        self._copies.pop(partition, None)

    def _puzzled(self, partition: int, epoch: int, serial: int, error: Exception) -> m.Puzzled:
        self._copies.pop(partition, None)
        return m.Puzzled(partition, epoch, serial, f"{type(error).__name__}: {error}"[:4096])

    def _load(self, load: m.Load) -> None:
        ways = _Ways()
        copy = _Copy(load.epoch, Trie(self._wires, ways), ways)
        self._copies.pop(load.partition, None)
        try:
            self._learn_all(load.facts, ways)
            copy.tree.put_all(Puts.decode(load.puts))
            copy.tree.put_all(Puts.decode(load.undo).undone())
            copy.tree.forget()
        except Exception:
            return  # the order that follows is answered by `Puzzled`, since there is no such partition
        self._copies[load.partition] = copy

    def _carry_out(self, order: m.Order) -> m.Answer:
        copy = self._copies.get(order.partition)
        if copy is None or copy.epoch != order.epoch:
            raise CodecError(expected="an order for a partition that was loaded", got=order.partition, where="order")
        return self._worked_out(copy, order)

    def _worked_out(self, copy: _Copy, order: m.Order) -> m.Answer:
        self._learn_all(order.facts, copy.ways)
        copy.tree.put_all(Puts.decode(order.puts))
        return pack(order.partition, order.epoch, order.serial, self._wires, copy.tree.walked())

    def _learn(self, fact: m.Fact) -> None:
        names = self._wires.names
        if self._entry < self._learnt.get(fact.wire, 0):
            return
        self._learnt[fact.wire] = self._entry
        if fact.switch >= len(names):
            raise CodecError(expected=f"one of {len(names)} switches", got=fact.switch, where="wire")
        self._wires.place(fact.wire, names[fact.switch], fact.port)

    def _learn_all(self, facts: tuple[m.Fact, ...], ways: _Ways) -> None:
        for fact in facts:
            self._learn(fact)
            ways.to[fact.wire] = int.from_bytes(fact.to, "little", signed=True)
            ways.frm[fact.wire] = int.from_bytes(fact.frm, "little", signed=True)
