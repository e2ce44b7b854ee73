"""The access folder: the files by which members are known, read and written.

    access/
      authority.pem    the authority's certificate
      authority.key    its key: needed to make certificates and not by a running daemon, may be kept elsewhere
      members.toml     who there is, and what each may do (`members`)
      tokens           hashes of tokens (`token`)
      issued           certificates that were made: serial number, name, last day
      revoked          serial numbers that no longer count
      NAME.login       what NAME needs to connect (`login`); handed over, then removed

`Watched` looks for changes and reads all anew: a folder that does not make sense is told and changes nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sievenet.access.authority import issue, new_authority
from sievenet.access.gate import Keyring
from sievenet.access.identity import Role
from sievenet.access.login import login_text, write_secret
from sievenet.access.members import Members, read_members
from sievenet.access.token import check_name, new_token, read_tokens
from sievenet.errors import InvalidInput, Rejected, SievenetError

__all__ = ["Folder", "Watched"]

_HEAD: Final = """\
# Who may do what here. A running daemon reads this file again whenever it changes.
#
# [quota]                     of every member that has none of its own; 0 or nothing: no bound
# requests = 500              also connections, subscriptions, filter_cost, schemas, events, bytes, queue
# [total]                     of all members together
# [groups.traders]
# rules = ["subscribe stock: any", 'publish stock: symbol in {"IBM"} narrow']
"""
#: Where a part is reached: on this machine, and from the hosts of its own network.
_HERE: Final = ("127.0.0.1", "::1", "localhost", "fd0f::1")


class Folder:
    """An access folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    # -- reading --------------------------------------------------------------------------

    def keyring(self) -> Keyring:
        """What the files say now; `InvalidInput` if they do not make sense."""
        members = read_members(self._read("members.toml"), str(self.path / "members.toml"))
        tokens = read_tokens(self._read("tokens", ""), str(self.path / "tokens"))
        revoked = frozenset(self._serials("revoked"))
        return Keyring(members, tokens, revoked, tuple(self._issued()))

    def login(self, name: str) -> Path:
        """Where the login of a member is, or was."""
        return self.path / f"{name}.login"

    def _read(self, name: str, default: str | None = None) -> str:
        path = self.path / name
        try:
            mode = path.stat().st_mode
            text = path.read_text()
        except FileNotFoundError:
            if default is None:
                raise InvalidInput(
                    expected="an access folder (`sievenet keys authority` makes one)", got=f"`no file {path}`"
                ) from None
            return default
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"Expected a readable file, got {error}", where=str(path)) from None
        if name != "authority.pem" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidInput(f"Expected a file that only its owner can read (chmod 600 {path})", where=str(path))
        return text

    def _serials(self, name: str) -> Iterator[int]:
        for number, line in enumerate(self._read(name, "").splitlines(), 1):
            if line.strip():
                try:
                    yield int(line.split()[0], 16)
                except ValueError:
                    where = f"{self.path / name}:{number}"
                    raise InvalidInput(expected="a serial number", got=line, where=where) from None

    def _issued(self) -> Iterator[tuple[str, int, datetime.date]]:
        """Certificates that were made: name, serial number, last day.  They let nobody in: what is wrong is skipped."""
        try:
            text = self._read("issued", "")
        except InvalidInput:
            return
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                serial, name, day = line.split()
                yield name, int(serial, 16), datetime.date.fromisoformat(day)

    def stamp(self) -> tuple[object, ...]:
        """Changes whenever a file does."""
        found: list[object] = []
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(self.path), key=lambda each: each.name):
                with contextlib.suppress(OSError):
                    at = entry.stat()
                    found.append((entry.name, at.st_mtime_ns, at.st_size, at.st_ino, at.st_mode))
        return tuple(found)

    def listing(self) -> list[dict[str, object]]:
        """Members with their roles, tokens and certificates, for people."""
        keyring = self.keyring()
        issued = [line.split() for line in self._read("issued", "").splitlines() if line.strip()]
        return [
            {
                "name": member.name,
                "role": member.role.value,
                "groups": list(member.groups),
                "rules": [str(rule) for rule in member.permissions.rules or ()],
                "tokens": sum(each.name == member.name for each in keyring.tokens),
                "certificates": [
                    day
                    for serial, name, day in issued
                    if name == member.name and int(serial, 16) not in keyring.revoked
                ],
            }
            for member in keyring.members.by_name.values()
        ]

    # -- writing --------------------------------------------------------------------------

    def make(self, days: int, now: datetime.datetime) -> None:
        """A new folder with an authority of its own; `Rejected` if there is one."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (self.path / "authority.pem").exists():
            raise Rejected(f"{self.path} has an authority already; certificates of another one would not count")
        made = new_authority(days, now)
        write_secret(self.path / "authority.key", made.key)
        if not (self.path / "members.toml").exists():
            write_secret(self.path / "members.toml", _HEAD)
        write_secret(self.path / "authority.pem", made.certificate)
        (self.path / "authority.pem").chmod(0o644)

    def certificate(
        self, name: str, role: Role | None, days: int, now: datetime.datetime, addresses: tuple[str, ...] = ()
    ) -> Path:
        """A certificate for a member, as a login file."""
        check_name(name)
        with self._locked():
            authority = self._read("authority.pem")
            key = self._read("authority.key")
            member = self._role(name, role)
            listens = member is Role.COMPONENT
            at = (*_HERE, *(each for each in addresses if each not in _HERE)) if listens else ()
            made = issue(authority, key, name, days=days, now=now, listens=listens, addresses=at)
            self._enrol(name, member)
            self._append("issued", f"{made.serial:x} {name} {made.expires.date().isoformat()}")
            text = login_text(name, authority, certificate=made.certificate, key=made.key)
            write_secret(self.login(name), text)
        return self.login(name)

    def token(self, name: str, role: Role | None, expires: datetime.date | None = None) -> Path:
        """A token for a member, as a login file; earlier tokens count until they are revoked."""
        check_name(name)
        with self._locked():
            authority = self._read("authority.pem")
            member = self._role(name, role)
            if member is Role.COMPONENT:
                raise Rejected(f"{name} is a component, which others dial: it needs a certificate")
            self._enrol(name, member)
            token, kept = new_token(name, expires)
            self._append("tokens", kept.line())
            write_secret(self.login(name), login_text(name, authority, token=token))
        return self.login(name)

    def revoke(self, name: str, *, keep_newest: bool = False) -> tuple[int, int]:
        """Tokens and certificates of a member count no more (but the newest of each); how many those were.

        `InvalidInput` if nobody has that name and nothing was ever issued to it: a slip of the pen must not look well.
        """
        with self._locked():
            lines = [line for line in self._read("tokens", "").splitlines() if line.strip()]
            mine = [line for line in lines if line.split()[0] == name]
            out = set(mine[:-1] if keep_newest else mine)
            write_secret(self.path / "tokens", "".join(f"{line}\n" for line in lines if line not in out))
            known = frozenset(self._serials("revoked"))
            issued = [line.split() for line in self._read("issued", "").splitlines() if line.strip()]
            serials = [serial for serial, owner, _ in issued if owner == name and int(serial, 16) not in known]
            if not mine and all(owner != name for _, owner, _ in issued) and self._members().get(name) is None:
                raise InvalidInput(expected=f"a member of {self.path}", got=name, where="name")
            for serial in serials[:-1] if keep_newest else serials:
                self._append("revoked", f"{serial} {name}")
        return len(out), len(serials) - (1 if keep_newest and serials else 0)

    def _members(self) -> Members:
        return read_members(self._read("members.toml"), str(self.path / "members.toml"))

    def _role(self, name: str, role: Role | None) -> Role:
        """The role that a member has, or will have once it is enrolled."""
        member = self._members().get(name)
        if member is None:
            if role is None:
                roles = ", ".join(each.value for each in Role)
                raise InvalidInput(f"Expected --role ({roles}), got none: `{name}` is no member yet")
            return role
        if role not in (None, member.role):
            raise Rejected(f"{name} is a member with the role {member.role.value}; change it in members.toml")
        return member.role

    def _enrol(self, name: str, role: Role) -> None:
        """Add a member, if need be."""
        if self._members().get(name) is None:
            text = self._read("members.toml")
            write_secret(self.path / "members.toml", f'{text.rstrip()}\n\n[members.{name}]\nrole = "{role.value}"\n')

    def _append(self, name: str, line: str) -> None:
        text = self._read(name, "")
        write_secret(self.path / name, f"{text}{line}\n")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            raise InvalidInput(
                expected="an access folder (`sievenet keys authority` makes one)", got=f"`{self.path}`"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class Watched:
    """A folder that is read again when it changes."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._stamp = folder.stamp()
        self.keyring = folder.keyring()
        #: Why the files of now are not in force; empty if they are.
        self.error = ""

    def look(self) -> bool:
        """Whether there is a new keyring; files that make no sense leave the old one in force, and say why."""
        stamp = self.folder.stamp()
        if stamp == self._stamp:
            return False
        try:
            found = self.folder.keyring()
        except SievenetError as error:
            self._stamp, self.error = stamp, str(error)
            return False
        if self.folder.stamp() != stamp:
            return False  # somebody is writing: the next look is early enough
        self._stamp, self.keyring, self.error = stamp, found, ""
        return True
