"""The development CA: creates it and the certificates it signs. Imported only when one is needed.

- Keys are EC P-256: they take a millisecond to generate, and every current client accepts them.
- A CA about to expire is signed again with the same key, so clients that trust the old certificate continue to work.
- A certificate is valid from one day before its creation, because a client's clock may be behind ours.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twinbus.errors import ConfigError

CA_DAYS = 3650
# Just below the maximum that browsers and Apple's libraries accept.
SERVER_DAYS = 397
_EARLY = timedelta(days=1)


def make_key() -> str:
    """Generate a private key; PEM."""
    return _text(ec.generate_private_key(ec.SECP256R1()))


def make_ca(key_pem: str, now_ms: int, name: str) -> str:
    """Create a self-signed CA certificate; PEM."""
    key = _key(key_pem)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    public = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return _signed(
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(public, critical=False),
        key,
        now_ms,
        CA_DAYS,
    )


def make_server(ca_pem: str, ca_key_pem: str, key_pem: str, now_ms: int, names: Iterable[str]) -> str:
    """Create a server certificate for these names and addresses; PEM."""
    ca = x509.load_pem_x509_certificate(ca_pem.encode())
    key = _key(key_pem)
    alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
    public = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    )
    return _signed(
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Twinbus")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(public, critical=False)
        .add_extension(issuer, critical=False),
        _key(ca_key_pem),
        now_ms,
        SERVER_DAYS,
    )


def lasts_ms(ca_pem: str, ca_key_pem: str) -> int:
    """When a CA certificate expires; 0 if it is invalid or belongs to another key."""
    try:
        ca = x509.load_pem_x509_certificate(ca_pem.encode())
        ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        return 0
    if ca.public_key() != _key(ca_key_pem).public_key():
        return 0
    return int(ca.not_valid_after_utc.timestamp() * 1000)


def validity_ms(chain_pem: bytes) -> tuple[int, int]:
    """From when until when the first certificate of a chain is valid; raises ValueError if there is none."""
    first = x509.load_pem_x509_certificates(chain_pem)[0]
    return int(first.not_valid_before_utc.timestamp() * 1000), int(first.not_valid_after_utc.timestamp() * 1000)


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, now_ms: int, days: int) -> str:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    made = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode("ascii")


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def _key(pem: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("The development CA's key is damaged: remove ca-key.pem from the data folder.")
    return key
