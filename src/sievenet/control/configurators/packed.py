"""Changes as bytes: packed where they are worked out, unpacked only where a switch wants to know.

The dispatcher hands most of them on without a look.  A `Packed` is a sequence of changes that is unpacked when
somebody looks into it; how many there are is known before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar, overload

import msgspec

from sievenet.control.configurators.messages import Answer, Share
from sievenet.control.registrations.changes import Changes
from sievenet.control.registrations.trie import Lookup
from sievenet.control.registrations.trie.layout import ADDED, COVERED, GROWN, LESSENED, NOTHING
from sievenet.control.routes import Wires
from sievenet.errors import CodecError
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Packed", "pack", "unpack"]

T = TypeVar("T")

#: What a row says: a flow as it is, or a change.
_FLOW, _ADD, _MODIFY, _DELETE = range(4)
_CHANGES: Final[dict[int, Callable[[Flow], FlowChange]]] = {_ADD: Add, _MODIFY: Modify, _DELETE: Delete}
_Word = Annotated[int, msgspec.Meta(ge=0, lt=1 << 64)]


class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What it says, the key of the dz in two words, the ports."""

    what: Literal[0, 1, 2, 3]
    high: int
    low: int
    ports: frozenset[Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[_Row])


class Packed(Sequence[T], Generic[T]):
    """Flows or changes of flows of one category, unpacked by `of` when somebody looks."""

    __slots__ = ("_category", "_count", "_data", "_found", "_of")

    def __init__(self, category: int, count: int, data: bytes, of: Callable[[int, Flow], T]) -> None:
        self._category, self._count, self._data, self._of = category, count, data, of
        self._found: list[T] | None = None

    def __len__(self) -> int:
        return self._count

    def _unpacked(self) -> list[T]:
        if self._found is None:
            try:
                rows = _decoder.decode(self._data)
            except msgspec.DecodeError as error:
                raise CodecError(expected="packed flows", got=str(error), where="configurator") from None
            of, category = self._of, self._category
            found = []
            for row in rows:
                dz = Dz.of_key(row.high << 64 | row.low)
                found.append(of(row.what, Flow(Match(category, dz), row.ports, dz.length)))
            self._found = found
        return self._found

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._unpacked()[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self._unpacked())


def _change(what: int, flow: Flow) -> FlowChange:
    return _CHANGES[what](flow)


def _flow(what: int, flow: Flow) -> Flow:
    return flow


#: Rows of one switch.
_Rows = defaultdict[int, list[tuple[int, int, int, tuple[int, ...]]]]


def _shares(rows: _Rows) -> tuple[Share, ...]:
    return tuple(Share(switch, len(each), _encoder.encode(each)) for switch, each in rows.items())


def pack(partition: int, epoch: int, serial: int, wires: Wires, found: Lookup) -> Answer:
    """What a walk found, in the order that `changes_of` explains."""
    first, grown, covered = _Rows(list), _Rows(list), _Rows(list)
    second, between = _Rows(list), _Rows(list)
    keys = [(dz.key >> 64, dz.key & (1 << 64) - 1) for dz in found.places]
    masks, size = found.masks, found.size
    known: dict[bytes, tuple[int, ...]] = {}
    at = 0

    def ports(mask: bytes) -> tuple[int, ...]:
        some = known.get(mask)
        if some is None:
            some = known[mask] = tuple(wires.ports(mask))
        return some

    for place, switch, now, then in found.rows:
        high, low = keys[place]
        middle = at + size
        here = ports(masks[at:middle])
        at = middle + size
        if now == ADDED:
            first[switch].append((_ADD, high, low, here))
        elif now == GROWN:
            grown[switch].append((_MODIFY, high, low, here))
        elif now == COVERED:
            covered[switch].append((_DELETE, high, low, here))
        if then != NOTHING:
            lessened = then == LESSENED
            after = (_MODIFY, high, low, ports(masks[middle:at])) if lessened else (_DELETE, high, low, here)
            second[switch].append(after)
            between[switch].append((_FLOW, high, low, here))
    for more in (grown, covered):
        for switch, rows in more.items():
            first[switch] += rows
    used = found.used.to_bytes(found.used.bit_length() // 8 + 1, "little")
    return Answer(partition, epoch, serial, _shares(first), _shares(second), _shares(between), used)


def unpack(category: int, names: Sequence[str], answer: Answer) -> Changes:
    """What the switches must be told; `CodecError` if it names one that nobody knows."""

    def found(shares: Iterable[Share], of: Callable[[int, Flow], T]) -> dict[str, Sequence[T]]:
        try:
            return {names[each.switch]: Packed(category, each.count, each.changes, of) for each in shares}
        except IndexError:
            raise CodecError(expected=f"one of {len(names)} switches", got="another", where="configurator") from None

    used = int.from_bytes(answer.used, "little")
    return Changes(found(answer.first, _change), found(answer.second, _change), found(answer.between, _flow), used)
