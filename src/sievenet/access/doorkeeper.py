"""The doorkeeper of a part that listens: who may come in, with which TLS, how much each may use, and the audit log.

One object for everything that a daemon or a router asks about access. Without an access folder it lets everybody in as
`OpenGate` does. With one, `look` (called every second or so) reads the folder again when it has changed: new
connections meet the new files, and whoever is connected is asked about with `stands`.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import replace

from sievenet.access.audit import AuditLog
from sievenet.access.folder import Folder, Watched
from sievenet.access.gate import MemberGate
from sievenet.access.identity import Credentials, Identity, OpenGate, Role
from sievenet.access.login import load_login
from sievenet.access.members import Member
from sievenet.access.quota import NO_QUOTA, Usage
from sievenet.access.voucher import Pass, Vouchers
from sievenet.errors import InvalidInput, Rejected, SievenetError

__all__ = ["Doorkeeper", "check_exposure", "loopback"]

log = logging.getLogger("sievenet.access")


class Doorkeeper:
    """A `Gate` and all that belongs to it; ``login`` names the member that this part is."""

    def __init__(
        self,
        folder: Folder | None = None,
        login: str = "daemon",
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._audit = audit
        self._clock = clock
        self._watched = None if folder is None else Watched(folder)
        self._members = None if self._watched is None else MemberGate(self._watched.keyring, clock)
        self._open = OpenGate()
        self._vouchers = Vouchers()
        self._login = None if folder is None else folder.login(login)
        self.tls: ssl.SSLContext | None = None
        self.dial_tls: ssl.SSLContext | None = None
        self._load_tls()
        self._usages: dict[str, Usage] = {}
        total = NO_QUOTA if self._watched is None else self._watched.keyring.members.total
        #: What all members use together.
        self.total = Usage(total, "of all members together", shared=True)
        #: Why the files of now are not in force; empty if they are.
        self.error = ""

    @property
    def known(self) -> bool:
        """Whether everybody has to be known here."""
        return self._members is not None

    def _load_tls(self) -> None:
        if self._login is not None:
            folder, name = self._login.parent, self._login.stem
            if not self._login.exists():
                made = f"`sievenet keys certificate {folder} {name} --role component` makes it"
                raise InvalidInput(f"Expected the login of {name}, got no file {self._login}: {made}")
            login = load_login(self._login)
            self.tls, self.dial_tls = login.listening(), login.dialling()

    # -- connections ----------------------------------------------------------------------

    def admit(self, credentials: Credentials) -> Identity:
        """Who this is, or `Rejected`; either is in the audit log."""
        try:
            identity = self._vouched(credentials) or (self._members or self._open).admit(credentials)
        except Rejected as error:
            self.note("", credentials.role.value, credentials.address, "Hello", credentials.name or "", str(error))
            raise
        self.note(identity.name or "", identity.role.value, credentials.address, "Hello", credentials.name or "")
        return identity

    def _vouched(self, credentials: Credentials) -> Identity | None:
        """A node of this process, for somebody whom it has admitted."""
        identity = self._vouchers.redeem(credentials.token, self._clock()) if credentials.token else None
        if identity is None:
            return None
        if not identity.role.includes(credentials.role) or not self.stands(identity):
            raise Rejected(f"{identity.name} may not be what it asks to be, or its login no longer counts")
        return identity

    def login_for(self, identity: Identity) -> Pass | None:
        """A login for a node of this process that is somebody whom it has admitted; None where nobody is known.

        Whoever sends by that node counts events against the quotas first (`counted`): nobody else does.
        """
        if self._login is None:
            return None
        authority, whose = load_login(self._login).authority, replace(identity, counted=True)
        return Pass.of(identity.name or "", authority, lambda: self._vouchers.issue(whose, self._clock()))

    def own_login(self, name: str) -> tuple[str, Pass | None]:
        """The name and the login of a component that runs in this process: it belongs to the member that this part is.

        Where nobody is known the name is as given, and there is no login.
        """
        if self._login is None:
            return name, None
        full = f"{load_login(self._login).name}.{name}"
        return full, self.login_for(Identity(Role.COMPONENT, full))

    def member(self, name: str) -> Member | None:
        """A member by name, as the files say now."""
        return None if self._watched is None else self._watched.keyring.members.get(name)

    def usage(self, identity: Identity) -> Usage:
        """What a member uses; everybody without a name has no bounds of this kind."""
        name = identity.name or ""
        found = self._usages.get(name)
        if found is None:
            found = self._usages[name] = Usage(identity.quota, f"of {name}" if name else "of one client")
        return found

    def stands(self, identity: Identity) -> bool:
        """Whether this identity would be admitted now, as it is."""
        if self._watched is None or identity.proof is None:
            return True
        if not self._watched.keyring.stands(identity.proof, self._clock()):
            return False
        member = self._watched.keyring.members.get(identity.proof.name)
        return member is not None and member.role is identity.role

    def returns(self, identity: Identity) -> bool:
        """Whether its member could be back with another login: its own may count no more."""
        member = None if identity.proof is None else self.member(identity.proof.name)
        if self._watched is None or member is None or member.role is not identity.role:
            return False
        return self._watched.keyring.has_login(member.name, self._clock())

    def renewed(self, identity: Identity) -> Identity:
        """The same member with the rules and the quota of now; the same object if nothing has changed."""
        member = None if identity.proof is None else self.member(identity.proof.name)
        if member is None or (member.permissions, member.quota) == (identity.permissions, identity.quota):
            return identity
        return replace(identity, permissions=member.permissions, quota=member.quota)

    # -- changes --------------------------------------------------------------------------

    def look(self) -> bool:
        """Read the folder again if it has changed; whether something else is in force now."""
        if self._watched is None or self._members is None:
            return False
        changed = self._watched.look()
        error = self._watched.error
        if changed:
            try:
                self._load_tls()
            except SievenetError as wrong:
                error = str(wrong)
            keyring = self._members.keyring = self._watched.keyring
            self.total.change(keyring.members.total)
            for name, usage in self._usages.items():
                member = keyring.members.get(name)
                if member is not None:
                    usage.change(member.quota)
            self.note("", "", "", "Access", "files read again")
        if error and error != self.error:
            log.error("the access files were not applied, the previous ones stay in force: %s", error)
            self.note("", "", "", "Access", "files read again", error)
        self.error = error
        return changed

    # -- the audit log --------------------------------------------------------------------

    def note(self, who: str, role: str, origin: str, what: str, about: str = "", outcome: str = "done") -> None:
        """Put something in the audit log, if there is one."""
        if self._audit is not None:
            self._audit.write(self._clock(), who, role, origin, what, about, outcome)

    def repeated(self, who: str, refusals: int) -> None:
        """So many refusals more of a member, like one that was noted: they are counted."""
        if self._audit is not None:
            self._audit.suppress(who, refusals)


def loopback(host: str) -> bool:
    """Whether an address is this machine's own and reaches nobody else.

    >>> loopback("127.0.0.1"), loopback("localhost"), loopback("0.0.0.0"), loopback("")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_exposure(
    host: str, known: bool, insecure: bool, where: str = "listen.host", instead: str = "", risk: str = "connect"
) -> None:
    """`InvalidInput` if others could connect to an address without being known, unless that was asked for.

    ``instead`` are options that would do as well, ``risk`` is what strangers could do.
    """
    if known or insecure or loopback(host):
        return
    raise InvalidInput(
        f"Expected --access FOLDER{instead and f' (or {instead})'} to listen on {host or 'all addresses'}, where "
        "others can connect. Make one with `sievenet keys authority FOLDER` (docs/howto/secure.md); or say --insecure: "
        f"then everybody who reaches this address may {risk}",
        where=where,
    )
