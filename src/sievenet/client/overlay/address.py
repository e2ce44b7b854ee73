"""The URL of a router."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from sievenet.errors import InvalidInput

__all__ = ["DEFAULT_PORT", "parse_router_url"]

DEFAULT_PORT: Final = 7500
_SCHEMES: Final = ("sievenet+router", "sievenet+routers")


def parse_router_url(url: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS is spoken.

    >>> parse_router_url("sievenet+router://localhost:7501")
    ('localhost', 7501, False)
    """
    try:
        parts = urlsplit(url)
        port = DEFAULT_PORT if parts.port is None else parts.port
        good = parts.scheme in _SCHEMES and parts.hostname and not (parts.path.strip("/") or parts.query)
    except ValueError:
        good = False
    if not good or not parts.hostname:
        raise InvalidInput(expected="a URL such as sievenet+router://127.0.0.1:7500", got=url, where="url")
    return parts.hostname, port, parts.scheme == "sievenet+routers"
