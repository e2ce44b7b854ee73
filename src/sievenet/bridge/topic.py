"""Templates of topics: levels that stand for themselves, for an attribute, or for anything. Pure.

    sensors/{station}/+/#      MQTT: sensors/+/+/#      sensors/attic/2/x/y gives station = attic

A level of a topic cannot contain ``/``, ``+`` or ``#``, and values of attributes can: these are written as in URLs
(``%2F``) and read back that way. So are control characters and what is no character: a broker closes the connection by
which they come, and whoever publishes one event could have a bridge connect and send it again for ever. So is a ``$``
at the beginning, which makes a topic the broker's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from sievenet.errors import InvalidInput

__all__ = ["Template"]

_NAME: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
_NONE: Final = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_UNSAFE: Final = re.compile(rf"[%/+#\0-\x1f\x7f-\x9f\ufdd0-\ufdef{_NONE}]|^\$")
#: Bytes of the longest topic that MQTT has.
_LONGEST: Final = 65535


class Template:
    """A parsed template."""

    def __init__(self, text: str, where: str = "topic") -> None:
        self.text = text
        self._levels = text.split("/")
        self.names = tuple(found[1] for level in self._levels if (found := _NAME.fullmatch(level)))
        plain = [level for level in self._levels if level not in ("+", "#") and not _NAME.fullmatch(level)]
        wrong = (
            not text
            or len(set(self.names)) != len(self.names)
            or any(set(level) & set("{}+#\0") for level in plain)
            or "#" in self._levels[:-1]
        )
        if wrong:
            raise InvalidInput(expected="a topic such as sensors/{station}/+", got=text, where=where)

    @property
    def wild(self) -> bool:
        """Whether some level stands for anything."""
        return bool({"+", "#"} & set(self._levels))

    @property
    def pattern(self) -> str:
        """The filter that a broker understands."""
        return "/".join("+" if _NAME.fullmatch(level) else level for level in self._levels)

    def values(self, topic: str) -> dict[str, str] | None:
        """The attributes in a topic; None if it is not of this form."""
        found: dict[str, str] = {}
        levels = topic.split("/")
        for i, level in enumerate(self._levels):
            if level == "#":
                return found
            if i >= len(levels):
                return None
            if name := _NAME.fullmatch(level):
                found[name[1]] = unquote(levels[i])
            elif level not in ("+", levels[i]):
                return None
        return found if len(levels) == len(self._levels) else None

    def filled(self, values: Mapping[str, object]) -> str:
        """The topic with these values in it."""
        parts: list[str] = []
        for level in self._levels:
            name = _NAME.fullmatch(level)
            parts.append(level if name is None else _UNSAFE.sub(_quoted, _text(values[name[1]])))
        topic = "/".join(parts)
        if not topic or len(topic.encode()) > _LONGEST:
            raise InvalidInput(expected=f"a topic of 1 to {_LONGEST} bytes", got=topic, where=self.text)
        return topic


def _quoted(found: re.Match[str]) -> str:
    return "%24" if found[0] == "$" else quote(found[0], safe="")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
