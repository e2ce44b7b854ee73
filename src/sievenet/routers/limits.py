"""What clients may use of a router, besides what they may use of any listening process (`session.limits`)."""

from __future__ import annotations

from dataclasses import dataclass

from sievenet.session import limits

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(limits.Limits):
    """Bounds of one router process."""

    #: Bytes of events that a client has not confirmed, for when it loses its connection; and those of all clients.
    kept: int = 1 << 23
    kept_in_all: int = 1 << 28
    #: Schemas that one client may make known, and all together.
    schemas_per_client: int = 256
    schemas: int = 4096
    #: Subscriptions and advertisements of one client.
    registrations: int = 1 << 18
    #: Steps that a subscription or advertisement may cost (`content.codec`): so many take up to a second.
    cost: int = 500_000
