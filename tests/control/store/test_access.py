"""Who may connect to NATS: credentials that a real server checks, and messages that say what is wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re

import nkeys
import pytest

from sievenet.control.store.access import check_fabric, options, servers
from sievenet.control.store.nats import NatsStore
from sievenet.errors import InvalidInput, Unavailable
from sievenet.testing.nats_server import nats_server

KINDS = (
    nkeys.PREFIX_BYTE_OPERATOR,
    nkeys.PREFIX_BYTE_ACCOUNT,
    nkeys.PREFIX_BYTE_ACCOUNT,
    nkeys.PREFIX_BYTE_USER,
)


def key(prefix: int) -> tuple[str, nkeys.KeyPair]:
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    return seed.decode(), nkeys.from_seed(bytearray(seed))


def name(pair: nkeys.KeyPair) -> str:
    public = pair.public_key
    return public if isinstance(public, str) else public.decode()


def token(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, kind: str, **more) -> str:
    """A claim of NATS, signed."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"iat": 1, "iss": name(issuer), "sub": name(subject), "name": kind}
    claims |= {"nats": {"type": kind, "version": 2, **more}}
    digest = hashlib.sha256(json.dumps(claims).encode()).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    body = f"{part(json.dumps({'typ': 'JWT', 'alg': 'ed25519-nkey'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{body}.{part(issuer.sign(body.encode()))}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A server that asks for credentials, and a file with some."""
    folder = tmp_path_factory.mktemp("nats")
    (_, operator), (_, account), (_, system), (seed, user) = map(key, KINDS)
    any_number = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    room = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    limits = any_number | room | {"wildcards": True}
    of_account = token(operator, account, "account", limits=limits)
    of_user = token(account, user, "user", subs=-1, data=-1, payload=-1)
    of_system = token(operator, system, "account", limits=any_number | {"wildcards": True})
    settings = f"""
        operator: "{token(operator, operator, "operator")}"
        resolver: MEMORY
        system_account: {name(system)}
        resolver_preload: {{ {name(account)}: "{of_account}", {name(system)}: "{of_system}" }}
    """
    file = folder / "user.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    with nats_server(folder, settings) as server:
        yield server, file


def test_credentials_open_what_is_closed_without(secured):
    server, file = secured

    async def main() -> None:
        store = await NatsStore.open(server.url, credentials=str(file))
        assert await store.put("cell", b"1", 0) > 0
        await store.close()
        with pytest.raises(Unavailable, match="Expected a NATS server"):
            await NatsStore.open(server.url, wait=1.0)

    asyncio.run(main())


@pytest.mark.parametrize(
    "text", [None, "", "-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\nSUAKDK\n"]
)
def test_what_are_no_credentials(tmp_path, text):
    file = tmp_path / "some.creds"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInput, match=r"credentials, as `nsc` writes it.*some\.creds.* at nats\.credentials"):
        options(str(file), None)


def test_what_are_no_certificates(tmp_path):
    file = tmp_path / "ca.pem"
    with pytest.raises(InvalidInput, match=r"No such file.*ca\.pem - at nats\.authority"):
        options(None, str(file))
    file.write_text("nothing")
    with pytest.raises(InvalidInput, match=r"ca\.pem.* at nats\.authority"):
        options(None, str(file))


@pytest.mark.parametrize("url", ["", ",", "http://127.0.0.1:4222", "nats://127.0.0.1:notaport", "nats://:4222"])
def test_what_is_no_address(url):
    """At once, not after waiting for it."""
    with pytest.raises(InvalidInput, match=r"nats://ADDRESS:PORT.* at nats\.url"):
        servers(url)


def test_what_is_no_fabric():
    check_fabric("a-b_9")
    with pytest.raises(InvalidInput, match=re.escape("Expected letters, digits, - and _, got 'a b' - at nats.fabric")):
        check_fabric("a b")
