"""The switch's program as it is shipped: an object file for the kernel's virtual machine, and how to load it.

`sieve.o` is made from `sieve.c` by `scripts/build-kernel-switch`; a test compares the two.  Of the file's format (ELF)
only what a compiler makes of that one source is read: sections of instructions, and for each the places where the
address of a map belongs, by the map's name.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from sievenet.errors import InvalidInput

__all__ = ["Section", "linked", "read_image", "shipped"]

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQ")
_SYMBOLS, _RELOCATIONS = 2, 9
_BPF: Final = 247
#: "What follows is a map's file descriptor", in the register field of the instruction that loads 64 bits.
_MAP: Final = 1 << 4


class Section(NamedTuple):
    """A program: its instructions, and where which map belongs."""

    instructions: bytes
    maps: tuple[tuple[int, str], ...]


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def read_image(data: bytes) -> dict[str, Section]:
    """The programs of an object file, by section; `InvalidInput` if it is none for this machine."""
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError, KeyError):
        raise InvalidInput(expected="an object file for BPF", got=f"{len(data)} bytes", where="switch image") from None


def _read(data: bytes) -> dict[str, Section]:
    header = _HEADER.unpack_from(data)
    if header[0][:6] != b"\x7fELF\x02\x01" or header[2] != _BPF:
        raise ValueError
    offset, size, count, names_at = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, offset + i * size) for i in range(count)]
    content = [data[s[4] : s[4] + s[5]] for s in sections]
    names = [_text(content[names_at], s[0]) for s in sections]
    symbols: list[str] = []
    for section, body in zip(sections, content, strict=True):
        if section[1] == _SYMBOLS:
            symbols = [_text(content[section[6]], _SYMBOL.unpack_from(body, at)[0]) for at in range(0, len(body), 24)]
    found: dict[str, Section] = {}
    for section, body in zip(sections, content, strict=True):
        if section[1] == _RELOCATIONS:
            pairs = [_RELOCATION.unpack_from(body, at) for at in range(0, len(body), 16)]
            maps = tuple((at, symbols[info >> 32]) for at, info in pairs)
            found[names[section[7]]] = Section(content[section[7]], maps)
    return found


def linked(section: Section, maps: Mapping[str, int]) -> bytes:
    """The instructions with the maps' file descriptors in their places."""
    code = bytearray(section.instructions)
    for at, name in section.maps:
        code[at + 1] |= _MAP
        struct.pack_into("<i", code, at + 4, maps[name])
        struct.pack_into("<i", code, at + 12, 0)
    return bytes(code)


@cache
def shipped() -> dict[str, Section]:
    """The programs of this version."""
    return read_image((resources.files(__package__) / "sieve.o").read_bytes())
