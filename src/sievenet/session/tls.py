"""Who is at the other end of a TLS connection, and the contexts that find out.

A router's certificate names the router: its common name, or one of its DNS names, is the router's name in the overlay.
Both sides verify that the authority signed it. So with TLS nobody is a neighbour whom the authority did not name, and
nobody is a neighbour under another's name. Clients may connect without a certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from sievenet.errors import InvalidInput

__all__ = ["contexts", "read_by_records", "secured"]

#: Bytes of a TLS record, at most; and of what waits undecrypted while a connection is not read.
_RECORD: Final = 1 << 14
_WAITING: Final = 1 << 16


def read_by_records(transport: asyncio.BaseTransport) -> None:
    """Have an encrypted connection read with buffers of one record.

    asyncio asks for 256 KiB at a time and gets a record: memory is taken from the system and given back for each.
    """
    encrypted: Any = transport
    encrypted.set_read_buffer_limits(_WAITING)
    encrypted._ssl_protocol.max_size = _RECORD


def secured(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A listener's connection has become an encrypted one: read by records, and no more than there is room for.

    `StreamWriter.start_tls` leaves its reader with the transport below. A reader that is full stops that one, and TLS
    lets it go on: whoever sent without a pause filled hundreds of megabytes, and their copies held up everybody.
    """
    read_by_records(writer.transport)
    reader._transport = writer.transport  # type: ignore[attr-defined]


def contexts(
    certificate: str | None, key: str | None, authority: str | None
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """What a router speaks when it is called and when it calls, from files in PEM; None for plain TCP."""
    if certificate is None:
        for given, option in ((key, "--tls-key"), (authority, "--tls-ca")):
            if given is not None:
                raise InvalidInput(
                    expected="--tls-cert as well: without a certificate the router would speak plain TCP",
                    got=f"`{option} {given}` alone",
                )
        return None, None
    called = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    calling = ssl.create_default_context(cafile=authority)
    try:
        for context in (called, calling):
            context.load_cert_chain(certificate, key)
        if authority is not None:
            called.load_verify_locations(authority)
            # Clients may come without one; a neighbour without one is refused by name.
            called.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            expected="a certificate and its private key (PEM)", got=f"`{certificate}, {key}: {error}`"
        ) from None
    return called, calling
