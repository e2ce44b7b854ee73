"""Bytes in, bytes out: the bounded reader under the codec.

A `Reader` walks over untrusted bytes.  It checks every length against what is left *before* it
takes anything, so no claim in a message can make it allocate more than the message is long.
Every form has one spelling: varints are minimal, padding is zero, nothing may follow the end.

    varint   7 bits per byte, low first, top bit = more follows
    zigzag   0, -1, 1, -2, …  as varint 0, 1, 2, 3, …
    text     varint length in bytes, then UTF-8
"""

from __future__ import annotations

import struct
from typing import Final, NoReturn

from sievenet.content.valueset import MAX_STRING
from sievenet.errors import CodecError

__all__ = ["VERSION", "Reader", "text_bytes", "varint", "zigzag"]

#: Version of all forms, the high half of their first byte.
VERSION: Final = 1

_FLOAT: Final = struct.Struct("<d")
#: A whole number below 2**1024 and its sign need 147 groups of 7 bits.
_LONGEST_VARINT: Final = 147
_BYTES: Final = (bytes, bytearray, memoryview)
_SMALL: Final = tuple(bytes([i]) for i in range(128))


def varint(value: int) -> bytes:
    """A whole number from 0 on."""
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """Any whole number."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text_bytes(text: str) -> bytes:
    """A string with its length."""
    data = text.encode()
    return varint(len(data)) + data


def opening(kind: int) -> bytes:
    """The first byte: version and what follows."""
    return bytes([VERSION << 4 | kind])


class Reader:
    """A position in untrusted bytes."""

    __slots__ = ("at", "data", "what")

    def __init__(self, data: bytes, kind: int, what: str, limit: int) -> None:
        self.data = data
        self.at = 1
        self.what = what
        if not isinstance(data, _BYTES):
            raise CodecError(expected="bytes", got=data, where=what)
        if len(data) > limit:
            raise CodecError(expected=f"at most {limit} bytes", got=len(data), where=what)
        if not data or data[0] != VERSION << 4 | kind:
            first = f"`{data[0]:#04x}`" if data else "`no bytes`"
            raise CodecError(expected=f"{what} (first byte {VERSION << 4 | kind:#04x})", got=first, where="byte 0")

    def fail(self, expected: str, got: object) -> NoReturn:
        """Refuse the bytes."""
        raise CodecError(expected=expected, got=got, where=f"byte {self.at} of {self.what}")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if end > len(self.data):
            self.fail(f"{size} more bytes", len(self.data) - self.at)
        found = bytes(self.data[self.at : end])
        self.at = end
        return found

    def varint(self, limit: int) -> int:
        """A whole number from 0 to ``limit``."""
        data, start = self.data, self.at
        if start < len(data) and data[start] < 128 and data[start] <= limit:  # nearly always
            self.at = start + 1
            return data[start]
        value = shift = 0
        while True:
            if self.at == len(data) or self.at - start == _LONGEST_VARINT:
                self.fail("the end of a varint", "`none`")
            byte = data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if byte == 0 and shift:
            self.fail("a minimal varint", "`leading zeros`")
        if value > limit:
            self.fail(f"a number up to {limit}", f"`{value:#x}`"[:40])
        return value

    def zigzag(self, limit: int) -> int:
        """Any whole number of magnitude up to ``limit``."""
        value = self.varint(2 * limit)
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def float(self) -> float:
        """A 64-bit float, which may be NaN or infinite."""
        found: float = _FLOAT.unpack(self.take(8))[0]
        return found

    def text(self, limit: int = MAX_STRING) -> str:
        """A string of at most ``limit`` bytes."""
        data = self.take(self.varint(limit))
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.fail("UTF-8", data)

    def end(self) -> None:
        """Nothing may be left."""
        if self.at != len(self.data):
            self.fail("the end", f"`{len(self.data) - self.at} more bytes`")
