"""The authority: a key that signs the certificates of one installation, and the certificates.

Elliptic curve P-256. A certificate names its member (common name); that of a component also says at which addresses it
listens, and may be shown by whoever listens (`serverAuth`). Others are good for dialling only, so that no client can
pose as a daemon. Made with `cryptography`, which nothing else here needs: it is loaded when asked for.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from sievenet.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Issued", "issue", "new_authority"]


class Issued(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: str
    key: str
    serial: int
    expires: datetime.datetime


def new_authority(days: int, now: datetime.datetime, name: str = "Sievenet authority") -> Issued:
    """A new authority, which signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = _builder(subject, subject, key, now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return _signed(builder, key, key)


def issue(
    authority: str,
    authority_key: str,
    name: str,
    *,
    days: int,
    now: datetime.datetime,
    listens: bool = False,
    addresses: Iterable[str] = (),
) -> Issued:
    """A certificate for a member; with ``listens`` one that others may dial, at these addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        issuer = x509.load_pem_x509_certificate(authority.encode())
        signer = load_pem_private_key(authority_key.encode(), None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"Expected the authority's certificate and key in PEM: {error}", where="authority") from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise InvalidInput(expected="a key of an elliptic curve", got=type(signer).__name__, where="authority")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_named(name), issuer.subject, key, now, days)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if listens else [])]
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    at = [_place(each) for each in addresses]
    if at:
        builder = builder.add_extension(x509.SubjectAlternativeName(at), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    return _signed(builder, key, signer)


def _named(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _place(address: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        return x509.DNSName(address)
    except ValueError:
        raise InvalidInput(expected="an IP address or a host name", got=address, where="address") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # Clocks of other machines may be a little behind.
    builder = builder.not_valid_before(now - datetime.timedelta(minutes=5))
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Issued:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = builder.sign(signer, hashes.SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Issued(made.public_bytes(Encoding.PEM).decode(), secret, made.serial_number, made.not_valid_after_utc)
