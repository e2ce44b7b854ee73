"""Who is at the other end of a TLS connection, and the contexts that find out.

A router's certificate names the router: its common name, or one of its DNS names, is the router's name in the overlay.
Both sides verify that the authority signed it. So with TLS nobody is a neighbour whom the authority did not name, and
nobody is a neighbour under another's name. Clients may connect without a certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from asyncio import sslproto
from collections.abc import Iterator
from typing import Any, Final

from sievenet.errors import InvalidInput

__all__ = ["closing", "contexts", "forgotten", "read_by_records", "secured", "small_buffers", "unread"]

#: Bytes of a TLS record, at most; and of what waits undecrypted while a connection is not read.
_RECORD: Final = 1 << 14
_WAITING: Final = 1 << 16


def small_buffers() -> None:
    """Have asyncio take room for one record for each encrypted connection to come, not for 256 KiB."""
    every: Any = sslproto.SSLProtocol
    every.max_size = _RECORD


def forgotten(error: BaseException) -> None:
    """A handshake has failed, and it is known: let go of all that was made for it.

    The error holds where it came from, and that holds the error: a circle with the buffers of the connection in it,
    which the collector of garbage finds late. Strangers could fill memory by it.
    """
    each: BaseException | None = error
    while each is not None:
        before = each.__context__
        each.__traceback__ = each.__context__ = None
        each = before


def closing(transport: asyncio.BaseTransport) -> bool:
    """Whether nothing can be written any more; an encrypted connection learns late that the one below it is gone.

    What is written until it does is lost, and asyncio logs a line for each.
    """
    if transport.is_closing():
        return True
    if not isinstance(transport, sslproto._SSLProtocolTransport):
        return False
    encrypted: Any = transport
    below = encrypted._ssl_protocol._transport
    return below is None or bool(below.is_closing())


def read_by_records(transport: asyncio.BaseTransport) -> None:
    """Have an encrypted connection read with buffers of one record.

    asyncio asks for 256 KiB at a time and gets a record: memory is taken from the system and given back for each.
    """
    encrypted: Any = transport
    encrypted.set_read_buffer_limits(_WAITING)
    encrypted._ssl_protocol.max_size = _RECORD


@contextlib.contextmanager
def unread(transport: asyncio.ReadTransport) -> Iterator[None]:
    """Read nothing meanwhile, nor what is encrypted: asyncio would take that in, record by record as it comes."""
    encrypted: Any = transport if isinstance(transport, sslproto._SSLProtocolTransport) else None
    transport.pause_reading()
    if encrypted is not None:
        encrypted.set_read_buffer_limits(0)
    try:
        yield
    finally:
        if encrypted is not None and not transport.is_closing():
            encrypted.set_read_buffer_limits(_WAITING)


def secured(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A listener's connection has become an encrypted one: read by records, and no more than there is room for.

    `StreamWriter.start_tls` leaves its reader with the transport below. A reader that is full stops that one, and TLS
    lets it go on: whoever sent without a pause filled hundreds of megabytes, and their copies held up everybody.
    """
    read_by_records(writer.transport)
    reader._transport = writer.transport  # type: ignore[attr-defined]


def contexts(
    certificate: str | None, key: str | None, authority: str | None, *, anybody: bool = False
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """What a router speaks when it is called and when it calls, from files in PEM; None for plain TCP.

    With an authority, whoever calls needs a certificate that it signed; clients need none if ``anybody`` may be one.
    """
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
            # A neighbour without one is refused by name.
            called.verify_mode = ssl.CERT_OPTIONAL if anybody else ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            expected="a certificate and its private key (PEM)", got=f"`{certificate}, {key}: {error}`"
        ) from None
    return called, calling
