"""Vouchers: how a part of a process lets its own nodes in as somebody whom it has admitted already.

A person who came by HTTP has proved a name to the gate. What this person publishes and subscribes to goes through an
ordinary node, which says hello like any other; instead of a token it shows a voucher, and is then that person, with the
same role, rules and quotas.

    gate.admit(person) ─▶ identity ─▶ `Vouchers.issue` ─▶ hello of the node ─▶ `Vouchers.redeem` ─▶ the same identity

A voucher counts once, for a few seconds, in this process alone: it never leaves the machine.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sievenet.access.identity import Identity
from sievenet.access.login import Login

__all__ = ["Pass", "Vouchers"]

#: Seconds that a voucher counts.
_LIFE: Final = 30.0
#: Vouchers at the same time; the oldest goes.
_MOST: Final = 1024


class Vouchers:
    """Those that were issued and not shown yet. Pure: ``now`` in seconds, of any clock."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[Identity, float]] = {}

    def issue(self, identity: Identity, now: float) -> str:
        """A voucher for somebody who was admitted."""
        while len(self._issued) >= _MOST:
            del self._issued[next(iter(self._issued))]
        text = f"voucher.{secrets.token_urlsafe(32)}"
        self._issued[text] = identity, now + _LIFE
        return text

    def redeem(self, text: str, now: float) -> Identity | None:
        """Whom a voucher is for; None if it is none, or was shown before."""
        identity, until = self._issued.pop(text, (None, 0.0))
        return identity if now <= until else None


@dataclass(frozen=True)
class Pass(Login):
    """A login of a node of this very process: it shows a fresh voucher each time it connects."""

    issue: Callable[[], str] = str

    @classmethod
    def of(cls, name: str, authority: str, issue: Callable[[], str]) -> Pass:
        """For somebody who was admitted."""
        return cls(name, authority, Path(), issue=issue)

    def dialling(self) -> ssl.SSLContext:
        """TLS to this process itself, which may listen at an address that its certificate does not name."""
        context = super().dialling()
        context.check_hostname = False
        return context

    def renewed(self) -> Login:
        """With another voucher."""
        return Pass(self.name, self.authority, self.path, self.issue(), issue=self.issue)
