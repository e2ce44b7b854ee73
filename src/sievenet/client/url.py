"""Where a daemon listens: ``sievenet://host:port``, or ``sievenets://host:port`` with TLS; and where a router does."""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from sievenet.errors import InvalidInput

__all__ = ["DEFAULT_PORT", "DEFAULT_URL", "ENVIRONMENT", "Address", "parse_router_url", "parse_url", "split_url"]

DEFAULT_PORT: Final = 7400
_ROUTER_PORT: Final = 7500
DEFAULT_URL: Final = f"sievenet://127.0.0.1:{DEFAULT_PORT}"
#: Environment variable that replaces the default URL.
ENVIRONMENT: Final = "SIEVENET_URL"


class Address(NamedTuple):
    """A daemon's control port."""

    host: str
    port: int
    #: Whether it speaks TLS.
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"sievenet{'s' if self.tls else ''}://{host}:{self.port}"


def parse_url(url: str | None = None) -> Address:
    """The address in a URL; without one, the environment's `SIEVENET_URL` or the default.

    >>> parse_url("sievenet://localhost:9000")
    Address(host='localhost', port=9000, tls=False)
    >>> str(parse_url("localhost"))
    'sievenet://localhost:7400'
    """
    text = url or os.environ.get(ENVIRONMENT) or DEFAULT_URL
    found = split_url(text if "://" in text else f"sievenet://{text}", "sievenet", DEFAULT_PORT)
    if found is None:
        raise InvalidInput(expected="a URL such as sievenet://127.0.0.1:7400", got=text, where="url")
    return Address(*found)


def parse_router_url(url: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS is spoken.

    >>> parse_router_url("sievenet+router://localhost:7501")
    ('localhost', 7501, False)
    """
    found = split_url(url, "sievenet+router", _ROUTER_PORT)
    if found is None:
        raise InvalidInput(expected="a URL such as sievenet+router://127.0.0.1:7500", got=url, where="url")
    return found


def split_url(text: str, scheme: str, default: int) -> tuple[str, int, bool] | None:
    """Host, port and whether TLS is spoken (the scheme with an s); None if the text is not such a URL."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", default if parts.port is None else parts.port
        host.encode("idna")  # else no resolver could look it up
    except ValueError:
        return None
    tls = parts.scheme == f"{scheme}s"
    if not host or not (tls or parts.scheme == scheme) or parts.path.strip("/") or parts.query:
        return None
    return host, port, tls
