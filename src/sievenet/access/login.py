"""A login: everything that one side of a connection needs to be known and to know the other, in one file.

    name = "alice"
    token = "alice.…"                 or   certificate = PEM, key = PEM
    authority = PEM                   who signs the other side's certificate

The file is TOML whose PEM blocks OpenSSL reads as they stand. It is a secret: made readable by its owner only, and
refused if others can read it. `tls` makes what Python's TLS takes of it.
"""

from __future__ import annotations

import os
import ssl
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sievenet.errors import InvalidInput

__all__ = ["ENVIRONMENT", "Login", "load_login", "login_text", "told", "write_secret"]

#: Environment variable that names the login file.
ENVIRONMENT = "SIEVENET_LOGIN"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    authority: str
    token: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """A login that was read."""

    name: str
    authority: str
    path: Path
    token: str = field(default="", repr=False)
    certified: bool = False

    def dialling(self) -> ssl.SSLContext:
        """TLS for whoever dials: verifies the other side by the authority and by its address."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._load(context)
        return context

    def listening(self) -> ssl.SSLContext:
        """TLS for whoever listens: asks for a certificate, and takes none for an answer (a token may follow)."""
        if not self.certified:
            raise InvalidInput(
                expected="a login with a certificate (`sievenet keys certificate`) to listen with",
                got=f"`one with a token: {self.path}`",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL
        # Resumed sessions would outlive the certificate that began them.
        context.num_tickets = 0
        self._load(context)
        return context

    def renewed(self) -> Login:
        """The login as its file says now; as it was, if that cannot be read."""
        try:
            return load_login(self.path)
        except InvalidInput:
            return self

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cadata=self.authority)
            if self.certified:
                context.load_cert_chain(self.path)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(f"Expected certificates and a key in PEM: {error}", where=str(self.path)) from None


def told(error: ssl.SSLError) -> str:
    """What went wrong with TLS, for people."""
    reason = getattr(error, "verify_message", "") or (error.reason or "").replace("_", " ").lower() or str(error)
    if "WRONG_VERSION_NUMBER" in str(error):
        return "it does not speak TLS (it knows nobody; connect without a login)"
    return f"{reason}; a login file says which authority to trust (--login)" if "verif" in str(error) else reason


def load_login(path: str | os.PathLike[str]) -> Login:
    """A login from its file; `InvalidInput` if it is none, or if others can read it."""
    where = Path(path)
    try:
        mode = where.stat().st_mode
        text = where.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Expected a readable login file, got {error}", where=str(where)) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidInput(
            f"Expected a login that only its owner can read (chmod 600 {where}), got mode {stat.S_IMODE(mode):o}",
            where=str(where),
        )
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(
            f"Expected a login (`sievenet keys`), got something else: {error}", where=str(where)
        ) from None
    return Login(found.name, found.authority, where.resolve(), found.token, bool(found.certificate))


def login_text(name: str, authority: str, *, token: str = "", certificate: str = "", key: str = "") -> str:
    """The text of a login file."""
    lines = [f"# Sievenet login of {name}. Whoever has this file is {name}.", f'name = "{name}"']
    if token:
        lines.append(f'token = "{token}"')
    # OpenSSL takes the first certificate of the file for this side's own: the authority comes last.
    for label, pem in (("certificate", certificate), ("key", key), ("authority", authority)):
        if pem:
            lines.append(f'{label} = """\n{pem.strip()}\n"""')
    return "\n".join(lines) + "\n"


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
