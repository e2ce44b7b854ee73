"""The gate of a part whose members are known: a certificate or a token proves a name, the members say the rest.

    certificate (verified by TLS) ─┐
                                   ├─▶ name ─▶ member ─▶ role enough? ─▶ `Identity`, with permissions and quota
    token, on TLS ─────────────────┘

What is known changes while connections last: `Keyring` is replaced as a whole, and whoever holds an identity asks
whether it still stands (`stands`).
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sievenet.access.identity import Credentials, Identity, Proof, Role
from sievenet.access.members import Member, Members
from sievenet.access.token import StoredToken, check_name, shown
from sievenet.errors import InvalidInput, Rejected

__all__ = ["Keyring", "MemberGate", "member_of"]


#: What to do about it.
_COMPONENT: Final = "; `sievenet keys certificate FOLDER NAME --role component` makes a login for one"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Everything by which members are known."""

    members: Members
    tokens: tuple[StoredToken, ...] = ()
    #: Serial numbers of certificates that no longer count.
    revoked: frozenset[int] = frozenset()
    #: Certificates that were made, as far as this folder knows: name, serial number, last day.
    issued: tuple[tuple[str, int, datetime.date], ...] = ()
    _by_name: dict[str, tuple[StoredToken, ...]] = field(init=False, compare=False, repr=False)
    #: Until when a certificate of a name counts: the last day of those that were not revoked.
    _last_days: dict[str, datetime.date] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        tokens: dict[str, tuple[StoredToken, ...]] = {}
        for each in self.tokens:
            tokens[each.name] = (*tokens.get(each.name, ()), each)
        object.__setattr__(self, "_by_name", tokens)
        days: dict[str, datetime.date] = {}
        for name, serial, last in self.issued:
            if serial not in self.revoked:
                days[name] = max(last, days.get(name, last))
        object.__setattr__(self, "_last_days", days)

    def token(self, text: str, now: float) -> StoredToken | None:
        """The token that this text is, if it counts."""
        name = text.rpartition(".")[0]
        found = None
        # All are compared, so that the time tells nothing.
        for each in self._by_name.get(name, ()):
            if each.proves(text) and each.good(now):
                found = each
        return found

    def has_login(self, name: str, now: float) -> bool:
        """Whether some token or certificate of this name counts."""
        if any(each.good(now) for each in self._by_name.get(name, ())):
            return True
        last = self._last_days.get(name)
        return last is not None and datetime.datetime.fromtimestamp(now, datetime.UTC).date() <= last

    def stands(self, proof: Proof, now: float) -> bool:
        """Whether what proved a name would prove it now."""
        if proof.name not in self.members.by_name:
            return False
        if proof.token:
            return any(each.hash == proof.token and each.good(now) for each in self._by_name.get(proof.name, ()))
        return proof.serial not in self.revoked and now <= proof.until


class MemberGate:
    """Admits members and nobody else."""

    def __init__(self, keyring: Keyring, clock: Callable[[], float] = time.time) -> None:
        self.keyring = keyring
        self._clock = clock

    def admit(self, credentials: Credentials) -> Identity:
        """Who this is; `Rejected` says what is missing, and nothing about who else there is."""
        proof = self._proof(credentials)
        member = self.keyring.members.get(proof.name)
        if member is None:
            raise Rejected(f"{proof.name} has proved its name, but is no member here")
        if not member.role.includes(credentials.role):
            told = f"{member.name} is {_article(member.role)} and may not be {_article(credentials.role)}"
            raise Rejected(told + (_COMPONENT if credentials.role is Role.COMPONENT else ""))
        self._check_name(member, credentials)
        return Identity(member.role, member.name, member.permissions, member.quota, proof)

    def _proof(self, credentials: Credentials) -> Proof:
        now = self._clock()
        proofs = []
        if credentials.certificate:
            proofs.append(self._certified(credentials, now))
        if credentials.token:
            if not credentials.encrypted:
                raise Rejected("Expected TLS, got a token in the clear: it may have been read, revoke it")
            token = self.keyring.token(credentials.token, now)
            if token is None:
                raise Rejected(f"The token {shown(credentials.token)} does not count here (wrong, expired or revoked)")
            proofs.append(Proof(token.name, token.hash))
        if not proofs:
            raise Rejected("Expected a certificate or a token: connect with a login file (`sievenet keys`, --login)")
        if len({proof.name for proof in proofs}) > 1:
            raise Rejected("Expected one name, got a certificate and a token of two members")
        return proofs[-1]

    def _certified(self, credentials: Credentials, now: float) -> Proof:
        import ssl

        certificate = credentials.certificate or {}
        serial = int(certificate.get("serialNumber", "0"), 16)
        if serial in self.keyring.revoked:
            raise Rejected("The certificate was revoked")
        until = ssl.cert_time_to_seconds(certificate["notAfter"])
        if now > until:
            raise Rejected("The certificate has expired")
        name = _common_name(certificate)
        if name not in self.keyring.members.by_name:
            raise Rejected(f"The certificate names {name or 'nobody'}: no member here")
        return Proof(name, serial=serial, until=until)

    def _check_name(self, member: Member, credentials: Credentials) -> None:
        """A client of alice is called alice or alice.anything; a component has exactly its name."""
        name = credentials.name
        if name is None or credentials.role is Role.OBSERVER:
            return
        own = name == member.name or (credentials.role is not Role.COMPONENT and name.startswith(f"{member.name}."))
        if not own:
            more = "" if credentials.role is Role.COMPONENT else f" or {member.name}.anything"
            raise Rejected(f"{member.name} may be called {member.name}{more}, not {name}")


def _common_name(certificate: dict[str, Any]) -> str:
    """Whom a certificate names; the addresses in it name nobody."""
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return names[0] if len(names) == 1 else ""


def member_of(client: str) -> str:
    """The member that a client belongs to, by the client's name.

    >>> member_of("alice.terminal-2"), member_of("alice")
    ('alice', 'alice')
    """
    name = client.partition(".")[0]
    try:
        check_name(name)
    except InvalidInput:
        return ""
    return name


def _article(role: Role) -> str:
    return f"{'an' if role.value[0] in 'aeiou' else 'a'} {role.value}"
