"""Where a request comes from: checks that keep other web sites from using a visitor's browser. Pure.

A page of another site that a visitor has open can make the browser send requests here. Three headers, which a page
cannot forge, tell:

    Host             the name by which the browser called us. Another site may let its own name point to this machine
                     (DNS rebinding) and so be of the same origin as far as the browser knows; but its name is not ours.
    Origin           the site of the page that made the request, wherever that matters.
    Sec-Fetch-Site   how that site and ours relate, from current browsers.

Programs such as curl send neither of the last two.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from sievenet.errors import Rejected

__all__ = ["check_host", "check_origin"]


def check_host(host: str, names: Collection[str]) -> None:
    """`Rejected` if we are called by a name that is none of ours; an address is always good, for it cannot be rebound.

    >>> check_host("127.0.0.1:7480", ()); check_host("localhost:7480", ()); check_host("[::1]:7480", ())
    >>> check_host("evil.example:7480", ())
    Traceback (most recent call last):
    sievenet.errors.Rejected: Expected to be called by an address, localhost or one of web.names, got evil.example
    """
    name = host[: host.rfind(":")] if ":" in host and not host.endswith("]") else host
    name = name.lower().rstrip(".")
    if name == "localhost" or name in names:
        return
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        shown = "".join(each for each in name[:100] if each.isprintable())
        raise Rejected(
            f"Expected to be called by an address, localhost or one of web.names, got {shown or 'nothing'}"
        ) from None


def check_origin(scheme: str, host: str, origin: str | None, site: str | None, *, navigation: bool = False) -> None:
    """`Rejected` if a page of another site made this request; following a link to us is a navigation.

    >>> check_origin("http", "localhost:7480", "http://localhost:7480", "same-origin")
    >>> check_origin("http", "localhost:7480", None, None)
    >>> check_origin("http", "localhost:7480", "http://evil.example", None)
    Traceback (most recent call last):
    sievenet.errors.Rejected: Expected a request of our own page, got one of another site
    """
    if navigation and origin is None:
        return
    if (origin is not None and origin.lower() != f"{scheme}://{host}".lower()) or site in ("cross-site", "same-site"):
        raise Rejected("Expected a request of our own page, got one of another site")
