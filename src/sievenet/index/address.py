"""Addresses: codes as destination addresses, dz and cells as what a switch matches.

    IPv6    | fd0e | category |  code, left-aligned, zeros behind        |
             16 bits  16 bits    up to 96 bits
    IPv4    | 239.128/9 |  category (none by default)  |  code           |
               9 bits      c bits                       23 - c bits

A dz is a CIDR prefix of the address (``/32 + length`` in IPv6), a cell an address under a
mask.  `IPV6` is what the switches of this project see: unique local unicast, since switches and
hosts handle unicast better.  `IPV6_MULTICAST` (``ff0e::/16``) carries the same bits and needs no
route.  Bits 96 to 110 of longer codes are the low bits of the UDP port, bit 111 is the DSCP (`Head`).

IPv4 multicast has 23 bits because that is what survives in an Ethernet multicast address.

    >>> str(IPV6.address(1, Dz.parse("101")))
    'fd0e:1:a000::'
    >>> str(IPV6.flow(1, Dz.parse("101")))
    'fd0e:1:a000::/35'
    >>> IPV6.parse("fd0e:1:a000::").code >> 93
    5
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, NamedTuple

from sievenet.errors import CodecError, InvalidInput, PlanError
from sievenet.index.cell import Cell
from sievenet.index.code import CODE_BITS, MAX_BITS
from sievenet.index.dz import Dz

__all__ = ["CONTENT_PORT", "CONTENT_PREFIX", "IPV4", "IPV6", "IPV6_MULTICAST", "SEVERAL_PORT", "TOGETHER"]
__all__ += ["Address", "Addressing", "Head", "Match", "Network", "Parsed", "ipv4"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Parsed(NamedTuple):
    """What an address says."""

    category: int
    #: `Addressing.bits` bits.
    code: int


class Match(NamedTuple):
    """An address under a mask, as a switch takes it."""

    value: Address
    mask: Address

    def __str__(self) -> str:
        return f"{self.value}/{self.mask}"


@dataclass(frozen=True, slots=True)
class Addressing:
    """How codes lie in addresses: fixed bits, then the category, then the code."""

    base: Network
    category_bits: int

    def __post_init__(self) -> None:
        if not 0 <= self.category_bits <= min(16, self.base.max_prefixlen - self.base.prefixlen):
            raise PlanError(expected="0 to 16 bits of category that fit", got=self.category_bits, where="addressing")

    @property
    def width(self) -> int:
        """Bits of an address."""
        return self.base.max_prefixlen

    @property
    def bits(self) -> int:
        """Bits left for codes."""
        return self.width - self.base.prefixlen - self.category_bits

    def address(self, category: int, code: Dz) -> Address:
        """The destination of an event with this code."""
        return self._made(self.head(category) | self._aligned(code))

    def flow(self, category: int, dz: Dz) -> Network:
        """What a switch matches for a dz: a CIDR prefix."""
        length = self.width - self.bits + dz.length
        return ipaddress.ip_network((int(self.address(category, dz)), length))

    def match(self, category: int, entry: Dz | Cell) -> Match:
        """What a switch matches for a dz or cell: a value under a mask."""
        cell = entry.cell(self.bits) if isinstance(entry, Dz) and entry.length <= self.bits else entry
        if isinstance(cell, Dz) or cell.width > self.bits:
            raise self._too_long(cell.length if isinstance(cell, Dz) else cell.width)
        shift = self.bits - cell.width
        ones = (1 << self.width) - (1 << self.bits)
        return Match(self._made(self.head(category) | cell.value << shift), self._made(ones | cell.mask << shift))

    def parse(self, address: str | int | Address) -> Parsed:
        """Category and code of an address."""
        number = self._number(address)
        if number >> (self.width - self.base.prefixlen) != int(self.base.network_address) >> (
            self.width - self.base.prefixlen
        ):
            raise CodecError(expected=f"an address in {self.base}", got=str(address))
        category = number >> self.bits & ((1 << self.category_bits) - 1)
        return Parsed(category, number & ((1 << self.bits) - 1))

    def parse_flow(self, text: str | Network) -> tuple[int, Dz]:
        """Category and dz of a CIDR prefix."""
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            raise CodecError(expected=f"a prefix in {self.base}", got=str(text)) from None
        length = network.prefixlen - (self.width - self.bits)
        if network.version != self.base.version or length < 0:
            raise CodecError(
                expected=f"a prefix of at least {self.width - self.bits} bits in {self.base}", got=str(text)
            )
        category, code = self.parse(network.network_address)
        return category, Dz(code >> (self.bits - length), length)

    def parse_match(self, text: str) -> tuple[int, Cell]:
        """Category and cell of ``value/mask``."""
        value, slash, mask = text.partition("/")
        if not slash:
            raise CodecError(expected="value/mask", got=text)
        category, code = self.parse(value)
        checked = self._number(mask)
        head = checked >> self.bits
        if head != (1 << (self.width - self.bits)) - 1:
            raise CodecError(expected="a mask that checks the fixed bits and the category", got=text)
        checked &= (1 << self.bits) - 1
        if code & ~checked:
            raise CodecError(expected="no value bits outside the mask", got=text)
        return category, Cell(code, checked, self.bits)

    def head(self, category: int) -> int:
        """The bits of every address of a category, with a code of zeros."""
        if not 0 <= category < 1 << self.category_bits:
            raise PlanError(expected=f"a category of {self.category_bits} bits", got=category, where="address")
        return int(self.base.network_address) | category << self.bits

    def _aligned(self, code: Dz) -> int:
        if code.length > self.bits:
            raise self._too_long(code.length)
        return code.bits << (self.bits - code.length)

    def _too_long(self, length: int) -> PlanError:
        return PlanError(expected=f"at most {self.bits} bits of code", got=length, where=f"address in {self.base}")

    def _number(self, address: str | int | Address) -> int:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            raise CodecError(expected=f"an address in {self.base}", got=address) from None
        if parsed.version != self.base.version:
            raise CodecError(expected=f"an address in {self.base}", got=str(address))
        return int(parsed)

    def _made(self, number: int) -> Address:
        return ipaddress.IPv4Address(number) if self.width == 32 else ipaddress.IPv6Address(number)


def ipv4(category_bits: int = 0) -> Addressing:
    """IPv4 multicast with so many of its 23 bits for the category."""
    return Addressing(ipaddress.IPv4Network("239.128.0.0/9"), category_bits)


#: Unique local unicast: the addresses that switches match.
IPV6: Final = Addressing(ipaddress.IPv6Network("fd0e::/16"), 16)
#: Multicast, global scope, not permanently assigned.
IPV6_MULTICAST: Final = Addressing(ipaddress.IPv6Network("ff0e::/16"), 16)
#: The first 16 bits of content addresses, and the UDP port of packets whose codes end within the address.
CONTENT_PREFIX: Final = int(IPV6.base.network_address) >> (IPV6.width - IPV6.base.prefixlen)
CONTENT_PORT: Final = 0x8000
#: The UDP port of packets with several events, of which the address names the first, and how many these may be.
SEVERAL_PORT: Final = 1
TOGETHER: Final = 16


class Head(NamedTuple):
    """Where in a packet's head an event's code lies: 96 bits in the address, 15 in the port, one more."""

    address: int
    port: int
    dscp: int

    @staticmethod
    def of(category: int, code: int) -> Head:
        """The head of a packet with this (left-aligned) code."""
        rest = CODE_BITS - MAX_BITS
        if code & ((1 << rest) - 1):
            raise InvalidInput(expected=f"a code of at most {MAX_BITS} bits", got=hex(code), where="address")
        tail = code >> rest & 0xFFFF
        return Head(IPV6.head(category) | code >> (CODE_BITS - IPV6.bits), CONTENT_PORT | tail >> 1, tail & 1)


#: Multicast, one category.
IPV4: Final = ipv4()
