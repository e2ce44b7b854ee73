"""Who is at the other end of a TLS connection, and the contexts that find out.

A router's certificate names the router: its common name, or one of its DNS names, is the router's name in the overlay.
Both sides verify that the authority signed it. So with TLS nobody is a neighbour whom the authority did not name, and
nobody is a neighbour under another's name. Clients may connect without a certificate.
"""

from __future__ import annotations

import ssl

from sievenet.errors import InvalidInput

__all__ = ["contexts"]


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
