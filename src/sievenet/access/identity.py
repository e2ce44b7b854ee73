"""Who is at the other end of a connection: what it shows, who decides, and what comes of it.

    Hello + certificate + address ──▶ Credentials ──▶ Gate.admit ──▶ Identity, or `Rejected` with the reason

Roles have an order, least first: an *observer* asks and changes nothing, a *client* joins, publishes and subscribes, an
*operator* changes plans and schemas too. A *component* (a router's neighbour, a configurator, a matcher, a cache) is
apart from them: it says what components say to each other, and nothing that a client says.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sievenet.access.permissions import EVERYTHING, Permissions
from sievenet.access.quota import NO_QUOTA, Quota
from sievenet.errors import Rejected

__all__ = ["Credentials", "Gate", "Identity", "OpenGate", "Proof", "Role", "certified_names"]


class Role(StrEnum):
    """What the other side of a connection is."""

    OBSERVER = "observer"
    CLIENT = "client"
    OPERATOR = "operator"
    COMPONENT = "component"

    def includes(self, least: Role | None) -> bool:
        """Whether this role may do what needs at least another one; None stands for anybody who is welcome.

        >>> Role.OPERATOR.includes(Role.CLIENT), Role.OBSERVER.includes(Role.CLIENT)
        (True, False)
        >>> Role.COMPONENT.includes(Role.OBSERVER), Role.COMPONENT.includes(None)
        (False, True)
        """
        if least is None or self is least:
            return True
        if Role.COMPONENT in (self, least):
            return False
        return _ORDER[self] > _ORDER[least]


_ORDER = {Role.OBSERVER: 0, Role.CLIENT: 1, Role.OPERATOR: 2}


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the other side of a connection shows when it says hello."""

    #: The role that it asks for, and the name, if it brings one.
    role: Role
    name: str | None = None
    #: A token, as its hello says it.
    token: str = ""
    #: Its verified certificate, as `ssl.SSLSocket.getpeercert` gives it; None without TLS or without a certificate.
    certificate: dict[str, Any] | None = None
    #: Where it comes from; empty if the connection does not tell.
    address: str = ""
    #: Whether the connection is encrypted.
    encrypted: bool = False

    @property
    def near(self) -> bool:
        """Whether the other side is on this machine."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Proof:
    """What proved a name: a token's hash, or a certificate's serial number."""

    name: str
    token: bytes = b""
    serial: int = 0
    #: Seconds since 1970 until which the certificate counts.
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the other side of a connection is found to be."""

    #: What it may do; at least what it asked for.
    role: Role
    #: The name that it has proved; None if names are given to whoever comes first.
    name: str | None = None
    #: What it may publish and subscribe to.
    permissions: Permissions = EVERYTHING
    #: How much.
    quota: Quota = NO_QUOTA
    #: By what it is known; None if nobody has to be.
    proof: Proof | None = None
    #: Whether nobody has to be known, and it is on this machine: it may do everything here.
    local: bool = False
    #: Whether its events were counted against the quota before they were sent: a node of this process (`voucher`).
    counted: bool = False


class Gate(Protocol):
    """Decides who is welcome. Asked once for each connection, before anything else is done for it."""

    def admit(self, credentials: Credentials) -> Identity:
        """Who this is; raises `Rejected` if it may not be what it asks to be."""
        ...


class OpenGate:
    """Nothing is configured: whoever is on this machine may do anything, others what changes no plans and schemas."""

    def admit(self, credentials: Credentials) -> Identity:
        """Everybody is who they say; operators have to be on this machine."""
        asked = credentials.role
        if asked is Role.OPERATOR and not credentials.near:
            raise Rejected("Expected a connection from the daemon's own machine for an operator")
        if asked is Role.CLIENT and credentials.near:
            asked = Role.OPERATOR
        return Identity(asked, local=credentials.near)


def certified_names(certificate: dict[str, Any] | None) -> frozenset[str]:
    """The names in a verified certificate, as `ssl.SSLSocket.getpeercert` gives it.

    >>> sorted(certified_names({"subject": ((("commonName", "a"),),), "subjectAltName": (("DNS", "a.example"),)}))
    ['a', 'a.example']
    """
    if not certificate:
        return frozenset()
    common = {value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"}
    return frozenset(common | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"})
