"""The URL of a router."""

from __future__ import annotations

from typing import Final

from sievenet.client.url import split_url
from sievenet.errors import InvalidInput

__all__ = ["DEFAULT_PORT", "parse_router_url"]

DEFAULT_PORT: Final = 7500


def parse_router_url(url: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS is spoken.

    >>> parse_router_url("sievenet+router://localhost:7501")
    ('localhost', 7501, False)
    """
    found = split_url(url, "sievenet+router", DEFAULT_PORT)
    if found is None:
        raise InvalidInput(expected="a URL such as sievenet+router://127.0.0.1:7500", got=url, where="url")
    return found
