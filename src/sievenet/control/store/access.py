"""Access to NATS: where its servers are, and what shows them who connects; what is wrong is said at once."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sievenet.errors import InvalidInput, Unavailable

__all__ = ["check_fabric", "options", "servers", "without_secrets"]

_SCHEMES: Final = ("nats", "tls")
_SEED: Final = re.compile(rb"BEGIN USER NKEY SEED-+\s+(\S+)")
_JWT: Final = re.compile(rb"BEGIN NATS USER JWT-+\s+(\S+)")


def servers(url: str) -> list[str]:
    """The addresses of the servers.

    >>> servers("nats://10.0.0.1:4222,10.0.0.2")
    ['nats://10.0.0.1:4222', 'nats://10.0.0.2']
    """
    found = [each if "://" in each else f"nats://{each}" for each in url.split(",") if each]
    for each in found:
        try:
            parts = urlsplit(each)
            fits = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fits = False
        if not fits:
            raise InvalidInput(expected="nats://ADDRESS:PORT[,…]", got=each, where="nats.url")
    if not found:
        raise InvalidInput(expected="nats://ADDRESS:PORT[,…]", got=url, where="nats.url")
    return found


def without_secrets(url: str) -> str:
    """The addresses as others may see them: a user's name and password in front of one are left out.

    >>> without_secrets("nats://fabric:s3cret@10.0.0.1:4222,tok@10.0.0.2")
    'nats://10.0.0.1:4222,10.0.0.2'
    """
    shown = []
    for each in url.split(","):
        scheme, between, rest = each.rpartition("://")
        shown.append(scheme + between + rest.rpartition("@")[2])
    return ",".join(shown)


def check_fabric(name: str) -> None:
    """Refuse what cannot be a part of a subject's name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InvalidInput(expected="letters, digits, - and _", got=name, where="nats.fabric")


def options(credentials: str | None, authority: str | None) -> dict[str, Any]:
    """How to connect, for the client."""
    found: dict[str, Any] = {}
    if credentials is not None:
        _check_credentials(credentials)
        found["user_credentials"] = credentials
    if authority is not None:
        try:
            found["tls"] = ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            told = f"Expected a file with certificates (PEM), got {error.strerror or error}: {authority}"
            raise InvalidInput(told, where="nats.authority") from None
    return found


def _check_credentials(file: str) -> None:
    try:
        import nkeys
    except ImportError:
        raise Unavailable("Credentials for NATS need nkeys: pip install 'sievenet[nats]'") from None
    expected, where = "Expected a file with credentials, as `nsc` writes it, got", "nats.credentials"
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{expected} {error.strerror}: {file}", where=where) from None
    seed = _SEED.search(data)
    try:
        if seed is None or _JWT.search(data) is None:
            raise ValueError
        nkeys.from_seed(bytearray(seed[1]))
    except Exception:
        raise InvalidInput(f"{expected} another one: {file}", where=where) from None
