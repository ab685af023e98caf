"""Verify JSON web tokens offline, against public keys that the broker's operator configured.

Rules:
- The key determines the algorithm, never the token: RS256 for RSA keys, ES256 for P-256 keys, and nothing else.
- Issuer, audience and expiry are mandatory and verified; a token's rights come from its roles alone.
- No error text contains a token or anything from inside one.
- `cryptography` is imported with the first key, because most brokers have none.
"""

from __future__ import annotations

import hmac
import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinbus.auth.policies import Right, rights_of
from twinbus.auth.sas import expired
from twinbus.errors import ConfigError, bad_token
from twinbus.limits import JWT_KEYS_MAX, JWT_RSA_BITS_MAX, JWT_RSA_BITS_MIN

# The audience of every token that official clients request.
JWT_AUDIENCE = "https://servicebus.azure.net"
JWT_ROLES_CLAIM = "roles"
# The built-in Service Bus roles, by name and by their Azure role id.
SERVICE_ROLES: dict[str, frozenset[Right]] = {
    "Azure Service Bus Data Owner": rights_of(["Manage"]),
    "090c5cfd-751d-490a-894a-3ce6f1109419": rights_of(["Manage"]),
    "Azure Service Bus Data Sender": rights_of(["Send"]),
    "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": rights_of(["Send"]),
    "Azure Service Bus Data Receiver": rights_of(["Listen"]),
    "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0": rights_of(["Listen"]),
}

# Where an ID token has the name of an account, the one that people know first.
_NAME_CLAIMS = ("preferred_username", "email", "name", "sub")
_P256_BYTES = 32
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
# Later expiry times count as never; this also excludes `inf` and absurd numbers.
_EXPIRY_S_MAX = 253_402_300_799

# Takes a signature and the signed bytes; returns whether they match.
_Check = Callable[[bytes, bytes], bool]


@dataclass(frozen=True, slots=True)
class JwtKey:
    """A public key: its algorithm, its id if any, and the signature check."""

    algorithm: str
    id: str | None
    check: _Check = field(repr=False)


class JwtVerifier:
    """Verifies the tokens of one issuer."""

    def __init__(
        self,
        issuer: str,
        keys: Sequence[JwtKey],
        audience: str = JWT_AUDIENCE,
        roles: Mapping[str, frozenset[Right]] | None = None,
        roles_claim: str = JWT_ROLES_CLAIM,
    ) -> None:
        if not issuer:
            raise ConfigError("JSON web tokens need their issuer.")
        if not 1 <= len(keys) <= JWT_KEYS_MAX:
            raise ConfigError(f"JSON web tokens need 1 to {JWT_KEYS_MAX} public keys; there are {len(keys)}.")
        self._issuer = issuer
        # Official clients write it with and without a trailing slash.
        self._audience = audience.rstrip("/")
        self._keys = tuple(keys)
        # Rights by lower-case role name.
        self._roles = {name.lower(): rights for name, rights in (SERVICE_ROLES if roles is None else roles).items()}
        self._roles_claim = roles_claim

    def verify(self, token: str, now_s: float, skew_s: float) -> tuple[frozenset[Right], int]:
        """Return a token's rights and expiry, or raise UnauthorizedError."""
        claims, expires_s = self._claims(token, self._audience, now_s, skew_s)
        return self._rights(claims.get(self._roles_claim)), int(expires_s)

    def verify_identity(self, token: str, client_id: str, nonce: str, now_s: float, skew_s: float) -> str:
        """Return the account's name in an ID token that answers our own request, or raise UnauthorizedError."""
        claims, _ = self._claims(token, client_id, now_s, skew_s)
        given = claims.get("nonce")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), nonce.encode()):
            raise bad_token("InvalidNonce", "The token answers another request.")
        if claims.get("azp", client_id) != client_id:
            raise bad_token("InvalidAudience", "The token was issued to another application.")
        names = (claims.get(name) for name in _NAME_CLAIMS)
        return next((name for name in names if isinstance(name, str) and name), "")

    def _claims(self, token: str, audience: str, now_s: float, skew_s: float) -> tuple[dict[str, Any], float]:
        """The claims of a token of our issuer for an audience, and when it expires."""
        parts = token.split(".")
        if len(parts) != 3:
            raise bad_token("MalformedToken", "A JSON web token has three parts.")
        header = _object(parts[0])
        if "crit" in header:
            raise bad_token("InvalidToken", "The token has unsupported critical extensions.")
        self._check_signature(header, f"{parts[0]}.{parts[1]}".encode(), _bytes(parts[2]))
        claims = _object(parts[1])
        if claims.get("iss") != self._issuer:
            raise bad_token("InvalidIssuer", "The token has another issuer.")
        if not _is_for(audience, claims.get("aud")):
            raise bad_token("InvalidAudience", "The token is for another audience.")
        expires_s = _seconds(claims.get("exp"))
        if expires_s is None:
            raise bad_token("InvalidToken", "The token does not say when it expires.")
        if now_s > expires_s + skew_s:
            raise expired(expires_s, now_s)
        if "nbf" in claims:
            starts_s = _seconds(claims["nbf"])
            if starts_s is None or now_s + skew_s < starts_s:
                raise bad_token("InvalidToken", "The token is not valid yet.")
        return claims, expires_s

    def _check_signature(self, header: dict[str, Any], signed: bytes, signature: bytes) -> None:
        algorithm, key_id = header.get("alg"), header.get("kid")
        candidates = [key for key in self._keys if key.algorithm == algorithm]
        if any(key.id is not None and key.id == key_id for key in candidates):
            candidates = [key for key in candidates if key.id == key_id]
        elif key_id is not None:
            # Keys from PEM files have no id, so any of them may have signed a token that names one.
            candidates = [key for key in candidates if key.id is None]
        if not any(key.check(signature, signed) for key in candidates):
            raise bad_token("InvalidSignature", "The token's signature matches no configured key.")

    def _rights(self, roles: object) -> frozenset[Right]:
        found = roles if isinstance(roles, list) else [roles]
        rights = [self._roles.get(each.lower(), frozenset()) for each in found if isinstance(each, str)]
        together = frozenset[Right]().union(*rights)
        if not together:
            raise bad_token("InvalidRoles", "The token has no role that grants a right here.")
        return together


def _is_for(audience: str, given: object) -> bool:
    found = given if isinstance(given, list) else [given]
    return any(isinstance(each, str) and each.rstrip("/") == audience.rstrip("/") for each in found)


def keys_of_jwks(text: str) -> list[JwtKey]:
    """Return the signing keys of a JWKS document; keys of other kinds are skipped."""
    try:
        entries = json.loads(text)["keys"]
        usable = [entry for entry in entries if entry.get("use", "sig") == "sig"]
        keys = [key for entry in usable if (key := _jwk(entry)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(
            "It is not a JWKS document: an object with 'keys', each an RSA or P-256 public key."
        ) from None
    if not keys:
        raise ConfigError("It has no key for RS256 or ES256.")
    return keys


def key_of_pem(text: str) -> JwtKey:
    """Return the key of a PEM public key or certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        if "BEGIN CERTIFICATE" in text:
            key: object = x509.load_pem_x509_certificate(text.encode()).public_key()
        else:
            key = load_pem_public_key(text.encode())
    except ValueError:
        # Do not chain the cause: it may quote the file, which may be a private key given by mistake.
        raise ConfigError("It is not a PEM public key.") from None
    found = _key(key, None)
    if found is None:
        raise ConfigError("Its key is neither RSA nor P-256.")
    return found


def _jwk(entry: Mapping[str, Any]) -> JwtKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    kind, key_id = entry.get("kty"), entry.get("kid")
    if "d" in entry or "k" in entry:
        raise ConfigError("It holds a private or secret key: only public keys belong there.")
    if kind == "RSA" and entry.get("alg", "RS256") == "RS256":
        return _key(rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key(), key_id)
    if kind == "EC" and entry.get("crv") == "P-256" and entry.get("alg", "ES256") == "ES256":
        curve = ec.SECP256R1()
        numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve)
        return _key(numbers.public_key(), key_id)
    return None


def _key(key: object, key_id: object) -> JwtKey | None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    named = key_id if isinstance(key_id, str) else None
    if isinstance(key, rsa.RSAPublicKey):
        if not JWT_RSA_BITS_MIN <= key.key_size <= JWT_RSA_BITS_MAX:
            raise ConfigError(f"Its RSA key must have {JWT_RSA_BITS_MIN} to {JWT_RSA_BITS_MAX} bits.")
        rsa_key = key

        def check_rsa(signature: bytes, signed: bytes) -> bool:
            try:
                rsa_key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
            except InvalidSignature:
                return False
            return True

        return JwtKey("RS256", named, check_rsa)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        ec_key = key

        def check_ec(signature: bytes, signed: bytes) -> bool:
            if len(signature) != 2 * _P256_BYTES:
                return False
            r, s = (int.from_bytes(half, "big") for half in (signature[:_P256_BYTES], signature[_P256_BYTES:]))
            try:
                ec_key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                return False
            return True

        return JwtKey("ES256", named, check_ec)
    return None


def _object(part: str) -> dict[str, Any]:
    try:
        value = json.loads(_bytes(part))
    except (ValueError, RecursionError):
        raise bad_token("MalformedToken", "A part of the token is not JSON.") from None
    if not isinstance(value, dict):
        raise bad_token("MalformedToken", "A part of the token is not a JSON object.")
    return value


def _bytes(part: str) -> bytes:
    """Decode strict base64url: no padding, no stray bits."""
    if not _BASE64URL.fullmatch(part) or len(part) % 4 == 1:
        raise bad_token("MalformedToken", "A part of the token is not base64url.")
    data = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if urlsafe_b64encode(data).rstrip(b"=") != part.encode():
        raise bad_token("MalformedToken", "A part of the token is not base64url.")
    return data


def _number(text: str) -> int:
    return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if 0 <= value <= _EXPIRY_S_MAX else None
