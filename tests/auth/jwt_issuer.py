"""An issuer of JSON web tokens for tests, with its own keys and tokens that are wrong in every way."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://login.example/tenant/v2.0"
AUDIENCE = "https://servicebus.azure.net"
NOW_S = 1_700_000_000


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    """One RSA and one P-256 key."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def sign(self, algorithm: str, signed: bytes) -> bytes:
        if algorithm == "RS256":
            return self.rsa.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        if algorithm == "ES256":
            r, s = decode_dss_signature(self.ec.sign(signed, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if algorithm == "HS256":
            # The classic attack: the public key, which everybody has, used as an HMAC secret.
            mac = hmac.HMAC(self.pem("RS256").encode(), hashes.SHA256())
            mac.update(signed)
            return mac.finalize()
        return b"none"

    def token(self, algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a valid token of an owner, except for the given claims; None leaves a claim out."""
        content = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": NOW_S + 3600,
            "nbf": NOW_S - 10,
            "roles": ["Azure Service Bus Data Owner"],
            **claims,
        }
        content = {name: value for name, value in content.items() if value is not None}
        head = {"typ": "JWT", "alg": algorithm, **(header or {})}
        signed = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(content).encode())}"
        return f"{signed}.{encoded(self.sign(algorithm, signed.encode()))}"

    def jwks(self, **ids: str) -> str:
        """Return both public keys, next to one of another kind."""
        public = self.rsa.public_key().public_numbers()
        point = self.ec.public_key().public_numbers()
        keys: list[dict[str, Any]] = [
            {"kty": "RSA", "use": "sig", "n": number(public.n), "e": number(public.e)},
            {"kty": "EC", "crv": "P-256", "x": number(point.x), "y": number(point.y)},
            {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
            {"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"},
        ]
        for key, name in zip(keys, ("rsa", "ec"), strict=False):
            if name in ids:
                key["kid"] = ids[name]
        return json.dumps({"keys": keys})

    def pem(self, algorithm: str) -> str:
        key = self.rsa.public_key() if algorithm == "RS256" else self.ec.public_key()
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
