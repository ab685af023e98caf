"""Helpers for the brokers of a comparison: ports, certificates, and the error for a missing broker."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID


class PeerMissing(RuntimeError):
    """A broker cannot be measured here; the text says what to install."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_certificate() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key and a self-signed certificate for localhost; the load does not check it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=2))
    return key, builder.sign(key, hashes.SHA256())


def make_pem(certificate_file: Path, key_file: Path) -> None:
    key, certificate = make_certificate()
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def make_pkcs12(file: Path, password: str) -> None:
    key, certificate = make_certificate()
    locked = serialization.BestAvailableEncryption(password.encode())
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"bench", key, certificate, None, locked))
